//! Callback endpoints that hang, fail for a while, or close at once: in the end all callbacks are delivered.
//!
//! Long: `tests/faults/run` calls it.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Result, bail};
use reqwest::{Method, StatusCode};
use serde_json::json;
use tidegate_test_support::eventually;

use crate::{
    embedded::first_life,
    installation::{Installation, LONG},
    observe,
    oracle::{SCAM_ACTION, SeenCallback},
    receiver::{Manner, Receiver},
};

const ITEMS: usize = 5;

async fn submit(installation: &Installation, name: &str) -> Result<()> {
    let items: Vec<_> = (0..ITEMS)
        .map(|number| {
            let id = format!("{name}-{number}");
            json!({ "id": id, "typeId": "post", "data": {
                "text": "buy scamcoin", "author": { "typeId": "user", "id": id } } })
        })
        .collect();
    let request =
        installation.platform(Method::POST, "/api/v1/items/async/").json(&json!({ "items": items }));
    match request.send().await?.status() {
        StatusCode::ACCEPTED => Ok(()),
        status => bail!("{name}: {status}"),
    }
}

fn of(receiver: &Receiver, name: &str) -> Vec<SeenCallback> {
    let is_of = |callback: &SeenCallback| callback.item.starts_with(&format!("{name}-"));
    receiver.callbacks().into_iter().filter(is_of).collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: tests/faults/run"]
async fn callbacks_are_delivered_after_endpoint_faults() -> Result<()> {
    let receiver = Receiver::start().await?;
    let installation = first_life("", &receiver, "scams").await?;
    let mut process = installation.up(None)?;
    installation.ready(&mut process).await?;
    for (name, manner, tries) in
        [("hangs", Manner::Hang(2), 3), ("fails", Manner::Fail(4), 5), ("closes", Manner::Close(2), 3)]
    {
        receiver.behave("scams", manner);
        submit(&installation, name).await?;
        // The kill interrupts calls and due retries; the next process continues them.
        eventually("the first attempt", LONG, async || (!of(&receiver, name).is_empty()).then_some(()))
            .await?;
        tokio::time::sleep(Duration::from_millis(50)).await;
        process.kill().await?;
        process = installation.up(None)?;
        installation.ready(&mut process).await?;
        observe::wait_until_drained(&installation, &mut process).await?;

        let callbacks = of(&receiver, name);
        let events: BTreeSet<_> =
            callbacks.iter().map(|callback| (&callback.item, &callback.event)).collect();
        println!("endpoint that {name}: {} events, {} attempts", events.len(), callbacks.len());
        assert_eq!(events.len(), ITEMS, "each item has one event: {events:?}");
        assert!(callbacks.iter().all(|callback| callback.action == SCAM_ACTION));
        assert!(callbacks.len() >= ITEMS * tries, "each event is tried {tries} times: {}", callbacks.len());
        let delivered = installation.list("/deliveries?state=delivered").await?;
        let of_these = delivered.iter().filter(|delivery| {
            delivery["item"]["id"].as_str().is_some_and(|id| id.starts_with(&format!("{name}-")))
        });
        assert_eq!(of_these.count(), ITEMS);
    }
    assert_eq!(receiver.unsigned(), 0);
    installation.stop(&mut process).await
}

//! A run of a rule over the past, killed between what a step appends and the note that it did: one effect an item.
//!
//! Long: `tests/faults/run` calls it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tidegate_schemas::ids::Millis;

use crate::{
    embedded::first_life,
    installation::{Installation, LONG},
    observe,
    oracle::{AUTOMATIC, SCAM_ACTION},
    receiver::Receiver,
};

/// A step looks at 64 at once.
const ITEMS: usize = 200;
const KILLS: usize = 3;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: tests/faults/run"]
async fn a_step_that_was_cut_off_after_its_records_acts_once_on_each_item() -> Result<()> {
    let receiver = Receiver::start().await?;
    let installation = first_life("", &receiver, "scams").await?;
    let mut process = installation.up(None)?;
    installation.ready(&mut process).await?;
    submit(&installation).await?;
    observe::drained(&installation, &mut process).await?;
    let late = format!(
        "rule: late\nstatus: live\nitem_types: [post]\nwhen: {{text: {{in: [text], words: [gamma]}}}}\n\
         policies: [scam]\nactions: [{SCAM_ACTION}]\n"
    );
    installation.apply(&json!({ "files": [{ "name": "late.yaml", "text": late }] })).await?;
    let since = Millis::now().minus(Duration::from_secs(3_600)).iso();
    let wanted = json!({ "rules": ["late"], "since": since });
    let (status, run) = installation.admin(Method::POST, "/rules/retroactions", Some(&wanted)).await?;
    let run = run["id"].as_str().with_context(|| format!("no run: {status} {run}"))?.to_owned();
    installation.stop(&mut process).await?;

    for _ in 0..KILLS {
        let mut process = installation.up(Some("after_retroact_append=kill@1".to_owned()))?;
        installation.ready(&mut process).await?;
        ensure!(step(&installation, &run, 1).await.is_err(), "whoever is killed answers nothing");
        let status = process.exit(LONG).await?;
        ensure!(status.code().is_none(), "it was not killed: {status}");
    }

    let mut process = installation.up(None)?;
    installation.ready(&mut process).await?;
    let done = loop {
        let run = step(&installation, &run, 1_000).await?;
        if !run["finishedAt"].is_null() {
            break run;
        }
    };
    observe::drained(&installation, &mut process).await?;
    installation.stop(&mut process).await?;

    let of = |name: &str| done["progress"][name].as_u64().unwrap_or_default();
    println!("retroact: {KILLS} kills, {} sent, {} acted on before", of("sent"), of("doneBefore"));
    assert_eq!((of("matched"), of("sent") + of("doneBefore")), (ITEMS as u64, ITEMS as u64), "{done}");
    let mut events: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for callback in receiver.callbacks().into_iter().filter(|callback| callback.kind == AUTOMATIC) {
        events.entry(callback.item).or_default().insert(callback.event);
    }
    let twice: Vec<_> = events.iter().filter(|(_, events)| events.len() != 1).collect();
    assert_eq!((events.len(), twice), (ITEMS, Vec::new()), "one event an item");
    Ok(())
}

async fn submit(installation: &Installation) -> Result<()> {
    let items: Vec<_> = (0..ITEMS)
        .map(|nth| json!({ "id": format!("past-{nth}"), "typeId": "post", "data": { "text": "gamma rays" } }))
        .collect();
    let request =
        installation.platform(Method::POST, "/api/v1/items/async/").json(&json!({ "items": items }));
    let status = request.send().await?.status();
    ensure!(status == StatusCode::ACCEPTED, "the items are refused: {status}");
    Ok(())
}

async fn step(installation: &Installation, run: &str, most: u64) -> Result<Value> {
    let path = format!("/rules/retroactions/{run}/step");
    let (status, run) = installation.admin(Method::POST, &path, Some(&json!({ "most": most }))).await?;
    ensure!(status.is_success(), "{status}: {run}");
    Ok(run)
}

//! A run of a rule over stored items, killed between the records of a step and its checkpoint: each item has one effect.
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

/// A step reads 64 items at once.
const ITEMS: usize = 200;
const KILLS: usize = 3;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: tests/faults/run"]
async fn killed_retroact_step_acts_once_on_each_item() -> Result<()> {
    let receiver = Receiver::start().await?;
    let installation = first_life("", &receiver, "scams").await?;
    let mut process = installation.up(None)?;
    installation.ready(&mut process).await?;
    submit(&installation).await?;
    observe::wait_until_drained(&installation, &mut process).await?;
    let rule_file = format!(
        "rule: late\nstatus: live\nitem_types: [post]\nwhen: {{text: {{in: [text], words: [gamma]}}}}\n\
         policies: [scam]\nactions: [{SCAM_ACTION}]\n"
    );
    installation.apply(&json!({ "files": [{ "name": "late.yaml", "text": rule_file }] })).await?;
    let since_time = Millis::now().minus(Duration::from_secs(3_600)).iso();
    let retroaction = json!({ "rules": ["late"], "since": since_time });
    let (status, run) = installation.admin(Method::POST, "/rules/retroactions", Some(&retroaction)).await?;
    let run = run["id"].as_str().with_context(|| format!("no run: {status} {run}"))?.to_owned();
    installation.stop(&mut process).await?;

    for _ in 0..KILLS {
        let mut process = installation.up(Some("after_retroact_append=kill@1".to_owned()))?;
        installation.ready(&mut process).await?;
        ensure!(step(&installation, &run, 1).await.is_err(), "the killed process answered");
        let status = process.exit(LONG).await?;
        ensure!(status.code().is_none(), "the process was not killed: {status}");
    }

    let mut process = installation.up(None)?;
    installation.ready(&mut process).await?;
    let finished_run = loop {
        let run = step(&installation, &run, 1_000).await?;
        if !run["finishedAt"].is_null() {
            break run;
        }
    };
    observe::wait_until_drained(&installation, &mut process).await?;
    installation.stop(&mut process).await?;

    let of = |name: &str| finished_run["progress"][name].as_u64().unwrap_or_default();
    println!("retroact: {KILLS} kills, {} sent, {} acted on before", of("sent"), of("doneBefore"));
    assert_eq!(
        (of("matched"), of("sent") + of("doneBefore")),
        (ITEMS as u64, ITEMS as u64),
        "{finished_run}"
    );
    let mut events: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for callback in receiver.callbacks().into_iter().filter(|callback| callback.kind == AUTOMATIC) {
        events.entry(callback.item).or_default().insert(callback.event);
    }
    let twice: Vec<_> = events.iter().filter(|(_, events)| events.len() != 1).collect();
    assert_eq!((events.len(), twice), (ITEMS, Vec::new()), "each item has one event");
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

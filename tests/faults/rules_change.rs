//! Rules that change between the first run and the replay: the effects of the first plan happen, and no others.
//!
//! Long: `tests/faults/run` calls it.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, bail};
use reqwest::{Method, StatusCode};
use serde_json::json;
use tidegate_catalog::{
    MasterKey, Secrets, Security, Settings,
    change::{Change, Changes},
};
use tidegate_schemas::ids::{ItemKey, OrgId};
use tidegate_store::{RowRange, tables::items::strikes::Strike};
use tidegate_test_support::{PATIENCE, eventually};

use crate::{
    documents,
    embedded::first_life,
    installation::{Installation, LONG},
    observe,
    oracle::{self, AUTOMATIC, REVIEW_ACTION, SCAM_ACTION},
    receiver::Receiver,
};

/// Places after the plan is stored.
const PLACES: [&str; 4] = ["after_plan", "after_apply_rows", "after_callback_append", "before_complete"];

/// Effects of the rules of one version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Effects {
    /// As the documents list them.
    actions: &'static str,
    event: &'static str,
    strikes: usize,
    jobs: usize,
}

const SCAM: Effects = Effects { actions: SCAM_ACTION, event: SCAM_ACTION, strikes: 1, jobs: 0 };
const OTHER: Effects = Effects { actions: "remove, review", event: REVIEW_ACTION, strikes: 0, jobs: 1 };

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: tests/faults/run"]
async fn a_replay_under_other_rules_carries_the_first_plan_out() -> Result<()> {
    let receiver = Receiver::start().await?;
    let installation = first_life("", &receiver, "scams").await?;
    let mut effects = [SCAM, OTHER];
    let (mut expected, mut jobs) = (Vec::new(), Vec::new());
    for place in PLACES {
        let item = format!("item-{place}");
        let mut process = installation.up(Some(format!("{place}=kill@1")))?;
        installation.ready(&mut process).await?;
        submit(&installation, &item).await?;
        let status = process.exit(LONG).await?;
        if status.code().is_some() {
            bail!("{place} was not reached: {status}");
        }
        // No process runs meanwhile, so the change precedes the replay.
        change_rules(&installation, effects[1].actions).await?;
        expected.push((item, effects[0]));
        effects.reverse();

        let mut process = installation.up(None)?;
        installation.ready(&mut process).await?;
        // The other rules are in force and apply to new items.
        let new_item = format!("new-{place}");
        submit(&installation, &new_item).await?;
        expected.push((new_item, effects[0]));
        observe::wait_until_drained(&installation, &mut process).await?;
        jobs = installation.list("/jobs?state=all").await?;
        installation.stop(&mut process).await?;
    }
    let store = observe::embedded_store(&installation).await?;
    let mut wrong = Vec::new();
    for (item, expected_effects) in &expected {
        let item_callbacks: BTreeSet<_> = receiver
            .callbacks()
            .into_iter()
            .filter(|callback| callback.item == *item && callback.kind == AUTOMATIC)
            .map(|callback| (callback.event, callback.action))
            .collect();
        let events: Vec<_> = item_callbacks.iter().map(|(_, action)| action.as_str()).collect();
        let author = (OrgId::new("default"), ItemKey::new("user", item.as_str()));
        let strikes = store.scan::<Strike>(&author, RowRange::all()).all().await?.len();
        let jobs = jobs.iter().filter(|job| job["item"]["id"] == json!(item)).count();
        if (events.as_slice(), strikes, jobs)
            != (&[expected_effects.event][..], expected_effects.strikes, expected_effects.jobs)
        {
            wrong.push(format!(
                "{item}: {events:?}, {strikes} strikes and {jobs} jobs instead of {expected_effects:?}"
            ));
        }
    }
    store.close().await?;
    println!(
        "rules change: {} items, {} with effects that are not their first plan's",
        expected.len(),
        wrong.len()
    );
    let verdict = oracle::Verdict { invented: wrong, ..oracle::Verdict::default() };
    assert!(verdict.is_clean(), "{verdict}");
    Ok(())
}

async fn submit(installation: &Installation, id: &str) -> Result<()> {
    let data = json!({ "text": "buy scamcoin", "author": { "typeId": "user", "id": id } });
    let body = json!({ "items": [{ "id": id, "typeId": "post", "data": data }] });
    // The kill may be faster than the answer.
    let response = installation.platform(Method::POST, "/api/v1/items/async/").json(&body).send().await;
    match response.map(|answer| answer.status()) {
        Ok(StatusCode::ACCEPTED) | Err(_) => Ok(()),
        Ok(status) => bail!("item {id}: {status}"),
    }
}

async fn change_rules(installation: &Installation, scam_action: &str) -> Result<()> {
    let store = observe::embedded_store(installation).await?;
    let settings = Settings::default();
    let master = MasterKey::load(&Security::default(), Some(&installation.data()))?;
    let changes = Changes::new(store.clone(), Secrets::new(store.clone(), master, &settings), &settings);
    let change = Change {
        files: documents::other_action(scam_action),
        author: "a fault test".to_owned(),
        expected_version: None,
        prune: false,
    };
    let applied = changes.apply(&OrgId::new("default"), change).await.context("the other rules")?;
    drop(changes);
    store.close().await?;
    drop(store);
    if applied.differences.is_empty() {
        bail!("the other rules are the same");
    }
    // The last holder of the database closes it. The next start does not wait, so this must.
    let path = installation.data().join("db");
    eventually("the data to be released", PATIENCE, async || {
        fjall::Database::builder(&path).open().ok().map(drop)
    })
    .await
}

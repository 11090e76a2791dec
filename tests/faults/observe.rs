//! Observations after the kills: through the platform's API, the admin API, the receiver, and the rows of the store.
//!
//! The oracle judges them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use anyhow::{Context as _, Result, bail};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use reqwest::{Method, StatusCode};
use serde_json::Value;
use tidegate_schemas::{
    ids::{ItemKey, OrgId},
    records::Source,
};
use tidegate_store::{
    RowRange, Store,
    tables::items::{
        items::{Item, SubmissionState},
        strikes::{Strike, StrikeReversal},
    },
};
use tidegate_test_support::{PATIENCE, Process, eventually_ok};

use crate::{
    fetched::{Key, SeenRequest},
    installation::{Installation, LONG},
    oracle::{Observations, SeenItem, SeenJob, SeenStrike, SentRequests},
    outcomes::Outcome,
    platform::Platform,
    receiver::Receiver,
};

pub(crate) const ORG: &str = "default";

/// Concurrent look-ups.
const ASKED_AT_ONCE: usize = 16;

/// Waits until every record is consumed, and no callback or decision is due.
pub(crate) async fn wait_until_drained(installation: &Installation, process: &mut Process) -> Result<()> {
    wait_until_quiet(installation).await.with_context(|| crate::killer::tail(process))
}

/// The same, without the output of a process in the error.
pub(crate) async fn wait_until_quiet(installation: &Installation) -> Result<()> {
    let mut quiet_polls = 0;
    eventually_ok("all records to be consumed and delivered", LONG, async || {
        let state = describe_pending_work(installation).await;
        quiet_polls = if matches!(state, Ok(None)) { quiet_polls + 1 } else { 0 };
        match state? {
            None if quiet_polls >= 3 => Ok(()),
            None => bail!("quiet, for the {quiet_polls}. time"),
            Some(work) => bail!("{work}"),
        }
    })
    .await
}

/// Describes work that is not finished; `None` if all work is.
async fn describe_pending_work(installation: &Installation) -> Result<Option<String>> {
    let lag =
        installation.metric("tidegate_consumer_lag_records").await?.context("no consumer reports its lag")?;
    if lag > 0.0 {
        return Ok(Some(format!("{lag} records are not consumed")));
    }
    let unsettled = unsettled(installation).await?;
    if !unsettled.is_empty() {
        return Ok(Some(format!("{} deliveries are not settled, such as {}", unsettled.len(), unsettled[0])));
    }
    let requests = requests(installation).await?;
    if let Some(request) = requests.iter().find(|request| request.state == "pending") {
        return Ok(Some(format!("request {} for items is not settled", request.id)));
    }
    let jobs = installation.list("/jobs?state=decided").await?;
    let pending = jobs.iter().filter(|job| job["decisionState"] != "appended").count();
    Ok((pending > 0).then(|| format!("{pending} decisions are not appended")))
}

async fn unsettled(installation: &Installation) -> Result<Vec<String>> {
    let mut deliveries = Vec::new();
    for state in ["pending", "retry_wait", "held", "exhausted", "canceled"] {
        for delivery in installation.list(&format!("/deliveries?state={state}")).await? {
            deliveries.push(format!("{} is {state}: {}", delivery["eventId"], delivery["lastError"]));
        }
    }
    Ok(deliveries)
}

/// Collects all observations except those that only the rows of the store contain.
pub(crate) async fn observe_api(
    installation: &Arc<Installation>,
    receiver: &Receiver,
    platform: &Platform,
    sent: &SentRequests,
) -> Result<Observations> {
    let secret = installation.admin(Method::POST, "/partial-items/secret/reveal", None).await?.1;
    let secret = secret["secret"].as_str().context("a secret to ask the platform with")?;
    let (items, outcomes) = items(installation, sent).await?;
    Ok(Observations {
        items,
        outcomes,
        requests: requests(installation).await?,
        asked: platform.request_ids(),
        fetched: None,
        callbacks: receiver.callbacks(),
        jobs: jobs(installation).await?,
        strikes: None,
        unsettled: unsettled(installation).await?,
        dead_letters: installation.list("/dead-letters").await?.iter().map(ToString::to_string).collect(),
        unsigned: receiver.unsigned() + platform.unsigned(secret),
    })
}

/// The log of requests for items.
async fn requests(installation: &Installation) -> Result<Vec<SeenRequest>> {
    let key = |item: &Value| -> Option<Key> {
        Some((item["typeId"].as_str()?.to_owned(), item["id"].as_str()?.to_owned()))
    };
    let keys = |list: &Value| list.as_array().into_iter().flatten().filter_map(key).collect();
    let rows = installation.list("/partial-requests").await?;
    let request = |request: &Value| -> Option<SeenRequest> {
        let found_items = request["found"].as_array().into_iter().flatten();
        Some(SeenRequest {
            // The id follows the time.
            id: request["id"].as_str()?.split_once('-')?.1.to_owned(),
            state: request["state"].as_str()?.to_owned(),
            of_claim: request["trigger"] == "claim",
            asked: keys(&request["asked"]),
            found: found_items
                .filter_map(|it| Some((key(it)?, it["submissionId"].as_str()?.to_owned())))
                .collect(),
            missing: keys(&request["missing"]),
        })
    };
    let read = |value: &Value| request(value).with_context(|| format!("a request of another form: {value}"));
    rows.iter().map(read).collect()
}

type SeenItems = (BTreeMap<String, SeenItem>, BTreeMap<String, Outcome>);

/// Looks up each acknowledged submission by its id, and the newest submission of the other items.
async fn items(installation: &Arc<Installation>, sent: &SentRequests) -> Result<SeenItems> {
    let sent_ids = sent.items.iter().map(|(id, item)| (id.clone(), item.submission.clone()));
    let reported: BTreeSet<_> = sent.reports.iter().map(|report| report.item.clone()).collect();
    let lookups: Vec<_> = sent_ids.chain(reported.into_iter().map(|id| (id, None))).collect();
    let answers = stream::iter(lookups).map(|(id, submission)| {
        let installation = Arc::clone(installation);
        async move {
            let query = submission.map_or_else(String::new, |id| format!("?submission={id}"));
            let answer =
                installation.platform(Method::GET, &format!("/api/v1/items/post/{id}{query}")).send().await?;
            match answer.status() {
                StatusCode::NOT_FOUND => Ok(None),
                StatusCode::OK => {
                    let item: Value = serde_json::from_slice(&answer.bytes().await?)?;
                    let submission = item["submissionId"].as_str().context("an item has a submission")?;
                    let is_evaluated = item["state"] == SubmissionState::Evaluated.as_str();
                    let submissions = BTreeMap::from([(submission.to_owned(), is_evaluated)]);
                    let outcome = (submission.to_owned(), Outcome::stored(&item));
                    Ok(Some(((id, SeenItem { submissions }), outcome)))
                }
                status => bail!("item {id}: {status}"),
            }
        }
    });
    let stored_items: Vec<_> = answers.buffer_unordered(ASKED_AT_ONCE).try_collect().await?;
    Ok(stored_items.into_iter().flatten().unzip())
}

async fn jobs(installation: &Arc<Installation>) -> Result<Vec<SeenJob>> {
    let rows = installation.list("/jobs?state=all").await?;
    let jobs = stream::iter(rows).map(|job| {
        let installation = Arc::clone(installation);
        async move {
            let id = job["id"].as_str().context("a job has an id")?;
            let job = installation.admin_get(&format!("/jobs/{id}")).await?;
            let text = |path: &str| job.pointer(path).and_then(Value::as_str).map(str::to_owned);
            let causes = job["causes"].as_array().context("a job has causes")?;
            Ok::<_, anyhow::Error>(SeenJob {
                class: text("/class").context("a job has a class")?,
                item: text("/item/id").context("a job has an item")?,
                appeal: text("/appealId"),
                causes: causes.iter().map(cause).collect(),
            })
        }
    });
    jobs.buffer_unordered(ASKED_AT_ONCE).try_collect().await
}

fn cause(cause: &Value) -> (String, String) {
    let kind = cause["kind"].as_str().unwrap_or_default();
    let id = match kind {
        "report" => &cause["report"]["id"],
        "appeal" => &cause["appeal"]["id"],
        _ => &cause["submissionId"],
    };
    (kind.to_owned(), id.as_str().unwrap_or_default().to_owned())
}

/// Adds every submission of every item and every strike from the rows.
pub(crate) async fn observe_rows(store: &Store, sent: &SentRequests, seen: &mut Observations) -> Result<()> {
    let org = OrgId::new(ORG);
    let reported = sent.reports.iter().map(|report| &report.item);
    for id in sent.items.keys().chain(reported) {
        let rows = store
            .scan::<Item>(&(org.clone(), "post".into(), id.as_str().into()), RowRange::all())
            .all()
            .await?;
        let item = seen.items.entry(id.clone()).or_default();
        for row in rows {
            // A repeated request may leave a second row of its submission; the first row is the valid one.
            let is_evaluated = item.submissions.entry(row.submission_id.to_string()).or_default();
            *is_evaluated |= row.state == SubmissionState::Evaluated;
        }
    }
    let users: BTreeSet<_> = sent
        .items
        .values()
        .map(|item| &item.user)
        .chain(sent.reports.iter().map(|report| &report.user))
        .chain(sent.own_actions.values().map(|action| &action.user))
        .collect();
    let mut strikes = Vec::new();
    for user in users {
        let partition = (org.clone(), ItemKey::new("user", user.as_str()));
        let reversals = store.scan::<StrikeReversal>(&partition, RowRange::all()).all().await?;
        for strike in store.scan::<Strike>(&partition, RowRange::all()).all().await? {
            let of_it = reversals.iter().filter(|reversal| reversal.reversed == strike.cause);
            strikes.push(SeenStrike {
                user: user.clone(),
                item: strike.item.id.to_string(),
                points: strike.points,
                reversed: of_it.map(|reversal| reversal.points).collect(),
            });
        }
    }
    seen.strikes = Some(strikes);
    seen.fetched = Some(load_fetched_rows(store, seen).await?);
    Ok(())
}

/// Rows that are stored as fetched, of every item that the platform was asked for.
async fn load_fetched_rows(store: &Store, seen: &Observations) -> Result<BTreeMap<Key, Vec<String>>> {
    let requested_keys: BTreeSet<_> = seen.requests.iter().flat_map(|request| &request.asked).collect();
    let mut submissions: BTreeMap<Key, Vec<String>> = BTreeMap::new();
    for key in requested_keys {
        let partition = (OrgId::new(ORG), key.0.as_str().into(), key.1.as_str().into());
        let rows = store.scan::<Item>(&partition, RowRange::all()).all().await?;
        let of_platform = rows.into_iter().filter(|row| row.source == Source::PartialItems);
        for row in of_platform.filter(|row| row.state == SubmissionState::Evaluated) {
            submissions.entry(key.clone()).or_default().push(row.submission_id.to_string());
        }
    }
    Ok(submissions)
}

/// The rows of embedded data, which only one process can open: nothing may run on it.
pub(crate) async fn embedded_store(installation: &Installation) -> Result<Store> {
    let path = installation.data().join("db");
    let database = eventually_ok("the data to be released", PATIENCE, async || {
        Ok(fjall::Database::builder(&path).open()?)
    })
    .await?;
    Ok(Store::open_embedded(&database, tidegate_store::embedded::Settings::default())?)
}

pub(crate) async fn embedded_rows(
    installation: &Installation,
    sent: &SentRequests,
    seen: &mut Observations,
) -> Result<()> {
    let store = embedded_store(installation).await?;
    let read = observe_rows(&store, sent, seen).await;
    store.close().await?;
    read
}

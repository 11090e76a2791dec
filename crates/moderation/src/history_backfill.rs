//! Writes history events for rows that earlier versions stored without them, while the service runs.
//!
//! An event has the key and the content that the running service would give it, and an earlier write time, so that the service's own
//! event wins. A repeated run writes the same rows.

use serde::Deserialize;
use tidegate_schemas::{
    history::{
        ActionSource, ActionTakenEvent, AppealEvent, DecidedJob, DecisionEvent, JobOpenedEvent,
        RelatedAction, ReportEvent, RuleVersion, StrikeChange, StrikeEvent,
    },
    ids::{ActionId, EventId, ItemKey, JobId, Kind, Millis, derive},
    records::JobClass,
};
use tidegate_store::{
    Batch, Row, RowRange, Store, WriteTime,
    tables::{
        history::{
            backfill::BackfilledPart,
            child_safety_items::ChildSafetyItem,
            events::{EventHead, HistoryEvent},
        },
        items::strikes::{ActionByItem, Strike, StrikeReversal},
        review::{
            appeals::Appeal,
            decisions::Decision,
            jobs::{CauseKind, Job, JobCause},
            reports::Report,
        },
    },
};

use crate::{
    Error, child_safety,
    jobs::{appeal_job_id, reviewed_policies, stored_decision::StoredRelated},
    rules::stats::RuleHit,
};

/// Parts of each table on CQL. Their bounds are fixed, so that a later run skips finished ones.
const PARTS: usize = 256;

/// Rows that are written together.
const BATCH_ROWS: usize = 100;

/// Progress of the migration, after each part of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackfillProgress {
    pub source: &'static str,
    /// From 1 to `parts`.
    pub part: usize,
    pub parts: usize,
    /// Rows read in this part.
    pub rows: u64,
}

/// Source table of events.
trait Source: Row {
    /// Adds the events of the row to the batch.
    fn add_events(
        self,
        store: &Store,
        batch: &mut Batch<'static>,
    ) -> impl Future<Output = Result<(), Error>> + Send;
}

/// Reads all source tables and writes their events. Parts that an earlier run finished are skipped.
pub async fn run(store: &Store, mut on_part: impl FnMut(BackfillProgress) + Send) -> Result<(), Error> {
    run_table::<Job>(store, &mut on_part).await?;
    run_table::<JobCause>(store, &mut on_part).await?;
    run_table::<Appeal>(store, &mut on_part).await?;
    run_table::<Decision>(store, &mut on_part).await?;
    run_table::<ActionByItem>(store, &mut on_part).await?;
    run_table::<StrikeReversal>(store, &mut on_part).await
}

async fn run_table<R: Source>(
    store: &Store,
    on_part: &mut (impl FnMut(BackfillProgress) + Send),
) -> Result<(), Error> {
    // Bounds of the embedded engine depend on its rows, so a table is one part there.
    let parts = if matches!(store, Store::Cql(_)) { PARTS } else { 1 };
    let splits = store.splits::<R>(parts).await?;
    let source = R::TABLE.name;
    for (index, split) in splits.iter().enumerate() {
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let key = (source.to_owned(), number(index), number(splits.len()));
        if store.get::<BackfilledPart>(&key).await?.is_some() {
            continue;
        }
        let mut pages = store.scan_all::<R>(split);
        let mut rows_read = 0;
        while let Some(page) = pages.next_page().await? {
            rows_read += page.len() as u64;
            let mut batch = Batch::new();
            for row in page {
                row.add_events(store, &mut batch).await?;
                if batch.len() >= BATCH_ROWS {
                    store.write(std::mem::take(&mut batch)).await?;
                }
            }
            store.write(batch).await?;
        }
        let now = Millis::now();
        let finished = BackfilledPart {
            source: key.0,
            part: key.1,
            parts: key.2,
            rows: i64::try_from(rows_read).unwrap_or(i64::MAX),
            finished_at: now,
        };
        store.put_rows(WriteTime::from_append(now, 0), &[finished]).await?;
        on_part(BackfillProgress { source, part: index + 1, parts: splits.len(), rows: rows_read });
    }
    Ok(())
}

/// Write time of an event at this time: before the one of the service's own event.
fn write_time(at: Millis) -> WriteTime {
    WriteTime(WriteTime::from_append(at, 0).0 - 1)
}

fn put_event(batch: &mut Batch<'static>, event: HistoryEvent) {
    batch.put_owned(write_time(event.at), event);
}

impl Source for Job {
    async fn add_events(self, _store: &Store, batch: &mut Batch<'static>) -> Result<(), Error> {
        let is_child_safety = self.class == JobClass::ChildSafety;
        let head = EventHead {
            org: &self.org,
            id: self.job_id.0,
            at: self.created_at,
            item: &self.item,
            is_child_safety,
        };
        put_event(batch, HistoryEvent::new(head, &JobOpenedEvent { class: self.class }));
        if is_child_safety {
            let row = ChildSafetyItem::new(&self.org, &self.item, self.created_at);
            batch.put_owned(write_time(self.created_at), row);
        }
        Ok(())
    }
}

/// A cause names the job of its report.
impl Source for JobCause {
    async fn add_events(self, store: &Store, batch: &mut Batch<'static>) -> Result<(), Error> {
        let Some(report_id) = self.report_id.filter(|_| self.kind == CauseKind::Report) else {
            return Ok(());
        };
        let Some(report) = store.get::<Report>(&(self.org.clone(), report_id)).await? else { return Ok(()) };
        let head = EventHead {
            org: &report.org,
            id: report_id.0,
            at: report.written_at,
            item: &report.item,
            is_child_safety: report.csam,
        };
        let event = ReportEvent {
            reporter: report.reporter.clone(),
            reported_at: report.reported_at,
            received_at: report.received_at,
            policy: report.policy.as_deref().map(reviewed_policies::parse_policy).transpose()?,
            reason: report.reason.clone(),
            job_id: self.job_id,
        };
        put_event(batch, HistoryEvent::new(head, &event));
        Ok(())
    }
}

/// Mention of an action in a stored appeal.
#[derive(Deserialize)]
struct ActionMention {
    id: ActionId,
}

impl Source for Appeal {
    async fn add_events(self, store: &Store, batch: &mut Batch<'static>) -> Result<(), Error> {
        let actions: Vec<ActionMention> =
            serde_json::from_str(&self.actions_taken).map_err(Error::corrupt("appeal"))?;
        let id = derive(Kind::JobCause, &[b"appeal", self.appeal_id.as_str().as_bytes()]);
        let is_child_safety = child_safety::is_restricted(store, &self.org, &self.item).await?;
        let head = EventHead { org: &self.org, id, at: self.written_at, item: &self.item, is_child_safety };
        let event = AppealEvent {
            appeal_id: self.appeal_id.clone(),
            appealed_by: self.appealed_by.clone(),
            appealed_at: self.appealed_at,
            received_at: self.received_at,
            actions: actions.into_iter().map(|action| action.id).collect(),
            policies: reviewed_policies::parse_policies(&self.violating_policies)?,
            reason: self.reason.clone(),
            job_id: appeal_job_id(&self.org, &self.appeal_id),
        };
        put_event(batch, HistoryEvent::new(head, &event));
        Ok(())
    }
}

impl Source for Decision {
    async fn add_events(self, store: &Store, batch: &mut Batch<'static>) -> Result<(), Error> {
        if self.recorded_at.is_some() {
            return Ok(());
        }
        let is_platform = self.job_id == JobId::NONE;
        let job = store.get::<Job>(&(self.org.clone(), self.job_id)).await?;
        let appeal_id = job.as_ref().and_then(|job| job.appeal_id.clone());
        let decided_job = if is_platform {
            None
        } else {
            let causes =
                store.scan::<JobCause>(&(self.org.clone(), self.job_id), RowRange::all()).all().await?;
            Some(DecidedJob {
                job_id: self.job_id,
                class: self.class,
                queue: job.as_ref().map(|job| job.queue.clone()),
                created_at: job.as_ref().map(|job| job.created_at),
                reviewed_policies: reviewed_policies::load_reviewed_policies(store, &self.org, &causes)
                    .await?,
            })
        };
        let related: Vec<StoredRelated> = match self.related.as_deref() {
            Some(text) => serde_json::from_str(text).map_err(Error::corrupt("decision"))?,
            None => Vec::new(),
        };
        let mut items: Vec<ItemKey> = related.iter().map(|related| related.item.clone()).collect();
        items.push(self.item.clone());
        let is_child_safety = self.class == JobClass::ChildSafety
            || !child_safety::find_restricted(store, &self.org, &items).await?.is_empty();
        let related = related.into_iter().flat_map(|related| {
            let item = related.item;
            related.actions.into_iter().map(move |action| RelatedAction { item: item.clone(), action })
        });
        let event = DecisionEvent {
            source: if is_platform { ActionSource::Platform } else { ActionSource::Moderator },
            decided_by: self.decided_by.clone(),
            decided_at: self.decided_at,
            verdict: self.verdict,
            job: decided_job,
            appeal_id,
            actions: serde_json::from_str(&self.actions).map_err(Error::corrupt("decision"))?,
            policies: serde_json::from_str(&self.policies).map_err(Error::corrupt("decision"))?,
            reason: self.reason.clone(),
            related: related.collect(),
        };
        let head = EventHead {
            org: &self.org,
            id: self.decision_id.0,
            at: self.at,
            item: &self.item,
            is_child_safety,
        };
        put_event(batch, HistoryEvent::new(head, &event));
        Ok(())
    }
}

impl Source for ActionByItem {
    async fn add_events(self, store: &Store, batch: &mut Batch<'static>) -> Result<(), Error> {
        if self.recorded_at.is_some() {
            return Ok(());
        }
        let item = ItemKey { type_id: self.type_id.clone(), id: self.item_id.clone() };
        let is_child_safety = child_safety::is_restricted(store, &self.org, &item).await?;
        let head =
            EventHead { org: &self.org, id: self.event_id.0, at: self.at, item: &item, is_child_safety };
        let hits: Vec<RuleHit> = match self.hits.as_deref() {
            Some(text) => serde_json::from_str(text).map_err(Error::corrupt("action"))?,
            None => Vec::new(),
        };
        let rules = hits.into_iter().map(|hit| RuleVersion { rule: hit.rule, version: hit.version });
        let event = ActionTakenEvent {
            // The row does not tell moderators and platforms apart.
            source: if self.actor.is_some() { ActionSource::Moderator } else { ActionSource::Rule },
            action: self.action.clone(),
            acted_at: self.at,
            user: self.user.clone(),
            points: self.points,
            policies: Vec::new(),
            rules: rules.collect(),
            decision_id: None,
            submission_id: None,
            threshold: None,
            actor: self.actor.clone(),
        };
        put_event(batch, HistoryEvent::new(head, &event));
        if let Some(user) = self.user.filter(|_| self.points != 0) {
            let event = StrikeEvent {
                change: StrikeChange::Issued,
                user,
                points: self.points,
                action: self.action,
                reversed: None,
            };
            put_event(batch, HistoryEvent::new(head, &event));
        }
        Ok(())
    }
}

impl Source for StrikeReversal {
    async fn add_events(self, store: &Store, batch: &mut Batch<'static>) -> Result<(), Error> {
        // Item and action stand in the row of the strike.
        let partition = (self.org.clone(), self.user.clone());
        let mut strikes = store.scan::<Strike>(&partition, RowRange::all());
        while let Some(page) = strikes.next_page().await? {
            let strike = page.into_iter().find(|strike| strike.cause == self.reversed);
            let Some(strike) = strike else { continue };
            let is_child_safety = child_safety::is_restricted(store, &self.org, &strike.item).await?;
            let head = EventHead {
                org: &self.org,
                id: self.cause.0,
                at: self.at,
                item: &strike.item,
                is_child_safety,
            };
            let event = StrikeEvent {
                change: StrikeChange::Reversed,
                user: self.user,
                points: self.points,
                action: strike.action,
                reversed: Some(EventId(self.reversed.0)),
            };
            put_event(batch, HistoryEvent::new(head, &event));
            break;
        }
        Ok(())
    }
}

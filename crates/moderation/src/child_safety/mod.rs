//! Decides which callers, endpoints and models may see child-safety material. Code that shows, counts or sends items
//! calls this module.

mod authorized_job;

use std::collections::HashSet;

use async_recursion::async_recursion as boxed;
use serde::Deserialize;
use serde_json::Value;
use tidegate_schemas::{
    ids::{DecisionId, EventId, ItemKey, Millis, OrgId},
    item_types::datetime,
    records::JobClass,
};
use tidegate_store::{
    Store,
    tables::{
        callbacks::deliveries::Delivery,
        items::items::Item,
        review::{
            decisions::Decision,
            jobs::{Job, JobState, SubjectJob},
        },
    },
};

pub use self::authorized_job::{AuthorizedJob, JobRefusal};
use crate::Error;

/// Reason of a held callback: no subscribed endpoint is cleared for child-safety material.
pub const HELD_REASON: &str = "child_safety_endpoint";

/// Clearance of a reader or a destination for child-safety material: the scope of a key, or the document of an
/// endpoint or a signal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clearance {
    ChildSafety,
    #[default]
    None,
}

impl Clearance {
    pub const fn from_flag(sees_child_safety: bool) -> Self {
        if sees_child_safety { Self::ChildSafety } else { Self::None }
    }

    pub fn covers_child_safety(self) -> bool {
        self == Self::ChildSafety
    }

    /// True if the job may be shown.
    pub fn covers_job(self, job: &Job) -> bool {
        self.covers_child_safety() || !is_child_safety_job(job)
    }

    /// Returns the subset of items that must not be shown, counted or sent.
    #[boxed]
    pub async fn withheld_items(
        self,
        store: &Store,
        org: &OrgId,
        items: &[ItemKey],
    ) -> Result<HashSet<ItemKey>, Error> {
        // Saves two reads per item.
        if self.covers_child_safety() || items.is_empty() {
            return Ok(HashSet::new());
        }
        Ok(find_restricted(store, org, items).await?)
    }

    /// Returns the stored items that may be evaluated for the reader.
    pub async fn visible_items(
        self,
        store: &Store,
        org: &OrgId,
        mut rows: Vec<Item>,
    ) -> Result<Vec<Item>, Error> {
        let key = |row: &Item| ItemKey { type_id: row.type_id.clone(), id: row.item_id.clone() };
        let keys: Vec<_> = rows.iter().map(key).collect();
        let withheld = self.withheld_items(store, org, &keys).await?;
        if !withheld.is_empty() {
            rows.retain(|row| !withheld.contains(&key(row)));
        }
        Ok(rows)
    }

    /// Returns the subset of decisions that must not be shown or counted. Each is identified by time and id.
    pub async fn withheld_decisions(
        self,
        store: &Store,
        org: &OrgId,
        decisions: &[(Millis, DecisionId)],
    ) -> Result<HashSet<DecisionId>, Error> {
        if self.covers_child_safety() || decisions.is_empty() {
            return Ok(HashSet::new());
        }
        find_child_safety_decisions(store, org, decisions).await
    }

    /// Returns the subset of callbacks that must not be shown, sent or changed.
    #[boxed]
    pub async fn withheld_events(
        self,
        store: &Store,
        org: &OrgId,
        deliveries: &[Delivery],
    ) -> Result<HashSet<EventId>, Error> {
        if self.covers_child_safety() || deliveries.is_empty() {
            return Ok(HashSet::new());
        }
        find_restricted_events(store, org, deliveries).await
    }
}

/// True if the job is a child-safety job that was not moved to another class.
fn is_child_safety_job(job: &Job) -> bool {
    job.class == JobClass::ChildSafety && job.state != JobState::Moved
}

/// Returns the items with a present or past child-safety job, except those with a newest job that was moved to a
/// review queue.
#[boxed]
pub async fn find_restricted(
    store: &Store,
    org: &OrgId,
    items: &[ItemKey],
) -> Result<HashSet<ItemKey>, tidegate_store::Error> {
    let key = |item: &ItemKey| (org.clone(), JobClass::ChildSafety, item.type_id.clone(), item.id.clone());
    let keys: Vec<_> = items.iter().map(key).collect();
    let pointers: Vec<_> = store.get_many::<SubjectJob>(&keys).await?.into_iter().flatten().collect();
    let jobs: Vec<_> = pointers.iter().map(|pointer| (org.clone(), pointer.job_id)).collect();
    let jobs = store.get_many::<Job>(&jobs).await?;
    // A pointer is written before its job. Without the job's row the item counts as restricted, to be safe.
    let restricted_items = pointers
        .into_iter()
        .zip(jobs)
        .filter(|(_, job)| job.as_ref().is_none_or(|job| job.state != JobState::Moved))
        .map(|(pointer, _)| ItemKey { type_id: pointer.type_id, id: pointer.item_id });
    Ok(restricted_items.collect())
}

/// True if the item requires clearance for child safety.
#[boxed]
pub async fn is_restricted(
    store: &Store,
    org: &OrgId,
    item: &ItemKey,
) -> Result<bool, tidegate_store::Error> {
    Ok(!find_restricted(store, org, std::slice::from_ref(item)).await?.is_empty())
}

/// Returns the callbacks that name a child-safety item, or concern a decision on a child-safety job.
async fn find_restricted_events(
    store: &Store,
    org: &OrgId,
    deliveries: &[Delivery],
) -> Result<HashSet<EventId>, Error> {
    let events: Vec<_> = deliveries.iter().map(|row| (row, EventReferences::parse(&row.body))).collect();
    let items_of = |(row, event): &(&Delivery, EventReferences)| {
        let mut items = event.items();
        // The subject counts even if the body has an unknown form.
        items.push(row.subject.clone());
        items
    };
    let named_items: HashSet<ItemKey> = events.iter().flat_map(items_of).collect();
    let items = find_restricted(store, org, &named_items.into_iter().collect::<Vec<_>>()).await?;
    let decisions: Vec<_> = events.iter().filter_map(|(_, event)| event.decision.as_ref()?.key()).collect();
    let restricted_decisions = find_child_safety_decisions(store, org, &decisions).await?;
    let is_restricted = |event: &&(&Delivery, EventReferences)| {
        let decision = event.1.decision.as_ref();
        items_of(event).iter().any(|item| items.contains(item))
            || decision.is_some_and(|decision| restricted_decisions.contains(&decision.id))
    };
    Ok(events.iter().filter(is_restricted).map(|(row, _)| row.event_id).collect())
}

/// Returns the decisions on child-safety jobs. The row of a decision is written before its consequences, so it is
/// found here.
async fn find_child_safety_decisions(
    store: &Store,
    org: &OrgId,
    decisions: &[(Millis, DecisionId)],
) -> Result<HashSet<DecisionId>, Error> {
    let keys: Vec<_> = decisions.iter().map(|(at, id)| (org.clone(), at.day(), *at, *id)).collect();
    let rows = store.get_many::<Decision>(&keys).await?.into_iter().flatten();
    Ok(rows.filter(|row| row.class == JobClass::ChildSafety).map(|row| row.decision_id).collect())
}

/// Items and decision in the body of a callback.
#[derive(Default, Deserialize)]
#[serde(default)]
struct EventReferences {
    item: Option<ItemKey>,
    decision: Option<DecisionReference>,
    custom: CustomReferences,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DecisionReference {
    id: DecisionId,
    decided_at: String,
    #[serde(default)]
    related: Vec<RelatedReference>,
}

#[derive(Deserialize)]
struct RelatedReference {
    item: ItemKey,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct CustomReferences {
    /// List of items, unless a parameter of the action has the same name.
    reported_items: Value,
}

impl EventReferences {
    /// Parses the parts known to this version. The callback's subject is checked in any case.
    fn parse(body: &[u8]) -> Self {
        serde_json::from_slice(body).unwrap_or_default()
    }

    fn items(&self) -> Vec<ItemKey> {
        let related = self
            .decision
            .iter()
            .flat_map(|decision| decision.related.iter().map(|related| related.item.clone()));
        let reported = serde_json::from_value::<Vec<ItemKey>>(self.custom.reported_items.clone());
        self.item.iter().cloned().chain(related).chain(reported.unwrap_or_default()).collect()
    }
}

impl DecisionReference {
    fn key(&self) -> Option<(Millis, DecisionId)> {
        Some((datetime::parse(&self.decided_at)?, self.id))
    }
}

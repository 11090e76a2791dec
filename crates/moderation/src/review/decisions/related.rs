//! Items that belong to a job beside its own, on which a decision may act: their author, thread, parent and what was sent
//! along.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use tidegate_catalog::{Compiled, ItemType};
use tidegate_schemas::ids::{ActionId, ItemKey, PolicyId, TypeId};
use tidegate_store::{
    At,
    tables::review::{
        jobs::{Job, JobCause},
        reports::Report,
    },
};

use super::request::{Refusal, RelatedRequest, each_once};
use crate::{
    Deps, Error,
    items::{
        author::{self, ItemData},
        context::StoredItem,
        stored,
    },
    partial_items,
    review::decision_events::Parameters,
};

/// Number of possible items that a refusal names.
const NAMED: usize = 20;

/// Actions on an item that belongs to the job, as the job's row carries them and as the API shows them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredRelated {
    pub item: ItemKey,
    /// User who receives the strikes: the item's author, or the user that it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<ItemKey>,
    pub actions: Vec<ActionId>,
    #[serde(default, skip_serializing_if = "Parameters::is_empty")]
    pub parameters: Parameters,
    pub policies: Vec<PolicyId>,
}

/// Finds the requested items among those that belong to the job, and the users who receive their strikes. Refuses any
/// other item.
pub(super) async fn resolve(
    deps: &Deps,
    config: &Compiled,
    job: &Job,
    requested: &[RelatedRequest],
) -> Result<Result<Vec<StoredRelated>, Refusal>, Error> {
    if requested.is_empty() {
        return Ok(Ok(Vec::new()));
    }
    let mut search = Search::new(config, &job.item, requested);
    search_job(deps, job, &mut search).await?;
    let mut resolved = Vec::with_capacity(requested.len());
    for (index, related) in requested.iter().enumerate() {
        let sent = match search.wanted.remove(&related.item) {
            Some(Found::Sent(data)) => Some(data),
            Some(Found::Named) => None,
            Some(Found::No) | None => {
                let pointer = format!("/related/{index}/item");
                return Ok(Err(Refusal::Invalid { pointer, detail: search.refusal(&related.item) }));
            }
        };
        resolved.push(StoredRelated {
            user: author::find(&deps.store, config, &related.item, sent).await?,
            item: related.item.clone(),
            actions: each_once(&related.actions),
            parameters: related.parameters.clone(),
            policies: config.policy_ids(&related.policies),
        });
    }
    Ok(Ok(resolved))
}

/// Passes the items that belong to the job to the search: those that its newest version names, then those of its reports.
async fn search_job(deps: &Deps, job: &Job, search: &mut Search<'_>) -> Result<(), Error> {
    if let Some(row) = stored::newest(&deps.store, &job.org, &job.item).await? {
        search.named_by(&row.type_id, row.type_version.as_deref(), &row.data);
    }
    let mut causes = deps.store.scan::<JobCause>(&(job.org.clone(), job.job_id), At::all());
    while let Some(page) = causes.next_page().await? {
        for report_id in page.into_iter().filter_map(|cause| cause.report_id) {
            if search.is_over() {
                return Ok(());
            }
            // Reports carry content, so one at a time is in memory.
            if let Some(report) = deps.store.get::<Report>(&(job.org.clone(), report_id)).await? {
                search.report(&report)?;
            }
        }
    }
    Ok(())
}

/// State of the search for an item.
enum Found {
    No,
    Named,
    /// Found with data. No report can add anything.
    Sent(ItemData),
}

/// Search for the requested items.
struct Search<'a> {
    config: &'a Compiled,
    own: &'a ItemKey,
    wanted: HashMap<ItemKey, Found>,
    /// The first items that belong to the job.
    possible: Vec<ItemKey>,
    has_more: bool,
}

impl<'a> Search<'a> {
    fn new(config: &'a Compiled, own: &'a ItemKey, requested: &[RelatedRequest]) -> Self {
        let wanted = requested.iter().map(|related| (related.item.clone(), Found::No)).collect();
        Self { config, own, wanted, possible: Vec::new(), has_more: false }
    }

    /// True if no further report can add anything.
    fn is_over(&self) -> bool {
        self.wanted.values().all(|found| matches!(found, Found::Sent(_)))
    }

    fn report(&mut self, report: &Report) -> Result<(), Error> {
        self.named_by(&report.item.type_id, report.type_version.as_deref(), &report.data);
        let in_thread: Vec<ItemKey> =
            serde_json::from_str(&report.reported_in_thread).map_err(Error::corrupt("report"))?;
        for key in in_thread {
            self.add(key, None);
        }
        for items in [&report.thread, &report.additional] {
            let items: Vec<StoredItem> = serde_json::from_str(items).map_err(Error::corrupt("report"))?;
            // An item whose own id could not be read cannot be named either.
            for item in items.into_iter().filter(|item| item.as_sent.is_none()) {
                let key = ItemKey { type_id: item.type_id, id: item.id };
                let data = item.data.get().as_bytes().to_vec().into();
                self.add(key, Some(ItemData { type_version: item.type_version, data }));
            }
        }
        Ok(())
    }

    /// Adds author, thread and parent that a version of the job's item names.
    fn named_by(&mut self, type_id: &TypeId, version: Option<&str>, data: &[u8]) {
        let Some(item_type) = self.config.item_type_at(type_id, version) else { return };
        let author = item_type.creator(self.own, data);
        for key in partial_items::named_items(item_type, data).into_iter().chain(author) {
            self.add(key, None);
        }
    }

    fn add(&mut self, key: ItemKey, sent: Option<ItemData>) {
        if key == *self.own {
            return;
        }
        // A user is its own author, whatever its data.
        let is_user = self.config.item_type(&key.type_id).is_some_and(ItemType::is_user);
        let sent = sent.or_else(|| is_user.then(|| ItemData { type_version: None, data: "{}".into() }));
        if let Some(found) = self.wanted.get_mut(&key)
            && !matches!(found, Found::Sent(_))
        {
            *found = sent.map_or(Found::Named, Found::Sent);
        }
        if self.possible.contains(&key) {
            return;
        }
        if self.possible.len() < NAMED { self.possible.push(key) } else { self.has_more = true }
    }

    fn refusal(&self, item: &ItemKey) -> String {
        if self.possible.is_empty() {
            return format!("{item} does not belong to the job: no other item does");
        }
        let possible: Vec<_> = self.possible.iter().map(ToString::to_string).collect();
        let more = if self.has_more { " and others" } else { "" };
        format!("{item} does not belong to the job: name one of {}{more}", possible.join(", "))
    }
}

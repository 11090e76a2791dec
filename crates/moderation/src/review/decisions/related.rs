//! Related items of a job, on which a decision can act: author, thread, parent and the context items of reports.

use std::collections::HashMap;

use tidegate_catalog::{Compiled, ItemType};
use tidegate_schemas::ids::{ItemKey, TypeId};
use tidegate_store::{
    RowRange,
    tables::review::{
        jobs::{Job, JobCause},
        reports::Report,
    },
};

use super::request::{DecisionRefusal, RelatedRequest, distinct};
use crate::{
    Deps, Error,
    items::{
        author::{self, ItemData},
        context::StoredItem,
        stored,
    },
    jobs::stored_decision::StoredRelated,
    partial_items,
};

/// Maximum number of related items listed in a refusal.
const MAX_LISTED_ITEMS: usize = 20;

/// Finds the requested items among the related ones, with the users who receive their strikes. Refuses all other
/// items.
pub(super) async fn resolve(
    deps: &Deps,
    config: &Compiled,
    job: &Job,
    requested: &[RelatedRequest],
) -> Result<Result<Vec<StoredRelated>, DecisionRefusal>, Error> {
    if requested.is_empty() {
        return Ok(Ok(Vec::new()));
    }
    let mut search = RelatedItemSearch::new(config, &job.item, requested);
    search_job(deps, job, &mut search).await?;
    let mut resolved = Vec::with_capacity(requested.len());
    for (index, related) in requested.iter().enumerate() {
        let item_data = match search.requested.remove(&related.item) {
            Some(SearchState::Sent(data)) => Some(data),
            Some(SearchState::Named) => None,
            Some(SearchState::No) | None => {
                let pointer = format!("/related/{index}/item");
                return Ok(Err(DecisionRefusal::Invalid {
                    pointer,
                    detail: search.refusal_message(&related.item),
                }));
            }
        };
        resolved.push(StoredRelated {
            user: author::find_author(&deps.store, config, &related.item, item_data).await?,
            item: related.item.clone(),
            actions: distinct(&related.actions),
            parameters: related.parameters.clone(),
            policies: config.policy_ids(&related.policies),
        });
    }
    Ok(Ok(resolved))
}

/// Adds the related items of the job to the search: those of its newest version, then those of its reports.
async fn search_job(deps: &Deps, job: &Job, search: &mut RelatedItemSearch<'_>) -> Result<(), Error> {
    if let Some(row) = stored::load_newest(&deps.store, &job.org, &job.item).await? {
        search.add_named_items(&row.type_id, row.type_version.as_deref(), &row.data);
    }
    let mut causes = deps.store.scan::<JobCause>(&(job.org.clone(), job.job_id), RowRange::all());
    while let Some(page) = causes.next_page().await? {
        for report_id in page.into_iter().filter_map(|cause| cause.report_id) {
            // Stops early, because a job can have thousands of reports.
            if search.is_over() {
                return Ok(());
            }
            // One report at a time, because reports contain content.
            if let Some(report) = deps.store.get::<Report>(&(job.org.clone(), report_id)).await? {
                search.add_report(&report)?;
            }
        }
    }
    Ok(())
}

/// State of the search for one item.
enum SearchState {
    No,
    Named,
    /// Found with its data, so further reports are not needed.
    Sent(ItemData),
}

/// Search for the requested items.
struct RelatedItemSearch<'a> {
    config: &'a Compiled,
    subject: &'a ItemKey,
    requested: HashMap<ItemKey, SearchState>,
    /// The first related items, for the message of a refusal.
    possible: Vec<ItemKey>,
    has_more: bool,
}

impl<'a> RelatedItemSearch<'a> {
    fn new(config: &'a Compiled, subject: &'a ItemKey, requested: &[RelatedRequest]) -> Self {
        let states = requested.iter().map(|related| (related.item.clone(), SearchState::No)).collect();
        Self { config, subject, requested: states, possible: Vec::new(), has_more: false }
    }

    /// True if further reports are not needed.
    fn is_over(&self) -> bool {
        self.requested.values().all(|found| matches!(found, SearchState::Sent(_)))
    }

    fn add_report(&mut self, report: &Report) -> Result<(), Error> {
        self.add_named_items(&report.item.type_id, report.type_version.as_deref(), &report.data);
        let in_thread: Vec<ItemKey> =
            serde_json::from_str(&report.reported_in_thread).map_err(Error::corrupt("report"))?;
        for key in in_thread {
            self.add_item(key, None);
        }
        for items in [&report.thread, &report.additional] {
            let items: Vec<StoredItem> = serde_json::from_str(items).map_err(Error::corrupt("report"))?;
            // An item with an unreadable id cannot be requested.
            for item in items.into_iter().filter(|item| item.as_sent.is_none()) {
                let key = ItemKey { type_id: item.type_id, id: item.id };
                let data = item.data.get().as_bytes().to_vec().into();
                self.add_item(key, Some(ItemData { type_version: item.type_version, data }));
            }
        }
        Ok(())
    }

    /// Adds author, thread and parent from a version of the job's item.
    fn add_named_items(&mut self, type_id: &TypeId, version: Option<&str>, data: &[u8]) {
        let Some(item_type) = self.config.item_type_at(type_id, version) else { return };
        let author = item_type.creator(self.subject, data);
        for key in partial_items::named_items(item_type, data).into_iter().chain(author) {
            self.add_item(key, None);
        }
    }

    fn add_item(&mut self, key: ItemKey, item_data: Option<ItemData>) {
        if key == *self.subject {
            return;
        }
        // A user is its own author, independent of its data.
        let is_user = self.config.item_type(&key.type_id).is_some_and(ItemType::is_user);
        let item_data =
            item_data.or_else(|| is_user.then(|| ItemData { type_version: None, data: "{}".into() }));
        if let Some(state) = self.requested.get_mut(&key)
            && !matches!(state, SearchState::Sent(_))
        {
            *state = item_data.map_or(SearchState::Named, SearchState::Sent);
        }
        if self.possible.contains(&key) {
            return;
        }
        if self.possible.len() < MAX_LISTED_ITEMS { self.possible.push(key) } else { self.has_more = true }
    }

    fn refusal_message(&self, item: &ItemKey) -> String {
        if self.possible.is_empty() {
            return format!("{item} does not belong to the job: no other item does");
        }
        let possible: Vec<_> = self.possible.iter().map(ToString::to_string).collect();
        let suffix = if self.has_more { " and others" } else { "" };
        format!("{item} does not belong to the job: name one of {}{suffix}", possible.join(", "))
    }
}

//! Chooses the queue of a job by the routing lists of its org.
//!
//! The queue is stored with the job or the plan, so a replay under other lists keeps the first choice.

use serde_json::{Value, json};
use tidegate_catalog::{
    Compiled,
    routing::{Choice, Routed},
};
use tidegate_rules::{Facts, Fields};
use tidegate_schemas::{
    documents::RoutingList,
    ids::{ItemKey, Millis, PolicyId},
    wire::answers::Media,
};
use tidegate_store::tables::items::items::Item;

use crate::{Error, metrics};

/// Returns the queue of a cause's job. Without a list it is the default queue.
pub(crate) fn choose(
    config: &Compiled,
    list: RoutingList,
    (item, values): (&ItemKey, Option<&dyn Fields>),
    known: &Value,
    now: Millis,
) -> Choice {
    let Some(router) = config.router(list) else {
        return Choice { queue: list.default_queue(), routed_by: None };
    };
    let choice = router.choose(Routed { item, values, known, facts: &Facts::new(), now }).choice;
    count(config, list, &choice);
    choice
}

/// Counts a choice, if the list is configured.
pub(crate) fn count(config: &Compiled, list: RoutingList, choice: &Choice) {
    if config.router(list).is_some() {
        metrics::job_routed(list.as_str(), if choice.routed_by.is_some() { "entry" } else { "default" });
    }
}

/// Returns the key of a policy that a platform named, or what it named.
pub(crate) fn policy_key(config: &Compiled, id: &str) -> String {
    config.policy(&PolicyId::new(id)).map_or_else(|| id.to_owned(), |policy| policy.key.clone())
}

/// Returns what a stored version of an item was found to be, for the fields `rules.matched` and `media.banks`.
pub fn findings(row: &Item) -> Result<Value, Error> {
    let matched: Vec<Value> = serde_json::from_str(&row.matched).map_err(Error::corrupt("item"))?;
    let media: Vec<Media> = serde_json::from_str(&row.media).map_err(Error::corrupt("item"))?;
    let rules: Vec<&Value> = matched.iter().filter_map(|found| found.get("rule")).collect();
    Ok(json!({"rules": {"matched": rules}, "media": {"banks": banks(&media)}}))
}

/// Returns the banks that media matched, each once.
pub(crate) fn banks(media: &[Media]) -> Vec<&str> {
    let mut banks: Vec<&str> =
        media.iter().flat_map(|media| &media.matches).map(|found| found.bank.as_str()).collect();
    banks.sort_unstable();
    banks.dedup();
    banks
}

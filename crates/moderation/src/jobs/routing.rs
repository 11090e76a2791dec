//! Chooses the queue of a job with the org's routing lists.
//!
//! The queue is stored with the job or the plan, so a replay under other lists keeps the first choice.

use serde_json::{Value, json};
use tidegate_catalog::{
    Compiled,
    routing::{Choice, RoutingInput},
};
use tidegate_rules::{Facts, Fields};
use tidegate_schemas::{
    documents::RoutingList,
    ids::{ItemKey, Millis, PolicyId},
    wire::answers::Media,
};
use tidegate_store::tables::items::items::Item;

use crate::{Error, metrics};

/// Chooses the queue for a cause. An org without the list uses the default queue.
pub(crate) fn choose_queue(
    config: &Compiled,
    list: RoutingList,
    (item, values): (&ItemKey, Option<&dyn Fields>),
    cause_facts: &Value,
    now: Millis,
) -> Choice {
    let Some(router) = config.router(list) else {
        return Choice { queue: list.default_queue(), routed_by: None };
    };
    let choice = router.choose(RoutingInput { item, values, cause_facts, facts: &Facts::new(), now }).choice;
    count_choice(config, list, &choice);
    choice
}

/// Counts a choice in the metrics if the org has the list.
pub(crate) fn count_choice(config: &Compiled, list: RoutingList, choice: &Choice) {
    if config.router(list).is_some() {
        metrics::job_routed(list.as_str(), if choice.routed_by.is_some() { "entry" } else { "default" });
    }
}

/// Returns the key of a policy. An unknown id is returned as it is.
pub(crate) fn policy_key(config: &Compiled, id: &str) -> String {
    config.policy(&PolicyId::new(id)).map_or_else(|| id.to_owned(), |policy| policy.key.clone())
}

/// Returns the fields `rules.matched` and `media.banks` of a stored version.
pub fn findings(row: &Item) -> Result<Value, Error> {
    let matched: Vec<Value> = serde_json::from_str(&row.matched).map_err(Error::corrupt("item"))?;
    let media: Vec<Media> = serde_json::from_str(&row.media).map_err(Error::corrupt("item"))?;
    let rules: Vec<&Value> = matched.iter().filter_map(|rule_match| rule_match.get("rule")).collect();
    Ok(json!({"rules": {"matched": rules}, "media": {"banks": matched_banks(&media)}}))
}

/// Lists the distinct banks with matches.
pub(crate) fn matched_banks(media: &[Media]) -> Vec<&str> {
    let mut banks: Vec<&str> =
        media.iter().flat_map(|media| &media.matches).map(|bank_match| bank_match.bank.as_str()).collect();
    banks.sort_unstable();
    banks.dedup();
    banks
}

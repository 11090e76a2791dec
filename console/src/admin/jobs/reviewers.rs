//! Names the reviewer of a request, and checks the reviewer against the access list of a queue.

use tidegate_catalog::Compiled;
use tidegate_moderation::review::queues::Reviewer;
use tidegate_schemas::{ids::QueueId, names};
use tidegate_web::Problem;

use crate::{
    admin::request::{Caller, invalid},
    api::Api,
};

pub(super) fn resolve_reviewer(
    api: &Api,
    caller: &Caller,
    reviewer_name: Option<String>,
) -> Result<Reviewer, Problem> {
    let name = caller.reviewer(reviewer_name);
    // Claims, decisions and comments store the name.
    if !names::is_name(&name) {
        return Err(invalid("/reviewer", format!("A reviewer's name {}.", names::RULE)));
    }
    Ok(Reviewer { name, lease: api.settings.lease() })
}

/// Returns the reviewer of a claim. API keys must name a person: the holders of a shared key would otherwise share its
/// claims.
pub(super) fn require_named_reviewer(
    api: &Api,
    caller: &Caller,
    reviewer_name: Option<String>,
) -> Result<Reviewer, Problem> {
    if reviewer_name.is_none() && !caller.is_operator {
        let detail = "A claim needs the name of the person: people who share an API key would get each other's jobs. Add \
                      `reviewer`, such as {\"reviewer\": \"ada\"}.";
        return Err(invalid("/reviewer", detail));
    }
    resolve_reviewer(api, caller, reviewer_name)
}

/// Refuses reviewers that the queue's access list excludes.
pub(super) fn require_queue_access(
    config: &Compiled,
    queue: &QueueId,
    reviewer: &Reviewer,
    roles: &[String],
) -> Result<(), Problem> {
    // A removed queue has no access list any more. Its remaining jobs must stay reachable.
    if config.queue(queue).is_none_or(|queue| queue.document.access.admits(&reviewer.name, roles)) {
        return Ok(());
    }
    Err(Problem::forbidden(format!(
        "The queue {queue} is not open to {}: name the reviewer or one of the roles in the queue's `access`.",
        reviewer.name
    )))
}

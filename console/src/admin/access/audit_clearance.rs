//! Withholds audit entries that refer to child-safety material from callers without its scope.

use std::collections::HashSet;

use tidegate_schemas::ids::{EventId, ItemKey, JobId};
use tidegate_store::tables::{
    callbacks::deliveries::Delivery, catalog::audit::AuditEntry, review::jobs::Job,
};
use tidegate_web::Problem;
use uuid::Uuid;

use crate::{
    admin::request::{Caller, faults},
    api::Api,
};

/// Returns the ids of entries that refer to child-safety jobs, their callbacks or their items, if the caller lacks the scope.
pub(super) async fn find_withheld_entries(
    api: &Api,
    caller: &Caller,
    entries: &[AuditEntry],
) -> Result<HashSet<Uuid>, Problem> {
    if caller.may_see_child_safety() {
        return Ok(HashSet::new());
    }
    let (store, clearance) = (&api.deps.moderation.store, caller.clearance());
    let mut withheld = HashSet::new();
    let (mut jobs, mut events, mut items) = (Vec::new(), Vec::new(), Vec::new());
    for entry in entries {
        match AuditedObject::parse(&entry.object) {
            Some(AuditedObject::Job(job)) => jobs.push((entry.entry_id, (caller.org.clone(), job))),
            Some(AuditedObject::Event(event)) => events.push((entry.entry_id, (caller.org.clone(), event))),
            Some(AuditedObject::Item(item)) => items.push((entry.entry_id, item)),
            None => {}
        }
    }
    // One read for all objects of a kind, instead of one for each entry.
    let (ids, keys): (Vec<_>, Vec<_>) = jobs.into_iter().unzip();
    let rows = store.get_many::<Job>(&keys).await.map_err(faults::store_problem)?;
    let is_withheld = |job: &Option<Job>| job.as_ref().is_some_and(|job| !clearance.covers_job(job));
    withheld.extend(ids.into_iter().zip(rows).filter(|(_, job)| is_withheld(job)).map(|(id, _)| id));
    let (ids, keys): (Vec<_>, Vec<_>) = events.into_iter().unzip();
    let rows = store.get_many::<Delivery>(&keys).await.map_err(faults::store_problem)?;
    // An expired delivery has no row left. Its entry shows only ids, so it stays listed.
    let stored: Vec<_> = ids.into_iter().zip(rows).filter_map(|(id, row)| Some((id, row?))).collect();
    let (ids, rows): (Vec<_>, Vec<_>) = stored.into_iter().unzip();
    let withheld_events =
        clearance.withheld_events(store, &caller.org, &rows).await.map_err(faults::moderation_problem)?;
    withheld.extend(
        ids.into_iter()
            .zip(&rows)
            .filter(|(_, row)| withheld_events.contains(&row.event_id))
            .map(|(id, _)| id),
    );
    let (ids, keys): (Vec<_>, Vec<_>) = items.into_iter().unzip();
    let withheld_items =
        clearance.withheld_items(store, &caller.org, &keys).await.map_err(faults::moderation_problem)?;
    withheld.extend(
        ids.into_iter().zip(&keys).filter(|(_, item)| withheld_items.contains(item)).map(|(id, _)| id),
    );
    Ok(withheld)
}

/// Object named by the path of an audited request.
#[derive(Debug, PartialEq)]
enum AuditedObject {
    Job(JobId),
    Event(EventId),
    Item(ItemKey),
}

impl AuditedObject {
    fn parse(path: &str) -> Option<Self> {
        let mut parts = path.trim_start_matches('/').split('/');
        match (parts.next()?, parts.next()?) {
            ("jobs", id) => id.parse().ok().map(Self::Job),
            ("deliveries", id) => id.parse().ok().map(Self::Event),
            ("items" | "users", type_id) => {
                Some(Self::Item(ItemKey::new(decode_segment(type_id), decode_segment(parts.next()?))))
            }
            _ => None,
        }
    }
}

/// Percent-decodes a path segment. `+`, `&` and `=` have a meaning in forms only and stay as they are.
fn decode_segment(segment: &str) -> String {
    let part = segment.replace('+', "%2B").replace('&', "%26").replace('=', "%3D");
    form_urlencoded::parse(part.as_bytes()).map(|(name, _)| name.into_owned()).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn audited_object_is_parsed_from_the_path() {
        let id = "0190d3a1-0000-7000-8000-000000000001";
        let job = AuditedObject::parse(&format!("/jobs/{id}/decisions"));
        assert_eq!(job, Some(AuditedObject::Job(id.parse().unwrap())));
        let event = AuditedObject::parse(&format!("/deliveries/{id}/resend"));
        assert_eq!(event, Some(AuditedObject::Event(id.parse().unwrap())));
        let item = AuditedObject::parse("/items/post/a%2Fb+c=d/refresh");
        assert_eq!(item, Some(AuditedObject::Item(ItemKey::new("post", "a/b+c=d"))));
        for path in ["/jobs/claim-next", "/config", "/items", ""] {
            assert_eq!(AuditedObject::parse(path), None, "{path}");
        }
    }
}

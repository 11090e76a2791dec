//! Keeps entries of the audit that name child-safety material from callers without its scope.

use std::collections::HashSet;

use tidegate_schemas::ids::{EventId, ItemKey, JobId};
use tidegate_store::tables::{
    callbacks::deliveries::Delivery, catalog::audit::AuditEntry, review::jobs::Job,
};
use tidegate_web::Problem;
use uuid::Uuid;

use super::{Api, caller::Caller, faults};

/// Returns those of the audit's entries that name child-safety jobs, their callbacks or their items, if the caller may not see
/// them.
pub(super) async fn withheld_entries(
    api: &Api,
    caller: &Caller,
    entries: &[AuditEntry],
) -> Result<HashSet<Uuid>, Problem> {
    if caller.may_child_safety() {
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
    let (ids, keys): (Vec<_>, Vec<_>) = jobs.into_iter().unzip();
    let rows = store.get_many::<Job>(&keys).await.map_err(faults::store)?;
    let is_withheld = |job: &Option<Job>| job.as_ref().is_some_and(|job| !clearance.covers_job(job));
    withheld.extend(ids.into_iter().zip(rows).filter(|(_, job)| is_withheld(job)).map(|(id, _)| id));
    let (ids, keys): (Vec<_>, Vec<_>) = events.into_iter().unzip();
    let rows = store.get_many::<Delivery>(&keys).await.map_err(faults::store)?;
    let stored: Vec<_> = ids.into_iter().zip(rows).filter_map(|(id, row)| Some((id, row?))).collect();
    let (ids, rows): (Vec<_>, Vec<_>) = stored.into_iter().unzip();
    let hidden = clearance.withheld_events(store, &caller.org, &rows).await.map_err(faults::moderation)?;
    withheld.extend(
        ids.into_iter().zip(&rows).filter(|(_, row)| hidden.contains(&row.event_id)).map(|(id, _)| id),
    );
    let (ids, keys): (Vec<_>, Vec<_>) = items.into_iter().unzip();
    let hidden = clearance.withheld_items(store, &caller.org, &keys).await.map_err(faults::moderation)?;
    withheld.extend(ids.into_iter().zip(&keys).filter(|(_, item)| hidden.contains(item)).map(|(id, _)| id));
    Ok(withheld)
}

/// Thing that the path of an audited request names.
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
                Some(Self::Item(ItemKey::new(decode(type_id), decode(parts.next()?))))
            }
            _ => None,
        }
    }
}

/// Decodes a part of a path. The characters that mean something in a form only are taken as they are.
fn decode(part: &str) -> String {
    let part = part.replace('+', "%2B").replace('&', "%26").replace('=', "%3D");
    form_urlencoded::parse(part.as_bytes()).map(|(name, _)| name.into_owned()).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn object_of_an_audited_request_is_read_from_its_path() {
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

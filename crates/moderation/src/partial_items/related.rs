//! Requests items that a report or an appeal names but that were never submitted.

use std::collections::HashSet;

use tidegate_catalog::{Compiled, ItemType};
use tidegate_schemas::{
    ids::{ConfigVersion, ItemKey, JobId, Kind, Millis, OrgId, derive},
    item_types::{Mode, Role},
    records::{self, ItemEntry},
    validation_error::Pointer,
};
use tidegate_store::tables::review::partial_requests::PartialTrigger;

use super::requests::{self, NewRequest};
use crate::{Deps, Error, items::stored};

/// Requests thread entries without data, the items of `reportedItemsInThread`, and thread, parent and creator of the
/// reported item, except those that the report sends or the platform has submitted.
pub(crate) async fn ask_for_report(
    deps: &Deps,
    report: &records::Report,
    job_id: JobId,
    at: Millis,
) -> Result<(), Error> {
    let org = &report.org;
    if !deps.partial_items.has_endpoint(org) {
        return Ok(());
    }
    let Some(config) = load_config_at_least(deps, org, report.config_version).await? else { return Ok(()) };
    // A thread entry without data only names its item.
    let (named_only, with_data): (Vec<_>, Vec<_>) =
        report.thread.iter().partition(|item| lacks_data(&item.data));
    let sent_items = with_data.into_iter().chain(&report.additional).filter(|item| item.fault.is_none());
    let sent_keys: HashSet<_> = sent_items.map(|item| (&item.type_id, &item.id)).collect();
    // An entry with an unreadable id has an empty one.
    let readable = named_only.into_iter().filter(|item| !item.id.as_str().is_empty());
    let named_keys = readable.map(|item| ItemKey { type_id: item.type_id.clone(), id: item.id.clone() });
    let candidates = report
        .reported_in_thread
        .iter()
        .cloned()
        .chain(named_keys)
        .chain(related_items(&config, &report.item));
    let missing_candidates = candidates.filter(|key| !sent_keys.contains(&(&key.type_id, &key.id)));
    let items = filter_unsubmitted(deps, &config, &report.item.key(), missing_candidates.collect()).await?;
    let request = NewRequest {
        org: org.clone(),
        id: derive(Kind::PartialRequest, &[org.as_str().as_bytes(), b"report", report.report_id.as_bytes()]),
        trigger: PartialTrigger::Report,
        job_id: Some(job_id),
        subject: report.item.key(),
        items,
        at,
    };
    if request.items.is_empty() { Ok(()) } else { requests::store_request(deps, request).await }
}

/// Requests thread, parent and creator of the appealed item.
pub(crate) async fn ask_for_appeal(
    deps: &Deps,
    appeal: &records::Appeal,
    job_id: JobId,
    at: Millis,
) -> Result<(), Error> {
    let org = &appeal.org;
    if !deps.partial_items.has_endpoint(org) {
        return Ok(());
    }
    let Some(config) = load_config_at_least(deps, org, appeal.config_version).await? else { return Ok(()) };
    let sent_keys: HashSet<_> = appeal.additional.iter().map(|item| (&item.type_id, &item.id)).collect();
    let mut candidates = related_items(&config, &appeal.item);
    candidates.retain(|key| !sent_keys.contains(&(&key.type_id, &key.id)));
    let items = filter_unsubmitted(deps, &config, &appeal.item.key(), candidates).await?;
    let id = appeal.appeal_id.as_str().as_bytes();
    let request = NewRequest {
        org: org.clone(),
        id: derive(Kind::PartialRequest, &[org.as_str().as_bytes(), b"appeal", id]),
        trigger: PartialTrigger::Appeal,
        job_id: Some(job_id),
        subject: appeal.item.key(),
        items,
        at,
    };
    if request.items.is_empty() { Ok(()) } else { requests::store_request(deps, request).await }
}

pub(super) async fn load_config(deps: &Deps, org: &OrgId) -> Result<std::sync::Arc<Compiled>, Error> {
    match deps.live.org(org) {
        Some(config) => Ok(config),
        None => Ok(deps.live.load_latest(org).await?),
    }
}

/// Returns a configuration with at least the types of `version`: the live one may be older and would omit items of
/// newer types. `None` if the org has no usable configuration. The job then remains without related items.
async fn load_config_at_least(
    deps: &Deps,
    org: &OrgId,
    version: ConfigVersion,
) -> Result<Option<std::sync::Arc<Compiled>>, Error> {
    if let Some(live) = deps.live.org(org).filter(|live| live.version() >= version) {
        return Ok(Some(live));
    }
    match deps.live.load_latest(org).await.map_err(Error::from) {
        Ok(config) => Ok(Some(config)),
        Err(Error::Catalog(error)) if !matches!(error, tidegate_catalog::Error::Store(_)) => {
            tracing::warn!(%org, tag = error.tag(), "no usable configuration: related items are not requested");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn related_items(config: &Compiled, item: &ItemEntry) -> Vec<ItemKey> {
    let item_type = config.item_type_at(&item.type_id, item.type_version.as_deref());
    item_type.map(|item_type| named_items(item_type, &item.data)).unwrap_or_default()
}

/// True for `{}` and `null`. An entry without `data` has `{}`.
fn lacks_data(data: &[u8]) -> bool {
    let data = data.trim_ascii();
    let object = data.strip_prefix(b"{").and_then(|rest| rest.strip_suffix(b"}"));
    data == b"null" || object.is_some_and(|members| members.trim_ascii().is_empty())
}

/// Lists the items in fields with the roles thread, parent and creator. Empty if the data does not fit the type.
pub(crate) fn named_items(item_type: &ItemType, data: &[u8]) -> Vec<ItemKey> {
    let Ok(values) = item_type.check(data, Mode::Partial, &Pointer::Root) else { return Vec::new() };
    [Role::Thread, Role::Parent, Role::Creator]
        .into_iter()
        .filter_map(|role| values.related(role).cloned())
        .collect()
}

/// Returns the distinct items of configured types without a stored version.
async fn filter_unsubmitted(
    deps: &Deps,
    config: &Compiled,
    subject: &ItemKey,
    candidates: Vec<ItemKey>,
) -> Result<Vec<ItemKey>, Error> {
    let mut checked_items = HashSet::from([subject.clone()]);
    let mut unsubmitted = Vec::new();
    for key in candidates {
        // The platform cannot deliver a type that its configuration lacks.
        if config.item_type(&key.type_id).is_none() || !checked_items.insert(key.clone()) {
            continue;
        }
        if stored::find_newest_place(&deps.store, config.org(), &key).await?.is_none() {
            unsubmitted.push(key);
        }
    }
    Ok(unsubmitted)
}

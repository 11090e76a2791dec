//! Items that a report or an appeal names and that were never submitted.

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

/// Asks for entries of the thread that came without data, for those of `reportedItemsInThread`, and for thread, parent and
/// creator of the reported item, as far as they were neither sent along nor submitted.
pub(crate) async fn ask_for_report(
    deps: &Deps,
    report: &records::Report,
    job_id: JobId,
    at: Millis,
) -> Result<(), Error> {
    let org = &report.org;
    if !deps.partial_items.has(org) {
        return Ok(());
    }
    let Some(config) = known_config(deps, org, report.config_version).await? else { return Ok(()) };
    // An entry without data is named and not sent.
    let (bare, in_thread): (Vec<_>, Vec<_>) = report.thread.iter().partition(|item| lacks_data(&item.data));
    let sent = in_thread.into_iter().chain(&report.additional).filter(|item| item.fault.is_none());
    let sent: HashSet<_> = sent.map(|item| (&item.type_id, &item.id)).collect();
    // An entry whose id could not be read has an empty one.
    let bare = bare.into_iter().filter(|item| !item.id.as_str().is_empty());
    let bare = bare.map(|item| ItemKey { type_id: item.type_id.clone(), id: item.id.clone() });
    let named = report.reported_in_thread.iter().cloned().chain(bare).chain(related(&config, &report.item));
    let candidates = named.filter(|key| !sent.contains(&(&key.type_id, &key.id)));
    let items = never_submitted(deps, &config, &report.item.key(), candidates.collect()).await?;
    let request = NewRequest {
        org: org.clone(),
        id: derive(Kind::PartialRequest, &[org.as_str().as_bytes(), b"report", report.report_id.as_bytes()]),
        trigger: PartialTrigger::Report,
        job_id: Some(job_id),
        subject: report.item.key(),
        items,
        at,
    };
    if request.items.is_empty() { Ok(()) } else { requests::store(deps, request).await }
}

/// Asks for thread, parent and creator of the item that was acted on.
pub(crate) async fn ask_for_appeal(
    deps: &Deps,
    appeal: &records::Appeal,
    job_id: JobId,
    at: Millis,
) -> Result<(), Error> {
    let org = &appeal.org;
    if !deps.partial_items.has(org) {
        return Ok(());
    }
    let Some(config) = known_config(deps, org, appeal.config_version).await? else { return Ok(()) };
    let sent: HashSet<_> = appeal.additional.iter().map(|item| (&item.type_id, &item.id)).collect();
    let mut candidates = related(&config, &appeal.item);
    candidates.retain(|key| !sent.contains(&(&key.type_id, &key.id)));
    let items = never_submitted(deps, &config, &appeal.item.key(), candidates).await?;
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
    if request.items.is_empty() { Ok(()) } else { requests::store(deps, request).await }
}

pub(super) async fn config(deps: &Deps, org: &OrgId) -> Result<std::sync::Arc<Compiled>, Error> {
    match deps.live.org(org) {
        Some(config) => Ok(config),
        None => Ok(deps.live.latest(org).await?),
    }
}

/// Returns a configuration that knows at least the types of `version`: the one that is live here may be older, and would leave
/// out items of types that it lacks. `None`: nothing is configured that could say which items are related. The job stands
/// without them.
async fn known_config(
    deps: &Deps,
    org: &OrgId,
    version: ConfigVersion,
) -> Result<Option<std::sync::Arc<Compiled>>, Error> {
    if let Some(live) = deps.live.org(org).filter(|live| live.version() >= version) {
        return Ok(Some(live));
    }
    match deps.live.latest(org).await.map_err(Error::from) {
        Ok(config) => Ok(Some(config)),
        Err(Error::Catalog(error)) if !matches!(error, tidegate_catalog::Error::Store(_)) => {
            tracing::warn!(%org, tag = error.tag(), "items are not asked for without a configuration");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn related(config: &Compiled, item: &ItemEntry) -> Vec<ItemKey> {
    let item_type = config.item_type_at(&item.type_id, item.type_version.as_deref());
    item_type.map(|item_type| named_items(item_type, &item.data)).unwrap_or_default()
}

/// True for `{}` and `null`. An entry that came without `data` has `{}`.
fn lacks_data(data: &[u8]) -> bool {
    let data = data.trim_ascii();
    let object = data.strip_prefix(b"{").and_then(|rest| rest.strip_suffix(b"}"));
    data == b"null" || object.is_some_and(|members| members.trim_ascii().is_empty())
}

/// Returns the items in the fields with the roles thread, parent and creator. Data that does not fit the type names none.
pub(crate) fn named_items(item_type: &ItemType, data: &[u8]) -> Vec<ItemKey> {
    let Ok(values) = item_type.check(data, Mode::Partial, &Pointer::Root) else { return Vec::new() };
    [Role::Thread, Role::Parent, Role::Creator]
        .into_iter()
        .filter_map(|role| values.related(role).cloned())
        .collect()
}

/// Returns the items of known types of which no version is stored, each once.
async fn never_submitted(
    deps: &Deps,
    config: &Compiled,
    subject: &ItemKey,
    candidates: Vec<ItemKey>,
) -> Result<Vec<ItemKey>, Error> {
    let mut seen = HashSet::from([subject.clone()]);
    let mut missing = Vec::new();
    for key in candidates {
        // The platform cannot be asked for a type that its configuration does not have.
        if config.item_type(&key.type_id).is_none() || !seen.insert(key.clone()) {
            continue;
        }
        if stored::newest_place(&deps.store, config.org(), &key).await?.is_none() {
            missing.push(key);
        }
    }
    Ok(missing)
}

//! Determines the author of an item: the user for the strikes of actions on it.

use tidegate_catalog::Compiled;
use tidegate_schemas::{
    ids::ItemKey,
    records::{self, JobClass},
};
use tidegate_store::{
    RowRange, Store,
    tables::{
        items::items::Item,
        review::{jobs::JobCause, reports::Report},
    },
};

use super::stored::load_newest;
use crate::{Deps, Error};

/// Returns the user who receives strikes for a decision: the item's creator, or the item itself if it is a user.
///
/// Uses the newest version, or the version of the first report if none is stored yet.
pub(crate) async fn find_struck_user(
    deps: &Deps,
    config: &Compiled,
    decision: &records::Decision,
) -> Result<Option<ItemKey>, Error> {
    // Without its type the creator's field is unknown.
    if config.item_type(&decision.item.type_id).is_none() {
        return Ok(None);
    }
    let item_data = match load_newest(&deps.store, &decision.org, &decision.item).await? {
        Some(row) => Some(ItemData::from(row)),
        None => {
            let data = load_reported_data(&deps.store, decision).await?;
            data.map(|data| ItemData { type_version: None, data })
        }
    };
    Ok(author_from_data(config, &decision.item, item_data.as_ref()))
}

/// Item data in a version of the platform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ItemData {
    pub(crate) type_version: Option<String>,
    pub(crate) data: bytes::Bytes,
}

impl From<Item> for ItemData {
    fn from(row: Item) -> Self {
        Self { type_version: row.type_version, data: row.data }
    }
}

/// Returns the item's creator, or the item itself if it is a user. Uses the newest version, or `sent` if none is
/// stored.
pub(crate) async fn find_author(
    store: &Store,
    config: &Compiled,
    item: &ItemKey,
    sent: Option<ItemData>,
) -> Result<Option<ItemKey>, Error> {
    if config.item_type(&item.type_id).is_none() {
        return Ok(None);
    }
    let stored = load_newest(store, config.org(), item).await?;
    Ok(author_from_data(config, item, stored.map(ItemData::from).or(sent).as_ref()))
}

fn author_from_data(config: &Compiled, item: &ItemKey, item_data: Option<&ItemData>) -> Option<ItemKey> {
    let (version, data) = match item_data {
        Some(item_data) => (item_data.type_version.as_deref(), &*item_data.data),
        None => (None, &b"{}"[..]),
    };
    let current_type = config.item_type(&item.type_id)?;
    // A version that is no longer configured is read by the current type.
    config.item_type_at(&item.type_id, version).unwrap_or(current_type).creator(item, data)
}

async fn load_reported_data(
    store: &Store,
    decision: &records::Decision,
) -> Result<Option<bytes::Bytes>, Error> {
    // An appeal job has no report.
    if decision.class == JobClass::Appeal {
        return Ok(None);
    }
    let partition = (decision.org.clone(), decision.job_id);
    let causes = store.scan::<JobCause>(&partition, RowRange::all()).all().await?;
    let Some(report_id) = causes.iter().find_map(|cause| cause.report_id) else { return Ok(None) };
    let report = store.get::<Report>(&(decision.org.clone(), report_id)).await?;
    Ok(report.map(|report| report.data))
}

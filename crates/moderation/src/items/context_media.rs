//! Media of context items of reports and appeals: fetched after the job is open and stored beside it. No job waits
//! for them.

use async_recursion::async_recursion as boxed;
use tidegate_catalog::Compiled;
use tidegate_schemas::{
    ids::{ItemKey, Kind, Millis, OrgId, SubmissionId, derive},
    item_types::Mode,
    records::{self, ContextItem, ItemEntry, Record as _},
    validation_error::Pointer,
    wire::answers::Media,
};
use tidegate_store::{RowRange, Store, WriteTime, tables::review::context_media::ContextMedia};
use tidegate_stream::{Record, Topic};
use uuid::Uuid;

use crate::{
    Deps, Error,
    media::{self, HashDepth, MediumRequest},
};

/// Header that marks a record of context items. Its value is the id of the cause.
pub const CONTEXT: &str = "tidegate-context";

/// Parses the value of the header.
pub fn cause_of(header: &[u8]) -> Option<Uuid> {
    std::str::from_utf8(header).ok()?.parse().ok()
}

/// Appends items for the fetch of their media, in the given order.
pub(crate) async fn hand_over(
    deps: &Deps,
    head: records::Items,
    cause: Uuid,
    items: impl Iterator<Item = ItemEntry>,
) -> Result<(), Error> {
    // Items without a URL are omitted. A URL may be written with escapes.
    let may_contain_url = |data: &[u8]| {
        data.windows(4).any(|part| part.eq_ignore_ascii_case(b"http") || part.starts_with(b"\\u"))
    };
    let items: Vec<_> = items.filter(|item| may_contain_url(&item.data)).collect();
    let Some(first) = items.first() else { return Ok(()) };
    let key = first.key().log_key(&head.org);
    let record = records::Items { items, ..head };
    let cause = cause.to_string();
    let headers: &[(&str, &[u8])] = &[(CONTEXT, cause.as_bytes())];
    let partition = deps.log.partition(Topic::ItemsSlow, &key);
    deps.log.append(&[(partition, Record::new(&key, record.to_datum()).with_headers(headers))]).await?;
    Ok(())
}

/// Builds a record's entry for a context item.
pub(crate) fn build_entry(org: &OrgId, cause: Uuid, nth: usize, item: &ContextItem) -> ItemEntry {
    let nth = (nth as u64).to_be_bytes();
    let cause = cause.as_bytes();
    ItemEntry {
        submission_id: derive::<SubmissionId>(
            Kind::Submission,
            &[b"context", org.as_str().as_bytes(), cause, &nth],
        ),
        type_id: item.type_id.clone(),
        id: item.id.clone(),
        type_version: item.type_version.clone(),
        variant: item.variant,
        data: item.data.clone(),
        origin: None,
        keyed: false,
    }
}

/// Returns all entries of a record for the same item if `nth` is the first of them; otherwise none. They share one
/// row of media, so the first entry handles all.
pub fn entries_of_same_item(entries: &[ItemEntry], nth: usize) -> Vec<&ItemEntry> {
    let nth_entry = &entries[nth];
    let is_same = |entry: &&ItemEntry| entry.type_id == nth_entry.type_id && entry.id == nth_entry.id;
    if entries[..nth].iter().any(|entry| is_same(&entry)) {
        return Vec::new();
    }
    entries[nth..].iter().filter(is_same).collect()
}

/// Lists the media in all entries of a context item.
pub fn list_media(config: &Compiled, entries: &[&ItemEntry]) -> Vec<MediumRequest> {
    media::merge_by_url(entries.iter().flat_map(|entry| entry_media(config, entry)))
}

/// Lists the media of an entry. An entry that does not fit its type still has the field `images`, common to all
/// types.
fn entry_media(config: &Compiled, entry: &ItemEntry) -> Vec<MediumRequest> {
    let values = config
        .item_type_at(&entry.type_id, entry.type_version.as_deref())
        .and_then(|item_type| item_type.check(&entry.data, Mode::Partial, &Pointer::Root).ok());
    match values {
        Some(values) => media::list_media(&values),
        None => images(&entry.data),
    }
}

fn images(data: &[u8]) -> Vec<MediumRequest> {
    #[derive(serde::Deserialize)]
    struct Data {
        images: Vec<String>,
    }
    let images = serde_json::from_slice::<Data>(data).map_or_else(|_| Vec::new(), |data| data.images);
    images.into_iter().map(|url| MediumRequest { url, depth: HashDepth::Picture }).collect()
}

/// Stores the media of a context item beside its cause.
#[boxed]
pub async fn store_media(
    deps: &Deps,
    org: &OrgId,
    cause: Uuid,
    item: &ItemKey,
    media: &[Media],
    at: Millis,
) -> Result<(), Error> {
    let row = ContextMedia {
        org: org.clone(),
        cause,
        type_id: item.type_id.clone(),
        item_id: item.id.clone(),
        media: serde_json::to_string(media).map_err(Error::corrupt("list"))?,
        looked_at: Millis::now(),
    };
    Ok(deps.store.put_rows(WriteTime::from_append(at, 0), &[row]).await?)
}

/// Loads the media of all context items of a cause.
pub(crate) async fn load_media(store: &Store, org: &OrgId, cause: Uuid) -> Result<Vec<ContextMedia>, Error> {
    Ok(store.scan::<ContextMedia>(&(org.clone(), cause), RowRange::all()).all().await?)
}

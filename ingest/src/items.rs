//! `POST /api/v1/items/async/`: items into the log, all of a request or none.
//!
//! No rule is evaluated here.

use std::{collections::BTreeMap, sync::Arc};

use axum::http::StatusCode;
use tidegate_catalog::Compiled;
use tidegate_schemas::{
    ids::{Kind, OrgId, SubmissionId, derive},
    json::{Node, in_order},
    records::{self, ItemEntry, Record as _, Source},
    validation_error::{Pointer, ValidationError, ValidationErrors},
    wire::{
        self,
        answers::{Submission, Submissions},
        items::SubmittedItem,
    },
};
use tidegate_stream::{Record, Topic, topics::Partition};
use tidegate_web::{Json, Problem};

use crate::{
    Api, Shared,
    admission::{Admitted, IdempotencyKey, Received},
    config,
};

type Items = wire::Request<Vec<SubmittedItem>>;

pub(crate) async fn submit(
    api: Shared,
    admitted: Admitted,
) -> Result<(StatusCode, Json<Submissions>), Problem> {
    api.check_lag(&admitted.org)?;
    let received = api.receive(admitted).await?;
    let (config, entries) = api.checked_items(&received).await?;
    let submissions = entries.iter().map(submission).collect();
    api.append_items(&received, &config, entries, &[]).await?;
    Ok((StatusCode::ACCEPTED, Json(Submissions { submissions })))
}

impl Api {
    async fn checked_items(&self, received: &Received) -> Result<(Arc<Compiled>, Vec<ItemEntry>), Problem> {
        let (body, limits) = (received.bytes().clone(), self.settings.limits.clone());
        let size = body.len();
        let parsed = match self.work(size, move || wire::items::parse(&body, &limits)).await? {
            Ok(parsed) => parsed,
            Err(refused) => return Err(self.refused(received, refused).await),
        };
        let known = |config: &Compiled| {
            parsed
                .content
                .iter()
                .all(|item| config::knows(config, &item.type_id, item.type_version.as_deref()))
        };
        let config = self.config(&received.org, known).await?;
        let (checked, parsed) = {
            let config = Arc::clone(&config);
            self.work(size, move || (check(&config, &parsed), parsed)).await?
        };
        if let Err(faults) = checked {
            self.items.refused.increment(parsed.content.len() as u64);
            return Err(faults.into());
        }
        self.claim_key(received, "items", received.digest(parsed.root()).as_ref()).await?;
        let ids = submission_ids(&received.org, received.key.as_ref(), &parsed);
        let keyed = received.key.is_some();
        let items = parsed.content.into_iter().zip(ids);
        Ok((config, items.map(|(item, id)| entry(item, id, keyed)).collect()))
    }

    /// Appends the items of a request, all of them or none.
    pub(crate) async fn append_items(
        &self,
        received: &Received,
        config: &Compiled,
        entries: Vec<ItemEntry>,
        headers: &[(&str, &[u8])],
    ) -> Result<(), Problem> {
        if entries.is_empty() {
            return Ok(());
        }
        let count = entries.len();
        let groups = group_by_partition(entries, self.settings.record_bytes, |entry| {
            let key = entry.key().log_key(&received.org);
            (self.deps.log.partition(Topic::Items, &key), key)
        });
        let groups: Vec<_> = groups
            .into_iter()
            .map(|group| {
                let record = records::Items {
                    org: received.org.clone(),
                    config_version: config.version(),
                    source: Source::Api,
                    received_at: received.received_at,
                    request_id: received.request_id.to_string(),
                    report_id: None,
                    items: group.items,
                };
                (group.partition, group.key, record)
            })
            .collect();
        // One buffer for all: each record is a slice of it.
        let mut buffer = Vec::with_capacity(groups.iter().map(|(.., record)| record.size()).sum());
        let ends: Vec<usize> = groups
            .iter()
            .map(|(.., record)| {
                record.encode(&mut buffer);
                buffer.len()
            })
            .collect();
        let starts = std::iter::once(0).chain(ends.iter().copied());
        let addressed: Vec<_> = groups
            .iter()
            .zip(starts.zip(&ends))
            .map(|((partition, key, _), (start, end))| {
                (*partition, Record::new(key, &buffer[start..*end]).with_headers(headers))
            })
            .collect();
        self.deps.log.append(&addressed).await.map_err(|error| self.append_problem(&error))?;
        tidegate_stream::failpoint!("after_append");
        self.items.accepted.increment(count as u64);
        Ok(())
    }
}

/// All faults of all items.
fn check(config: &Compiled, parsed: &Items) -> Result<(), Vec<ValidationError>> {
    let (root, mut faults) = (parsed.root(), ValidationErrors::default());
    let items = Pointer::Root.key("items");
    for (index, item) in parsed.content.iter().enumerate() {
        let at = items.index(index);
        if let Some(item_type) = config.item_type_at(&item.type_id, item.type_version.as_deref()) {
            item_type.judge(item.data_in(root), item.mode(), &at.key("data"), &mut faults);
        } else {
            let node = root.get("items").and_then(|items| items.elements().nth(index));
            let named = (&item.type_id, item.type_version.as_deref());
            config::item_type(config, named, node, &at, &mut faults);
        }
    }
    in_order(faults, root).or(Some(()))
}

/// Random, or with an idempotency key the same for the same item at the same place.
fn submission_ids(org: &OrgId, key: Option<&IdempotencyKey>, parsed: &Items) -> Vec<SubmissionId> {
    let Some(key) = key else {
        return parsed.content.iter().map(|_| SubmissionId::random()).collect();
    };
    let items = parsed.root().get("items");
    let nodes = items.iter().flat_map(Node::elements);
    nodes
        .enumerate()
        .map(|(position, node)| {
            let position = (position as u64).to_be_bytes();
            derive(Kind::Submission, &[org.as_str().as_bytes(), key.as_bytes(), &position, &node.digest()])
        })
        .collect()
}

/// The item as the log keeps it.
pub(crate) fn entry(item: SubmittedItem, submission_id: SubmissionId, keyed: bool) -> ItemEntry {
    ItemEntry {
        submission_id,
        type_id: item.type_id,
        id: item.id,
        type_version: item.type_version,
        variant: item.variant,
        data: item.data,
        origin: None,
        keyed,
    }
}

fn submission(entry: &ItemEntry) -> Submission {
    Submission { id: entry.id.clone(), type_id: entry.type_id.clone(), submission_id: entry.submission_id }
}

/// Items of one request that go into one record.
#[derive(Debug)]
struct Group<K> {
    partition: Partition,
    /// Key of its first item: the partition is given, so the key only names it.
    key: K,
    items: Vec<ItemEntry>,
    bytes: usize,
}

/// Greatest size of an item's entry beside its data and its names.
const ENTRY_BYTES: usize = 64;

/// The items by partition, in their order, in groups of at most `most` bytes; one above it stands alone.
fn group_by_partition<K>(
    entries: Vec<ItemEntry>,
    most: usize,
    place: impl Fn(&ItemEntry) -> (Partition, K),
) -> Vec<Group<K>> {
    let mut groups: Vec<Group<K>> = Vec::new();
    let mut open: BTreeMap<Partition, usize> = BTreeMap::new();
    for entry in entries {
        let (partition, key) = place(&entry);
        let bytes = entry.data.len() + entry.id.as_str().len() + entry.type_id.as_str().len() + ENTRY_BYTES;
        let group = open
            .get(&partition)
            .map(|at| &mut groups[*at])
            .filter(|group| group.bytes.saturating_add(bytes) <= most);
        if let Some(group) = group {
            group.bytes += bytes;
            group.items.push(entry);
        } else {
            open.insert(partition, groups.len());
            groups.push(Group { partition, key, items: vec![entry], bytes });
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use tidegate_schemas::records::Variant;

    use super::*;

    fn item(id: u32, bytes: usize) -> ItemEntry {
        ItemEntry {
            submission_id: SubmissionId::random(),
            type_id: "post".into(),
            id: id.to_string().into(),
            type_version: None,
            variant: Variant::Original,
            data: vec![b' '; bytes].into(),
            origin: None,
            keyed: false,
        }
    }

    fn grouped(entries: Vec<ItemEntry>, most: usize) -> Vec<(u32, Vec<String>)> {
        let place = |entry: &ItemEntry| {
            let id: u32 = entry.id.as_str().parse().unwrap_or_default();
            (Partition::new(Topic::Items, id % 2), ())
        };
        group_by_partition(entries, most, place)
            .into_iter()
            .map(|group| {
                let ids = group.items.iter().map(|entry| entry.id.to_string()).collect();
                (group.partition.index, ids)
            })
            .collect()
    }

    fn names(ids: &[u32]) -> Vec<String> {
        ids.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn items_of_a_partition_stay_together_and_in_order() {
        let entries = [0, 1, 2, 3, 4].map(|id| item(id, 10)).to_vec();
        assert_eq!(grouped(entries, 10_000), [(0, names(&[0, 2, 4])), (1, names(&[1, 3]))]);
    }

    #[test]
    fn a_full_group_is_followed_by_another_and_nothing_returns_to_it() {
        let entries = [(0, 400), (2, 400), (4, 10), (1, 10)].map(|(id, bytes)| item(id, bytes)).to_vec();
        assert_eq!(grouped(entries, 600), [(0, names(&[0])), (0, names(&[2, 4])), (1, names(&[1]))]);
    }

    #[test]
    fn an_item_above_the_bound_stands_alone() {
        let entries = [(0, 9_000), (2, 10), (4, 10)].map(|(id, bytes)| item(id, bytes)).to_vec();
        assert_eq!(grouped(entries, 600), [(0, names(&[0])), (0, names(&[2, 4]))]);
    }

    #[test]
    fn no_item_takes_more_than_is_counted_for_it() {
        let entry = ItemEntry { type_version: None, origin: None, ..item(u32::MAX, 1 << 20) };
        let header = records::Items {
            org: "o".into(),
            config_version: tidegate_schemas::ids::ConfigVersion(1),
            source: Source::Api,
            received_at: tidegate_schemas::ids::Millis(0),
            request_id: String::new(),
            report_id: None,
            items: Vec::new(),
        };
        let empty = header.size();
        let counted = entry.data.len() + entry.id.as_str().len() + entry.type_id.as_str().len() + ENTRY_BYTES;
        assert!(records::Items { items: vec![entry], ..header }.size() - empty <= counted);
    }
}

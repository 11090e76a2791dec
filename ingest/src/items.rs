//! `POST /api/v1/items/async/`: appends the items of a request to the log, all or none.

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
    admission::{AdmittedRequest, IdempotencyKey, ReceivedRequest},
    config,
};

type ParsedBody = wire::Request<Vec<SubmittedItem>>;

pub(crate) async fn submit(
    api: Shared,
    admitted: AdmittedRequest,
) -> Result<(StatusCode, Json<Submissions>), Problem> {
    api.check_lag(&admitted.org)?;
    let request = api.receive_request(admitted).await?;
    let (config, entries) = api.validate_items(&request).await?;
    let submissions = entries.iter().map(to_submission).collect();
    api.append_items(&request, &config, entries, &[]).await?;
    Ok((StatusCode::ACCEPTED, Json(Submissions { submissions })))
}

impl Api {
    async fn validate_items(
        &self,
        request: &ReceivedRequest,
    ) -> Result<(Arc<Compiled>, Vec<ItemEntry>), Problem> {
        let (body, limits) = (request.bytes().clone(), self.settings.limits.clone());
        let size = body.len();
        let parsed_body =
            match self.offload_if_large(size, move || wire::items::parse(&body, &limits)).await? {
                Ok(body) => body,
                Err(rejection) => return Err(self.rejection_problem(request, rejection).await),
            };
        // A type may have been added after the loaded configuration, so the latest one is loaded before the type counts as unknown.
        let has_all_types = |config: &Compiled| {
            parsed_body
                .content
                .iter()
                .all(|item| config::has_item_type(config, &item.type_id, item.type_version.as_deref()))
        };
        let config = self.load_config(&request.org, has_all_types).await?;
        let (check_result, parsed_body) = {
            let config = Arc::clone(&config);
            self.offload_if_large(size, move || (check_items(&config, &parsed_body), parsed_body)).await?
        };
        if let Err(faults) = check_result {
            self.item_counters.refused_items.increment(parsed_body.content.len() as u64);
            return Err(faults.into());
        }
        // After the validation: a request with invalid items must not claim its key, so the client can correct it.
        self.claim_key(request, "items", request.digest(parsed_body.root()).as_ref()).await?;
        let ids = submission_ids(&request.org, request.key.as_ref(), &parsed_body);
        let is_keyed = request.key.is_some();
        let items = parsed_body.content.into_iter().zip(ids);
        Ok((config, items.map(|(item, id)| build_entry(item, id, is_keyed)).collect()))
    }

    /// Appends the items of a request, all or none.
    pub(crate) async fn append_items(
        &self,
        request: &ReceivedRequest,
        config: &Compiled,
        entries: Vec<ItemEntry>,
        headers: &[(&str, &[u8])],
    ) -> Result<(), Problem> {
        // An empty batch is valid and needs no record.
        if entries.is_empty() {
            return Ok(());
        }
        let count = entries.len();
        let groups = group_by_partition(entries, self.settings.record_bytes, |entry| {
            let key = entry.key().log_key(&request.org);
            (self.deps.log.partition(Topic::Items, &key), key)
        });
        let groups: Vec<_> = groups
            .into_iter()
            .map(|group| {
                let record = records::Items {
                    org: request.org.clone(),
                    config_version: config.version(),
                    source: Source::Api,
                    received_at: request.received_at,
                    request_id: request.request_id.to_string(),
                    report_id: None,
                    items: group.items,
                };
                (group.partition, group.key, record)
            })
            .collect();
        // One allocation for all records; each record is a slice of the buffer.
        let mut buffer = Vec::with_capacity(groups.iter().map(|(.., record)| record.size()).sum());
        let ends: Vec<usize> = groups
            .iter()
            .map(|(.., record)| {
                record.encode(&mut buffer);
                buffer.len()
            })
            .collect();
        let starts = std::iter::once(0).chain(ends.iter().copied());
        let addressed_records: Vec<_> = groups
            .iter()
            .zip(starts.zip(&ends))
            .map(|((partition, key, _), (start, end))| {
                (*partition, Record::new(key, &buffer[start..*end]).with_headers(headers))
            })
            .collect();
        self.deps.log.append(&addressed_records).await.map_err(|error| self.append_problem(&error))?;
        tidegate_stream::failpoint!("after_append");
        self.item_counters.accepted_items.increment(count as u64);
        Ok(())
    }
}

/// Validates all items and collects the faults of all.
fn check_items(config: &Compiled, parsed_body: &ParsedBody) -> Result<(), Vec<ValidationError>> {
    let (root, mut faults) = (parsed_body.root(), ValidationErrors::default());
    let items = Pointer::Root.key("items");
    for (index, item) in parsed_body.content.iter().enumerate() {
        let pointer = items.index(index);
        if let Some(item_type) = config.item_type_at(&item.type_id, item.type_version.as_deref()) {
            item_type.check_scanned(item.data_in(root), item.mode(), &pointer.key("data"), &mut faults);
        } else {
            // The node is looked up only for an unknown type: the search is linear, so a full batch would take quadratic time.
            let node = root.get("items").and_then(|items| items.elements().nth(index));
            let type_reference = (&item.type_id, item.type_version.as_deref());
            config::check_item_type(config, type_reference, node, &pointer, &mut faults);
        }
    }
    let ordered_faults = in_order(faults, root);
    ordered_faults.or(Some(()))
}

/// Returns random ids, or with an idempotency key ids derived from key, position and item. A repeated request then has the
/// same ids.
fn submission_ids(org: &OrgId, key: Option<&IdempotencyKey>, parsed_body: &ParsedBody) -> Vec<SubmissionId> {
    let Some(key) = key else {
        return parsed_body.content.iter().map(|_| SubmissionId::random()).collect();
    };
    let items = parsed_body.root().get("items");
    let nodes = items.iter().flat_map(Node::elements);
    nodes
        .enumerate()
        .map(|(position, node)| {
            let position = (position as u64).to_be_bytes();
            derive(Kind::Submission, &[org.as_str().as_bytes(), key.as_bytes(), &position, &node.digest()])
        })
        .collect()
}

/// Builds the log entry of an item.
pub(crate) fn build_entry(item: SubmittedItem, submission_id: SubmissionId, is_keyed: bool) -> ItemEntry {
    ItemEntry {
        submission_id,
        type_id: item.type_id,
        id: item.id,
        type_version: item.type_version,
        variant: item.variant,
        data: item.data,
        origin: None,
        keyed: is_keyed,
    }
}

fn to_submission(entry: &ItemEntry) -> Submission {
    Submission { id: entry.id.clone(), type_id: entry.type_id.clone(), submission_id: entry.submission_id }
}

/// Items of one request that share a record.
#[derive(Debug)]
struct RecordGroup<K> {
    partition: Partition,
    /// Key of the first item. The partition is set explicitly, so the key does not select it.
    key: K,
    items: Vec<ItemEntry>,
    bytes: usize,
}

/// Largest size of an item's entry without its data and ids.
const ENTRY_OVERHEAD_BYTES: usize = 64;

/// Groups the items by partition, in their order, up to `max_bytes` per group. An item above the limit has its own group.
fn group_by_partition<K>(
    entries: Vec<ItemEntry>,
    max_bytes: usize,
    locate: impl Fn(&ItemEntry) -> (Partition, K),
) -> Vec<RecordGroup<K>> {
    let mut groups: Vec<RecordGroup<K>> = Vec::new();
    let mut open_groups: BTreeMap<Partition, usize> = BTreeMap::new();
    for entry in entries {
        let (partition, key) = locate(&entry);
        let bytes =
            entry.data.len() + entry.id.as_str().len() + entry.type_id.as_str().len() + ENTRY_OVERHEAD_BYTES;
        let group = open_groups
            .get(&partition)
            .map(|index| &mut groups[*index])
            .filter(|group| group.bytes.saturating_add(bytes) <= max_bytes);
        if let Some(group) = group {
            group.bytes += bytes;
            group.items.push(entry);
        } else {
            // Replaces a full group, which takes no later item even if that one would fit: items must not overtake each other.
            open_groups.insert(partition, groups.len());
            groups.push(RecordGroup { partition, key, items: vec![entry], bytes });
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

    fn group_ids(entries: Vec<ItemEntry>, max_bytes: usize) -> Vec<(u32, Vec<String>)> {
        let locate = |entry: &ItemEntry| {
            let id: u32 = entry.id.as_str().parse().unwrap_or_default();
            (Partition::new(Topic::Items, id % 2), ())
        };
        group_by_partition(entries, max_bytes, locate)
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
        assert_eq!(group_ids(entries, 10_000), [(0, names(&[0, 2, 4])), (1, names(&[1, 3]))]);
    }

    #[test]
    fn full_group_is_closed_for_later_items() {
        let entries = [(0, 400), (2, 400), (4, 10), (1, 10)].map(|(id, bytes)| item(id, bytes)).to_vec();
        assert_eq!(group_ids(entries, 600), [(0, names(&[0])), (0, names(&[2, 4])), (1, names(&[1]))]);
    }

    #[test]
    fn item_above_the_limit_has_its_own_group() {
        let entries = [(0, 9_000), (2, 10), (4, 10)].map(|(id, bytes)| item(id, bytes)).to_vec();
        assert_eq!(group_ids(entries, 600), [(0, names(&[0])), (0, names(&[2, 4]))]);
    }

    #[test]
    fn counted_bytes_cover_the_encoded_entry() {
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
        let header_bytes = header.size();
        let counted_bytes =
            entry.data.len() + entry.id.as_str().len() + entry.type_id.as_str().len() + ENTRY_OVERHEAD_BYTES;
        assert!(records::Items { items: vec![entry], ..header }.size() - header_bytes <= counted_bytes);
    }
}

//! Compares the log with the mark of its durable state, and continues after an accepted loss.

use std::sync::Arc;

use fjall::PersistMode;
use tidegate_embedded_data::{DurableMark, DurableState, LOG_SYNCS_KEY};

use super::{
    format::{self, MetaKey},
    recovery::storage,
    state::State,
    stored_partition::StoredPartition,
};
use crate::{
    error::OpenError,
    topics::{NextOffset, Partition, Topic},
};

/// Offsets of missing records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MissingRange {
    partition: Partition,
    from: i64,
    before: i64,
}

impl std::fmt::Display for MissingRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} offsets {} to {}", self.partition, self.from, self.before - 1)
    }
}

/// Refuses a log that lacks durable data. If an operator accepts the loss, logs the missing records, continues after them,
/// and returns true: the caller must read the state again.
pub(super) fn check(state: &State, mark: &DurableMark) -> Result<bool, OpenError> {
    let Some(recorded) = mark.last_durable() else {
        write_mark(state, mark);
        return Ok(false);
    };
    let missing_ranges = find_missing_ends(state, recorded);
    let syncs = state.syncs();
    let has_loss = !missing_ranges.is_empty() || syncs < recorded.log_syncs;
    if has_loss && !mark.accepts_loss() {
        return Err(OpenError::Lost { detail: describe(&missing_ranges, syncs, recorded.log_syncs) });
    }
    if mark.accepts_loss() {
        for hole in find_holes(state)? {
            tracing::warn!("accepted as lost: {hole}");
        }
    }
    if has_loss {
        for gap in &missing_ranges {
            tracing::warn!("accepted as lost: {gap}");
        }
        tracing::warn!("accepted as lost: {}", describe(&missing_ranges, syncs, recorded.log_syncs));
        skip_lost_offsets(state, &missing_ranges, recorded.log_syncs.max(syncs))
            .map_err(|error| storage(&error))?;
    } else {
        write_mark(state, mark);
    }
    Ok(has_loss)
}

/// Writes the state of the log to the mark.
fn write_mark(state: &State, mark: &DurableMark) {
    let ends = state.all_stored().filter(|(_, stored)| stored.end() > 0);
    let ends = ends.map(|(partition, stored)| (partition.topic.label(), partition.index, stored.end()));
    if let Err(error) = mark.record_log_sync(state.syncs(), ends) {
        tracing::warn!(%error, "cannot write the mark of durable data");
    }
}

fn find_missing_ends(state: &State, recorded: &DurableState) -> Vec<MissingRange> {
    let mut missing_ranges = Vec::new();
    for (topic, ends) in &recorded.ends {
        // A topic of another version is not read by this one.
        let Some(topic) = Topic::from_label(topic) else { continue };
        for (index, before) in ends {
            let partition = Partition::new(topic, *index);
            let from = state.stored(partition).map_or(i64::MAX, StoredPartition::end);
            if from < *before {
                missing_ranges.push(MissingRange { partition, from, before: *before });
            }
        }
    }
    missing_ranges
}

fn describe(missing: &[MissingRange], syncs: u64, durable: u64) -> String {
    /// Largest number of partitions named in a message.
    const MAX_NAMED_PARTITIONS: usize = 20;
    let mut parts: Vec<_> = missing.iter().take(MAX_NAMED_PARTITIONS).map(ToString::to_string).collect();
    if missing.len() > MAX_NAMED_PARTITIONS {
        parts.push(format!("and of {} more partitions", missing.len() - MAX_NAMED_PARTITIONS));
    }
    if syncs < durable {
        parts.push(format!("the last {} of {durable} writes of the log", durable - syncs));
    }
    parts.join(", ")
}

/// Finds holes between the stored records. Reads every key, so it runs only if an operator accepts a loss.
fn find_holes(state: &State) -> Result<Vec<MissingRange>, OpenError> {
    let mut holes = Vec::new();
    for (partition, stored) in state.all_stored() {
        let Some(keyspace) = stored.keyspace() else { continue };
        let mut next = stored.start();
        for guard in keyspace.range(format::offset_key(next)..) {
            let key = guard.key().map_err(|error| storage(&error))?;
            let Some(offset) = format::parse_offset(&key) else { continue };
            if offset > next {
                holes.push(MissingRange { partition, from: next, before: offset });
            }
            next = offset + 1;
        }
    }
    holes.sort_unstable_by_key(|hole| (hole.partition, hole.from));
    Ok(holes)
}

/// Ends a segment after the lost records, so that their offsets are not reused, and moves groups past the gap.
fn skip_lost_offsets(state: &State, missing: &[MissingRange], syncs: u64) -> fjall::Result<()> {
    let mut batch = state.db.batch().durability(Some(PersistMode::SyncAll));
    for MissingRange { partition, from, before } in missing {
        let Some(stored) = state.stored(*partition) else { continue };
        let open = stored.segments.lock().open_segment();
        let bytes = i64::try_from(open.bytes).unwrap_or(i64::MAX);
        let key = MetaKey::Segment.key(*partition, *before);
        batch.insert(&state.meta, key, format::pair(bytes, open.last_ms));
        for (name, positions) in state.groups.read().iter() {
            let is_in_gap = |next: &&NextOffset| (*from..*before).contains(&next.0);
            // A group inside the gap would stop there.
            if positions.get(partition).filter(is_in_gap).is_some() {
                batch.insert(&state.meta, format::group_key(name, *partition), format::offset_key(*before));
            }
        }
    }
    batch.insert(&state.meta, LOG_SYNCS_KEY, syncs.to_be_bytes());
    batch.commit()
}

/// Records a sync in the mark, if the log has one.
pub(super) fn mark_synced(
    mark: Option<&Arc<DurableMark>>,
    syncs: u64,
    ends: impl IntoIterator<Item = (Partition, i64)>,
) {
    let Some(mark) = mark else { return };
    let ends = ends.into_iter().map(|(partition, end)| (partition.topic.label(), partition.index, end));
    if let Err(error) = mark.record_log_sync(syncs, ends) {
        tracing::warn!(%error, "cannot write the mark of durable data");
    }
}

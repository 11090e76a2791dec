//! Comparison of the log with the mark of what was durable, and how it goes on without what is missing.

use std::sync::Arc;

use fjall::PersistMode;
use tidegate_schemas::{Durable, DurableMark};

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

/// Offsets that were given to records which are not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Missing {
    partition: Partition,
    from: i64,
    before: i64,
}

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} offsets {} to {}", self.partition, self.from, self.before - 1)
    }
}

/// Refuses a log that lacks something that was durable. If an operator accepts the loss, tells what is gone, goes on
/// behind it, and returns true: the state is to be read again.
pub(super) fn check(state: &State, mark: &DurableMark) -> Result<bool, OpenError> {
    let Some(durable) = mark.found() else {
        note(state, mark);
        return Ok(false);
    };
    let missing = missing_ends(state, durable);
    let syncs = state.syncs();
    let has_lost = !missing.is_empty() || syncs < durable.log_syncs;
    if has_lost && !mark.accepts_loss() {
        return Err(OpenError::Lost { detail: describe(&missing, syncs, durable.log_syncs) });
    }
    if mark.accepts_loss() {
        for hole in holes(state)? {
            tracing::warn!("accepted as lost: {hole}");
        }
    }
    if has_lost {
        for gap in &missing {
            tracing::warn!("accepted as lost: {gap}");
        }
        tracing::warn!("accepted as lost: {}", describe(&missing, syncs, durable.log_syncs));
        go_on_behind(state, &missing, durable.log_syncs.max(syncs)).map_err(|error| storage(&error))?;
    } else {
        note(state, mark);
    }
    Ok(has_lost)
}

/// Writes the state of the log to the mark.
fn note(state: &State, mark: &DurableMark) {
    let ends = state.all_stored().filter(|(_, stored)| stored.end() > 0);
    let ends = ends.map(|(partition, stored)| (partition.topic.label(), partition.index, stored.end()));
    if let Err(error) = mark.log_synced(state.syncs(), ends) {
        tracing::warn!(%error, "the mark of what is durable cannot be written");
    }
}

fn missing_ends(state: &State, durable: &Durable) -> Vec<Missing> {
    let mut missing = Vec::new();
    for (topic, ends) in &durable.ends {
        // A topic of another version holds nothing that this one reads.
        let Some(topic) = Topic::from_label(topic) else { continue };
        for (index, before) in ends {
            let partition = Partition::new(topic, *index);
            let from = state.stored(partition).map_or(i64::MAX, StoredPartition::end);
            if from < *before {
                missing.push(Missing { partition, from, before: *before });
            }
        }
    }
    missing
}

fn describe(missing: &[Missing], syncs: u64, durable: u64) -> String {
    /// Partitions that a message names.
    const NAMED: usize = 20;
    let mut parts: Vec<_> = missing.iter().take(NAMED).map(ToString::to_string).collect();
    if missing.len() > NAMED {
        parts.push(format!("and of {} more partitions", missing.len() - NAMED));
    }
    if syncs < durable {
        parts.push(format!("the last {} of {durable} writes of the log", durable - syncs));
    }
    parts.join(", ")
}

/// Finds holes between the records that are there. It reads every key, so it is for an operator who asks.
fn holes(state: &State) -> Result<Vec<Missing>, OpenError> {
    let mut holes = Vec::new();
    for (partition, stored) in state.all_stored() {
        let Some(keyspace) = stored.keyspace() else { continue };
        let mut next = stored.start();
        for guard in keyspace.range(format::offset_key(next)..) {
            let key = guard.key().map_err(|error| storage(&error))?;
            let Some(offset) = format::parse_offset(&key) else { continue };
            if offset > next {
                holes.push(Missing { partition, from: next, before: offset });
            }
            next = offset + 1;
        }
    }
    holes.sort_unstable_by_key(|hole| (hole.partition, hole.from));
    Ok(holes)
}

/// Ends a segment where the lost records ended, so that no offset is given twice, and moves groups past the gap.
fn go_on_behind(state: &State, missing: &[Missing], syncs: u64) -> fjall::Result<()> {
    let mut batch = state.db.batch().durability(Some(PersistMode::SyncAll));
    for Missing { partition, from, before } in missing {
        let Some(stored) = state.stored(*partition) else { continue };
        let open = stored.segments.lock().open_segment();
        let bytes = i64::try_from(open.bytes).unwrap_or(i64::MAX);
        let key = MetaKey::Segment.key(*partition, *before);
        batch.insert(&state.meta, key, format::pair(bytes, open.last_ms));
        for (name, positions) in state.groups.read().iter() {
            let is_in_gap = |next: &&NextOffset| (*from..*before).contains(&next.0);
            if positions.get(partition).filter(is_in_gap).is_some() {
                batch.insert(&state.meta, format::group_key(name, *partition), format::offset_key(*before));
            }
        }
    }
    batch.insert(&state.meta, format::SYNCS_KEY, syncs.to_be_bytes());
    batch.commit()
}

/// Notes a sync in the mark, if there is one.
pub(super) fn mark_synced(
    mark: Option<&Arc<DurableMark>>,
    syncs: u64,
    ends: impl IntoIterator<Item = (Partition, i64)>,
) {
    let Some(mark) = mark else { return };
    let ends = ends.into_iter().map(|(partition, end)| (partition.topic.label(), partition.index, end));
    if let Err(error) = mark.log_synced(syncs, ends) {
        tracing::warn!(%error, "the mark of what is durable cannot be written");
    }
}

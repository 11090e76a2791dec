//! Counts the store's syncs in the database and in the mark beside it, so that a start detects lost writes.

use std::{cell::Cell, sync::Arc};

use fjall::{Database, Keyspace, PersistMode};
use tidegate_embedded_data::{DurableMark, STORE_SYNCS_KEY};

use super::{engine_error, meta};
use crate::Error;

/// Counter of syncs, owned by the writer thread.
pub(super) struct SyncCounter {
    meta: Keyspace,
    count: Cell<u64>,
    mark: Option<Arc<DurableMark>>,
}

impl SyncCounter {
    /// Reads the counter, and refuses one below the mark's unless the loss is accepted.
    pub(super) fn open(db: &Database, mark: Option<Arc<DurableMark>>) -> Result<Self, Error> {
        let meta = meta(db).map_err(engine_error)?;
        let stored = meta.get(STORE_SYNCS_KEY).map_err(engine_error)?;
        let count =
            stored.and_then(|value| value.as_ref().try_into().ok().map(u64::from_be_bytes)).unwrap_or(0);
        let mark_state =
            mark.as_ref().and_then(|mark| Some((mark.last_durable()?.store_syncs, mark.accepts_loss())));
        let syncs = Self { meta, count: Cell::new(count), mark };
        if let Some((durable, accepts_loss)) = mark_state
            && durable > count
        {
            let missing_syncs = durable - count;
            if !accepts_loss {
                return Err(Error::LostWrites { missing: missing_syncs, durable });
            }
            tracing::warn!(
                "accepted as lost: the last {missing_syncs} of {durable} synced writes of the store"
            );
            // Synced at once, so that the loss stays accepted even if this process dies.
            syncs.count.set(durable);
            syncs.persist(db, PersistMode::SyncAll).map_err(engine_error)?;
        }
        Ok(syncs)
    }

    /// Syncs the database and records the sync. All earlier writes are durable afterwards.
    pub(super) fn persist(&self, db: &Database, mode: PersistMode) -> fjall::Result<()> {
        let count = self.count.get() + 1;
        // The counter is written before the sync that it counts: a database with a lower counter lost a sync.
        self.meta.insert(STORE_SYNCS_KEY, count.to_be_bytes())?;
        db.persist(mode)?;
        // Only after the sync: a failed one must not be counted.
        self.count.set(count);
        if let Some(mark) = &self.mark
            // A mark that lags behind can only miss a loss; refusing the write would not protect the data.
            && let Err(error) = mark.record_store_sync(count)
        {
            tracing::warn!(%error, "cannot write the mark of durable data");
        }
        Ok(())
    }
}

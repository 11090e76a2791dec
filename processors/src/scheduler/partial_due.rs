//! Due rows of requests for items. Each is worked off by a task of its own, so that a platform that does not answer holds
//! back nobody else's.

use std::{collections::HashSet, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tidegate_moderation::partial_items::fetcher::Fetcher;
use tidegate_schemas::ids::{Millis, OrgId};
use tidegate_store::{
    Store,
    tables::review::partial_requests::{PartialCursor, PartialDue, PartialRequest, PartialState},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use uuid::Uuid;

use super::{
    due_index::FollowUp,
    stored_due::{StoredDueTable, stored_due_row},
};
use crate::consumer::error::TaskError;

/// Pause before a request is looked at again that is being made, or for which its org has no permit left.
const AGAIN: Duration = Duration::from_millis(500);

/// Time for which a due row waits for its request, which is written after it.
const WRITTEN_WITHIN: Duration = Duration::from_secs(60);

pub(crate) struct DuePartialItems {
    fetcher: Fetcher,
    under_way: Arc<Mutex<HashSet<(OrgId, Uuid)>>>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl DuePartialItems {
    pub(crate) fn new(fetcher: Fetcher, stop: CancellationToken) -> Self {
        Self { fetcher, under_way: Arc::default(), tasks: TaskTracker::new(), stop }
    }

    /// The tasks of requests under way. They end at `stop`; the next owner of their shard makes them again.
    pub(crate) fn tasks(&self) -> TaskTracker {
        self.tasks.clone()
    }
}

stored_due_row!(PartialDue with PartialCursor, by request_id: Uuid);

impl StoredDueTable for DuePartialItems {
    type Row = PartialDue;

    fn store(&self) -> &Store {
        &self.fetcher.deps().store
    }

    async fn act(&self, due: &PartialDue, now: Millis) -> Result<FollowUp, TaskError> {
        let again = FollowUp::DueAgain(now.plus(AGAIN));
        let id = (due.org.clone(), due.request_id);
        if self.under_way.lock().contains(&id) {
            return Ok(again);
        }
        // Asked for before the row is read: an org whose platform hangs has many rows that wait.
        let Some(permit) = self.fetcher.permit(&due.org) else { return Ok(again) };
        let at = due.requested_at;
        let key = (due.org.clone(), at.day(), at, due.request_id);
        let row = match self.fetcher.deps().store.get::<PartialRequest>(&key).await? {
            Some(row) if row.state == PartialState::Pending => row,
            None if due.due_at.plus(WRITTEN_WITHIN) > now => return Ok(again),
            _ => return Ok(FollowUp::Settled),
        };
        if let Some(next_at) = row.next_at.filter(|next_at| *next_at > now) {
            return Ok(FollowUp::DueAgain(next_at));
        }
        self.under_way.lock().insert(id.clone());
        let done = Done { under_way: Arc::clone(&self.under_way), id };
        let (fetcher, stop) = (self.fetcher.clone(), self.stop.clone());
        self.tasks.spawn(async move {
            let org = done.id.0.clone();
            if let Some(Err(error)) = stop.run_until_cancelled(fetcher.work_off(row, permit)).await {
                tracing::warn!(%org, tag = error.tag(), "a request for items is made again: {error}");
            }
            drop(done);
        });
        Ok(again)
    }
}

/// Takes a request out of those under way, however its task ends.
struct Done {
    under_way: Arc<Mutex<HashSet<(OrgId, Uuid)>>>,
    id: (OrgId, Uuid),
}

impl Drop for Done {
    fn drop(&mut self) {
        self.under_way.lock().remove(&self.id);
    }
}

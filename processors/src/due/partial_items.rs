//! Due rows of requests for items. Each request runs in its own task, so an unresponsive platform does not delay others.

use std::{collections::HashSet, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tidegate_moderation::partial_items::fetcher::PartialItemsFetcher;
use tidegate_schemas::ids::{Millis, OrgId};
use tidegate_store::{
    Store,
    tables::review::partial_requests::{PartialCursor, PartialDue, PartialRequest, PartialState},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use uuid::Uuid;

use super::{
    index::FollowUp,
    stored_rows::{StoredDueTable, stored_due_row},
};
use crate::consumer::error::TaskError;

/// Pause before a request is checked again that is running, or whose org has no free permit.
const RECHECK_PAUSE: Duration = Duration::from_millis(500);

/// Longest time between the write of a due row and the write of its request.
const MAX_WRITE_DELAY: Duration = Duration::from_secs(60);

pub(crate) struct DuePartialItems {
    fetcher: PartialItemsFetcher,
    running_requests: Arc<Mutex<HashSet<(OrgId, Uuid)>>>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl DuePartialItems {
    pub(crate) fn new(fetcher: PartialItemsFetcher, stop: CancellationToken) -> Self {
        Self { fetcher, running_requests: Arc::default(), tasks: TaskTracker::new(), stop }
    }

    /// Returns the tasks of running requests. They end at `stop`; the next owner of the shard repeats the requests.
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
        let recheck = FollowUp::DueAgain(now.plus(RECHECK_PAUSE));
        let id = (due.org.clone(), due.request_id);
        if self.running_requests.lock().contains(&id) {
            return Ok(recheck);
        }
        // Before the read: an org with an unresponsive platform has many waiting rows, and each would be read at every
        // check.
        let Some(permit) = self.fetcher.permit(&due.org) else { return Ok(recheck) };
        let requested_at = due.requested_at;
        let key = (due.org.clone(), requested_at.day(), requested_at, due.request_id);
        let row = match self.fetcher.deps().store.get::<PartialRequest>(&key).await? {
            Some(row) if row.state == PartialState::Pending => row,
            None if due.due_at.plus(MAX_WRITE_DELAY) > now => return Ok(recheck),
            // The request is done, or a crash prevented its write.
            _ => return Ok(FollowUp::Settled),
        };
        if let Some(next_at) = row.next_at.filter(|next_at| *next_at > now) {
            return Ok(FollowUp::DueAgain(next_at));
        }
        self.running_requests.lock().insert(id.clone());
        let running_request = RunningRequest { running_requests: Arc::clone(&self.running_requests), id };
        let (fetcher, stop) = (self.fetcher.clone(), self.stop.clone());
        self.tasks.spawn(async move {
            let org = running_request.id.0.clone();
            if let Some(Err(error)) = stop.run_until_cancelled(fetcher.execute(row, permit)).await {
                tracing::warn!(%org, tag = error.tag(), "a request for items failed and is retried: {error}");
            }
            drop(running_request);
        });
        Ok(recheck)
    }
}

/// Running request. Dropping it removes the request from `running_requests`, also after a panic.
struct RunningRequest {
    running_requests: Arc<Mutex<HashSet<(OrgId, Uuid)>>>,
    id: (OrgId, Uuid),
}

impl Drop for RunningRequest {
    fn drop(&mut self) {
        self.running_requests.lock().remove(&self.id);
    }
}

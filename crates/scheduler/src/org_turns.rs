//! Turns of orgs at a shared limit: an org has one turn at a time, so orgs alternate regardless of the number of their
//! tasks.

use std::sync::Arc;

use tidegate_schemas::ids::OrgId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::OrgPermits;

/// Queue of tasks in which orgs alternate. Clones share it.
#[derive(Clone)]
pub struct OrgTurns {
    org_permits: OrgPermits,
    turn_permits: Arc<Semaphore>,
}

/// Turn of an org, ended on drop.
pub struct OrgTurn {
    // Declared first and so dropped first: the org's next task then queues behind the tasks of other orgs.
    _turn_permit: OwnedSemaphorePermit,
    _org_permit: OwnedSemaphorePermit,
}

impl OrgTurns {
    /// `max_running`: number of orgs that can have their turn concurrently.
    pub fn new(max_running: usize) -> Self {
        Self { org_permits: OrgPermits::new(1), turn_permits: Arc::new(Semaphore::new(max_running)) }
    }

    /// Waits for a turn of the org. Dropping the future leaves the queue.
    pub async fn acquire(&self, org: &OrgId) -> OrgTurn {
        // At most one task of each org waits for a turn, so that the orgs alternate.
        let org_permit = self.org_permits.acquire(org).await;
        let turn_permit =
            Arc::clone(&self.turn_permits).acquire_owned().await.expect("the semaphore is never closed");
        OrgTurn { _turn_permit: turn_permit, _org_permit: org_permit }
    }

    /// Returns the number of further orgs that could have their turn now.
    pub fn count_free(&self) -> usize {
        self.turn_permits.available_permits()
    }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt as _, poll};

    use super::*;

    #[tokio::test]
    async fn orgs_alternate_at_a_limit_of_one() {
        let (turns, busy, other_org) = (OrgTurns::new(1), OrgId::new("busy"), OrgId::new("other"));
        let running = turns.acquire(&busy).await;
        let mut waiting: Vec<_> = (0..30).map(|_| turns.acquire(&busy).boxed()).collect();
        for turn in &mut waiting {
            assert!(poll!(turn).is_pending());
        }
        let mut other_turn = turns.acquire(&other_org).boxed();
        assert!(poll!(&mut other_turn).is_pending());
        drop(running);
        assert!(poll!(&mut waiting[0]).is_pending(), "the other org is first");
        assert!(other_turn.now_or_never().is_some());
        assert!(waiting.remove(0).now_or_never().is_some());
    }
}

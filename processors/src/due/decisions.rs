//! Due rows of decisions: releases a decision at the end of its undo period.

use std::time::Duration;

use tidegate_moderation::{
    self as moderation,
    review::decisions::{self, DueRowStep},
};
use tidegate_schemas::ids::{JobId, Millis, OrgId};
use tidegate_store::{
    Store,
    tables::review::decisions::{DecisionCursor, DecisionDue},
};

use super::{
    index::FollowUp,
    stored_rows::{StoredDueTable, stored_due_row},
};
use crate::consumer::error::TaskError;

pub(crate) struct DueDecisions {
    pub(crate) deps: moderation::Deps,
    /// Time after which a released decision without a log record is appended again.
    pub(crate) append_lease: Duration,
}

stored_due_row!(DecisionDue with DecisionCursor, by job_id: JobId);

impl StoredDueTable for DueDecisions {
    type Row = DecisionDue;

    fn store(&self) -> &Store {
        &self.deps.store
    }

    async fn act(&self, row: &DecisionDue, now: Millis) -> Result<FollowUp, TaskError> {
        Ok(match decisions::release(&self.deps, row, self.append_lease, now).await? {
            DueRowStep::Finished => FollowUp::Settled,
            DueRowStep::RetryAt(at) => FollowUp::DueAgain(at),
        })
    }
}

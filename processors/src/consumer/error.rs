//! Errors of roles and of single pieces of work, and what the consumer does about each.

use tidegate_catalog as catalog;
use tidegate_moderation as moderation;
use tidegate_store as store;
use tidegate_stream::{
    error::{AppendError, ConsumeError},
    topics::Role,
};

use crate::settings::SettingsError;

/// Reason why a role ends before it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum RoleError {
    #[error(transparent)]
    Consume(#[from] ConsumeError),
    /// Too much content cannot be processed: the fault is ours, and going on would divert everybody's content.
    #[error("role {role} stopped: {why}")]
    Poison { role: Role, why: String },
    #[error("role {role} broke: {detail}")]
    Broken { role: Role, detail: String },
    #[error(transparent)]
    Settings(#[from] SettingsError),
}

impl RoleError {
    pub const fn tag(&self) -> &'static str {
        match self {
            Self::Consume(error) => error.tag(),
            Self::Poison { .. } => "poison",
            Self::Broken { .. } => "broken",
            Self::Settings(error) => error.tag(),
        }
    }
}

/// Reason why a piece of work is not done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TaskError {
    #[error(transparent)]
    Moderation(#[from] moderation::Error),
    #[error(transparent)]
    Panicked(#[from] Panicked),
    /// The partition was revoked during a wait: its next owner does the work.
    #[error("the assignment is gone")]
    AssignmentLost,
}

/// A computation panicked. The threads and the work of others go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a computation panicked")]
pub(crate) struct Panicked;

/// Consequence of an error for the piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disposition {
    /// The content cannot be processed: it goes to the dead letters.
    DeadLetter,
    /// A row of ours is missing or unreadable: retried for a limited time, since a newer process may have written the row
    /// during an upgrade, then a dead letter.
    RetryForAWhile,
    /// The configuration under which the content was accepted is not here: `missing_config` decides.
    AwaitConfig,
    /// The catalog is at fault: retried without limit, and nothing new is started.
    AwaitCatalog,
    /// The log or the store is unavailable: retried without limit, and nothing new is started.
    AwaitRecovery,
    /// The next owner of the partition does the work.
    Abandon,
}

impl TaskError {
    pub(crate) fn tag(&self) -> &'static str {
        match self {
            Self::Moderation(error) => error.tag(),
            Self::Panicked(_) => "panicked",
            Self::AssignmentLost => "lost",
        }
    }

    pub(crate) fn disposition(&self) -> Disposition {
        match self {
            Self::Moderation(error) => of_moderation_error(error),
            Self::Panicked(_) => Disposition::DeadLetter,
            Self::AssignmentLost => Disposition::Abandon,
        }
    }

    /// True if the log or the store is unavailable.
    pub(crate) fn is_outage(&self) -> bool {
        self.disposition() == Disposition::AwaitRecovery
    }
}

impl From<store::Error> for TaskError {
    fn from(error: store::Error) -> Self {
        moderation::Error::from(error).into()
    }
}

fn of_moderation_error(error: &moderation::Error) -> Disposition {
    match error {
        moderation::Error::Content { .. } | moderation::Error::Append(AppendError::TooLarge { .. }) => {
            Disposition::DeadLetter
        }
        moderation::Error::Corrupt { .. } => Disposition::RetryForAWhile,
        moderation::Error::Catalog(error) => of_catalog_error(error),
        moderation::Error::Store(error) => of_store_error(error),
        moderation::Error::Append(_) => Disposition::AwaitRecovery,
    }
}

fn of_catalog_error(error: &catalog::Error) -> Disposition {
    match error {
        catalog::Error::Store(error) => of_store_error(error),
        // The log names configurations that existed when the content was accepted, so the content is never at fault.
        catalog::Error::NotCompiled { .. }
        | catalog::Error::Unreadable { .. }
        | catalog::Error::Bank { .. }
        | catalog::Error::Busy
        | catalog::Error::Panicked(_)
        | catalog::Error::NoSuchOrg(_)
        | catalog::Error::NoSuchVersion { .. } => Disposition::AwaitConfig,
    }
}

fn of_store_error(error: &store::Error) -> Disposition {
    match error {
        store::Error::KeyTooLong { .. } | store::Error::TooLarge { .. } => Disposition::DeadLetter,
        // A server's refusal is less certain than our own measurement: while a table is being altered, the next try may
        // succeed.
        store::Error::Refused(_) | store::Error::Corrupt(_) | store::Error::Unreadable(_) => {
            Disposition::RetryForAWhile
        }
        store::Error::Unreachable(_)
        | store::Error::Timeout(_)
        | store::Error::Overloaded(_)
        | store::Error::Closed
        // A broken disk, a missing table, a revoked permission: every write fails until an operator repairs it, so no
        // content is at fault. Meanwhile the process is not ready and says why.
        | store::Error::Engine(_)
        | store::Error::Lost
        | store::Error::TakenAway(_)
        | store::Error::Schema { .. }
        | store::Error::NewerFormat { .. }
        | store::Error::UnknownTable(_)
        | store::Error::Settings(_)
        | store::Error::BadCursor
        | store::Error::Missing { .. } => Disposition::AwaitRecovery,
    }
}

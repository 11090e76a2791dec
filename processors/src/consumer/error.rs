//! Errors of roles and tasks, and the consumer's reaction to each.

use tidegate_catalog as catalog;
use tidegate_moderation as moderation;
use tidegate_store as store;
use tidegate_stream::{
    error::{AppendError, ConsumeError},
    topics::Role,
};

use crate::settings::SettingsError;

/// Reason for the unexpected end of a role.
#[derive(Debug, thiserror::Error)]
pub enum RoleError {
    #[error(transparent)]
    Consume(#[from] ConsumeError),
    /// Too much content is unprocessable. The defect is in the service, and continuing would divert the content of all
    /// orgs.
    #[error("role {role} stopped: {reason}")]
    Poison { role: Role, reason: String },
    #[error("role {role} failed: {detail}")]
    Failure { role: Role, detail: String },
    #[error(transparent)]
    Settings(#[from] SettingsError),
}

impl RoleError {
    pub const fn tag(&self) -> &'static str {
        match self {
            Self::Consume(error) => error.tag(),
            Self::Poison { .. } => "poison",
            Self::Failure { .. } => "broken",
            Self::Settings(error) => error.tag(),
        }
    }
}

/// Failure of a task: one part, due row or callback attempt.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TaskError {
    #[error(transparent)]
    Moderation(#[from] moderation::Error),
    #[error(transparent)]
    Panicked(#[from] ComputationPanic),
    /// The partition was revoked during a wait. Its next owner does the work.
    #[error("the partition was assigned to another process")]
    AssignmentLost,
}

/// Panic of a computation. The worker thread and other computations continue.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a computation panicked")]
pub(crate) struct ComputationPanic;

/// Reaction of the consumer to an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disposition {
    /// The content is unprocessable and is sent to the dead letters.
    DeadLetter,
    /// A stored row is missing or unreadable. Retried for a limited time, because a newer version of the service may have
    /// written it during an upgrade; then sent to the dead letters.
    RetryForLimitedTime,
    /// The content's configuration is not loaded in this process: `missing_config` decides.
    AwaitConfig,
    /// The catalog is at fault: retried without limit, and no new part is started.
    AwaitCatalog,
    /// The log or the store is unavailable: retried without limit, and no new part is started.
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
            Self::Moderation(error) => moderation_disposition(error),
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

fn moderation_disposition(error: &moderation::Error) -> Disposition {
    match error {
        moderation::Error::Content { .. } | moderation::Error::Append(AppendError::TooLarge { .. }) => {
            Disposition::DeadLetter
        }
        moderation::Error::Corrupt { .. } => Disposition::RetryForLimitedTime,
        moderation::Error::Catalog(error) => catalog_disposition(error),
        moderation::Error::Store(error) => store_disposition(error),
        moderation::Error::Append(_) => Disposition::AwaitRecovery,
    }
}

fn catalog_disposition(error: &catalog::Error) -> Disposition {
    match error {
        catalog::Error::Store(error) => store_disposition(error),
        // Records name configurations that existed when the content was accepted, so the content is never at fault.
        catalog::Error::NotCompiled { .. }
        | catalog::Error::Unreadable { .. }
        | catalog::Error::Bank { .. }
        | catalog::Error::Busy
        | catalog::Error::Panicked(_)
        | catalog::Error::NoSuchOrg(_)
        | catalog::Error::NoSuchVersion { .. } => Disposition::AwaitConfig,
    }
}

fn store_disposition(error: &store::Error) -> Disposition {
    match error {
        store::Error::KeyTooLong { .. } | store::Error::TooLarge { .. } => Disposition::DeadLetter,
        // A refusal by the server can be temporary, for example while a table is altered, so it is retried first.
        store::Error::Refused(_) | store::Error::Corrupt(_) | store::Error::Unreadable(_) => {
            Disposition::RetryForLimitedTime
        }
        store::Error::Unreachable(_)
        | store::Error::Timeout(_)
        | store::Error::Overloaded(_)
        | store::Error::Closed
        // With a broken disk, a missing table or a revoked permission every write fails until an operator repairs it, so
        // the content is not at fault. Meanwhile readiness reports the error.
        | store::Error::Engine(_)
        | store::Error::DatabasePoisoned
        | store::Error::FolderRemoved(_)
        | store::Error::Schema { .. }
        | store::Error::NewerFormat { .. }
        | store::Error::UnknownTable(_)
        | store::Error::Settings(_)
        | store::Error::BadCursor
        | store::Error::LostWrites { .. } => Disposition::AwaitRecovery,
    }
}

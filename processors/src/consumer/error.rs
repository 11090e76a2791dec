//! Why a role ends, and what kind of fault keeps a piece of work from being done.
//!
//! It does not try again: the worker does, guided by the class.

use tidegate_catalog as catalog;
use tidegate_moderation as moderation;
use tidegate_store as store;
use tidegate_stream::{
    error::{AppendError, ConsumeError},
    topics::Role,
};

use crate::{items::compute_pool::Panicked, settings::SettingsError};

/// Why a role ends before it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum RoleError {
    #[error(transparent)]
    Consume(#[from] ConsumeError),
    /// What cannot be processed is no accident of single items: going on would divert everybody's content.
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

/// Why a piece of work is not done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    #[error(transparent)]
    Moderation(#[from] moderation::Error),
    #[error(transparent)]
    Panicked(#[from] Panicked),
    /// The assignment went while something was waited for: another owner does the work.
    #[error("the assignment is gone")]
    Lost,
}

/// What is to be done about a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// The content is at fault: it goes to the dead letters.
    Content,
    /// A row of ours is gone or cannot be read: tried again for a while, for an upgrade may be under way.
    Defect,
    /// The configuration that the content was accepted under is not here: `missing` says what becomes of it.
    Missing,
    /// The same where it is the catalog's fault: tried again without limit, and nothing new is begun.
    Halted,
    /// The log or the store is away: tried again without limit, and nothing new is begun.
    Outage,
    /// Left to another owner.
    Lost,
}

impl Fault {
    pub(crate) fn tag(&self) -> &'static str {
        match self {
            Self::Moderation(error) => error.tag(),
            Self::Panicked(_) => "panicked",
            Self::Lost => "lost",
        }
    }

    pub(crate) fn class(&self) -> Class {
        match self {
            Self::Moderation(error) => of_moderation(error),
            Self::Panicked(_) => Class::Content,
            Self::Lost => Class::Lost,
        }
    }
}

fn of_moderation(error: &moderation::Error) -> Class {
    match error {
        moderation::Error::Content { .. } | moderation::Error::Append(AppendError::TooLarge { .. }) => {
            Class::Content
        }
        moderation::Error::Corrupt { .. } => Class::Defect,
        moderation::Error::Catalog(error) => of_catalog(error),
        moderation::Error::Store(error) => of_store(error),
        moderation::Error::Append(_) => Class::Outage,
    }
}

fn of_catalog(error: &catalog::Error) -> Class {
    match error {
        catalog::Error::Store(error) => of_store(error),
        // What the log names was there when it was accepted, so it is never the content's fault.
        catalog::Error::NotCompiled { .. }
        | catalog::Error::Unreadable { .. }
        | catalog::Error::Bank { .. }
        | catalog::Error::NoSuchOrg(_)
        | catalog::Error::NoSuchVersion { .. } => Class::Missing,
    }
}

fn of_store(error: &store::Error) -> Class {
    match error {
        store::Error::KeyTooLong { .. } | store::Error::TooLarge { .. } => Class::Content,
        // A server's word is not as sure as our own measure: with a table that is being changed it may be another one
        // soon.
        store::Error::Refused(_) | store::Error::Corrupt(_) | store::Error::Unreadable(_) => Class::Defect,
        store::Error::Unreachable(_)
        | store::Error::Timeout(_)
        | store::Error::Overloaded(_)
        | store::Error::Closed
        // A broken disk, a missing table, a lost permission: every write meets it, none is at fault, and it passes
        // when an operator mends it. Until then the process is not ready and says why.
        | store::Error::Engine(_)
        | store::Error::Lost
        | store::Error::TakenAway(_)
        | store::Error::Schema { .. }
        | store::Error::NewerFormat { .. }
        | store::Error::UnknownTable(_)
        | store::Error::Settings(_)
        | store::Error::BadCursor => Class::Outage,
    }
}

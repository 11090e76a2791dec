//! Configuration of organisations: validated, versioned, compiled and kept current, with their banks, API
//! keys and the secrets of their endpoints.
//!
//! `moderation` and the roles call it. The effects of items live in `moderation`.

pub mod banks;
mod cache;
pub mod change;
mod compile;
mod compiled;
mod content;
mod contents;
mod endpoint;
mod error;
mod first_start;
mod flights;
mod item_type;
pub mod keys;
mod live;
pub mod members;
pub mod metrics;
mod org_work;
pub mod orgs;
mod private_file;
mod processing_load;
mod recent;
pub mod routing;
pub mod secrets;
mod settings;
mod signal;
mod snapshots;

pub use self::{
    banks::Banks,
    change::{AppliedChange, ApplyError, Change, Changes},
    compiled::{Action, ActionKind, Compiled, Policy, Queue, Threshold},
    endpoint::{Endpoint, UnresolvedHeader},
    error::Error,
    first_start::{DEFAULT_ORG, FirstStartResult, first_start},
    item_type::ItemType,
    keys::{Caller, KeyRejection, Keys, Scope, Scopes},
    live::{Follower, LiveConfigs},
    org_work::{ComputePermit, OrgWork},
    private_file::write_private,
    processing_load::{LoadReport, OrgLoad, ProcessingLoad},
    secrets::{MasterKey, MasterKeyError, Secrets, Security},
    settings::{Settings, SettingsError},
    signal::{AnswerError, ScoreSignal},
};
pub use tidegate_scheduler::OrgPermits;

//! Errors of reading configurations. Callers retry those for which [`Error::is_outage`] is true.

use tidegate_schemas::ids::{BankId, ConfigVersion, OrgId};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Store(#[from] tidegate_store::Error),
    #[error("there is no organisation {0}")]
    NoSuchOrg(OrgId),
    #[error("organisation {org} has no configuration version {}: it is at {}", .wanted.0, .head.0)]
    NoSuchVersion { org: OrgId, wanted: ConfigVersion, head: ConfigVersion },
    /// Written by a newer release, or a stored document that this release refuses.
    #[error("configuration version {} of organisation {org} does not compile here: {reason}", .version.0)]
    NotCompiled { org: OrgId, version: ConfigVersion, reason: String },
    #[error("configuration version {} of organisation {org} cannot be read: {reason}", .version.0)]
    Unreadable { org: OrgId, version: ConfigVersion, reason: String },
    /// Change of a bank that is incomplete, or written by a newer release.
    #[error("revision {revision} of bank {bank} of organisation {org} cannot be read: {reason}")]
    Bank { org: OrgId, bank: BankId, revision: i64, reason: String },
    /// The organisation's permit did not arrive within `computation_wait_ms`.
    #[error("the service is busy with configurations of other requests: try again")]
    Busy,
    #[error("a computation failed: {0}")]
    Panicked(String),
}

impl Error {
    pub fn tag(&self) -> &'static str {
        match self {
            Self::Store(error) => error.tag(),
            Self::NoSuchOrg(_) => "config_no_such_org",
            Self::NoSuchVersion { .. } => "config_no_such_version",
            Self::NotCompiled { .. } => "config_not_compiled",
            Self::Unreadable { .. } => "config_unreadable",
            Self::Bank { .. } => "bank_unreadable",
            Self::Busy => "config_busy",
            Self::Panicked(_) => "config_computation_panicked",
        }
    }

    /// Returns a copy to repeat to other callers; `None` for a temporary error, which each caller has to find
    /// out itself.
    pub(crate) fn clone_cacheable(&self) -> Option<Self> {
        Some(match self {
            Self::Store(_) | Self::Busy => return None,
            Self::Panicked(reason) => Self::Panicked(reason.clone()),
            Self::NoSuchOrg(org) => Self::NoSuchOrg(org.clone()),
            Self::NoSuchVersion { org, wanted, head } => {
                Self::NoSuchVersion { org: org.clone(), wanted: *wanted, head: *head }
            }
            Self::NotCompiled { org, version, reason } => {
                Self::NotCompiled { org: org.clone(), version: *version, reason: reason.clone() }
            }
            Self::Unreadable { org, version, reason } => {
                Self::Unreadable { org: org.clone(), version: *version, reason: reason.clone() }
            }
            Self::Bank { org, bank, revision, reason } => Self::Bank {
                org: org.clone(),
                bank: bank.clone(),
                revision: *revision,
                reason: reason.clone(),
            },
        })
    }

    /// True if waiting may help: the store is unavailable, or an upgrade is in progress and a newer process
    /// can run the version.
    pub fn is_outage(&self) -> bool {
        match self {
            Self::Store(error) => error.is_outage(),
            Self::NotCompiled { .. } | Self::Unreadable { .. } | Self::Bank { .. } | Self::Busy => true,
            Self::NoSuchOrg(_) | Self::NoSuchVersion { .. } | Self::Panicked(_) => false,
        }
    }
}

/// Converts a JSON Pointer to the path notation of document faults: `when.all[0].text`.
pub(crate) fn document_path(pointer: &str) -> String {
    let mut path = String::new();
    for step in pointer.split('/').skip(1) {
        if !step.is_empty() && step.bytes().all(|byte| byte.is_ascii_digit()) {
            path.extend(["[", step, "]"]);
        } else {
            if !path.is_empty() {
                path.push('.');
            }
            path.push_str(&step.replace("~1", "/").replace("~0", "~"));
        }
    }
    path
}

//! Why a configuration is not at hand, and whether waiting helps.
//!
//! It does not retry; callers do, guided by [`Error::is_outage`].

use tidegate_schemas::ids::{BankId, ConfigVersion, OrgId};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Store(#[from] tidegate_store::Error),
    #[error("there is no organisation {0}")]
    NoSuchOrg(OrgId),
    #[error("organisation {org} has no configuration version {}: it is at {}", .wanted.0, .head.0)]
    NoSuchVersion { org: OrgId, wanted: ConfigVersion, head: ConfigVersion },
    /// A newer version of the service wrote it, or a stored document is refused by this one.
    #[error("configuration version {} of organisation {org} does not compile here: {reason}", .version.0)]
    NotCompiled { org: OrgId, version: ConfigVersion, reason: String },
    #[error("configuration version {} of organisation {org} cannot be read: {reason}", .version.0)]
    Unreadable { org: OrgId, version: ConfigVersion, reason: String },
    /// A change of a bank is named and not there as a whole, or a newer version of the service wrote it.
    #[error("revision {revision} of bank {bank} of organisation {org} cannot be read: {reason}")]
    Bank { org: OrgId, bank: BankId, revision: i64, reason: String },
    /// The organisation's turn did not come in time.
    #[error(
        "configurations of other requests are being read or checked, and the turn did not come in time: ask again"
    )]
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

    /// The same error for somebody else who asks; none if asking again may help, which each does by itself.
    pub(crate) fn again(&self) -> Option<Self> {
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

    /// Waiting may help: the store is away, or an upgrade is in progress and a newer process can run the version.
    pub fn is_outage(&self) -> bool {
        match self {
            Self::Store(error) => error.is_outage(),
            Self::NotCompiled { .. } | Self::Unreadable { .. } | Self::Bank { .. } | Self::Busy => true,
            Self::NoSuchOrg(_) | Self::NoSuchVersion { .. } | Self::Panicked(_) => false,
        }
    }
}

/// A JSON Pointer as faults of documents show paths: `when.all[0].text`.
pub(crate) fn path(pointer: &str) -> String {
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

//! Who has a complaint at the moment: what readiness says without asking anybody.
//!
//! It does not test anything: whoever meets an outage says so, and takes it back.

use std::collections::BTreeMap;

use parking_lot::Mutex;

/// Whether the log takes and gives records at the moment. From cached state: asking costs nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readiness {
    Ready,
    NotReady { why: String },
}

impl Readiness {
    pub const fn is_ready(&self) -> bool {
        matches!(self, Self::Ready)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Health {
    complaints: Mutex<BTreeMap<&'static str, String>>,
}

impl Health {
    /// True: it was well until now.
    pub(crate) fn complain(&self, who: &'static str, why: impl Into<String>) -> bool {
        self.complaints.lock().insert(who, why.into()).is_none()
    }

    /// True: there was a complaint until now.
    pub(crate) fn recover(&self, who: &'static str) -> bool {
        self.complaints.lock().remove(who).is_some()
    }

    pub(crate) fn readiness(&self) -> Readiness {
        let complaints = self.complaints.lock();
        if complaints.is_empty() {
            return Readiness::Ready;
        }
        let all: Vec<_> = complaints.iter().map(|(who, why)| format!("{who}: {why}")).collect();
        Readiness::NotReady { why: all.join("; ") }
    }
}

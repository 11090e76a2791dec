//! Cached readiness of the log. Each source marks itself unhealthy during an outage, and healthy after it.

use std::collections::BTreeMap;

use parking_lot::Mutex;

/// Readiness of the log, from cached state.
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
    outages: Mutex<BTreeMap<&'static str, String>>,
}

impl Health {
    /// Returns true if the source was healthy until now.
    pub(crate) fn set_unhealthy(&self, source: &'static str, why: impl Into<String>) -> bool {
        self.outages.lock().insert(source, why.into()).is_none()
    }

    /// Returns true if the source was unhealthy until now.
    pub(crate) fn set_healthy(&self, source: &'static str) -> bool {
        self.outages.lock().remove(source).is_some()
    }

    pub(crate) fn readiness(&self) -> Readiness {
        let outages = self.outages.lock();
        if outages.is_empty() {
            return Readiness::Ready;
        }
        let reasons: Vec<_> = outages.iter().map(|(source, why)| format!("{source}: {why}")).collect();
        Readiness::NotReady { why: reasons.join("; ") }
    }
}

//! Records outages that delay the work of a role, and reports them as readiness.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use tidegate_stream::{health::Readiness, topics::Role};

use crate::metrics;

/// Outages of the process, by role and tag of the error. Clones share their state.
#[derive(Clone, Debug, Default)]
pub struct Health(Arc<Mutex<BTreeMap<(&'static str, &'static str), usize>>>);

/// Report of an outage. Dropping it withdraws the report.
#[derive(Debug)]
pub(crate) struct OutageReport {
    health: Health,
    role: Role,
    tag: &'static str,
}

impl Health {
    /// Reports a part or task of the role that waits because of the error `tag`.
    pub(crate) fn report_outage(&self, role: Role, tag: &'static str) -> OutageReport {
        let is_new = {
            let mut outages = self.0.lock();
            let count = outages.entry((role.0, tag)).or_insert(0);
            *count += 1;
            *count == 1
        };
        if is_new {
            tracing::warn!(%role, tag, "an outage stops the work of the role: it is retried until the outage ends");
            metrics::set_waiting(role, tag, true);
        }
        OutageReport { health: self.clone(), role, tag }
    }

    pub fn readiness(&self) -> Readiness {
        let outages = self.0.lock();
        if outages.is_empty() {
            return Readiness::Ready;
        }
        let descriptions: Vec<_> = outages.keys().map(|(role, tag)| format!("{role}: {tag}")).collect();
        Readiness::NotReady { why: descriptions.join("; ") }
    }
}

impl Drop for OutageReport {
    fn drop(&mut self) {
        let (role, tag) = (self.role, self.tag);
        let mut outages = self.health.0.lock();
        if let Some(count) = outages.get_mut(&(role.0, tag)) {
            *count -= 1;
            if *count == 0 {
                outages.remove(&(role.0, tag));
                tracing::info!(%role, tag, "the outage has ended: the work of the role continues");
                metrics::set_waiting(role, tag, false);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readiness_names_an_outage_until_its_last_report_ends() {
        let health = Health::default();
        assert!(health.readiness().is_ready());
        let first_report = health.report_outage(Role("items"), "store_timeout");
        let second_report = health.report_outage(Role("items"), "store_timeout");
        drop(first_report);
        assert_eq!(health.readiness(), Readiness::NotReady { why: "items: store_timeout".to_owned() });
        drop(second_report);
        assert!(health.readiness().is_ready());
    }
}

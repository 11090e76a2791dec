//! Which roles wait for something outside, and why: what readiness says about processing.
//!
//! It tests nothing: whoever meets an outage says so, and takes it back.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use tidegate_stream::{health::Readiness, topics::Role};

/// One a process; a clone is the same.
#[derive(Clone, Debug, Default)]
pub struct Health(Arc<Mutex<BTreeMap<(&'static str, &'static str), usize>>>);

/// Work that waits. Dropping it takes the complaint back.
#[derive(Debug)]
pub(crate) struct Complaint {
    health: Health,
    of: (&'static str, &'static str),
}

impl Health {
    /// A piece of work of the role waits because of `tag`.
    pub(crate) fn complain(&self, role: Role, tag: &'static str) -> Complaint {
        let of = (role.0, tag);
        let is_new = {
            let mut waiting = self.0.lock();
            let count = waiting.entry(of).or_insert(0);
            *count += 1;
            *count == 1
        };
        if is_new {
            tracing::warn!(%role, tag, "work waits and is tried again");
            metrics::gauge!("tidegate_processing_waits", "role" => role.0, "tag" => tag).set(1);
        }
        Complaint { health: self.clone(), of }
    }

    pub fn readiness(&self) -> Readiness {
        let waiting = self.0.lock();
        if waiting.is_empty() {
            return Readiness::Ready;
        }
        let all: Vec<_> = waiting.keys().map(|(role, tag)| format!("{role}: {tag}")).collect();
        Readiness::NotReady { why: all.join("; ") }
    }
}

impl Drop for Complaint {
    fn drop(&mut self) {
        let (role, tag) = self.of;
        let mut waiting = self.health.0.lock();
        if let Some(count) = waiting.get_mut(&self.of) {
            *count -= 1;
            if *count == 0 {
                waiting.remove(&self.of);
                tracing::info!(role, tag, "work goes on");
                metrics::gauge!("tidegate_processing_waits", "role" => role, "tag" => tag).set(0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readiness_names_who_waits_until_the_last_one_goes_on() {
        let health = Health::default();
        assert!(health.readiness().is_ready());
        let first = health.complain(Role("items"), "store_timeout");
        let second = health.complain(Role("items"), "store_timeout");
        drop(first);
        assert_eq!(health.readiness(), Readiness::NotReady { why: "items: store_timeout".to_owned() });
        drop(second);
        assert!(health.readiness().is_ready());
    }
}

//! Queue of work for a fixed number of threads: the org with the least used time is next, within its share of the threads.

use std::{collections::HashMap, time::Duration};

use tidegate_schemas::ids::OrgId;

use crate::{UsageQueue, share::fits_share};

/// Waiting work, ordered by the time that its orgs have used, and the number of busy threads.
#[derive(Debug)]
pub struct WorkerQueue<T> {
    threads: usize,
    entries: UsageQueue<OrgId, T>,
    running: usize,
    running_by_org: HashMap<OrgId, usize>,
}

impl<T> WorkerQueue<T> {
    pub fn new(threads: usize) -> Self {
        Self { threads, entries: UsageQueue::default(), running: 0, running_by_org: HashMap::new() }
    }

    pub fn threads(&self) -> usize {
        self.threads
    }

    pub fn push(&mut self, org: &OrgId, entry: T) {
        self.entries.push(org, entry);
    }

    /// True if `start_next` would return an entry.
    pub fn has_startable(&self) -> bool {
        self.entries.next_owner(|org| self.may_start(org)).is_some()
    }

    /// Removes the next entry and counts it as running.
    pub fn start_next(&mut self) -> Option<(OrgId, T)> {
        let org = self.entries.next_owner(|org| self.may_start(org))?.clone();
        let entry = self.entries.pop_of(&org)?;
        self.running += 1;
        *self.running_by_org.entry(org.clone()).or_default() += 1;
        Some((org, entry))
    }

    /// Ends an entry and charges its time to the org.
    pub fn finish(&mut self, org: &OrgId, elapsed: Duration) {
        self.running -= 1;
        if let Some(running) = self.running_by_org.get_mut(org) {
            *running -= 1;
            if *running == 0 {
                self.running_by_org.remove(org);
            }
        }
        self.entries.charge(org, u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX));
    }

    /// True if the org may start another entry: as many threads as it already uses must stay free.
    fn may_start(&self, org: &OrgId) -> bool {
        let used_threads = self.running_by_org.get(org).copied().unwrap_or_default();
        fits_share(used_threads, 1, self.threads.saturating_sub(self.running))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn org(nth: usize) -> OrgId {
        OrgId::new(format!("org-{nth}"))
    }

    #[test]
    fn org_leaves_as_many_threads_free_as_it_uses() {
        let mut queue = WorkerQueue::new(4);
        for nth in [0, 0, 0, 0, 1, 1, 2] {
            queue.push(&org(nth), ());
        }
        let mut start_all = |finished_org: Option<usize>| {
            finished_org.iter().for_each(|nth| queue.finish(&org(*nth), Duration::from_millis(10)));
            let started: Vec<_> =
                std::iter::from_fn(|| queue.start_next()).map(|(org, ())| org.to_string()).collect();
            started
        };
        // Two pieces of the first org leave two threads free; a third would leave only one.
        assert_eq!(start_all(None), ["org-0", "org-0", "org-1", "org-2"]);
        assert_eq!(start_all(Some(2)), Vec::<String>::new(), "one thread is free for a fourth org");
        assert_eq!(start_all(Some(0)), ["org-1"]);
    }
}

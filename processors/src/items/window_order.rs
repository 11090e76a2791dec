//! Order of window counts in this process: each item of an org sees the items before it and none after it.
//!
//! Items are numbered at their start. A reader of a window waits until all earlier items have stored their rows, and
//! ignores the rows of later items. Rows of other processes always count, so the k-th counted item of a key sees at
//! least k items, in whichever process they are counted. Rows of a possible replay count too, because an earlier
//! process may have counted it; it is counted again only if its evaluation is missing.
//!
//! Deadlocks cannot occur: an item stores its own rows before it waits.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
};

use parking_lot::Mutex;
use tidegate_schemas::ids::{OrgId, SubmissionId};
use tidegate_store::tables::items::windows::StoredWindowEntry;
use tokio_util::sync::CancellationToken;

/// Largest number of remembered items per org. An item that waits for media while more items start may count some of the
/// forgotten ones: a count too high, never too low.
const MAX_REMEMBERED_ITEMS: usize = 1 << 16;

/// Order of window counts of all orgs. Cheap to clone; clones share the order.
#[derive(Clone, Default)]
pub(crate) struct WindowOrder(Arc<Mutex<HashMap<OrgId, OrgOrder>>>);

#[derive(Default)]
struct OrgOrder {
    last_number: u64,
    numbers: HashMap<SubmissionId, ItemNumber>,
    /// Items without stored rows, with the token that is cancelled at the store.
    uncounted_items: BTreeMap<u64, CancellationToken>,
    /// Number of guards of each item.
    guard_counts: BTreeMap<u64, usize>,
    /// Items from the oldest one with a guard on.
    recent_items: VecDeque<(u64, SubmissionId)>,
}

/// Position of an item in its org's order.
#[derive(Clone, Copy)]
struct ItemNumber {
    number: u64,
    /// True if this process evaluates the item. Only then may earlier items ignore its rows.
    is_evaluated_here: bool,
}

/// Place of an item in the order. Guards of the same item share the place until the last one is dropped.
pub(crate) struct WindowGuard {
    order: WindowOrder,
    org: OrgId,
    submission: SubmissionId,
    number: u64,
}

impl WindowOrder {
    /// `may_be_replay`: an earlier process may have evaluated the item; see [`WindowGuard::set_evaluated_here`].
    pub(crate) fn take_place(
        &self,
        org: &OrgId,
        submission: SubmissionId,
        may_be_replay: bool,
    ) -> WindowGuard {
        let mut orgs = self.0.lock();
        let order = orgs.entry(org.clone()).or_default();
        let number = match order.numbers.get(&submission) {
            Some(entry) => entry.number,
            None => {
                order.last_number += 1;
                let number = ItemNumber { number: order.last_number, is_evaluated_here: !may_be_replay };
                order.numbers.insert(submission, number);
                order.uncounted_items.insert(order.last_number, CancellationToken::new());
                order.recent_items.push_back((order.last_number, submission));
                order.last_number
            }
        };
        *order.guard_counts.entry(number).or_default() += 1;
        WindowGuard { order: self.clone(), org: org.clone(), submission, number }
    }
}

impl WindowGuard {
    /// Marks the item as evaluated by this process: it is no replay, or its evaluation is missing. Call it before its
    /// rows are stored.
    pub(crate) fn set_evaluated_here(&self) {
        let mut orgs = self.order.0.lock();
        let order = orgs.get_mut(&self.org);
        if let Some(entry) = order.and_then(|order| order.numbers.get_mut(&self.submission)) {
            entry.is_evaluated_here = true;
        }
    }

    /// Marks the item's rows as stored.
    pub(crate) fn set_counted(&self) {
        if let Some(order) = self.order.0.lock().get_mut(&self.org)
            && let Some(token) = order.uncounted_items.remove(&self.number)
        {
            token.cancel();
        }
    }

    /// True if the item's rows are stored.
    pub(crate) fn is_counted(&self) -> bool {
        let orgs = self.order.0.lock();
        orgs.get(&self.org).is_none_or(|order| !order.uncounted_items.contains_key(&self.number))
    }

    /// Waits until all earlier items of the org are counted or have failed.
    pub(crate) async fn wait_for_earlier(&self) {
        // The token is that of the nearest earlier item; others may still be uncounted after it.
        while let Some(token) = self.previous_uncounted() {
            token.cancelled().await;
        }
    }

    fn previous_uncounted(&self) -> Option<CancellationToken> {
        let orgs = self.order.0.lock();
        let (_, token) = orgs.get(&self.org)?.uncounted_items.range(..self.number).next_back()?;
        Some(token.clone())
    }

    /// Removes the rows of items that this process counts later.
    pub(crate) fn drop_later_rows(&self, rows: &mut Vec<StoredWindowEntry>) {
        let orgs = self.order.0.lock();
        let Some(order) = orgs.get(&self.org) else { return };
        rows.retain(|row| {
            let entry = order.numbers.get(&row.submission_id);
            entry.is_none_or(|entry| entry.number <= self.number || !entry.is_evaluated_here)
        });
    }
}

impl OrgOrder {
    fn remove_item(&mut self, number: u64, submission: SubmissionId) {
        if self.numbers.get(&submission).is_some_and(|entry| entry.number == number) {
            self.numbers.remove(&submission);
        }
    }

    fn remove_guard(&mut self, number: u64, submission: SubmissionId) {
        // The item failed before it was counted. It gets a new number at its retry, after the items counted meanwhile.
        if let Some(token) = self.uncounted_items.remove(&number) {
            token.cancel();
            self.remove_item(number, submission);
        }
        if let Some(guards) = self.guard_counts.get_mut(&number) {
            *guards -= 1;
            if *guards == 0 {
                self.guard_counts.remove(&number);
            }
        }
        let oldest_guarded = self.guard_counts.first_key_value().map_or(u64::MAX, |(number, _)| *number);
        while let Some((number, submission)) = self.recent_items.front().copied()
            && (number < oldest_guarded || self.recent_items.len() > MAX_REMEMBERED_ITEMS)
        {
            self.recent_items.pop_front();
            self.remove_item(number, submission);
        }
    }
}

impl Drop for WindowGuard {
    fn drop(&mut self) {
        let mut orgs = self.order.0.lock();
        let Some(order) = orgs.get_mut(&self.org) else { return };
        order.remove_guard(self.number, self.submission);
        if order.guard_counts.is_empty() {
            orgs.remove(&self.org);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use bytes::Bytes;
    use futures::{FutureExt as _, poll};
    use tidegate_schemas::ids::Millis;

    use super::*;

    fn row(submission_id: SubmissionId) -> StoredWindowEntry {
        StoredWindowEntry {
            org: OrgId::new("o"),
            window: "w".into(),
            key: "k".to_owned(),
            bucket: 0,
            submission_id,
            at: Millis(0),
            amount: 1,
            members: Bytes::new(),
            offset: None,
            position: None,
        }
    }

    fn count_visible(guard: &WindowGuard, submissions: &[SubmissionId]) -> usize {
        let mut rows: Vec<_> = submissions.iter().copied().map(row).collect();
        guard.drop_later_rows(&mut rows);
        rows.len()
    }

    #[tokio::test]
    async fn reader_waits_only_for_earlier_items_of_its_org() {
        let (order, org, other) = (WindowOrder::default(), OrgId::new("o"), OrgId::new("n"));
        let ids = [(); 4].map(|()| SubmissionId::random());
        let [first, second, own, later] = ids.map(|id| order.take_place(&org, id, false));
        let other_org_guard = order.take_place(&other, ids[0], false);
        own.set_counted();
        let mut waiting_reader = own.wait_for_earlier().boxed();
        assert!(poll!(&mut waiting_reader).is_pending());
        second.set_counted();
        assert!(poll!(&mut waiting_reader).is_pending(), "the first is not counted yet");
        drop(first);
        assert!(poll!(&mut waiting_reader).is_ready());
        assert!(other_org_guard.wait_for_earlier().now_or_never().is_some());
        later.set_counted();
        assert_eq!([&second, &own, &later].map(|guard| count_visible(guard, &ids)), [2, 3, 4]);
    }

    #[test]
    fn item_that_failed_before_it_was_counted_comes_last() {
        let (order, org) = (WindowOrder::default(), OrgId::new("o"));
        let ids = [(); 2].map(|()| SubmissionId::random());
        let [started, other] = ids.map(|id| order.take_place(&org, id, false));
        drop(order.take_place(&org, ids[0], false));
        other.set_counted();
        assert_eq!(count_visible(&other, &ids), 2, "the failed item has no number");
        let retried = order.take_place(&org, ids[0], false);
        retried.set_counted();
        assert_eq!((count_visible(&other, &ids), count_visible(&retried, &ids)), (1, 2));
        drop((started, other, retried));
        assert!(order.0.lock().is_empty());
    }

    #[test]
    fn rows_of_a_replay_count_until_it_is_evaluated_anew() {
        let (order, org) = (WindowOrder::default(), OrgId::new("o"));
        let ids = [(); 2].map(|()| SubmissionId::random());
        let own = order.take_place(&org, ids[0], false);
        let replay = order.take_place(&org, ids[1], true);
        assert_eq!(
            count_visible(&own, &ids),
            2,
            "an earlier process has counted it, and it must not be counted again"
        );
        replay.set_evaluated_here();
        assert_eq!((count_visible(&own, &ids), count_visible(&replay, &ids)), (1, 2));
    }

    #[test]
    fn items_without_readers_are_forgotten() {
        let (order, org) = (WindowOrder::default(), OrgId::new("o"));
        let reader = order.take_place(&org, SubmissionId::random(), false);
        for _ in 0..2 * MAX_REMEMBERED_ITEMS {
            order.take_place(&org, SubmissionId::random(), false).set_counted();
        }
        let remembered = |order: &WindowOrder| {
            order.0.lock().get(&org).map_or(0, |order| order.numbers.len().max(order.recent_items.len()))
        };
        assert!(remembered(&order) <= MAX_REMEMBERED_ITEMS, "{} are kept", remembered(&order));
        drop(reader);
        assert_eq!(remembered(&order), 0);
    }
}

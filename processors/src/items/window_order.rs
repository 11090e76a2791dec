//! Order in which this process counts the items of an org in windows: each sees those before it and none after it.
//!
//! Items are numbered as they start. Whoever reads a window waits until all earlier ones have stored their rows, and leaves
//! out the rows of later ones. Rows of other processes always count, so that of several items of one key the k-th that is
//! counted sees at least k, wherever they are counted. So do rows of an item that may be a replay: an earlier process has
//! counted it, and unless its evaluation is found to be missing, it is not counted again.
//!
//! There is no deadlock: an item that waits has stored its own rows, and one that has not waits for nobody.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
};

use parking_lot::Mutex;
use tidegate_schemas::ids::{OrgId, SubmissionId};
use tidegate_store::tables::items::windows::Added;
use tokio_util::sync::CancellationToken;

/// Number of items of an org that are remembered beyond those that are being read for. An item that waits so long for its
/// media that more came since may count some of them: too many rather than too few.
const REMEMBERED: usize = 1 << 16;

/// Cheap to clone; clones share the order.
#[derive(Clone, Default)]
pub(crate) struct WindowOrder(Arc<Mutex<HashMap<OrgId, OrgOrder>>>);

#[derive(Default)]
struct OrgOrder {
    last: u64,
    numbers: HashMap<SubmissionId, Number>,
    /// Items whose rows are not stored yet.
    uncounted: BTreeMap<u64, CancellationToken>,
    /// Guards of each item.
    guards: BTreeMap<u64, usize>,
    /// Items since the oldest that has a guard.
    recent: VecDeque<(u64, SubmissionId)>,
}

/// Number of an item.
#[derive(Clone, Copy)]
struct Number {
    number: u64,
    /// True if the item is evaluated in this process. Only then may earlier items leave its rows out.
    is_evaluated_here: bool,
}

/// Place of an item in the order. Guards of one item share it as long as one of them is there.
pub(crate) struct WindowGuard {
    order: WindowOrder,
    org: OrgId,
    submission: SubmissionId,
    number: u64,
}

impl WindowOrder {
    /// `may_be_replay`: an earlier process may have evaluated the item; see [`WindowGuard::set_evaluated_here`].
    pub(crate) fn take(&self, org: &OrgId, submission: SubmissionId, may_be_replay: bool) -> WindowGuard {
        let mut orgs = self.0.lock();
        let order = orgs.entry(org.clone()).or_default();
        let number = match order.numbers.get(&submission) {
            Some(known) => known.number,
            None => {
                order.last += 1;
                let number = Number { number: order.last, is_evaluated_here: !may_be_replay };
                order.numbers.insert(submission, number);
                order.uncounted.insert(order.last, CancellationToken::new());
                order.recent.push_back((order.last, submission));
                order.last
            }
        };
        *order.guards.entry(number).or_default() += 1;
        WindowGuard { order: self.clone(), org: org.clone(), submission, number }
    }
}

impl WindowGuard {
    /// Says that the item is no replay, or one whose evaluation is missing. Call it before its rows are stored.
    pub(crate) fn set_evaluated_here(&self) {
        let mut orgs = self.order.0.lock();
        let order = orgs.get_mut(&self.org);
        if let Some(known) = order.and_then(|order| order.numbers.get_mut(&self.submission)) {
            known.is_evaluated_here = true;
        }
    }

    /// Says that the item's rows are stored.
    pub(crate) fn set_counted(&self) {
        if let Some(order) = self.order.0.lock().get_mut(&self.org)
            && let Some(ended) = order.uncounted.remove(&self.number)
        {
            ended.cancel();
        }
    }

    /// Waits until every earlier item of the org has been counted, or given up.
    pub(crate) async fn wait_for_earlier(&self) {
        while let Some(earlier) = self.earlier() {
            earlier.cancelled().await;
        }
    }

    fn earlier(&self) -> Option<CancellationToken> {
        let orgs = self.order.0.lock();
        let (_, ended) = orgs.get(&self.org)?.uncounted.range(..self.number).next_back()?;
        Some(ended.clone())
    }

    /// Drops the rows of items that this process counts later.
    pub(crate) fn drop_later(&self, rows: &mut Vec<Added>) {
        let orgs = self.order.0.lock();
        let Some(order) = orgs.get(&self.org) else { return };
        rows.retain(|row| {
            let known = order.numbers.get(&row.submission_id);
            known.is_none_or(|known| known.number <= self.number || !known.is_evaluated_here)
        });
    }
}

impl OrgOrder {
    fn forget(&mut self, number: u64, submission: SubmissionId) {
        if self.numbers.get(&submission).is_some_and(|known| known.number == number) {
            self.numbers.remove(&submission);
        }
    }

    fn leave(&mut self, number: u64, submission: SubmissionId) {
        // One that failed before it was counted comes after those that were counted meanwhile.
        if let Some(ended) = self.uncounted.remove(&number) {
            ended.cancel();
            self.forget(number, submission);
        }
        if let Some(guards) = self.guards.get_mut(&number) {
            *guards -= 1;
            if *guards == 0 {
                self.guards.remove(&number);
            }
        }
        let oldest = self.guards.first_key_value().map_or(u64::MAX, |(number, _)| *number);
        while let Some((number, submission)) = self.recent.front().copied()
            && (number < oldest || self.recent.len() > REMEMBERED)
        {
            self.recent.pop_front();
            self.forget(number, submission);
        }
    }
}

impl Drop for WindowGuard {
    fn drop(&mut self) {
        let mut orgs = self.order.0.lock();
        let Some(order) = orgs.get_mut(&self.org) else { return };
        order.leave(self.number, self.submission);
        if order.guards.is_empty() {
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

    fn row(submission_id: SubmissionId) -> Added {
        Added {
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

    fn seen(guard: &WindowGuard, submissions: &[SubmissionId]) -> usize {
        let mut rows: Vec<_> = submissions.iter().copied().map(row).collect();
        guard.drop_later(&mut rows);
        rows.len()
    }

    #[tokio::test]
    async fn reader_waits_for_earlier_items_and_for_nobody_else() {
        let (order, org, other) = (WindowOrder::default(), OrgId::new("o"), OrgId::new("n"));
        let ids = [(); 4].map(|()| SubmissionId::random());
        let [first, second, own, later] = ids.map(|id| order.take(&org, id, false));
        let stranger = order.take(&other, ids[0], false);
        own.set_counted();
        let mut asking = own.wait_for_earlier().boxed();
        assert!(poll!(&mut asking).is_pending());
        second.set_counted();
        assert!(poll!(&mut asking).is_pending(), "the first is not counted yet");
        drop(first);
        assert!(poll!(&mut asking).is_ready());
        assert!(stranger.wait_for_earlier().now_or_never().is_some());
        later.set_counted();
        assert_eq!([&second, &own, &later].map(|guard| seen(guard, &ids)), [2, 3, 4]);
    }

    #[test]
    fn item_that_failed_before_it_was_counted_comes_last() {
        let (order, org) = (WindowOrder::default(), OrgId::new("o"));
        let ids = [(); 2].map(|()| SubmissionId::random());
        let [started, other] = ids.map(|id| order.take(&org, id, false));
        drop(order.take(&org, ids[0], false));
        other.set_counted();
        assert_eq!(seen(&other, &ids), 2, "nothing is known of the one that failed");
        let again = order.take(&org, ids[0], false);
        again.set_counted();
        assert_eq!((seen(&other, &ids), seen(&again, &ids)), (1, 2));
        drop((started, other, again));
        assert!(order.0.lock().is_empty());
    }

    #[test]
    fn rows_of_a_replay_count_until_it_is_evaluated_anew() {
        let (order, org) = (WindowOrder::default(), OrgId::new("o"));
        let ids = [(); 2].map(|()| SubmissionId::random());
        let own = order.take(&org, ids[0], false);
        let replay = order.take(&org, ids[1], true);
        assert_eq!(seen(&own, &ids), 2, "an earlier process has counted it, and nobody may do so again");
        replay.set_evaluated_here();
        assert_eq!((seen(&own, &ids), seen(&replay, &ids)), (1, 2));
    }

    #[test]
    fn items_without_readers_are_forgotten() {
        let (order, org) = (WindowOrder::default(), OrgId::new("o"));
        let waits = order.take(&org, SubmissionId::random(), false);
        for _ in 0..2 * REMEMBERED {
            order.take(&org, SubmissionId::random(), false).set_counted();
        }
        let kept = |order: &WindowOrder| {
            order.0.lock().get(&org).map_or(0, |order| order.numbers.len().max(order.recent.len()))
        };
        assert!(kept(&order) <= REMEMBERED, "{} are kept", kept(&order));
        drop(waits);
        assert_eq!(kept(&order), 0);
    }
}

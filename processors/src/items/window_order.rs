//! Order of items that are under way and not counted yet: whoever reads a window waits for those that came before.
//!
//! It counts nothing and orders nothing: items are worked on as they come, and only who asks waits.
//!
//! Nobody waits in a circle: only who is under way has a turn, one who has a turn waits for nobody else's, and one who
//! waits has none any more.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
};

use parking_lot::Mutex;
use tidegate_moderation::rules::windows::Moment;
use tidegate_schemas::ids::OrgId;
use tokio_util::sync::CancellationToken;

type Key = (OrgId, Moment);

/// Cheap to clone; clones share all turns.
#[derive(Clone, Default)]
pub(crate) struct WindowOrder(Arc<Mutex<BTreeMap<Key, CancellationToken>>>);

/// Ends when it is dropped, for all who hold the same one.
pub(crate) struct WindowGuard {
    turns: WindowOrder,
    key: Key,
}

impl WindowOrder {
    pub(crate) fn take(&self, org: &OrgId, item: Moment) -> WindowGuard {
        let key = (org.clone(), item);
        if let Entry::Vacant(vacant) = self.0.lock().entry(key.clone()) {
            vacant.insert(CancellationToken::new());
        }
        WindowGuard { turns: self.clone(), key }
    }

    /// Until every item of the org that came before has been counted, or given up.
    pub(crate) async fn before(&self, org: &OrgId, item: Moment) {
        let key = (org.clone(), item);
        while let Some(earlier) = self.last_before(&key) {
            earlier.cancelled().await;
        }
    }

    fn last_before(&self, key: &Key) -> Option<CancellationToken> {
        let turns = self.0.lock();
        let (earlier, ended) = turns.range(..key).next_back()?;
        (earlier.0 == key.0).then(|| ended.clone())
    }
}

impl Drop for WindowGuard {
    fn drop(&mut self) {
        let ended = self.turns.0.lock().remove(&self.key);
        if let Some(ended) = ended {
            ended.cancel();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use futures::{FutureExt as _, poll};
    use tidegate_schemas::{
        ids::{Millis, SubmissionId},
        records::Coordinates,
    };

    use super::*;

    fn item(position: i32) -> Moment {
        Moment::new(Coordinates { append_ms: Millis(7), offset: 1, position }, SubmissionId::random())
    }

    #[tokio::test]
    async fn whoever_asks_waits_for_those_before_and_for_nobody_else() {
        let (turns, org, other) = (WindowOrder::default(), OrgId::new("o"), OrgId::new("n"));
        let items = [0, 1, 2, 3].map(item);
        let [first, second, _own, _later] = items.map(|item| turns.take(&org, item));
        let _stranger = turns.take(&other, items[0]);
        let mut asking = turns.before(&org, items[2]).boxed();
        assert!(poll!(&mut asking).is_pending());
        drop(second);
        assert!(poll!(&mut asking).is_pending(), "the first is not counted yet");
        drop(first);
        assert!(poll!(&mut asking).is_ready());
        assert!(turns.before(&other, items[0]).now_or_never().is_some());
    }

    #[tokio::test]
    async fn a_turn_that_was_taken_twice_ends_once() {
        let (turns, org, own) = (WindowOrder::default(), OrgId::new("o"), item(0));
        let (when_started, when_tried) = (turns.take(&org, own), turns.take(&org, own));
        let mut asking = turns.before(&org, item(1)).boxed();
        assert!(poll!(&mut asking).is_pending());
        drop(when_tried);
        assert!(poll!(&mut asking).is_ready());
        drop(when_started);
        assert!(turns.0.lock().is_empty());
    }
}

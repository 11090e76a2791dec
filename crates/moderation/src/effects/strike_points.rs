//! Strike points of users: the sum of their strikes without the reversed ones.

use std::{cmp::Reverse, collections::HashMap};

use async_recursion::async_recursion as boxed;
use tidegate_schemas::ids::{CauseId, ItemKey, Millis, OrgId};
use tidegate_store::{
    RowRange, Store,
    tables::items::strikes::{Strike, StrikeReversal},
};

use crate::Error;

/// Returns the valid points of a user since a time.
#[boxed]
pub async fn load_total(store: &Store, org: &OrgId, user: &ItemKey, since: Millis) -> Result<i64, Error> {
    Ok(StrikeHistory::read(store, org, user, since).await?.sum(|_| true))
}

/// Returns the points of a user at the time `at`: strikes since `since`, minus those reversed by then.
pub async fn load_total_at(
    store: &Store,
    org: &OrgId,
    user: &ItemKey,
    since: Millis,
    at: Millis,
) -> Result<i64, Error> {
    let mut history = StrikeRows::read(store, org, user, since).await?;
    history.keep_before(at, Millis::now());
    Ok(history.entries().sum(|_| true))
}

/// Strikes and reversals of a user since a time.
pub(crate) struct StrikeHistory {
    /// Pairs of `seq` and points, negative for reversals.
    entries: Vec<(i64, i64)>,
}

/// Stored rows of a user's strikes and reversals.
struct StrikeRows {
    strikes: Vec<Strike>,
    reversals: Vec<StrikeReversal>,
}

impl StrikeRows {
    async fn read(store: &Store, org: &OrgId, user: &ItemKey, since: Millis) -> Result<Self, Error> {
        let partition = (org.clone(), user.clone());
        let strikes = store.scan::<Strike>(&partition, RowRange::starting_at(since)).all().await?;
        let reversals = store.scan::<StrikeReversal>(&partition, RowRange::all()).all().await?;
        Ok(Self { strikes, reversals })
    }

    fn entries(&self) -> StrikeHistory {
        StrikeHistory { entries: signed_entries(&self.strikes, &self.reversals) }
    }

    /// Keeps the rows stored before `at`. Their times are not sufficient, because the clock may have been set forward
    /// and back: a row is older than every later row in the log, and older than `now`.
    fn keep_before(&mut self, at: Millis, now: Millis) {
        retain_before(&mut self.strikes, at, now, |strike| (strike.seq, strike.at));
        retain_before(&mut self.reversals, at, now, |reversal| (reversal.seq, reversal.at));
    }
}

/// Implements [`StrikeRows::keep_before`] for rows with a `seq` and a time.
fn retain_before<R>(rows: &mut Vec<R>, at: Millis, now: Millis, position_of: impl Fn(&R) -> (i64, Millis)) {
    // From the newest to the oldest: once a row is older than `at`, all rows before it in the log are older too.
    rows.sort_unstable_by_key(|row| Reverse(position_of(row).0));
    let mut is_before = false;
    rows.retain(|row| {
        let (_, stored_at) = position_of(row);
        is_before |= stored_at < at;
        // A time in the future comes from a clock that was ahead, so the row is older than its time.
        is_before || stored_at > now
    });
}

impl StrikeHistory {
    pub(crate) async fn read(
        store: &Store,
        org: &OrgId,
        user: &ItemKey,
        since: Millis,
    ) -> Result<Self, Error> {
        Ok(StrikeRows::read(store, org, user, since).await?.entries())
    }

    pub(crate) fn sum(&self, is_counted: impl Fn(i64) -> bool) -> i64 {
        self.entries.iter().filter(|(seq, _)| is_counted(*seq)).map(|(_, points)| points).sum()
    }
}

/// Builds signed entries. A strike is reversed once, even after several accepted appeals, and not before its own
/// `seq`: a reversal can be first in the log, and would otherwise allow a second crossing of the threshold.
fn signed_entries(strikes: &[Strike], reversals: &[StrikeReversal]) -> Vec<(i64, i64)> {
    let mut reversal_seqs: HashMap<CauseId, i64> = HashMap::new();
    for reversal in reversals {
        let seq = reversal_seqs.entry(reversal.reversed).or_insert(reversal.seq);
        *seq = reversal.seq.min(*seq);
    }
    let mut entries = Vec::with_capacity(strikes.len() + reversal_seqs.len());
    for strike in strikes {
        entries.push((strike.seq, strike.points));
        if let Some(seq) = reversal_seqs.get(&strike.cause) {
            entries.push((strike.seq.max(*seq), -strike.points));
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use tidegate_schemas::ids::ActionId;
    use uuid::Uuid;

    use super::*;

    fn strike(cause: u128, seq: i64) -> Strike {
        Strike {
            org: OrgId::new("acme"),
            user: ItemKey::new("user", "u1"),
            at: Millis(1_000),
            cause: CauseId(Uuid::from_u128(cause)),
            points: 1,
            action: ActionId::new("warn"),
            item: ItemKey::new("post", "p1"),
            seq,
        }
    }

    fn reversal(cause: u128, reversed: u128, seq: i64) -> StrikeReversal {
        StrikeReversal {
            org: OrgId::new("acme"),
            user: ItemKey::new("user", "u1"),
            cause: CauseId(Uuid::from_u128(cause)),
            reversed: CauseId(Uuid::from_u128(reversed)),
            at: Millis(2_000),
            points: 1,
            seq,
        }
    }

    fn history(strikes: &[Strike], reversals: &[StrikeReversal]) -> StrikeHistory {
        StrikeHistory { entries: signed_entries(strikes, reversals) }
    }

    #[test]
    fn two_accepted_appeals_reverse_a_strike_once() {
        let history = history(&[strike(1, 1), strike(2, 2)], &[reversal(10, 1, 3), reversal(11, 1, 4)]);
        assert_eq!(history.sum(|_| true), 1);
        assert_eq!(history.sum(|seq| seq <= 3), 1, "from the first reversal on");
    }

    #[test]
    fn reversal_before_its_strike_allows_no_second_crossing() {
        let strikes = [strike(1, 1), strike(2, 2), strike(3, 3), strike(4, 9)];
        let history = history(&strikes, &[reversal(10, 4, 5)]);
        assert_eq!(history.sum(|seq| seq < 9), 3, "the fourth was not given yet");
        assert_eq!(history.sum(|seq| seq <= 9), 3, "nor does it count once it is");
    }
    #[test]
    fn strikes_count_in_stored_order_after_clock_was_set_back() {
        let at = |seq: i64, at: i64| Strike { at: Millis(at), ..strike(seq.unsigned_abs().into(), seq) };
        let kept = |strikes: Vec<Strike>, item: i64, now: i64| {
            let mut rows = StrikeRows { strikes, reversals: Vec::new() };
            rows.keep_before(Millis(item), Millis(now));
            rows.entries().sum(|_| true)
        };
        // Stored while the clock was an hour ahead. The item arrived after the clock was set back.
        let ahead = || vec![at(1, 3_600), at(2, 3_601), at(3, 3_602)];
        assert_eq!(kept(ahead(), 500, 600), 3, "a time that has not come yet was stored before");
        let followed = || ahead().into_iter().chain([at(4, 400)]).collect();
        assert_eq!(kept(followed(), 500, 9_000), 4, "what stands before an older one in the log is older");
        assert_eq!(kept(vec![at(1, 400), at(2, 550)], 500, 9_000), 1, "a later strike does not count");
    }
}

//! Standing of users: the sum of their strikes that were not reversed.

use std::{cmp::Reverse, collections::HashMap};

use tidegate_schemas::ids::{CauseId, ItemKey, Millis, OrgId};
use tidegate_store::{
    At, Store,
    tables::items::strikes::{Strike, StrikeReversal},
};

use crate::Error;

/// Returns the points that count for a user since an instant.
pub async fn total(store: &Store, org: &OrgId, user: &ItemKey, since: Millis) -> Result<i64, Error> {
    Ok(History::read(store, org, user, since).await?.sum(|_| true))
}

/// Returns the points that counted for a user at an instant: strikes since `since`, less those reversed by then.
pub async fn total_at(
    store: &Store,
    org: &OrgId,
    user: &ItemKey,
    since: Millis,
    at: Millis,
) -> Result<i64, Error> {
    let mut history = Rows::read(store, org, user, since).await?;
    history.keep_before(at, Millis::now());
    Ok(history.entries().sum(|_| true))
}

/// The strikes and reversals of a user since an instant.
pub(crate) struct History {
    /// Pairs of `seq` and points, negative for reversals.
    entries: Vec<(i64, i64)>,
}

/// Stored rows of a user's strikes and reversals.
struct Rows {
    strikes: Vec<Strike>,
    reversals: Vec<StrikeReversal>,
}

impl Rows {
    async fn read(store: &Store, org: &OrgId, user: &ItemKey, since: Millis) -> Result<Self, Error> {
        let partition = (org.clone(), user.clone());
        let strikes = store.scan::<Strike>(&partition, At::since(since)).all().await?;
        let reversals = store.scan::<StrikeReversal>(&partition, At::all()).all().await?;
        Ok(Self { strikes, reversals })
    }

    fn entries(&self) -> History {
        History { entries: entries(&self.strikes, &self.reversals) }
    }

    /// Keeps the rows that were stored before `at`. Their times alone do not tell, for the clock may have been set forward
    /// and back: a row is older than every later one in the log, and older than `now`.
    fn keep_before(&mut self, at: Millis, now: Millis) {
        keep_before(&mut self.strikes, at, now, |strike| (strike.seq, strike.at));
        keep_before(&mut self.reversals, at, now, |reversal| (reversal.seq, reversal.at));
    }
}

/// Keeps rows as [`Rows::keep_before`] says, by their `seq` and time.
fn keep_before<R>(rows: &mut Vec<R>, at: Millis, now: Millis, place: impl Fn(&R) -> (i64, Millis)) {
    rows.sort_unstable_by_key(|row| Reverse(place(row).0));
    let mut is_before = false;
    rows.retain(|row| {
        let (_, stored_at) = place(row);
        is_before |= stored_at < at;
        is_before || stored_at > now
    });
}

impl History {
    pub(crate) async fn read(
        store: &Store,
        org: &OrgId,
        user: &ItemKey,
        since: Millis,
    ) -> Result<Self, Error> {
        Ok(Rows::read(store, org, user, since).await?.entries())
    }

    pub(crate) fn sum(&self, counts: impl Fn(i64) -> bool) -> i64 {
        self.entries.iter().filter(|(seq, _)| counts(*seq)).map(|(_, points)| points).sum()
    }
}

/// Reverses a strike once, however many appeals against it were accepted, and not before its own `seq`: a reversal may
/// come first in the log, and would otherwise allow another crossing of the threshold.
fn entries(strikes: &[Strike], reversals: &[StrikeReversal]) -> Vec<(i64, i64)> {
    let mut taken_back: HashMap<CauseId, i64> = HashMap::new();
    for reversal in reversals {
        let seq = taken_back.entry(reversal.reversed).or_insert(reversal.seq);
        *seq = reversal.seq.min(*seq);
    }
    let mut entries = Vec::with_capacity(strikes.len() + taken_back.len());
    for strike in strikes {
        entries.push((strike.seq, strike.points));
        if let Some(seq) = taken_back.get(&strike.cause) {
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

    fn history(strikes: &[Strike], reversals: &[StrikeReversal]) -> History {
        History { entries: entries(strikes, reversals) }
    }

    #[test]
    fn two_accepted_appeals_take_a_strike_back_once() {
        let history = history(&[strike(1, 1), strike(2, 2)], &[reversal(10, 1, 3), reversal(11, 1, 4)]);
        assert_eq!(history.sum(|_| true), 1);
        assert_eq!(history.sum(|seq| seq <= 3), 1, "from the first reversal on");
    }

    #[test]
    fn a_reversal_before_its_strike_allows_no_other_crossing() {
        let strikes = [strike(1, 1), strike(2, 2), strike(3, 3), strike(4, 9)];
        let history = history(&strikes, &[reversal(10, 4, 5)]);
        assert_eq!(history.sum(|seq| seq < 9), 3, "the fourth was not given yet");
        assert_eq!(history.sum(|seq| seq <= 9), 3, "nor does it count once it is");
    }
    #[test]
    fn strikes_of_a_clock_that_was_set_back_count_as_they_were_stored() {
        let at = |seq: i64, at: i64| Strike { at: Millis(at), ..strike(seq.unsigned_abs().into(), seq) };
        let kept = |strikes: Vec<Strike>, item: i64, now: i64| {
            let mut rows = Rows { strikes, reversals: Vec::new() };
            rows.keep_before(Millis(item), Millis(now));
            rows.entries().sum(|_| true)
        };
        // Stored while the clock was an hour ahead; the item came after it was set back.
        let ahead = || vec![at(1, 3_600), at(2, 3_601), at(3, 3_602)];
        assert_eq!(kept(ahead(), 500, 600), 3, "a time that has not come yet was stored before");
        let followed = || ahead().into_iter().chain([at(4, 400)]).collect();
        assert_eq!(kept(followed(), 500, 9_000), 4, "what stands before an older one in the log is older");
        assert_eq!(kept(vec![at(1, 400), at(2, 550)], 500, 9_000), 1, "a later strike does not count");
    }
}

//! The part of the oracle that is about limits and windows: rules never act more often than their limits allow.
//!
//! Pure. They may act less often: a kill between a place of the day and its plan wastes the place. Windows are different: of
//! n items the k-th counted item sees at least k, so as many match as if they had been sent one by one. A replayed item also
//! counts later ones whose rows were stored before the kill, so more may match, but none before the window is full.

use std::collections::{BTreeMap, BTreeSet};

use crate::oracle::{AUTOMATIC, Content, Observations, Reply, SeenCallback, SentRequests, Verdict};

/// Action with a limit of `PER_DAY` scams a day.
pub(crate) const DAILY: &str = "slow_down";
pub(crate) const PER_DAY: usize = 40;
/// Action with a cooldown: only on one scam of a user.
pub(crate) const ONCE: &str = "warn_once";
/// Action on scams of a user with at least `FULL` scams in the window.
pub(crate) const FLOOD: &str = "stop_flood";
pub(crate) const FULL: usize = 6;

/// The actions that are judged here.
pub(crate) const ACTIONS: [&str; 3] = [DAILY, ONCE, FLOOD];

/// Distinct events of an action, as (item, event) by the key that `under` returns.
fn events<'s>(
    seen: &'s Observations,
    action: &str,
    under: impl Fn(&'s SeenCallback) -> &'s str,
) -> BTreeMap<&'s str, BTreeSet<(&'s str, &'s str)>> {
    let mut events: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for callback in seen.callbacks.iter().filter(|it| it.kind == AUTOMATIC && it.action == action) {
        events.entry(under(callback)).or_default().insert((callback.item.as_str(), callback.event.as_str()));
    }
    events
}

pub(crate) fn judge(sent: &SentRequests, seen: &Observations, verdict: &mut Verdict) {
    for action in ACTIONS {
        for (item, events) in events(seen, action, |callback| &callback.item) {
            if sent.items.get(item).is_none_or(|item| item.content != Content::Scam) {
                verdict.invented.push(format!("an event of {action} for {item}, which is no scam"));
            }
            verdict.count(format_args!("events of {action} for item {item}"), events.len(), 0, 1);
        }
    }
    for (day, events) in events(seen, DAILY, SeenCallback::day) {
        verdict.count(format_args!("events of {DAILY} on {day}"), events.len(), 0, PER_DAY);
    }
    let (mut once, mut floods) = (events(seen, ONCE, |it| &it.user), events(seen, FLOOD, |it| &it.user));
    for (user, (taken, all)) in scams(sent) {
        // A replay finds the item that holds the cooldown, so this place is never wasted.
        let warnings = once.remove(user).unwrap_or_default().len();
        verdict.count(format_args!("events of {ONCE} for {user}"), warnings, taken.min(1), 1);
        let stops = floods.remove(user).unwrap_or_default().len();
        let min_stops = (taken + 1).saturating_sub(FULL);
        let max_stops = if all < FULL { 0 } else { all };
        verdict.count(
            format_args!("events of {FLOOD} for {user} with {all} scams"),
            stops,
            min_stops,
            max_stops,
        );
    }
}

/// Scams by user: the accepted ones, and all that were sent.
fn scams(sent: &SentRequests) -> BTreeMap<&str, (usize, usize)> {
    let mut scams: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for item in sent.items.values().filter(|item| item.content == Content::Scam) {
        let (taken, all) = scams.entry(&item.user).or_default();
        *taken += usize::from(item.reply == Reply::Accepted);
        *all += 1;
    }
    scams
}

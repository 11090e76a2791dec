//! The part of the oracle that is about limits and windows: whatever is killed, rules never act more often than they may.
//!
//! Pure. They may act less often: a kill between a place of the day and its plan wastes the place. Windows are different: of
//! n items the k-th that is counted sees at least k, so as many match as if they had come one by one. A replayed item also
//! counts later ones whose rows were stored before the kill, so more may match, but none before the window is full.

use std::collections::{BTreeMap, BTreeSet};

use crate::oracle::{AUTOMATIC, Content, Reply, Seen, SeenCallback, Sent, Verdict};

/// Taken on so many scams a day.
pub(crate) const DAILY: &str = "slow_down";
pub(crate) const PER_DAY: usize = 40;
/// Taken on one scam of a user.
pub(crate) const ONCE: &str = "warn_once";
/// Taken on scams of a user who has sent so many.
pub(crate) const FLOOD: &str = "stop_flood";
pub(crate) const FULL: usize = 6;

/// The actions that are judged here.
pub(crate) const ACTIONS: [&str; 3] = [DAILY, ONCE, FLOOD];

/// Events, each once, in some order of (what they are counted under, item, event).
fn events<'s>(
    seen: &'s Seen,
    action: &str,
    under: impl Fn(&'s SeenCallback) -> &'s str,
) -> BTreeMap<&'s str, BTreeSet<(&'s str, &'s str)>> {
    let mut events: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for callback in seen.callbacks.iter().filter(|it| it.kind == AUTOMATIC && it.action == action) {
        events.entry(under(callback)).or_default().insert((callback.item.as_str(), callback.event.as_str()));
    }
    events
}

pub(crate) fn judge(sent: &Sent, seen: &Seen, verdict: &mut Verdict) {
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
        // Who held the user is found again by a replay, so this place is never wasted.
        let found = once.remove(user).unwrap_or_default().len();
        verdict.count(format_args!("events of {ONCE} for {user}"), found, taken.min(1), 1);
        let found = floods.remove(user).unwrap_or_default().len();
        let least = (taken + 1).saturating_sub(FULL);
        let most = if all < FULL { 0 } else { all };
        verdict.count(format_args!("events of {FLOOD} for {user} with {all} scams"), found, least, most);
    }
}

/// By user: the scams that were taken, and all that may have been.
fn scams(sent: &Sent) -> BTreeMap<&str, (usize, usize)> {
    let mut scams: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for item in sent.items.values().filter(|item| item.content == Content::Scam) {
        let (taken, all) = scams.entry(&item.user).or_default();
        *taken += usize::from(item.reply == Reply::Accepted);
        *all += 1;
    }
    scams
}

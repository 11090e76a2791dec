//! The part of the oracle that is about `/actions`: each action of the platform has one callback and one strike.
//!
//! Pure. Users whose strikes reach the threshold are judged with all others.

use std::collections::{BTreeMap, BTreeSet};

use crate::oracle::{DECISION, Observations, Reply, SentRequests, Verdict, bounds};

/// Action that the platform alone takes, on users.
pub(crate) const OWN_ACTION: &str = "ban";

#[derive(Clone, Debug)]
pub(crate) struct SentAction {
    /// The user that it is taken on.
    pub(crate) user: String,
    pub(crate) reply: Reply,
    /// As the acknowledgement named it.
    pub(crate) decision: Option<String>,
}

pub(crate) fn judge(sent: &SentRequests, seen: &Observations, verdict: &mut Verdict) {
    let mut events: BTreeMap<&str, BTreeSet<(&str, &str)>> = BTreeMap::new();
    for callback in seen.callbacks.iter().filter(|it| it.kind == DECISION && it.action == OWN_ACTION) {
        let event = (callback.event.as_str(), callback.decided.as_str());
        events.entry(&callback.reason).or_default().insert(event);
    }
    let mut by_user: BTreeMap<&str, Vec<Reply>> = BTreeMap::new();
    for (note, action) in &sent.own_actions {
        by_user.entry(&action.user).or_default().push(action.reply);
        let own_events = events.remove(note.as_str()).unwrap_or_default();
        let (least, most) = bounds([action.reply].into_iter());
        verdict.count(format_args!("events of the platform's action {note}"), own_events.len(), least, most);
        if let Some(decision) = &action.decision
            && own_events.iter().any(|(_, decided)| decided != decision)
        {
            verdict.invented.push(format!("the platform's action {note} was taken under another id"));
        }
    }
    for note in events.into_keys() {
        verdict.invented.push(format!("an event of the platform's action {note}"));
    }
    let Some(strikes) = &seen.strikes else { return };
    for (user, answers) in by_user {
        let (least, most) = bounds(answers.into_iter());
        let user_strikes = strikes.iter().filter(|strike| strike.user == user && strike.item == user);
        verdict.count(format_args!("strikes of {user} by the platform"), user_strikes.count(), least, most);
    }
}

/// True if the strike belongs to an action of the platform, which this module judges.
pub(crate) fn is_own(sent: &SentRequests, item: &str) -> bool {
    sent.own_actions.values().any(|action| action.user == item)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::{SeenCallback, SeenStrike};

    /// Judges two accepted actions on one user. Counts lost, doubled and invented effects.
    fn count_faults(wrong: impl FnOnce(&mut SentRequests, &mut Observations)) -> (usize, usize, usize) {
        let (mut sent, mut seen) =
            (SentRequests::default(), Observations { strikes: Some(Vec::new()), ..Observations::default() });
        for note in ["n1", "n2"] {
            let action = SentAction {
                user: "u".to_owned(),
                reply: Reply::Accepted,
                decision: Some(format!("d-{note}")),
            };
            sent.own_actions.insert(note.to_owned(), action);
            seen.callbacks.push(callback(note));
            seen.strikes.as_mut().unwrap().push(strike());
        }
        wrong(&mut sent, &mut seen);
        let mut verdict = Verdict::default();
        judge(&sent, &seen, &mut verdict);
        (verdict.lost.len(), verdict.doubled.len(), verdict.invented.len())
    }

    fn callback(note: &str) -> SeenCallback {
        SeenCallback {
            event: format!("e-{note}"),
            kind: DECISION.to_owned(),
            action: OWN_ACTION.to_owned(),
            item: "u".to_owned(),
            decided: format!("d-{note}"),
            reason: note.to_owned(),
            ..SeenCallback::default()
        }
    }

    fn strike() -> SeenStrike {
        SeenStrike { user: "u".to_owned(), item: "u".to_owned(), points: 1, reversed: Vec::new() }
    }

    #[test]
    fn own_action_has_one_callback_under_its_id() {
        assert_eq!(count_faults(|_, _| {}), (0, 0, 0));
        assert_eq!(count_faults(|_, seen| drop(seen.callbacks.pop())), (1, 0, 0));
        let again = |_: &mut SentRequests, seen: &mut Observations| {
            seen.callbacks.push(SeenCallback { event: "e".to_owned(), ..callback("n1") });
        };
        assert_eq!(count_faults(again), (0, 1, 0));
        assert_eq!(count_faults(|_, seen| seen.callbacks[0].decided.clear()), (0, 0, 1));
        assert_eq!(count_faults(|_, seen| seen.callbacks.push(callback("n3"))), (0, 0, 1));
    }

    #[test]
    fn own_action_has_one_strike() {
        assert_eq!(count_faults(|_, seen| drop(seen.strikes.as_mut().unwrap().pop())), (1, 0, 0));
        assert_eq!(count_faults(|_, seen| seen.strikes.as_mut().unwrap().push(strike())), (0, 1, 0));
        let unanswered = |sent: &mut SentRequests, seen: &mut Observations| {
            sent.own_actions.get_mut("n2").unwrap().reply = Reply::Missing;
            seen.callbacks.pop();
            seen.strikes.as_mut().unwrap().pop();
        };
        assert_eq!(count_faults(unanswered), (0, 0, 0));
    }
}

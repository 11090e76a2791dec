//! The part of the oracle that is about items that a platform is asked for: every request is in the log and settled, and
//! what came is stored once.
//!
//! Pure.

use std::collections::{BTreeMap, BTreeSet};

use crate::oracle::{Seen, Sent, Verdict, bounds};

/// Type and id.
pub(crate) type Key = (String, String);

/// A request as the log shows it.
#[derive(Clone, Debug, Default)]
pub(crate) struct SeenRequest {
    /// Id under which the platform was asked.
    pub(crate) id: String,
    pub(crate) state: String,
    /// A claim asks once, and another claim asks again; for reports and appeals the platform is asked until it answers.
    pub(crate) of_claim: bool,
    pub(crate) asked: BTreeSet<Key>,
    /// Items that came, each with its submission.
    pub(crate) found: BTreeMap<Key, String>,
    pub(crate) missing: BTreeSet<Key>,
}

/// True if the platform has the item.
pub(crate) fn has((_, id): &Key) -> bool {
    !id.ends_with('3')
}

pub(crate) fn judge(sent: &Sent, seen: &Seen, verdict: &mut Verdict) {
    let mut asked: BTreeMap<&str, usize> = BTreeMap::new();
    let mut submissions: BTreeMap<&Key, BTreeSet<&str>> = BTreeMap::new();
    // A claim's request that a kill cut off may have brought items before its next attempt failed.
    let mut unsure: BTreeSet<&Key> = BTreeSet::new();
    for request in &seen.requests {
        if request.of_claim && request.state == "failed" {
            unsure.extend(&request.asked);
            continue;
        }
        if request.state != "done" {
            verdict.lost.push(format!("request {} for items is {}", request.id, request.state));
            continue;
        }
        for (_, id) in &request.asked {
            *asked.entry(id).or_default() += 1;
        }
        let (has, lacks): (BTreeSet<_>, BTreeSet<_>) = request.asked.iter().cloned().partition(has);
        if !request.found.keys().eq(&has) || request.missing != lacks {
            verdict.lost.push(format!("request {} does not list what came: {request:?}", request.id));
        }
        for (key, submission) in &request.found {
            submissions.entry(key).or_default().insert(submission);
        }
    }
    let logged: BTreeSet<_> = seen.requests.iter().map(|request| &request.id).collect();
    for id in seen.asked.iter().filter(|id| !logged.contains(id)) {
        verdict.lost.push(format!("request {id} reached the platform and is not in the log"));
    }
    for report in &sent.reports {
        let Some(named) = &report.named else { continue };
        let (mut least, most) = bounds([report.reply].into_iter());
        // What a claim brought before the report was processed to its end is not asked for again.
        if unsure.iter().any(|(_, id)| id == named) {
            least = 0;
        }
        let found = asked.remove(named.as_str()).unwrap_or_default();
        verdict.count(format_args!("requests for item {named}"), found, least, most);
    }
    let Some(stored) = &seen.fetched else { return };
    for (key, wanted) in &submissions {
        let found: BTreeSet<_> = stored.get(*key).into_iter().flatten().map(String::as_str).collect();
        for lost in wanted.difference(&found) {
            verdict.lost.push(format!("{key:?}: submission {lost} came and is not stored"));
        }
        for more in found.difference(wanted).filter(|_| !unsure.contains(key)) {
            verdict.invented.push(format!("{key:?}: submission {more}, which no request brought"));
        }
    }
    let is_known = |key: &&Key| submissions.contains_key(key) || unsure.contains(key);
    for key in stored.keys().filter(|key| !is_known(key)) {
        verdict.invented.push(format!("{key:?} is stored as fetched, and no request brought it"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::{Content, Reply, SentReport};

    fn key(id: &str) -> Key {
        ("post".to_owned(), id.to_owned())
    }

    /// A report that names an item which the platform has, and another one. Counts what is lost, doubled and invented.
    fn found(wrong: impl FnOnce(&mut Sent, &mut Seen)) -> (usize, usize, usize) {
        let report = SentReport {
            item: "i".to_owned(),
            user: "u".to_owned(),
            content: Content::Plain,
            csam: false,
            reply: Reply::Accepted,
            report: Some("r".to_owned()),
            named: Some("n1".to_owned()),
        };
        let mut sent = Sent { reports: vec![report], ..Sent::default() };
        let request = SeenRequest {
            id: "q".to_owned(),
            state: "done".to_owned(),
            of_claim: false,
            asked: BTreeSet::from([key("n1"), key("n3")]),
            found: BTreeMap::from([(key("n1"), "s".to_owned())]),
            missing: BTreeSet::from([key("n3")]),
        };
        let mut seen = Seen {
            requests: vec![request],
            asked: BTreeSet::from(["q".to_owned()]),
            fetched: Some(BTreeMap::from([(key("n1"), vec!["s".to_owned()])])),
            ..Seen::default()
        };
        wrong(&mut sent, &mut seen);
        let mut verdict = Verdict::default();
        judge(&sent, &seen, &mut verdict);
        (verdict.lost.len(), verdict.doubled.len(), verdict.invented.len())
    }

    #[test]
    fn request_for_items_is_logged_settled_and_lists_what_came() {
        assert_eq!(found(|_, _| {}), (0, 0, 0));
        assert_eq!(found(|_, seen| seen.requests[0].missing.clear()), (1, 0, 0));
        let pending = |_: &mut Sent, seen: &mut Seen| seen.requests[0].state = "pending".to_owned();
        // The named item counts as never asked for, and its row has no request.
        assert_eq!(found(pending), (2, 0, 1));
        let of_claim = |state: &'static str| {
            move |_: &mut Sent, seen: &mut Seen| {
                let request = &mut seen.requests[0];
                (request.state, request.of_claim) = (state.to_owned(), true);
            }
        };
        assert_eq!(found(of_claim("failed")).2, 0);
        assert_eq!(found(of_claim("pending")), (2, 0, 1));
        let unlogged = |_: &mut Sent, seen: &mut Seen| {
            seen.asked.insert("another".to_owned());
        };
        assert_eq!(found(unlogged), (1, 0, 0));
        let twice = |_: &mut Sent, seen: &mut Seen| {
            let again = SeenRequest { id: "again".to_owned(), ..seen.requests[0].clone() };
            seen.requests.push(again);
        };
        assert_eq!(found(twice), (0, 1, 0));
    }

    #[test]
    fn fetched_item_is_stored_once() {
        let stored = |submissions: &'static [&str]| {
            move |_: &mut Sent, seen: &mut Seen| {
                let submissions = submissions.iter().map(|it| (*it).to_owned()).collect();
                seen.fetched.as_mut().unwrap().insert(key("n1"), submissions);
            }
        };
        assert_eq!(found(stored(&[])), (1, 0, 0));
        assert_eq!(found(stored(&["s", "t"])), (0, 0, 1));
        let other = |_: &mut Sent, seen: &mut Seen| {
            seen.fetched.as_mut().unwrap().insert(key("n2"), vec!["x".to_owned()]);
        };
        assert_eq!(found(other), (0, 0, 1));
    }
}

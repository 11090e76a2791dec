//! The part of the oracle that is about items that a platform is asked for: every request is in the log and settled, and
//! what came is stored once.
//!
//! Pure.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_schemas::ids::{Kind, SubmissionId, derive};
use uuid::Uuid;

use crate::{
    observe::ORG,
    oracle::{Seen, Sent, Verdict, bounds},
};

/// Type and id.
pub(crate) type Key = (String, String);

/// A request as the log shows it.
#[derive(Clone, Debug, Default)]
pub(crate) struct SeenRequest {
    /// Id under which the platform was asked: a UUID.
    pub(crate) id: String,
    pub(crate) state: String,
    /// A claim asks once, and another claim asks again; for reports and appeals the platform is asked until it answers.
    pub(crate) of_claim: bool,
    pub(crate) asked: BTreeSet<Key>,
    /// Items that came, each with its submission.
    pub(crate) found: BTreeMap<Key, String>,
    pub(crate) missing: BTreeSet<Key>,
}

impl SeenRequest {
    /// Returns the submission under which the request itself brings the item. Only a request that asked for it has this id.
    fn own_submission(&self, (type_id, id): &Key) -> Option<String> {
        let request = Uuid::parse_str(&self.id).ok()?;
        let cause: [&[u8]; 5] =
            [b"partial", ORG.as_bytes(), request.as_bytes(), type_id.as_bytes(), id.as_bytes()];
        Some(derive::<SubmissionId>(Kind::Submission, &cause).to_string())
    }
}

/// True if the platform has the item.
pub(crate) fn has((_, id): &Key) -> bool {
    !id.ends_with('3')
}

pub(crate) fn judge(sent: &Sent, seen: &Seen, verdict: &mut Verdict) {
    let mut asked: BTreeMap<&str, usize> = BTreeMap::new();
    let mut submissions: BTreeMap<&Key, BTreeSet<&str>> = BTreeMap::new();
    // What an attempt brought that a kill cut off, and what the next attempt does not list: that of a claim may have failed,
    // and any other may have joined the call of another request for the same items, and lists what that one brought.
    let mut unlisted: BTreeSet<(&Key, String)> = BTreeSet::new();
    // Items that a claim asked for and may have brought.
    let mut unsure: BTreeSet<&Key> = BTreeSet::new();
    for request in &seen.requests {
        let has_failed = request.of_claim && request.state == "failed";
        let own = request.asked.iter().filter_map(|key| Some((key, request.own_submission(key)?)));
        unlisted.extend(
            own.filter(|(key, own)| {
                has_failed || request.found.get(*key).is_some_and(|listed| listed != own)
            }),
        );
        if has_failed {
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
            let brings = |other: &SeenRequest| {
                other.asked.contains(key) && other.own_submission(key).as_ref() == Some(submission)
            };
            if !seen.requests.iter().any(brings) {
                verdict.invented.push(format!("request {} lists {submission} of another cause", request.id));
            }
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
    }
    for (key, found) in stored {
        let wanted = submissions.get(key);
        let is_wanted = |id: &String| wanted.is_some_and(|wanted| wanted.contains(id.as_str()));
        for more in found.iter().filter(|id| !is_wanted(id)) {
            if !unlisted.contains(&(key, more.clone())) {
                verdict.invented.push(format!("{key:?}: submission {more}, which no request brought"));
            }
        }
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
        let mut request = SeenRequest {
            id: Uuid::from_u128(1).to_string(),
            state: "done".to_owned(),
            of_claim: false,
            asked: BTreeSet::from([key("n1"), key("n3")]),
            found: BTreeMap::new(),
            missing: BTreeSet::from([key("n3")]),
        };
        let own = request.own_submission(&key("n1")).unwrap();
        request.found.insert(key("n1"), own.clone());
        let mut seen = Seen {
            asked: BTreeSet::from([request.id.clone()]),
            requests: vec![request],
            fetched: Some(BTreeMap::from([(key("n1"), vec![own])])),
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
                request.found.clear();
            }
        };
        assert_eq!(found(of_claim("failed")).2, 0);
        assert_eq!(found(of_claim("pending")), (2, 0, 1));
        let unlogged = |_: &mut Sent, seen: &mut Seen| {
            seen.asked.insert("another".to_owned());
        };
        assert_eq!(found(unlogged), (1, 0, 0));
        let foreign = |_: &mut Sent, seen: &mut Seen| {
            let submission = "s".to_owned();
            seen.requests[0].found.insert(key("n1"), submission.clone());
            seen.fetched.as_mut().unwrap().insert(key("n1"), vec![submission]);
        };
        assert_eq!(found(foreign), (0, 0, 1));
        let twice = |_: &mut Sent, seen: &mut Seen| {
            let again = SeenRequest { id: "again".to_owned(), ..seen.requests[0].clone() };
            seen.requests.push(again);
        };
        assert_eq!(found(twice), (0, 1, 0));
    }

    #[test]
    fn fetched_item_is_stored_once() {
        let also = |submission: &'static str| {
            move |_: &mut Sent, seen: &mut Seen| {
                seen.fetched.as_mut().unwrap().get_mut(&key("n1")).unwrap().push(submission.to_owned());
            }
        };
        assert_eq!(found(also("t")), (0, 0, 1));
        assert_eq!(found(|_, seen| seen.fetched.as_mut().unwrap().clear()), (1, 0, 0));
        let other = |id: &'static str| {
            move |_: &mut Sent, seen: &mut Seen| {
                let submission = seen.requests[0].own_submission(&key(id)).unwrap();
                seen.fetched.as_mut().unwrap().insert(key(id), vec![submission]);
            }
        };
        // One was never asked for, and the platform does not have the other.
        assert_eq!(found(other("n2")), (0, 0, 1));
        assert_eq!(found(other("n3")), (0, 0, 1));
    }

    /// An attempt was cut off after its append, and the next one joined another request's.
    #[test]
    fn request_that_joined_another_may_have_brought_its_own_before() {
        let joined = |brings: fn(&SeenRequest) -> String| {
            move |sent: &mut Sent, seen: &mut Seen| {
                let own = brings(&seen.requests[0]);
                // The other request is one of a refresh, for the same items.
                sent.reports.clear();
                let mut other =
                    SeenRequest { id: Uuid::from_u128(2).to_string(), ..seen.requests[0].clone() };
                let joined = other.own_submission(&key("n1")).unwrap();
                other.found.insert(key("n1"), joined.clone());
                seen.requests[0].found = other.found.clone();
                seen.requests.push(other);
                seen.fetched = Some(BTreeMap::from([(key("n1"), vec![joined, own])]));
            }
        };
        assert_eq!(found(joined(|request| request.own_submission(&key("n1")).unwrap())), (0, 0, 0));
        assert_eq!(found(joined(|request| request.own_submission(&key("n3")).unwrap())), (0, 0, 1));
    }
}

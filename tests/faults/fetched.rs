//! The part of the oracle that is about items requested from a platform: every request is in the log and settled, and
//! each fetched item is stored once.
//!
//! Pure.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_schemas::ids::{Kind, SubmissionId, derive};
use uuid::Uuid;

use crate::{
    observe::ORG,
    oracle::{Observations, SentRequests, Verdict, bounds},
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
    /// Items in the answer, each with its submission.
    pub(crate) found: BTreeMap<Key, String>,
    pub(crate) missing: BTreeSet<Key>,
}

impl SeenRequest {
    /// Returns the submission under which the request itself fetches the item. Only a request for this item has this id.
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

pub(crate) fn judge(sent: &SentRequests, seen: &Observations, verdict: &mut Verdict) {
    let mut request_counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut submissions: BTreeMap<&Key, BTreeSet<&str>> = BTreeMap::new();
    // Items of an attempt that a kill cut off, missing in the list of the next attempt: the next attempt of a claim may
    // fail, and that of another request may join a call for the same items and list the items of that call.
    let mut unlisted: BTreeSet<(&Key, String)> = BTreeSet::new();
    // Items that a failed claim may have fetched.
    let mut unsure: BTreeSet<&Key> = BTreeSet::new();
    for request in &seen.requests {
        let has_failed = request.of_claim && request.state == "failed";
        let own_submissions =
            request.asked.iter().filter_map(|key| Some((key, request.own_submission(key)?)));
        unlisted.extend(own_submissions.filter(|(key, submission)| {
            has_failed || request.found.get(*key).is_some_and(|listed| listed != submission)
        }));
        if has_failed {
            unsure.extend(&request.asked);
            continue;
        }
        if request.state != "done" {
            verdict.lost.push(format!("request {} for items is {}", request.id, request.state));
            continue;
        }
        for (_, id) in &request.asked {
            *request_counts.entry(id).or_default() += 1;
        }
        let (has, lacks): (BTreeSet<_>, BTreeSet<_>) = request.asked.iter().cloned().partition(has);
        if !request.found.keys().eq(&has) || request.missing != lacks {
            verdict.lost.push(format!("request {} does not list the fetched items: {request:?}", request.id));
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
        // An item that a claim fetched before the end of the report's processing is not requested again.
        if unsure.iter().any(|(_, id)| id == named) {
            least = 0;
        }
        let request_count = request_counts.remove(named.as_str()).unwrap_or_default();
        verdict.count(format_args!("requests for item {named}"), request_count, least, most);
    }
    let Some(stored) = &seen.fetched else { return };
    for (key, listed_ids) in &submissions {
        let stored_ids: BTreeSet<_> = stored.get(*key).into_iter().flatten().map(String::as_str).collect();
        for lost in listed_ids.difference(&stored_ids) {
            verdict.lost.push(format!("{key:?}: submission {lost} was fetched and is not stored"));
        }
    }
    for (key, stored_ids) in stored {
        let listed_ids = submissions.get(key);
        let is_listed = |id: &String| listed_ids.is_some_and(|listed_ids| listed_ids.contains(id.as_str()));
        for more in stored_ids.iter().filter(|id| !is_listed(id)) {
            if !unlisted.contains(&(key, more.clone())) {
                verdict.invented.push(format!("{key:?}: submission {more}, which no request fetched"));
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

    /// Judges a report that names an item of the platform and a missing one. Counts lost, doubled and invented effects.
    fn count_faults(wrong: impl FnOnce(&mut SentRequests, &mut Observations)) -> (usize, usize, usize) {
        let report = SentReport {
            item: "i".to_owned(),
            user: "u".to_owned(),
            content: Content::Plain,
            csam: false,
            reply: Reply::Accepted,
            report: Some("r".to_owned()),
            named: Some("n1".to_owned()),
        };
        let mut sent = SentRequests { reports: vec![report], ..SentRequests::default() };
        let mut request = SeenRequest {
            id: Uuid::from_u128(1).to_string(),
            state: "done".to_owned(),
            of_claim: false,
            asked: BTreeSet::from([key("n1"), key("n3")]),
            found: BTreeMap::new(),
            missing: BTreeSet::from([key("n3")]),
        };
        let submission = request.own_submission(&key("n1")).unwrap();
        request.found.insert(key("n1"), submission.clone());
        let mut seen = Observations {
            asked: BTreeSet::from([request.id.clone()]),
            requests: vec![request],
            fetched: Some(BTreeMap::from([(key("n1"), vec![submission])])),
            ..Observations::default()
        };
        wrong(&mut sent, &mut seen);
        let mut verdict = Verdict::default();
        judge(&sent, &seen, &mut verdict);
        (verdict.lost.len(), verdict.doubled.len(), verdict.invented.len())
    }

    #[test]
    fn item_request_is_logged_settled_and_lists_its_items() {
        assert_eq!(count_faults(|_, _| {}), (0, 0, 0));
        assert_eq!(count_faults(|_, seen| seen.requests[0].missing.clear()), (1, 0, 0));
        let pending =
            |_: &mut SentRequests, seen: &mut Observations| seen.requests[0].state = "pending".to_owned();
        // The named item counts as never requested, and its row has no request.
        assert_eq!(count_faults(pending), (2, 0, 1));
        let of_claim = |state: &'static str| {
            move |_: &mut SentRequests, seen: &mut Observations| {
                let request = &mut seen.requests[0];
                (request.state, request.of_claim) = (state.to_owned(), true);
                request.found.clear();
            }
        };
        assert_eq!(count_faults(of_claim("failed")).2, 0);
        assert_eq!(count_faults(of_claim("pending")), (2, 0, 1));
        let unlogged = |_: &mut SentRequests, seen: &mut Observations| {
            seen.asked.insert("another".to_owned());
        };
        assert_eq!(count_faults(unlogged), (1, 0, 0));
        let foreign = |_: &mut SentRequests, seen: &mut Observations| {
            let submission = "s".to_owned();
            seen.requests[0].found.insert(key("n1"), submission.clone());
            seen.fetched.as_mut().unwrap().insert(key("n1"), vec![submission]);
        };
        assert_eq!(count_faults(foreign), (0, 0, 1));
        let twice = |_: &mut SentRequests, seen: &mut Observations| {
            let again = SeenRequest { id: "again".to_owned(), ..seen.requests[0].clone() };
            seen.requests.push(again);
        };
        assert_eq!(count_faults(twice), (0, 1, 0));
    }

    #[test]
    fn fetched_item_is_stored_once() {
        let also = |submission: &'static str| {
            move |_: &mut SentRequests, seen: &mut Observations| {
                seen.fetched.as_mut().unwrap().get_mut(&key("n1")).unwrap().push(submission.to_owned());
            }
        };
        assert_eq!(count_faults(also("t")), (0, 0, 1));
        assert_eq!(count_faults(|_, seen| seen.fetched.as_mut().unwrap().clear()), (1, 0, 0));
        let other = |id: &'static str| {
            move |_: &mut SentRequests, seen: &mut Observations| {
                let submission = seen.requests[0].own_submission(&key(id)).unwrap();
                seen.fetched.as_mut().unwrap().insert(key(id), vec![submission]);
            }
        };
        // The first item was never requested; the platform lacks the second.
        assert_eq!(count_faults(other("n2")), (0, 0, 1));
        assert_eq!(count_faults(other("n3")), (0, 0, 1));
    }

    /// An attempt was cut off after its append, and the next one joined the call of another request.
    #[test]
    fn joined_request_may_have_stored_its_own_item() {
        let joined = |brings: fn(&SeenRequest) -> String| {
            move |sent: &mut SentRequests, seen: &mut Observations| {
                let submission = brings(&seen.requests[0]);
                // The other request is one of a refresh, for the same items.
                sent.reports.clear();
                let mut other =
                    SeenRequest { id: Uuid::from_u128(2).to_string(), ..seen.requests[0].clone() };
                let joined = other.own_submission(&key("n1")).unwrap();
                other.found.insert(key("n1"), joined.clone());
                seen.requests[0].found = other.found.clone();
                seen.requests.push(other);
                seen.fetched = Some(BTreeMap::from([(key("n1"), vec![joined, submission])]));
            }
        };
        assert_eq!(count_faults(joined(|request| request.own_submission(&key("n1")).unwrap())), (0, 0, 0));
        assert_eq!(count_faults(joined(|request| request.own_submission(&key("n3")).unwrap())), (0, 0, 1));
    }
}

//! The part of the oracle that is about `/content`: the stored outcome equals the answered one.
//!
//! Pure. The item itself and its effects are judged with all other items.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::oracle::{Observations, Reply, SentRequests, Verdict};

/// Result of an evaluation, by the ids of its rules and of the actions that were taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) rules: BTreeSet<String>,
    pub(crate) actions: BTreeSet<String>,
}

impl Outcome {
    /// Reads an answer of `/content`.
    pub(crate) fn answered(answer: &Value) -> Self {
        Self { rules: ids(&answer["matchedRules"]), actions: ids(&answer["actionsTriggered"]) }
    }

    /// Reads a stored item, without its suppressed actions.
    pub(crate) fn stored(item: &Value) -> Self {
        let mut actions = item["actions"].clone();
        if let Some(all) = actions.as_array_mut() {
            all.retain(|action| action.get("suppressed").is_none());
        }
        Self { rules: ids(&item["matchedRules"]), actions: ids(&actions) }
    }
}

fn ids(list: &Value) -> BTreeSet<String> {
    list.as_array().into_iter().flatten().filter_map(|it| it["id"].as_str().map(str::to_owned)).collect()
}

pub(crate) fn judge(sent: &SentRequests, seen: &Observations, verdict: &mut Verdict) {
    for (submission, answered) in &sent.outcomes {
        match seen.outcomes.get(submission) {
            None => verdict.lost.push(format!("the outcome of submission {submission}, which was answered")),
            Some(stored) if stored != answered => {
                verdict
                    .invented
                    .push(format!("submission {submission} was answered {answered:?}, not {stored:?}"));
            }
            Some(_) => {}
        }
    }
    // Items sent without waiting for the outcome have no submission in their answer.
    for (id, _) in sent.items.iter().filter(|(_, it)| it.reply == Reply::Accepted && it.submission.is_none())
    {
        let submissions = seen.items.get(id).map(|item| &item.submissions);
        if submissions.is_some_and(|all| all.values().any(|evaluated| !evaluated)) {
            verdict.lost.push(format!("item {id} is not evaluated"));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use crate::oracle::{Content, SeenItem, SentItem};

    fn count_faults(wrong: impl FnOnce(&mut SentRequests, &mut Observations)) -> (usize, usize) {
        let answer =
            json!({ "matchedRules": [{ "id": "scams" }], "actionsTriggered": [{ "id": "limit_reach" }] });
        let item = json!({
            "matchedRules": [{ "id": "scams" }],
            "actions": [{ "id": "limit_reach" }, { "id": "slow_down", "suppressed": "limit" }],
        });
        let (mut sent, mut seen) = (SentRequests::default(), Observations::default());
        sent.outcomes.insert("s".to_owned(), Outcome::answered(&answer));
        sent.items.insert(
            "late".to_owned(),
            SentItem { reply: Reply::Accepted, ..SentItem::new("u", Content::Plain) },
        );
        seen.outcomes.insert("s".to_owned(), Outcome::stored(&item));
        seen.items
            .insert("late".to_owned(), SeenItem { submissions: BTreeMap::from([("l".to_owned(), true)]) });
        wrong(&mut sent, &mut seen);
        let mut verdict = Verdict::default();
        judge(&sent, &seen, &mut verdict);
        (verdict.lost.len(), verdict.invented.len())
    }

    #[test]
    fn answered_outcome_is_the_stored_one() {
        assert_eq!(count_faults(|_, _| {}), (0, 0));
        assert_eq!(count_faults(|_, seen| seen.outcomes.clear()), (1, 0));
        assert_eq!(count_faults(|_, seen| seen.outcomes.get_mut("s").unwrap().actions.clear()), (0, 1));
        assert_eq!(count_faults(|sent, _| sent.outcomes.get_mut("s").unwrap().rules.clear()), (0, 1));
    }

    #[test]
    fn unawaited_content_is_evaluated() {
        let waiting = |_: &mut SentRequests, seen: &mut Observations| {
            seen.items.get_mut("late").unwrap().submissions.insert("l".to_owned(), false);
        };
        assert_eq!(count_faults(waiting), (1, 0));
    }
}

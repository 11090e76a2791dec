//! Runs the tests in rule documents, and answers needs with the facts of examples.

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use tidegate_schemas::ids::{ItemKey, Kind, Millis, RuleId, TypeId, derive};

use crate::{
    error::{RuleError, did_you_mean, escape_key, quote},
    facts::{Facts, Need, Scores},
    item::{Fields, Item, Trigger},
    plan::Plan,
    syntax::{self, ExampleFacts},
};

/// Item of a test, converted by its type.
pub struct TestItem {
    pub values: Box<dyn Fields>,
    pub user: Option<ItemKey>,
}

/// Result of one test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestReport {
    pub rule: RuleId,
    /// Index of the test in its rule.
    pub test: usize,
    /// Name given by the author.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub result: TestResult,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TestResult {
    Right,
    /// The rule should have matched.
    Missed,
    /// The rule should not have matched.
    Matched,
    Errored(String),
    /// The item is invalid for its type.
    Unreadable(String),
}

/// Runs the tests of each rule against that rule alone, even if it has expired or is triggered by reports only.
///
/// `read` converts the `item` of a test to the values of its type, like a submission.
pub fn run_tests(
    plan: &Plan,
    now: Millis,
    read: impl Fn(&TypeId, &Json) -> Result<TestItem, String>,
) -> Vec<TestReport> {
    let mut reports = Vec::new();
    for (rule, tests) in plan.tests() {
        for (nth, test) in tests.iter().enumerate() {
            let only_type = rule.item_types.iter().next().filter(|_| rule.item_types.len() == 1);
            let result = match test
                .item_type
                .as_ref()
                .or(only_type)
                .map(|type_id| (type_id, read(type_id, &test.item)))
            {
                None => TestResult::Unreadable("the test must name its item_type".to_owned()),
                Some((_, Err(reason))) => TestResult::Unreadable(reason),
                Some((type_id, _)) if !rule.item_types.is_empty() && !rule.item_types.contains(type_id) => {
                    TestResult::Unreadable(format!("the rule is not for items of type {type_id}"))
                }
                Some((type_id, Ok(test_item))) => {
                    let item = Item {
                        type_id,
                        values: &*test_item.values,
                        user: test_item.user.as_ref(),
                        // A rule for reports only is tested as if a report had triggered it.
                        on: rule.on.first().copied().unwrap_or(Trigger::Item),
                        now,
                        submission: derive(Kind::Submission, &[rule.head.rule.as_str().as_bytes()]),
                    };
                    let scan = plan.scan_rule(&item, rule);
                    let facts = test.facts.answer_needs(scan.pending_needs());
                    let outcome = plan.finish(scan, &facts);
                    match (outcome.errored.into_iter().next(), !outcome.matched.is_empty(), test.matches) {
                        (Some(errored), ..) => TestResult::Errored(errored.reason),
                        (None, matched, expected) if matched == expected => TestResult::Right,
                        (None, true, _) => TestResult::Matched,
                        (None, false, _) => TestResult::Missed,
                    }
                }
            };
            reports.push(TestReport {
                rule: rule.head.rule.clone(),
                test: nth,
                name: test.name.clone(),
                result,
            });
        }
    }
    reports
}

impl ExampleFacts {
    /// Answers these needs.
    pub fn answer_needs(&self, needs: &[Need]) -> Facts {
        let mut facts = Facts::offline(needs);
        for need in needs {
            match need {
                Need::Strikes { .. } => facts.set_strikes(need.clone(), self.strikes),
                Need::Count { window, .. } => {
                    if let Some((_, counted)) = self.counts.iter().find(|(key, _)| key == window) {
                        facts.set_count(need.clone(), *counted);
                    }
                }
                Need::Media { url } => {
                    let is_for_url = |of: &Option<String>| of.as_ref().is_none_or(|of| of == url);
                    if let Some((_, media)) = self.media.iter().find(|(of, _)| is_for_url(of)) {
                        facts.set_media(need.clone(), media.clone());
                    }
                }
                Need::Score { model, .. } => {
                    let scores = self.scores.iter().find(|(of, _)| of == model);
                    let texts = self.texts.iter().find(|(of, _)| of == model);
                    if scores.is_some() || texts.is_some() {
                        let scores = scores.map(|(_, scores)| scores.clone()).unwrap_or_default();
                        let texts = texts.map(|(_, texts)| texts.clone()).unwrap_or_default();
                        facts.set_scores(need.clone(), Scores { texts, ..scores });
                    }
                }
            }
        }
        facts
    }
}

impl Plan {
    /// Reads the facts of a line about its item, in the form of a rule's tests. `other_keys` are the other keys of the line,
    /// `banks` the banks that media may match.
    pub fn example_facts(
        &self,
        line: &Json,
        other_keys: &[&str],
        banks: &[&str],
    ) -> Result<ExampleFacts, Vec<RuleError>> {
        let facts = syntax::example_facts(line, other_keys, self.limits())?;
        let windows: Vec<_> = self.windows().map(|window| window.key.as_str()).collect();
        let models: Vec<_> = self.models().collect();
        let window_uses = facts
            .counts
            .iter()
            .map(|(key, _)| (format!("counts/{}", escape_key(key.as_str())), key.as_str()));
        let score_uses =
            facts.scores.iter().map(|(model, _)| (format!("scores/{}", escape_key(model)), model.as_str()));
        let text_uses =
            facts.texts.iter().map(|(model, _)| (format!("texts/{}", escape_key(model)), model.as_str()));
        let bank_uses = facts.media.iter().enumerate().flat_map(|(nth, (_, media))| {
            media
                .matches
                .iter()
                .map(move |bank_match| (format!("media/{nth}/bank"), bank_match.bank.as_str()))
        });
        let mut errors = find_unknown(window_uses, &windows, "unknown_window", "unknown window");
        errors.extend(find_unknown(
            score_uses.chain(text_uses),
            &models,
            "unknown_model",
            "no rule uses the model",
        ));
        errors.extend(find_unknown(bank_uses, banks, "unknown_bank", "unknown bank of hashes"));
        if errors.is_empty() { Ok(facts) } else { Err(errors) }
    }
}

fn find_unknown<'n>(
    uses: impl Iterator<Item = (String, &'n str)>,
    known: &[&str],
    tag: &'static str,
    problem: &str,
) -> Vec<RuleError> {
    let error = |(at, name): (String, &str)| {
        let suggestion = did_you_mean(name, known.iter().copied());
        RuleError::new("line", "", &format!("/{at}"), tag, format!("{problem} {}{suggestion}", quote(name)))
    };
    uses.filter(|(_, name)| !known.contains(name)).map(error).collect()
}

//! Runs the examples that stand beside rules, and answers what is asked of items that are only tried.

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use tidegate_schemas::ids::{ItemKey, Kind, Millis, RuleId, TypeId, derive};

use crate::{
    error::{RuleError, did_you_mean, escaped, shown},
    facts::{Facts, Need, Scores},
    item::{Fields, Item, On},
    plan::Plan,
    syntax::{self, ExampleFacts},
};

/// An example's item, as its type reads it.
pub struct TestItem {
    pub values: Box<dyn Fields>,
    pub user: Option<ItemKey>,
}

/// Result of one example.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestReport {
    pub rule: RuleId,
    /// Its place among the rule's examples.
    pub test: usize,
    /// Name that its author gave it.
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
    /// The item does not fit its type.
    Unreadable(String),
}

/// Runs each rule's examples against that rule alone, also if it has expired or is for reports only.
///
/// `read` turns an example's `item` into values of its type, as for a submission.
pub fn run_tests(
    plan: &Plan,
    now: Millis,
    read: impl Fn(&TypeId, &Json) -> Result<TestItem, String>,
) -> Vec<TestReport> {
    let mut reports = Vec::new();
    for (rule, tests) in plan.tests() {
        for (nth, test) in tests.iter().enumerate() {
            let only = rule.item_types.iter().next().filter(|_| rule.item_types.len() == 1);
            let result =
                match test.item_type.as_ref().or(only).map(|type_id| (type_id, read(type_id, &test.item))) {
                    None => TestResult::Unreadable("the test must name its item_type".to_owned()),
                    Some((_, Err(reason))) => TestResult::Unreadable(reason),
                    Some((type_id, _))
                        if !rule.item_types.is_empty() && !rule.item_types.contains(type_id) =>
                    {
                        TestResult::Unreadable(format!("the rule is not for items of type {type_id}"))
                    }
                    Some((type_id, Ok(read))) => {
                        let item = Item {
                            type_id,
                            values: &*read.values,
                            user: read.user.as_ref(),
                            on: rule.on.first().copied().unwrap_or(On::Item),
                            now,
                            submission: derive(Kind::Submission, &[rule.head.rule.as_str().as_bytes()]),
                        };
                        let scan = plan.scan_this(&item, rule);
                        let facts = test.facts.answers(scan.needs());
                        let outcome = plan.finish(scan, &facts);
                        match (outcome.errored.into_iter().next(), !outcome.matched.is_empty(), test.matches)
                        {
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
    /// The answers to what is asked.
    pub fn answers(&self, needs: &[Need]) -> Facts {
        let mut facts = Facts::offline(needs);
        for need in needs {
            match need {
                Need::Strikes { .. } => facts.strikes(need.clone(), self.strikes),
                Need::Count { window, .. } => {
                    if let Some((_, counted)) = self.counts.iter().find(|(key, _)| key == window) {
                        facts.count(need.clone(), *counted);
                    }
                }
                Need::Media { url } => {
                    let concerns = |of: &Option<String>| of.as_ref().is_none_or(|of| of == url);
                    if let Some((_, media)) = self.media.iter().find(|(of, _)| concerns(of)) {
                        facts.media(need.clone(), media.clone());
                    }
                }
                Need::Score { model, .. } => {
                    let scores = self.scores.iter().find(|(of, _)| of == model);
                    let texts = self.texts.iter().find(|(of, _)| of == model);
                    if scores.is_some() || texts.is_some() {
                        let scores = scores.map(|(_, scores)| scores.clone()).unwrap_or_default();
                        let texts = texts.map(|(_, texts)| texts.clone()).unwrap_or_default();
                        facts.scores(need.clone(), Scores { texts, ..scores });
                    }
                }
            }
        }
        facts
    }
}

impl Plan {
    /// Reads what a line says is known beside its item, in the words of an example. `beside` names the line's other
    /// keys, `banks` the banks that media may be in.
    pub fn example_facts(
        &self,
        line: &Json,
        beside: &[&str],
        banks: &[&str],
    ) -> Result<ExampleFacts, Vec<RuleError>> {
        let facts = syntax::example_facts(line, beside, self.limits())?;
        let windows: Vec<_> = self.windows().map(|window| window.key.as_str()).collect();
        let models: Vec<_> = self.models().collect();
        let counted =
            facts.counts.iter().map(|(key, _)| (format!("counts/{}", escaped(key.as_str())), key.as_str()));
        let said =
            facts.scores.iter().map(|(model, _)| (format!("scores/{}", escaped(model)), model.as_str()));
        let texts =
            facts.texts.iter().map(|(model, _)| (format!("texts/{}", escaped(model)), model.as_str()));
        let found = facts.media.iter().enumerate().flat_map(|(nth, (_, media))| {
            media.matches.iter().map(move |found| (format!("media/{nth}/bank"), found.bank.as_str()))
        });
        let mut errors = unknown(counted, &windows, "unknown_window", "unknown window");
        errors.extend(unknown(said.chain(texts), &models, "unknown_model", "no rule uses the model"));
        errors.extend(unknown(found, banks, "unknown_bank", "unknown bank of hashes"));
        if errors.is_empty() { Ok(facts) } else { Err(errors) }
    }
}

fn unknown<'n>(
    named: impl Iterator<Item = (String, &'n str)>,
    known: &[&str],
    tag: &'static str,
    what: &str,
) -> Vec<RuleError> {
    let error = |(at, name): (String, &str)| {
        let near = did_you_mean(name, known.iter().copied());
        RuleError::new("line", "", &format!("/{at}"), tag, format!("{what} {}{near}", shown(name)))
    };
    named.filter(|(_, name)| !known.contains(name)).map(error).collect()
}

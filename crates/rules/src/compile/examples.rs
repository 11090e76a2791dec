//! Checks that the examples beside a rule speak of windows, banks and models that there are.
//!
//! It does not run them.

use std::collections::BTreeSet;

use super::Context;
use crate::{
    faults::{did_you_mean, shown},
    form::{Condition, Rule},
};

pub(super) fn check(rule: &Rule, context: &mut Context<'_>) {
    let mut models = BTreeSet::new();
    asked(&rule.when, &mut models);
    context.at("tests", |c| {
        for (nth, test) in rule.tests.iter().enumerate() {
            c.at(nth, |c| {
                for (key, _) in &test.counts {
                    let faulty = c.faulty_windows.contains(key.as_str());
                    if c.window(key).is_none() && !faulty {
                        let known: Vec<_> = c.windows.iter().map(|it| it.window.key.to_string()).collect();
                        unknown(c, "counts", "unknown_window", "there is no window", key.as_str(), &known);
                    }
                }
                for (model, _) in test.scores.iter().filter(|(model, _)| !models.contains(model.as_str())) {
                    let known: Vec<_> = models.iter().map(ToString::to_string).collect();
                    unknown(c, "scores", "unknown_model", "the rule does not ask the model", model, &known);
                }
                for (place, (_, media)) in test.media.iter().enumerate() {
                    let banks = c.vocabulary.banks();
                    for found in &media.matches {
                        if banks.iter().all(|bank| bank.key != found.bank) {
                            let known: Vec<_> = banks.iter().map(|bank| bank.key.to_string()).collect();
                            let near = did_you_mean(found.bank.as_str(), known.iter().map(String::as_str));
                            let detail = format!("there is no bank {}{near}", shown(found.bank.as_str()));
                            let at = format!("media/{place}/bank");
                            c.at(at, |c| c.fault("unknown_bank", detail));
                        }
                    }
                }
            });
        }
    });
}

fn unknown(
    context: &mut Context<'_>,
    member: &str,
    tag: &'static str,
    what: &str,
    key: &str,
    known: &[String],
) {
    let near = did_you_mean(key, known.iter().map(String::as_str));
    let at = format!("{member}/{}", key.replace('~', "~0").replace('/', "~1"));
    context.at(at, |c| c.fault(tag, format!("{what} {}{near}", shown(key))));
}

/// The models that a condition asks.
fn asked<'c>(condition: &'c Condition, models: &mut BTreeSet<&'c str>) {
    match condition {
        Condition::All(parts) | Condition::Any(parts) => parts.iter().for_each(|part| asked(part, models)),
        Condition::Not(inner) | Condition::Expr(inner) => asked(inner, models),
        Condition::Score(score) => drop(models.insert(&score.model)),
        _ => {}
    }
}

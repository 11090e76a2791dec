//! Checks that the examples beside a rule speak of windows, banks and models that there are.

use std::collections::BTreeSet;

use tidegate_schemas::documents::{DocumentKind, Missing};

use super::references::References;
use crate::{
    error::{did_you_mean, escaped, shown},
    leaves::{LeafSpec, context::Context},
    syntax::{Condition, Rule},
};

pub(super) fn check(rule: &Rule, references: &References<'_>, context: &mut Context<'_>) {
    let mut models = BTreeSet::new();
    asked(&rule.when, references, &mut models);
    context.at("tests", |c| {
        for (nth, test) in rule.tests.iter().enumerate() {
            c.at(nth, |c| {
                for (key, _) in &test.facts.counts {
                    let faulty = c.is_invalid_window(key);
                    if c.window(key).is_none() && !faulty {
                        let known: Vec<_> = c.window_keys().map(str::to_owned).collect();
                        let missing = Missing::Document(DocumentKind::Window, key.to_string());
                        unknown(c, "counts", "unknown window", key.as_str(), &known, Some(missing));
                    }
                }
                let scores = test.facts.scores.iter().map(|(model, _)| ("scores", model));
                let texts = test.facts.texts.iter().map(|(model, _)| ("texts", model));
                for (key, model) in scores.chain(texts).filter(|(_, model)| !models.contains(model.as_str()))
                {
                    let known: Vec<_> = models.iter().map(ToString::to_string).collect();
                    unknown(c, key, "the rule uses no model", model, &known, None);
                }
                for (place, (_, media)) in test.facts.media.iter().enumerate() {
                    let banks = c.vocabulary.banks();
                    for found in &media.matches {
                        if banks.iter().all(|bank| bank.key != found.bank) {
                            let known: Vec<_> = banks.iter().map(|bank| bank.key.to_string()).collect();
                            let near = did_you_mean(found.bank.as_str(), known.iter().map(String::as_str));
                            let detail = format!("unknown bank {}{near}", shown(found.bank.as_str()));
                            let at = format!("media/{place}/bank");
                            let missing = Missing::Document(DocumentKind::Bank, found.bank.to_string());
                            c.at(at, |c| c.missing(missing, detail));
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
    what: &str,
    key: &str,
    known: &[String],
    missing: Option<Missing>,
) {
    let near = did_you_mean(key, known.iter().map(String::as_str));
    let at = format!("{member}/{}", escaped(key));
    let detail = format!("{what} {}{near}", shown(key));
    context.at(at, |c| match missing {
        Some(missing) => c.missing(missing, detail),
        None => c.error("unknown_model", detail),
    });
}

/// The models that a condition asks.
fn asked<'c>(condition: &'c Condition, references: &'c References<'_>, models: &mut BTreeSet<&'c str>) {
    match condition {
        Condition::All(parts) | Condition::Any(parts) => {
            parts.iter().for_each(|part| asked(part, references, models));
        }
        Condition::Not(inner) | Condition::Expr(inner) => asked(inner, references, models),
        Condition::Rule(key) => {
            references.condition(key).into_iter().for_each(|used| asked(used, references, models));
        }
        Condition::Leaf(LeafSpec::Score(score)) => drop(models.insert(&score.model)),
        Condition::Leaf(LeafSpec::ModelText(text)) => drop(models.insert(&text.model)),
        Condition::Leaf(_) => {}
    }
}

//! Checks that the tests in a rule refer to existing windows, banks and models.

use std::collections::BTreeSet;

use tidegate_schemas::documents::{DocumentKind, MissingReference};

use super::references::References;
use crate::{
    error::{did_you_mean, escape_key, quote},
    leaves::{LeafSpec, context::Context},
    syntax::{Condition, Rule},
};

pub(super) fn check_tests(rule: &Rule, references: &References<'_>, context: &mut Context<'_>) {
    let mut models = BTreeSet::new();
    collect_models(&rule.when, references, &mut models);
    context.at("tests", |c| {
        for (nth, test) in rule.tests.iter().enumerate() {
            c.at(nth, |c| {
                for (key, _) in &test.facts.counts {
                    let is_faulty = c.is_invalid_window(key);
                    if c.window(key).is_none() && !is_faulty {
                        let window_keys: Vec<_> = c.window_keys().map(str::to_owned).collect();
                        let missing_window =
                            MissingReference::Document(DocumentKind::Window, key.to_string());
                        report_unknown(
                            c,
                            "counts",
                            "unknown window",
                            key.as_str(),
                            &window_keys,
                            Some(missing_window),
                        );
                    }
                }
                let scores = test.facts.scores.iter().map(|(model, _)| ("scores", model));
                let texts = test.facts.texts.iter().map(|(model, _)| ("texts", model));
                for (key, model) in scores.chain(texts).filter(|(_, model)| !models.contains(model.as_str()))
                {
                    let model_names: Vec<_> = models.iter().map(ToString::to_string).collect();
                    report_unknown(c, key, "the rule uses no model", model, &model_names, None);
                }
                for (place, (_, media)) in test.facts.media.iter().enumerate() {
                    let banks = c.vocabulary.banks();
                    for bank_match in &media.matches {
                        if banks.iter().all(|bank| bank.key != bank_match.bank) {
                            let bank_keys: Vec<_> = banks.iter().map(|bank| bank.key.to_string()).collect();
                            let suggestion =
                                did_you_mean(bank_match.bank.as_str(), bank_keys.iter().map(String::as_str));
                            let detail =
                                format!("unknown bank {}{suggestion}", quote(bank_match.bank.as_str()));
                            let path = format!("media/{place}/bank");
                            let missing_bank =
                                MissingReference::Document(DocumentKind::Bank, bank_match.bank.to_string());
                            c.at(path, |c| c.push_missing(missing_bank, detail));
                        }
                    }
                }
            });
        }
    });
}

fn report_unknown(
    context: &mut Context<'_>,
    member: &str,
    problem: &str,
    key: &str,
    candidates: &[String],
    missing: Option<MissingReference>,
) {
    let suggestion = did_you_mean(key, candidates.iter().map(String::as_str));
    let path = format!("{member}/{}", escape_key(key));
    let detail = format!("{problem} {}{suggestion}", quote(key));
    context.at(path, |c| match missing {
        Some(missing) => c.push_missing(missing, detail),
        None => c.error("unknown_model", detail),
    });
}

/// Collects the models that a condition uses.
fn collect_models<'c>(
    condition: &'c Condition,
    references: &'c References<'_>,
    models: &mut BTreeSet<&'c str>,
) {
    match condition {
        Condition::All(parts) | Condition::Any(parts) => {
            parts.iter().for_each(|part| collect_models(part, references, models));
        }
        Condition::Not(inner) | Condition::Expr(inner) => collect_models(inner, references, models),
        Condition::Rule(key) => {
            references
                .condition(key)
                .into_iter()
                .for_each(|used_condition| collect_models(used_condition, references, models));
        }
        Condition::Leaf(LeafSpec::Score(score)) => drop(models.insert(&score.model)),
        Condition::Leaf(LeafSpec::ModelText(text)) => drop(models.insert(&text.model)),
        Condition::Leaf(_) => {}
    }
}

//! Compares the plan with the plain interpreter on random rules and items: outcome, explanation and needs must be equal.
//!
//! `TIDEGATE_RULES_CASES` sets the number of items, `TIDEGATE_RULES_SEED` the first seed.

mod edges;
pub(crate) mod expressions;
pub(crate) mod generator;
mod interpreter;

use std::collections::BTreeMap;

use serde_json::Value as Json;
use tidegate_rules::{
    Explained, Facts, Item, Kind, Limits, Need, Outcome, Plan, RuleError, RuleSource, Trigger,
    syntax::{self, Rule, Status},
};
use tidegate_schemas::ids::{ItemKey, Millis, SubmissionId};

use crate::oracle::{
    generator::{Dice, World, standings},
    interpreter::{
        Interpreter, Tally,
        around::{Around, Lookup},
    },
};

/// Kinds of leaves, views, comparisons and uses of other rules.
const KINDS: usize = 39;

/// 2026-01-01T00:00:00Z.
const NOW: Millis = Millis(1_767_225_600_000);

fn setting(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().map_or(usual, |value| value.parse().unwrap())
}

#[derive(Default)]
struct Coverage {
    cases: u64,
    matched: u64,
    errored: u64,
    explained: u64,
    asked: u64,
    truncated: u64,
    entries: u64,
    /// Places just inside of a circle, and places just outside of one that was checked.
    edges: u64,
    tally: Tally,
}

/// Checks that every hit lies on whole characters of its text, and counts the places on the edge of a circle.
fn check_hits(explained: &Explained, data: &Json, edges: &mut u64) {
    let hits = match explained {
        Explained::All(node) | Explained::Any(node) => {
            return node.of.iter().for_each(|part| check_hits(part, data, edges));
        }
        Explained::Not(node) => return check_hits(&node.of, data, edges),
        Explained::Rule(node) => return check_hits(&node.of, data, edges),
        Explained::Geo(geo) => {
            for hit in &geo.hits {
                let circle = hit.area.rsplit_once(',').and_then(|(_, metres)| metres.parse::<f64>().ok());
                let is_near_edge = |(most, far): (f64, f64)| far >= most * 0.999_99 - 1.0;
                *edges += u64::from(circle.zip(hit.metres).is_some_and(is_near_edge));
            }
            return;
        }
        Explained::Text(text) => &text.hits,
        Explained::Domain(domain) => &domain.hits,
        _ => return,
    };
    for hit in hits {
        let (field, part) = hit.field.split_once('.').unwrap_or((&hit.field, ""));
        let value = if part.is_empty() { &data[field] } else { &data[field][part] };
        let value = match hit.element.as_deref() {
            None => value,
            Some(element) => element.parse::<usize>().map_or(&value[element], |nth| &value[nth]),
        };
        let hit_text = value.as_str().and_then(|text| text.get(hit.start..hit.end));
        assert!(hit_text.is_some_and(|hit_text| hit_text.starts_with(&hit.found)), "{hit:?} of {value}");
    }
}

/// Answers the needs like a caller.
fn facts(around: &Around, needs: &[Need]) -> Facts {
    let mut facts = Facts::new();
    for need in needs {
        let owned_need = need.clone();
        match need {
            Need::Strikes { within, .. } => {
                match around.standings[&within.map(|within| within.to_string())] {
                    Some(points) => facts.set_strikes(owned_need, points),
                    None => facts.set_failed(owned_need, "down"),
                }
            }
            Need::Count { window, key, .. } => match around.draw_count(window, key) {
                Some(counted) => facts.set_count(owned_need, counted),
                None => facts.set_failed(owned_need, "down"),
            },
            Need::Media { url } => match around.media(url) {
                Lookup::Found(media) => facts.set_media(owned_need, media),
                Lookup::Unknown => facts.set_unknown(owned_need),
                Lookup::Unavailable => facts.set_failed(owned_need, "down"),
            },
            Need::Score { model, .. } => match around.scores(model) {
                Lookup::Found(scores) => facts.set_scores(owned_need, scores),
                Lookup::Unknown => facts.set_unknown(owned_need),
                Lookup::Unavailable => facts.set_failed(owned_need, "down"),
            },
        }
    }
    facts
}

/// Compares one random plan on some random items.
fn compare(seed: u64, coverage: &mut Coverage) {
    let mut dice = Dice(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
    let mut world = World::new(&mut dice);
    let limits = Limits {
        text_bytes: dice.one(&[16, 200, 64 << 10, 1_500]),
        hits: dice.one(&[2, 16]),
        excerpt_bytes: dice.one(&[8, 256]),
        word_bytes: 16 << 10,
        window_values: dice.one(&[1, 16]),
        ..Limits::default()
    };
    let count = dice.one(&[1, 4, 4, 12, 40]);
    let mut documents = world.rules(&mut dice, count);
    let plan = loop {
        let sources: Vec<_> =
            documents.iter().map(|document| RuleSource { document, version: "1" }).collect();
        match Plan::compile(&sources, &world.vocabulary(), &limits) {
            Ok(plan) => break plan,
            // Words without letters in a view, or with equal forms, cannot be excluded beforehand.
            Err(errors) => {
                // Rules that use a dropped rule are dropped too.
                let dropped = documents.len() < count;
                let by_chance = |error: &RuleError| match error.tag() {
                    "unknown_rule" => dropped,
                    tag => matches!(tag, "empty" | "limit"),
                };
                assert!(errors.iter().all(by_chance), "seed {seed}: {errors:?}");
                let is_valid = |kind: &str, document: &Json| {
                    !errors.iter().any(|error| error.kind == kind && document[kind] == error.rule.as_str())
                };
                documents.retain(|document| is_valid("rule", document));
                for window in world.windows.iter_mut().filter(|window| !is_valid("window", window)) {
                    window.as_object_mut().unwrap().remove("where");
                }
            }
        }
    };
    let windows: Vec<_> =
        world.windows.iter().map(|document| syntax::parse_window(document, &limits).unwrap()).collect();
    let rules: Vec<Rule> =
        documents.iter().map(|document| syntax::parse(document, &limits).unwrap()).collect();
    for _ in 0..8 {
        let (nth, data) = world.item(&mut dice);
        let (type_id, shapes) = &world.types[nth];
        let kinds: BTreeMap<String, Kind> =
            shapes.iter().map(|(name, shape)| (name.clone(), shape.kind)).collect();
        let user = dice.chance(80).then(|| ItemKey::new("user", "u1"));
        let item = Item {
            type_id,
            values: &data,
            user: user.as_ref(),
            on: dice.one(&[Trigger::Item, Trigger::Item, Trigger::Report]),
            now: NOW,
            submission: SubmissionId::random(),
        };
        let around = Around {
            standings: standings(&mut dice),
            seed: dice.roll(u64::MAX),
            texts: world.model_texts(&mut dice),
        };
        let oracle = Interpreter {
            rules: &rules,
            limits: &limits,
            kinds: &kinds,
            item: &item,
            around: &around,
            windows: &windows,
            banks: &world.banks,
        };
        let (expected, expected_needs) = oracle.run(&mut coverage.tally);
        let scan = plan.scan(&item);
        let (needs, entries) = (scan.pending_needs().to_vec(), scan.entries().to_vec());
        let outcome = plan.finish(scan, &facts(&around, &needs));
        let case = || format!("seed {seed}, item {}, rules {}", data.data, Json::from(documents.clone()));
        assert!(
            outcome == expected,
            "{}\nplan {}\noracle {}",
            case(),
            outcome_json(&outcome),
            outcome_json(&expected)
        );
        assert_eq!(needs, expected_needs, "{}", case());
        assert_eq!(entries, oracle.entries().0, "{}", case());
        for rule in rules.iter().filter(|rule| oracle.speaks_of(rule)) {
            let Some(pending) = plan.begin_explanation(&item, &rule.key) else {
                assert_eq!(rule.status, Status::Archived, "{}", case());
                continue;
            };
            let pending_needs: Vec<_> = pending.pending_needs().cloned().collect();
            let tree = plan.finish_explanation(pending, &facts(&around, &pending_needs));
            let expected_tree = oracle.begin_explanation(rule);
            let tree_json = |tree: &Explained| serde_json::to_string(tree).unwrap();
            assert!(
                tree == expected_tree,
                "{} {}\nplan {}\noracle {}",
                case(),
                rule.key,
                tree_json(&tree),
                tree_json(&expected_tree)
            );
            coverage.explained += 1;
        }
        outcome.matched.iter().for_each(|matched| check_hits(&matched.tree, &data.data, &mut coverage.edges));
        coverage.entries += entries.len() as u64;
        coverage.cases += 1;
        coverage.matched += outcome.matched.len() as u64;
        coverage.errored += outcome.errored.len() as u64;
        coverage.asked += needs.len() as u64;
        coverage.truncated += u64::from(!outcome.truncated.is_empty());
    }
}

fn outcome_json(outcome: &Outcome) -> String {
    serde_json::to_string(outcome).unwrap()
}

#[test]
fn plan_agrees_with_the_interpreter() {
    let (cases, first) = (setting("TIDEGATE_RULES_CASES", 4_000), setting("TIDEGATE_RULES_SEED", 0));
    let mut coverage = Coverage::default();
    for seed in first.. {
        if coverage.cases >= cases {
            break;
        }
        compare(seed, &mut coverage);
    }
    let Coverage {
        cases,
        matched,
        errored,
        explained,
        asked,
        truncated,
        entries,
        edges,
        tally: Tally { leaves, raised },
    } = coverage;
    let covered = format!(
        "{cases} cases, {matched} matches, {errored} errors, {explained} explained, {asked} needs, {raised} raised, {truncated} truncated, {entries} entries, {edges} on edges"
    );
    println!("{covered}");
    if cases < 4_000 {
        return;
    }
    let often = [
        matched > cases / 2,
        errored > cases / 100,
        explained > 2 * cases,
        asked > cases / 10,
        truncated > cases / 20,
        entries > cases / 4,
        edges > cases / 40,
        raised > cases / 100,
    ];
    assert!(often.into_iter().all(|often| often), "{covered}");
    for (kind, outcomes) in &leaves {
        println!("{kind}: {outcomes:?}");
        let all: u64 = outcomes.values().sum();
        for outcome in ["passed", "failed"] {
            let share = outcomes.get(outcome).copied().unwrap_or_default() * 100 / all;
            assert!(share >= 5, "{kind} {outcome} in {share} % of {all}");
        }
    }
    assert_eq!(leaves.len(), KINDS, "{:?}", leaves.keys());
}

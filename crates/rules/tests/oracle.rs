//! The plan against a denotational reading of the same documents, on random trees and items.
#![allow(clippy::unwrap_used)]

use std::collections::HashMap;

use serde_json::{Value as Json, json};
use tidegate_rules::{
    Explained, Facts, Fields, Item, Kind, Limits, Need, Number, On, Plan, RuleSource, Shape, Value, Verdict,
    Vocabulary, Within,
};
use tidegate_schemas::ids::{ItemKey, Millis, SubmissionId, TypeId};

struct Data(Json);

impl Fields for Data {
    fn field(&self, name: &str) -> Option<Value<'_>> {
        self.0.get(name).map(|value| match value {
            Json::String(text) => Value::Text(text),
            Json::Number(number) => Value::Number(Number::parse(&number.to_string()).unwrap()),
            Json::Array(list) => Value::List(list.iter().map(|v| Value::Text(v.as_str().unwrap())).collect()),
            _ => unreachable!(),
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Meaning {
    Failed,
    Errored,
    Inapplicable,
    Passed,
}
use Meaning::{Errored, Failed, Inapplicable, Passed};

type Standings = HashMap<Option<String>, Option<i64>>;

/// What a condition means, written from its description and sharing nothing with the plan.
fn meaning(when: &Json, data: &Json, standings: &Standings) -> Meaning {
    let (kind, inner) = when.as_object().unwrap().iter().next().unwrap();
    let each = || inner.as_array().unwrap().iter().map(|inner| meaning(inner, data, standings));
    let swap = |meaning| match meaning {
        Passed => Failed,
        Failed => Passed,
        other => other,
    };
    let truth = |holds| if holds { Passed } else { Failed };
    match kind.as_str() {
        "all" => each().min().unwrap(),
        "any" => swap(each().map(swap).min().unwrap()),
        "not" => swap(meaning(inner, data, standings)),
        "strikes" => match standings[&inner.get("within").and_then(Json::as_str).map(str::to_owned)] {
            Some(points) => truth(points >= inner["gte"].as_i64().unwrap()),
            None => Errored,
        },
        "field" => {
            let (Some(value), lt) = (data.get("likes").and_then(Json::as_i64), inner.get("lt")) else {
                return Inapplicable;
            };
            truth(lt.map_or_else(|| inner["eq"].as_i64() == Some(value), |lt| value < lt.as_i64().unwrap()))
        }
        _ => {
            let texts: Vec<String> = ["text", "tags"]
                .iter()
                .filter(|field| inner["in"].as_array().unwrap().iter().any(|name| name == **field))
                .filter_map(|field| data.get(*field))
                .flat_map(|value| value.as_array().cloned().unwrap_or_else(|| vec![value.clone()]))
                .map(|text| text.as_str().unwrap().to_lowercase())
                .collect();
            let whole = inner.get("words").is_some();
            let words = ["words", "any_of", "all_of"].iter().find_map(|key| inner.get(*key)).unwrap();
            let mut found = words.as_array().unwrap().iter().map(|word| {
                let word = word.as_str().unwrap().to_lowercase();
                texts.iter().any(|text| match whole {
                    true => text.split(|c: char| !c.is_alphanumeric()).any(|part| part == word),
                    false => text.contains(&word),
                })
            });
            truth(if inner.get("all_of").is_some() { found.all(|f| f) } else { found.any(|f| f) })
        }
    }
}

/// A small generator whose whole state is its seed, so that a failure names how to repeat it.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % sides
    }

    fn one<T: Clone>(&mut self, of: &[T]) -> T {
        let sides = u64::try_from(of.len()).unwrap();
        of[usize::try_from(self.roll(sides)).unwrap()].clone()
    }

    fn some<T>(&mut self, most: u64, mut make: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..=self.roll(most)).map(|_| make(self)).collect()
    }

    fn text(&mut self) -> String {
        let parts = ["aa", "Bb", "b", "ß", "Ü", "日本", " ", " ", "-", "\u{1f468}\u{200d}\u{1f469}", "A"];
        self.some(8, |dice| dice.one(&parts)).concat()
    }

    fn condition(&mut self, depth: u64) -> Json {
        match self.roll(if depth == 0 { 3 } else { 7 }) {
            0 => {
                let key = self.one(&["any_of", "all_of", "words"]);
                let words = self.some(2, |dice| dice.one(&["aa", "bb", "B", "ü", "日", "ßa", "a b"]));
                let words: Vec<_> = match key {
                    "words" => words.into_iter().filter(|word| !word.contains(' ')).chain(["b"]).collect(),
                    _ => words,
                };
                let fields = self.one(&[json!(["text"]), json!(["tags"]), json!(["tags", "text"])]);
                json!({"text": {"in": fields, key: words}})
            }
            1 => {
                let op = self.one(&["lt", "eq"]);
                json!({"field": {"path": "likes", op: self.roll(4)}})
            }
            2 if self.roll(2) == 0 => json!({"strikes": {"gte": 1 + self.roll(4)}}),
            2 => json!({"strikes": {"gte": 1 + self.roll(4), "within": self.one(&["1d", "7d"])}}),
            3 | 4 => json!({"all": self.some(3, |dice| dice.condition(depth - 1))}),
            5 => json!({"any": self.some(3, |dice| dice.condition(depth - 1))}),
            _ => json!({"not": self.condition(depth - 1)}),
        }
    }

    fn item(&mut self) -> Json {
        let mut data = serde_json::Map::new();
        if self.roll(4) > 0 {
            data.insert("text".into(), json!(self.text()));
        }
        if self.roll(2) > 0 {
            data.insert("tags".into(), json!(self.some(2, Self::text)));
        }
        if self.roll(3) > 0 {
            data.insert("likes".into(), json!(self.roll(4)));
        }
        Json::Object(data)
    }

    fn standings(&mut self) -> Standings {
        let within = [None, Some("1d".to_owned()), Some("1w".to_owned())];
        within.map(|within| (within, self.one(&[None, Some(0), Some(2), Some(4)]))).into()
    }
}

/// Every place of every hit is what it says, and every outcome follows from those below.
fn check_tree(tree: &Explained, data: &Json) {
    match tree {
        Explained::All(node) | Explained::Any(node) => {
            node.of.iter().for_each(|inner| check_tree(inner, data));
        }
        Explained::Not(node) => check_tree(&node.of, data),
        Explained::Text(leaf) => {
            assert!(leaf.outcome != Verdict::Passed || !leaf.hits.is_empty(), "a pass without a place");
            for hit in &leaf.hits {
                let value = &data[&hit.field];
                let element = hit.element.as_deref().map(|nth| nth.parse::<usize>().unwrap());
                let text = element.map_or(value, |nth| &value[nth]).as_str().unwrap();
                assert_eq!(&text[hit.start..hit.end], hit.found);
                assert_eq!(hit.found.to_lowercase(), hit.sought.to_lowercase());
            }
        }
        Explained::Field(_) | Explained::Strikes(_) => {}
        Explained::Cut(_) => panic!("small trees are never cut"),
    }
}

#[test]
fn a_plan_comes_to_what_its_conditions_mean() {
    let mut vocabulary = Vocabulary::new();
    let post = TypeId::new("post");
    let shapes = [
        ("text", Shape::one(Kind::Text)),
        ("tags", Shape::list(Kind::Text)),
        ("likes", Shape::one(Kind::Number)),
    ];
    vocabulary.add(post.clone(), shapes);
    let user = ItemKey::new("user", "u");
    let (mut matches, mut asked, mut spared, mut errors) = (0, 0, 0, 0);
    for seed in 0..3_000 {
        let mut dice = Dice(seed);
        let rules: Vec<Json> =
            (0..4).map(|nth| json!({"rule": nth.to_string(), "when": dice.condition(4)})).collect();
        let sources: Vec<_> = rules.iter().map(|document| RuleSource { document, version: "1" }).collect();
        let (plan, _) = Plan::compile(&sources, &vocabulary, &Limits::default()).unwrap();
        let (data, standings) = (Data(dice.item()), dice.standings());
        let item = Item {
            type_id: &post,
            values: &data,
            user: Some(&user),
            on: On::Item,
            now: Millis(0),
            submission: SubmissionId::random(),
        };
        let scan = plan.scan(&item);
        let needs = scan.needs().to_vec();
        let mut facts = Facts::new();
        for need @ Need::Strikes { within, .. } in &needs {
            match standings[&within.map(|within: Within| within.to_string())] {
                Some(points) => facts.strikes(need.clone(), points),
                None => facts.failed(need.clone(), "down"),
            }
        }
        let standings: Standings =
            standings.into_iter().map(|(w, p)| (w.map(|w| w.replace("1w", "7d")), p)).collect();
        let outcome = plan.finish(scan, &facts);
        asked += needs.len();
        for rule in &rules {
            let key = rule["rule"].as_str().unwrap();
            let matched = outcome.matched.iter().find(|m| m.rule.as_str() == key);
            let errored = outcome.errored.iter().any(|e| e.rule.as_str() == key);
            let means = meaning(&rule["when"], &data.0, &standings);
            assert_eq!(matched.is_some(), means == Passed, "seed {seed}, rule {rule}, item {}", data.0);
            if let Some(matched) = matched {
                matches += 1;
                assert_eq!(matched.tree.outcome(), Verdict::Passed, "seed {seed}, rule {rule}");
                check_tree(&matched.tree, &data.0);
            }
            if errored {
                errors += 1;
            }
            // A rule whose facts can no longer make it match asks for none, so their failure does not show.
            if means == Errored && !errored {
                spared += 1;
                let matches = |standings: Standings| meaning(&rule["when"], &data.0, &standings) == Passed;
                assert!(!all_standings().any(matches), "seed {seed}, rule {rule}, item {}", data.0);
            } else {
                assert_eq!(errored, means == Errored, "seed {seed}, rule {rule}, item {}", data.0);
            }
        }
    }
    let covered = format!("{matches} matches, {asked} needs, {spared} spared, {errors} errors");
    assert!(matches > 1_000 && asked > 1_000 && spared > 30 && errors > 300, "{covered}");
}

fn all_standings() -> impl Iterator<Item = Standings> {
    let points = [None, Some(0), Some(1), Some(2), Some(3), Some(4)];
    (0..216).map(move |n| {
        [
            (None, points[n % 6]),
            (Some("1d".to_owned()), points[n / 6 % 6]),
            (Some("7d".to_owned()), points[n / 36]),
        ]
        .into()
    })
}

//! What lint says of conditions about the same few fields, against what the interpreter makes of them.
//!
//! All conditions of a plan are about one or two things, so that many follow from others.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json, json};
use tidegate_rules::{
    Container, Item, Kind, Limits, On, Plan, RuleSource, Shape, Verdict, Vocabulary, Warning,
    form::{self, Rule},
};
use tidegate_schemas::ids::{ItemKey, SubmissionId, TypeId};

use crate::{
    NOW,
    generator::{Data, Dice, standings},
    interpreter::{Interpreter, around::Around},
    setting,
};

const FIELDS: [(&str, Shape); 12] = [
    ("title", Shape::one(Kind::Text)),
    ("text", Shape::one(Kind::Text)),
    ("tags", Shape::list(Kind::Text)),
    ("likes", Shape::one(Kind::Number)),
    ("scores", Shape::list(Kind::Number)),
    ("flag", Shape::one(Kind::Boolean)),
    ("at", Shape::one(Kind::Datetime)),
    ("author", Shape::one(Kind::Related)),
    ("place", Shape::one(Kind::Geohash)),
    ("route", Shape::list(Kind::Geohash)),
    ("north", Shape::one(Kind::Number)),
    ("east", Shape::one(Kind::Number)),
];

/// What conditions are about.
const ABOUT: [&str; 14] = [
    "number", "numbers", "flag", "absolute", "relative", "title", "tags", "author", "words", "hosts",
    "places", "facts", "sizes", "there",
];

const TEXTS: [&str; 8] = ["", "a", "A", "ab", "b", "ba", "AB", "b ab"];
const DATES: [&str; 4] = [
    "2026-01-01T00:00:00.000Z",
    "2026-01-01T00:00:00.001Z",
    "2025-12-31T00:00:00.000Z",
    "2025-12-30T00:00:00.000Z",
];
const CELLS: [&str; 4] = ["u", "u3", "u33d", "s0"];
const HOSTS: [&str; 4] = ["example", "bad.example", "x.bad.example", "☃.example"];

fn number(dice: &mut Dice) -> Json {
    dice.one(&[json!(1), json!(2), json!(2.0), json!(2.5), json!(3)])
}

fn author(dice: &mut Dice) -> Json {
    json!({"typeId": dice.one(&["user", "bot"]), "id": dice.one(&["u1", "u2"])})
}

fn field(path: &str, op: &str, operand: impl Into<Json>) -> Json {
    json!({"field": {"path": path, op: operand.into()}})
}

/// One or two comparisons with values of which there are few.
fn compared(dice: &mut Dice, path: &str, ordered: bool, value: impl Fn(&mut Dice) -> Json) -> Json {
    let mut leaf = Map::new();
    leaf.insert("path".to_owned(), json!(path));
    for _ in 0..=u64::from(dice.chance(30)) {
        let ops = ["eq", "ne", "in", "not_in", "lt", "lte", "gt", "gte"];
        let op = dice.one(&ops[..if ordered { 8 } else { 4 }]);
        let operand = if op.ends_with("in") { json!(dice.some(2, &value)) } else { value(dice) };
        leaf.insert(op.to_owned(), operand);
    }
    json!({ "field": leaf })
}

fn of(dice: &mut Dice, mut leaf: Json) -> Json {
    if dice.chance(50) {
        leaf["field"]["of"] = json!(dice.one(&["any", "all", "none"]));
    }
    leaf
}

fn title(dice: &mut Dice, path: &str) -> Json {
    let mut leaf = compared(dice, path, false, |dice| json!(dice.one(&TEXTS)));
    if dice.chance(50) {
        let part = dice.one(&TEXTS[1..]);
        leaf = field(path, dice.one(&["starts_with", "ends_with", "contains"]), part);
    }
    if dice.chance(30) {
        leaf["field"]["ignore_case"] = json!(true);
    }
    leaf
}

fn words(dice: &mut Dice) -> Json {
    let mut words = dice.some(6, |dice| dice.one(&["a", "ab", "b", "ba"]));
    words.sort_unstable();
    words.dedup();
    let count = words.len() as u64;
    let mut leaf = json!({
        "in": dice.one(&[json!(["text"]), json!(["title"]), json!(["title", "text"])]),
        dice.one(&["any_of", "words", "all_of"]): words,
    });
    if leaf.get("all_of").is_none() && dice.chance(40) {
        leaf["min_distinct"] = json!(1 + dice.roll(count));
    }
    if dice.chance(30) {
        leaf["view"] = json!(dice.one(&["raw", "lower", "folded", "collapsed"]));
    }
    json!({ "text": leaf })
}

fn places(dice: &mut Dice) -> Json {
    let mut leaf = dice.one(&[
        json!({"in": ["place"]}),
        json!({"in": ["route"]}),
        json!({"in": ["place", "route"]}),
        json!({"lat": "north", "lng": "east"}),
    ]);
    if dice.chance(50) {
        leaf["cells"] = json!([dice.one(&CELLS)]);
    } else {
        let metres = dice.one(&[1_000, 200_000, 20_000_000]);
        leaf["within"] = json!({"lat": 52.5, "lng": 13.4, "m": metres});
    }
    json!({ "geo": leaf })
}

fn facts(dice: &mut Dice) -> Json {
    match dice.roll(3) {
        0 => json!({"strikes": {"gte": 1 + dice.roll(4)}}),
        1 => json!({"count": {"window": dice.one(&["w", "by"]), "gte": 1 + dice.roll(4)}}),
        _ => json!({"score": {"model": "spam", dice.one(&["gte", "lt"]): dice.one(&[0.3, 0.5, 0.8])}}),
    }
}

fn sizes(dice: &mut Dice) -> Json {
    let of = dice.one(&["title", "tags", "scores"]);
    let op = dice.one(&["<", "<=", ">", ">=", "==", "!="]);
    let expr = match dice.roll(4) {
        0 => format!("item.data.likes {op} {}", number(dice)),
        1 => format!("item.data.likes {op} 2 && !(item.data.likes {op} {})", number(dice)),
        _ => format!("size(item.data.{of}) {op} {}", dice.roll(4)),
    };
    json!({ "expr": expr })
}

fn leaf(dice: &mut Dice, about: &str) -> Json {
    let relative = |dice: &mut Dice| {
        dice.one(&[json!({"ago": "1d"}), json!({"ago": "24h"}), json!({"ago": "2d"}), json!({"ahead": "1h"})])
    };
    match about {
        "number" => compared(dice, "likes", true, number),
        "numbers" => {
            let leaf = compared(dice, "scores", true, number);
            of(dice, leaf)
        }
        "flag" => compared(dice, "flag", false, |dice| json!(dice.chance(50))),
        "absolute" => compared(dice, "at", true, |dice| json!(dice.one(&DATES))),
        "relative" => compared(dice, "at", true, relative),
        "title" => {
            let leaf = title(dice, "title");
            of(dice, leaf)
        }
        "tags" => {
            let leaf = title(dice, "tags");
            of(dice, leaf)
        }
        "author" if dice.chance(50) => compared(dice, "author", false, author),
        "author" => compared(dice, "author.id", false, |dice| json!(dice.one(&["u1", "u2"]))),
        "words" => words(dice),
        "hosts" => {
            let fields = dice.one(&[json!(["text"]), json!(["title", "text"])]);
            json!({"domain": {"in": fields, "any_of": dice.some(2, |dice| dice.one(&HOSTS[1..]))}})
        }
        "places" => places(dice),
        "facts" => facts(dice),
        "sizes" => sizes(dice),
        _ => field(dice.one(&FIELDS).0, "exists", dice.chance(50)),
    }
}

fn condition(dice: &mut Dice, about: &[&str], depth: u64) -> Json {
    match dice.roll(if depth == 0 { 4 } else { 9 }) {
        4 | 5 => json!({"all": dice.some(2, |dice| condition(dice, about, depth - 1))}),
        6 | 7 => json!({"any": dice.some(2, |dice| condition(dice, about, depth - 1))}),
        8 => json!({"not": condition(dice, about, depth - 1)}),
        _ => {
            let about = dice.one(about);
            leaf(dice, about)
        }
    }
}

fn item(dice: &mut Dice) -> Json {
    let mut data = Map::new();
    for (name, shape) in FIELDS {
        if dice.chance(25) {
            continue;
        }
        let value = |dice: &mut Dice| match (name, shape.kind) {
            ("text", _) if dice.chance(40) => json!(format!("see https://{}/", dice.one(&HOSTS))),
            ("north", _) => json!(dice.one(&[52.5, 52.6, 0.5])),
            ("east", _) => json!(dice.one(&[13.4, 13.5])),
            (_, Kind::Number) => number(dice),
            (_, Kind::Boolean) => json!(dice.chance(50)),
            (_, Kind::Datetime) => json!(dice.one(&DATES)),
            (_, Kind::Related) => author(dice),
            (_, Kind::Geohash) => json!(dice.one(&["u33dc0", "u33db2m", "u3", "s00t"])),
            _ => json!(dice.one(&TEXTS)),
        };
        let values = match shape.container {
            Container::One => value(dice),
            _ => (0..dice.roll(4)).map(|_| value(dice)).collect(),
        };
        data.insert(name.to_owned(), values);
    }
    Json::Object(data)
}

/// How often something was said of conditions about what, and how often it mattered for an item.
#[derive(Default)]
struct Counts(BTreeMap<(&'static str, String), (u64, u64)>);

impl Counts {
    fn add(&mut self, what: &'static str, about: &[&str], mattered: u64) {
        for about in about {
            let (said, told) = self.0.entry((what, (*about).to_owned())).or_default();
            *said += 1;
            *told += mattered;
        }
    }
}

/// What each rule comes to on some items.
fn verdicts(dice: &mut Dice, rules: &[Rule], windows: &[form::Window]) -> Vec<Vec<Verdict>> {
    let (limits, type_id) = (Limits::default(), TypeId::new("post"));
    let kinds = FIELDS.iter().map(|(name, shape)| ((*name).to_owned(), shape.kind)).collect();
    let fields: BTreeMap<_, _> = FIELDS.iter().map(|(name, shape)| ((*name).to_owned(), *shape)).collect();
    let mut told = Vec::new();
    for _ in 0..12 {
        let data = Data { fields: fields.clone(), data: item(dice) };
        let user = dice.chance(80).then(|| ItemKey::new("user", "u1"));
        let item = Item {
            type_id: &type_id,
            values: &data,
            user: user.as_ref(),
            on: On::Item,
            now: NOW,
            submission: SubmissionId::random(),
        };
        let around = Around { standings: standings(dice), seed: dice.roll(u64::MAX) };
        let (limits, kinds) = (&limits, &kinds);
        let oracle = Interpreter { rules, limits, kinds, item: &item, around: &around, windows, banks: &[] };
        told.push(rules.iter().map(|rule| oracle.inquire(rule).outcome()).collect());
    }
    told
}

fn vocabulary(windows: &[Json]) -> Vocabulary {
    let mut vocabulary = Vocabulary::new();
    vocabulary.add(TypeId::new("post"), FIELDS);
    windows.iter().for_each(|window| vocabulary.window(window.clone()));
    vocabulary
}

/// Whether what a warning says holds of these verdicts, what it says, and how often that mattered.
fn holds(warning: &Warning, told: &[Vec<Verdict>]) -> Option<(bool, &'static str, u64)> {
    use Verdict::{Failed, Passed};
    let rule: usize = warning.rule.parse().ok()?;
    let other =
        warning.detail.split("rule ").nth(1).and_then(|rest| rest.split(' ').next()?.parse::<usize>().ok());
    let count = |is: &dyn Fn(&[Verdict]) -> bool| told.iter().filter(|told| is(told)).count() as u64;
    match (warning.tag(), other) {
        ("unsatisfiable", _) => {
            Some((count(&|it| it[rule] == Passed) == 0, "unsatisfiable", count(&|it| it[rule] == Failed)))
        }
        ("always_true", _) => {
            Some((count(&|it| it[rule] == Failed) == 0, "always_true", count(&|it| it[rule] == Passed)))
        }
        ("same_condition", Some(other)) => {
            let differ = count(&|it| (it[rule] == Passed) != (it[other] == Passed));
            Some((differ == 0, "same_condition", count(&|it| it[rule] == Passed)))
        }
        ("subsumed", Some(other)) => {
            let alone = count(&|it| it[rule] == Passed && it[other] != Passed);
            Some((alone == 0, "subsumed", count(&|it| it[rule] == Passed)))
        }
        _ => None,
    }
}

#[test]
fn what_lint_says_of_conditions_about_the_same_holds_for_every_item() {
    let (cases, first) = (setting("TIDEGATE_RULES_CASES", 4_000) / 4, setting("TIDEGATE_RULES_SEED", 0));
    let windows = [json!({"window": "w", "over": "1h"}), json!({"window": "by", "over": "1h", "by": "tags"})];
    let vocabulary = vocabulary(&windows);
    let limits = Limits::default();
    let parsed: Vec<_> =
        windows.iter().map(|document| form::parse_window(document, &limits).unwrap()).collect();
    let mut counts = Counts::default();
    for seed in first..first + cases {
        let mut dice = Dice(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 3);
        let about = [dice.one(&ABOUT), dice.one(&ABOUT)];
        let about = if dice.chance(70) || about[0] == about[1] { &about[..1] } else { &about[..] };
        let documents: Vec<Json> = (0..12)
            .map(|nth| {
                let when = condition(&mut dice, about, 2);
                json!({"rule": nth.to_string(), "item_types": ["post"], "status": "live", "when": when})
            })
            .collect();
        let sources: Vec<_> =
            documents.iter().map(|document| RuleSource { document, version: "1" }).collect();
        let plan = match Plan::compile(&sources, &vocabulary, &limits) {
            Ok(plan) => plan,
            Err(faults) => panic!("seed {seed}: {faults:?}"),
        };
        let rules: Vec<Rule> =
            documents.iter().map(|document| form::parse(document, &limits).unwrap()).collect();
        let told = verdicts(&mut dice, &rules, &parsed);
        for warning in plan.warnings() {
            let Some((is_so, what, mattered)) = holds(&warning, &told) else { continue };
            assert!(is_so, "seed {seed}, {warning:?}: {}", Json::from(documents));
            counts.add(what, about, mattered);
        }
    }
    for (what, count) in &counts.0 {
        println!("{what:?}: {count:?}");
    }
    if cases < 1_000 {
        return;
    }
    for about in ABOUT {
        for what in ["unsatisfiable", "always_true", "same_condition", "subsumed"] {
            let (said, mattered) = counts.0.get(&(what, about.to_owned())).copied().unwrap_or_default();
            assert!(said >= 3 && mattered >= 20, "{what} of {about}: {said}, {mattered}");
        }
    }
}

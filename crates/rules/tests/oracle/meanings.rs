//! Conditions that are said to mean the same, against what they come to on random items.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};
use tidegate_rules::{
    Container, Item, Kind, Limits, On, Plan, RuleSource, Shape, Warning,
    form::{self, Known},
};
use tidegate_schemas::ids::{ItemKey, SubmissionId, WindowId};

use crate::{
    NOW, facts,
    generator::{Dice, World, standings},
    interpreter::around::Around,
    setting,
};

/// What is certain of the fields and windows of a world.
struct Certain<'w>(&'w World);

impl Certain<'_> {
    fn shapes(&self, path: &str) -> impl Iterator<Item = &Shape> {
        let name = path.split('.').next().unwrap_or_default().to_owned();
        self.0.types.iter().filter_map(move |(_, fields)| fields.get(&name))
    }
}

impl Known for Certain<'_> {
    fn is_single(&self, path: &str) -> bool {
        self.shapes(path).all(|shape| match shape.container {
            Container::One => true,
            Container::Map => path.contains('.'),
            Container::List => false,
        })
    }

    fn is_instant(&self, path: &str) -> bool {
        let mut shapes = self.shapes(path).peekable();
        shapes.peek().is_some() && shapes.all(|shape| shape.kind == Kind::Datetime)
    }

    fn counts_whole(&self, window: &WindowId) -> bool {
        let mut own = self.0.windows.iter().filter(|document| document["window"] == window.as_str());
        own.next().is_some_and(|document| document.get("sum").is_none())
    }
}

/// Pointers to all conditions of a tree.
fn nodes(when: &Json, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    for key in ["all", "any"] {
        for (nth, part) in when[key].as_array().into_iter().flatten().enumerate() {
            nodes(part, &format!("{at}/{key}/{nth}"), found);
        }
    }
    if let Some(inner) = when.get("not") {
        nodes(inner, &format!("{at}/not"), found);
    }
}

/// Where a comparison has a text, sometimes one that is also a name in documents.
fn named(dice: &mut Dice, field: &mut Json) {
    for op in ["eq", "ne", "in", "not_in", "contains"] {
        let operand = &mut field[op];
        if operand.is_string() && dice.chance(30) {
            *operand = json!("exists");
        } else if operand[0].is_string() && dice.chance(30) {
            operand[0] = json!("it exists");
        }
    }
    field.as_object_mut().unwrap().retain(|_, value| !value.is_null());
}

/// Writes one condition of a tree otherwise, or makes another one of it.
fn change(dice: &mut Dice, when: &mut Json) {
    let mut found = Vec::new();
    nodes(when, "", &mut found);
    let node = when.pointer_mut(&dice.one(&found)).unwrap();
    for key in ["all", "any"] {
        let Some(parts) = node.get_mut(key).and_then(Json::as_array_mut) else { continue };
        match dice.roll(4) {
            0 => parts.reverse(),
            1 => parts.extend(parts.first().cloned()),
            2 => parts.truncate(parts.len().max(2) - 1),
            _ => {
                let other = if key == "all" { "any" } else { "all" };
                *node = json!({other: parts});
            }
        }
        return;
    }
    let texts = |list: &mut Json, change: fn(&str) -> String| {
        for text in list.as_array_mut().into_iter().flatten().filter(|text| text.is_string()) {
            *text = json!(change(text.as_str().unwrap()));
        }
    };
    if let Some(field) = node.get_mut("field") {
        match dice.roll(5) {
            0 | 1 if field.get("exists").is_none() => {
                field["of"] = json!(dice.one(&["any", "all", "none"]));
            }
            2 => drop(field.as_object_mut().unwrap().remove("of")),
            3 if field["eq"].is_string() => {
                let operand = field.as_object_mut().unwrap().remove("eq").unwrap();
                field[dice.one(&["in", "not_in"])] = json!([operand]);
            }
            _ => texts(&mut field["in"], str::to_uppercase),
        }
        field.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        return;
    }
    if let Some(text) = node.get_mut("text") {
        for key in ["any_of", "words"] {
            match dice.roll(2) {
                0 => texts(&mut text[key], str::to_uppercase),
                _ => text[key].as_array_mut().into_iter().for_each(|words| words.reverse()),
            }
        }
        text.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        return;
    }
    if let Some(count) = node.get_mut("count")
        && let Some(least) = count["gte"].as_i64()
    {
        count.as_object_mut().unwrap().remove("gte");
        count["gt"] = json!(least - 1);
        return;
    }
    *node = if dice.chance(50) { json!({"all": [node]}) } else { json!({"not": {"not": node}}) };
}

/// The condition with other words for `of` in one of its comparisons of a list.
fn denied(dice: &mut Dice, when: &Json, known: &Certain<'_>) -> Option<Json> {
    let mut found = Vec::new();
    nodes(when, "", &mut found);
    found.retain(|at| {
        let field = &when.pointer(at).unwrap()["field"];
        field["of"].is_string() && !known.is_single(field["path"].as_str().unwrap())
    });
    let at = (!found.is_empty()).then(|| dice.one(&found))?;
    let mut other = when.clone();
    let of = &mut other.pointer_mut(&at)?["field"]["of"];
    *of = json!(dice.one(&["any", "all", "none"].into_iter().filter(|it| of != it).collect::<Vec<_>>()));
    Some(other)
}

/// Several comparisons of one field, so that some contradict each other.
fn crowded(dice: &mut Dice, world: &World) -> (String, Json) {
    let (type_id, fields) = dice.one(&world.types);
    let fields: Vec<_> = fields.into_iter().collect();
    let only = BTreeMap::from([dice.one(&fields)]);
    let parts = dice.some(3, |dice| {
        let field = json!({"field": world.field(dice, &only)});
        if dice.chance(30) { json!({"not": field}) } else { field }
    });
    (type_id.to_string(), json!({dice.one(&["all", "any"]): parts}))
}

#[test]
fn conditions_that_mean_the_same_come_to_the_same() {
    let cases = setting("TIDEGATE_RULES_CASES", 4_000);
    let (mut tried, mut same, mut differed, mut changed) = (0, 0, 0, 0);
    let (mut certain, mut alike) = (0, 0);
    for seed in setting("TIDEGATE_RULES_SEED", 0).. {
        if tried >= cases {
            break;
        }
        let mut dice = Dice(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 1);
        let world = World::new(&mut dice);
        let limits = Limits { word_bytes: 16 << 10, ..Limits::default() };
        let known = Certain(&world);
        let mut rule = world.rule(&mut dice, 0);
        rule["status"] = json!("live");
        if dice.chance(60) {
            let (type_id, when) = crowded(&mut dice, &world);
            (rule["item_types"], rule["when"]) = (json!([type_id]), when);
        }
        let mut found = Vec::new();
        nodes(&rule["when"], "/when", &mut found);
        for at in found {
            if let Some(field) = rule.pointer_mut(&at).unwrap().get_mut("field") {
                named(&mut dice, field);
            }
        }
        let mut other = rule.clone();
        (0..=dice.roll(3)).for_each(|_| change(&mut dice, &mut other["when"]));
        let parsed = |rule: &Json| form::parse(rule, &limits).map(|rule| rule.when);
        let (Ok(one), Ok(two)) = (parsed(&rule), parsed(&other)) else { continue };
        if let Some(denied) = denied(&mut dice, &rule["when"], &known) {
            let three = parsed(&json!({"rule": "r", "when": denied})).unwrap();
            assert!(!form::same(&one, &three, &known), "seed {seed}: {} {denied}", rule["when"]);
            changed += 1;
        }
        let is_same = form::same(&one, &two, &known);
        let of = |key: &str, when: Json| {
            let mut rule = rule.clone();
            rule["rule"] = json!(key);
            rule["when"] = when;
            rule
        };
        let documents = [
            of("a", rule["when"].clone()),
            of("not-a", json!({"not": rule["when"]})),
            of("b", other["when"].clone()),
            of("not-b", json!({"not": other["when"]})),
        ];
        let sources: Vec<_> =
            documents.iter().map(|document| RuleSource { document, version: "1" }).collect();
        let Ok(plan) = Plan::compile(&sources, &world.vocabulary(), &limits) else { continue };
        let warnings = plan.warnings();
        let warned = |rule: &str, tag: &str, detail: &str| {
            let about = |it: &&Warning| it.rule == rule && it.tag() == tag && it.detail.contains(detail);
            warnings.iter().any(|it| about(&it))
        };
        for _ in 0..8 {
            let (nth, data) = world.item(&mut dice);
            let user = ItemKey::new("user", "u1");
            let item = Item {
                type_id: &world.types[nth].0,
                values: &data,
                user: Some(&user),
                on: dice.one(&[On::Item, On::Report]),
                now: NOW,
                submission: SubmissionId::random(),
            };
            let around = Around { standings: standings(&mut dice), seed: dice.roll(u64::MAX) };
            let scan = plan.scan(&item);
            let needs = scan.needs().to_vec();
            let outcome = plan.finish(scan, &facts(&around, &needs));
            let told = |key: &str| {
                let errored = outcome.errored.iter().any(|it| it.rule.as_str() == key);
                (outcome.matched.iter().any(|it| it.rule.as_str() == key), errored)
            };
            let equal = told("a") == told("b") && told("not-a") == told("not-b");
            assert!(equal || !is_same, "seed {seed}, {}: {} and {}", data.data, rule["when"], other["when"]);
            // What lint is certain of.
            let pairs = [("a", "not-a"), ("not-a", "a"), ("b", "not-b"), ("not-b", "b")];
            for (rule, opposite) in pairs {
                let (never, always) = (warned(rule, "unsatisfiable", ""), warned(rule, "always_true", ""));
                let wrong = never && told(rule).0 || always && told(opposite).0;
                assert!(!wrong, "seed {seed}, {}: {rule} of {documents:?} {warnings:?}", data.data);
                certain += u64::from(never) + u64::from(always);
            }
            for (rule, other) in pairs.iter().flat_map(|(rule, _)| pairs.map(|(other, _)| (*rule, other))) {
                let same = warned(rule, "same_condition", &format!("rule {other} has"));
                let covered = warned(rule, "subsumed", &format!("rule {other} matches"));
                let wrong = same && told(rule) != told(other) || covered && told(rule).0 && !told(other).0;
                assert!(!wrong, "seed {seed}, {}: {rule} {other} {documents:?} {warnings:?}", data.data);
                alike += u64::from(same) + u64::from(covered);
            }
            differed += u64::from(!equal);
            same += u64::from(is_same);
            tried += 1;
        }
    }
    println!("{tried} cases, {same} of the same meaning, {differed} came to another end, {changed} changed");
    println!("lint was certain of {certain}, and found {alike} alike");
    assert!(
        cases < 4_000 || same > tried / 5 && differed > tried / 50 && changed > 5,
        "{same} {differed} {changed}"
    );
}

//! Generates random item types, rules and items. A failure names the seed that repeats it.

mod dice;
mod facts;
mod fields;
mod items;
mod places;
mod references;
mod texts;

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};
use tidegate_rules::{Bank, BankEntry, Container, Kind, Shape, Vocabulary};
use tidegate_schemas::{banks::BankKind, ids::TypeId};
use uuid::Uuid;

pub(crate) use self::{dice::Dice, facts::standings};
use self::{
    places::{CELLS, DOMAINS},
    texts::{SYLLABLES, word},
};
use crate::oracle::{
    edges::{self, Circle},
    expressions::ExpressionFields,
};

const FIELDS: [(&str, Shape); 16] = [
    ("text", Shape::one(Kind::Text)),
    ("title", Shape::one(Kind::Text)),
    ("tags", Shape::list(Kind::Text)),
    ("labels", Shape::map(Kind::Text)),
    ("likes", Shape::one(Kind::Number)),
    ("scores", Shape::list(Kind::Number)),
    ("verified", Shape::one(Kind::Boolean)),
    ("flags", Shape::list(Kind::Boolean)),
    ("createdAt", Shape::one(Kind::Datetime)),
    ("author", Shape::one(Kind::Related)),
    ("place", Shape::one(Kind::Geohash)),
    ("route", Shape::list(Kind::Geohash)),
    ("north", Shape::one(Kind::Number)),
    ("east", Shape::one(Kind::Number)),
    ("links", Shape::list(Kind::Media)),
    ("picture", Shape::one(Kind::Media)),
];

/// Main subject of the rules of a world.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lean {
    Nothing,
    /// Few circles, and items on their edges.
    Places,
    /// Few facts with many conditions on each of them.
    Asking,
    /// Conditions that index a rule, and numbers that must lie in ranges.
    Numbers,
    /// Enough item types with the same fields to share one index.
    Types,
}

/// Number of similar item types, if there are many.
const TYPES: usize = 24;

/// A field that is a text in one item type and a number in the other.
const MIXED: &str = "mixed";

pub(crate) struct World {
    pub(crate) types: Vec<(TypeId, BTreeMap<String, Shape>)>,
    words: Vec<String>,
    circles: Vec<Circle>,
    lean: Lean,
    /// Documents of windows.
    pub(crate) windows: Vec<Json>,
    pub(crate) banks: Vec<Bank>,
}

impl World {
    pub(crate) fn new(dice: &mut Dice) -> Self {
        let lean = [Lean::Nothing, Lean::Nothing, Lean::Places, Lean::Asking, Lean::Numbers, Lean::Types];
        let lean = dice.one(&lean);
        let random_fields = |dice: &mut Dice| -> BTreeMap<String, Shape> {
            let selected = FIELDS.iter().filter(|(name, _)| *name == "text" || dice.chance(80));
            selected.map(|(name, shape)| ((*name).to_owned(), *shape)).collect()
        };
        let types = if lean == Lean::Types {
            let fields = random_fields(dice);
            (0..TYPES).map(|nth| (TypeId::new(format!("type-{nth}")), fields.clone())).collect()
        } else {
            let type_count = 1 + usize::try_from(dice.roll(3)).unwrap();
            let types = ["post", "page", "user"].iter().enumerate().take(type_count).map(|(nth, name)| {
                let mut fields = random_fields(dice);
                let mixed = Shape::one(if nth == 0 { Kind::Text } else { Kind::Number });
                fields.insert(MIXED.to_owned(), mixed);
                (TypeId::new(name), fields)
            });
            types.collect()
        };
        let mut world = Self {
            types,
            words: Vec::new(),
            circles: (0..3).map(|_| edges::circle(dice)).collect(),
            lean,
            windows: Vec::new(),
            banks: Vec::new(),
        };
        // Many rules with few words, or few rules with words of their own.
        let count = dice.one(&[3, 12, 60, 400]);
        world.words = (0..count).map(|_| word(dice)).collect();
        world.banks = world.banks(dice);
        let windows = if world.lean == Lean::Asking { 1 } else { 1 + dice.roll(3) };
        world.windows = (0..windows).map(|nth| world.window(dice, nth)).collect();
        world
    }

    pub(crate) fn vocabulary(&self) -> Vocabulary {
        let mut vocabulary = Vocabulary::new();
        for (type_id, fields) in &self.types {
            vocabulary.add(type_id.clone(), fields.iter().map(|(name, shape)| (name.as_str(), *shape)));
        }
        self.banks.iter().for_each(|bank| vocabulary.add_bank(bank.clone()));
        for key in ["faces", "flags"] {
            vocabulary.add_bank(Bank { key: key.into(), kind: BankKind::Pdq, entries: [].into() });
        }
        self.windows.iter().for_each(|window| vocabulary.add_window(window.clone()));
        vocabulary
    }

    fn banks(&self, dice: &mut Dice) -> Vec<Bank> {
        use BankKind::{Domain, Geo, Regex, Text};
        let kinds =
            [("words", Text), ("more", Text), ("patterns", Regex), ("places", Geo), ("hosts", Domain)];
        let bank = |(key, kind): (&str, BankKind)| {
            let max_values = dice.one(&[0, 2, 2, 30]);
            let mut values = dice.list(max_values, |dice| match kind {
                Text => self.word(dice),
                // Sometimes an invalid one.
                Regex if dice.chance(5) => "(".to_owned(),
                Regex => self.pattern(dice),
                Geo if dice.chance(50) => dice.one(&CELLS).to_owned(),
                Geo => {
                    let Circle { lat, lng, metres } = self.circle(dice);
                    format!("{lat},{lng},{metres}")
                }
                Domain => dice.one(&DOMAINS).to_owned(),
                hashes => unreachable!("no bank of {hashes:?} is drawn"),
            });
            if kind == Text && dice.chance(5) {
                values.clear();
            }
            let entry = |(nth, value): (usize, String)| BankEntry {
                id: Uuid::from_u128(nth as u128),
                value: value.into(),
                labels: (0..nth % 3).map(|label| format!("l{label}")).collect(),
            };
            Bank { key: key.into(), kind, entries: values.into_iter().enumerate().map(entry).collect() }
        };
        kinds.into_iter().map(bank).collect()
    }

    fn expression(&self, dice: &mut Dice, fields: &BTreeMap<String, Shape>) -> String {
        let of = |shape: Shape| -> Vec<&str> {
            let fitting = fields.iter().filter(|(name, it)| *name != MIXED && **it == shape);
            fitting.map(|(name, _)| name.as_str()).collect()
        };
        let expression_fields = ExpressionFields {
            texts: of(Shape::one(Kind::Text)),
            numbers: of(Shape::one(Kind::Number)),
            booleans: of(Shape::one(Kind::Boolean)),
            text_lists: of(Shape::list(Kind::Text)),
            number_lists: of(Shape::list(Kind::Number)),
            sized: [Shape::list(Kind::Text), Shape::list(Kind::Number), Shape::map(Kind::Text)]
                .into_iter()
                .flat_map(of)
                .collect(),
            words: ["en", "de", "u1", &self.words[0]].map(str::to_owned).to_vec(),
        };
        if fields.contains_key("createdAt") && dice.chance(10) {
            return "item.data.createdAt >= timestamp('2025-06-01T00:00:00.000Z')".to_owned();
        }
        expression_fields.truth(dice, 2)
    }

    fn rule(&self, dice: &mut Dice, nth: usize) -> Json {
        let sample_type = dice.one(&self.types);
        let is_typed = dice.chance(70);
        let fields: BTreeMap<String, Shape> = if is_typed {
            sample_type.1.clone()
        } else {
            // A rule for all item types can only compare fields that are equal in all of them.
            let all = self.types.iter().flat_map(|(_, fields)| fields.clone());
            all.filter(|(name, _)| name != MIXED || self.types.len() == 1).collect()
        };
        let mut rule = json!({
            "rule": format!("r{nth}"),
            "status": dice.one(&["live", "live", "background", "draft", "archived"]),
            "when": self.condition(dice, &fields, 4),
            "policies": ["p"],
            "actions": [{"id": "a", "params": {"n": nth}}],
        });
        if is_typed && self.lean == Lean::Types {
            let item_types =
                self.types.iter().filter(|(type_id, _)| *type_id == sample_type.0 || dice.chance(80));
            rule["item_types"] = item_types.map(|(type_id, _)| type_id.as_str()).collect();
        } else if is_typed {
            rule["item_types"] = json!([sample_type.0.as_str()]);
        }
        if dice.chance(10) {
            rule["on"] = dice.one(&[json!(["report"]), json!(["item", "report"])]);
        }
        if dice.chance(5) {
            rule["expires_at"] = json!(dice.one(&["2026-01-01T00:00:00.000Z", "2026-01-01T00:00:00.001Z"]));
        }
        rule
    }

    fn condition(&self, dice: &mut Dice, fields: &BTreeMap<String, Shape>, depth: u64) -> Json {
        if dice.chance(8) {
            return json!({"expr": self.expression(dice, fields)});
        }
        let kind = match self.lean {
            Lean::Places if dice.chance(55) => return self.geo(dice, fields),
            Lean::Asking if dice.chance(40) => 11,
            Lean::Numbers if depth > 0 && dice.chance(70) => return self.guarded(dice, fields),
            _ => dice.roll(if depth == 0 { 12 } else { 19 }),
        };
        match kind {
            0 | 1 => {
                if dice.chance(50) {
                    self.geo(dice, fields)
                } else {
                    self.domain(dice, fields)
                }
            }
            2..=6 => self.text(dice, fields),
            7..=10 => json!({"field": self.field(dice, fields)}),
            11 => self.fact_condition(dice, fields),
            12..=14 => json!({"all": dice.list(3, |dice| self.condition(dice, fields, depth - 1))}),
            15 | 16 => json!({"any": dice.list(3, |dice| self.condition(dice, fields, depth - 1))}),
            _ => json!({"not": self.condition(dice, fields, depth - 1)}),
        }
    }

    /// An indexed rule that one to three ranges of numbers can refute.
    fn guarded(&self, dice: &mut Dice, fields: &BTreeMap<String, Shape>) -> Json {
        let ordered = |shape: &Shape| {
            matches!(shape.kind, Kind::Number | Kind::Datetime) && shape.container != Container::Map
        };
        let names: Vec<_> = fields.iter().filter(|(name, shape)| *name != MIXED && ordered(shape)).collect();
        if dice.chance(40) {
            return self.denied(dice, fields);
        }
        let mut parts = vec![match dice.roll(3) {
            0 => json!({"field": {"path": "text", "exists": true, "contains": dice.one(&SYLLABLES)}}),
            1 if fields.contains_key("verified") => json!({"field": {"path": "verified", "eq": true}}),
            _ => self.text(dice, fields),
        }];
        for _ in 0..=dice.roll(2) {
            let Some((name, shape)) = (!names.is_empty()).then(|| dice.one(&names)) else { break };
            let mut leaf = json!({"path": name, dice.one(&["lte", "lt"]): self.operand(dice, shape.kind)});
            if dice.chance(40) {
                leaf = json!({"path": name, dice.one(&["gte", "gt"]): self.operand(dice, shape.kind)});
            }
            if dice.chance(20) {
                leaf = json!({"path": name, "eq": self.operand(dice, shape.kind)});
            }
            parts.push(json!({ "field": leaf }));
        }
        dice.chance(50).then(|| parts.reverse());
        if dice.chance(15) { json!({"any": parts}) } else { json!({"all": parts}) }
    }

    /// An unindexed rule that numbers and booleans can refute, because it negates their conditions.
    fn denied(&self, dice: &mut Dice, fields: &BTreeMap<String, Shape>) -> Json {
        let denied = |dice: &mut Dice, (name, shape): (&String, &Shape)| {
            let op = match shape.kind {
                Kind::Boolean => dice.one(&["eq", "ne", "in", "not_in"]),
                _ => dice.one(&["gt", "gte", "lt", "lte"]),
            };
            let operand = self.operand(dice, shape.kind);
            let operand = if op.ends_with("in") { json!([operand]) } else { operand };
            let mut leaf = json!({"path": name, op: operand});
            if dice.chance(20) {
                leaf["of"] = json!(dice.one(&["any", "all", "none"]));
            }
            json!({"field": leaf})
        };
        let compared = |shape: &Shape| {
            matches!(shape.kind, Kind::Number | Kind::Datetime | Kind::Boolean)
                && shape.container != Container::Map
        };
        let names: Vec<_> = fields.iter().filter(|(name, shape)| *name != MIXED && compared(shape)).collect();
        if names.is_empty() {
            return json!({"not": self.text(dice, fields)});
        }
        let parts = dice.list(4, |dice| {
            let choice = dice.one(&names);
            denied(dice, choice)
        });
        match dice.roll(3) {
            0 => json!({"not": {"any": parts}}),
            1 => json!({"not": {"all": parts}}),
            _ => json!({"all": parts.into_iter().map(|part| json!({"not": part})).collect::<Vec<_>>()}),
        }
    }
}

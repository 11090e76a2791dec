//! Random item types, rules, items and standings; a failure names the seed that repeats it.
//!
//! It judges nothing.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json, json};
use tidegate_rules::{Bank, BankEntry, Container, Fields, Kind, Number, Shape, Value, Vocabulary};
use tidegate_schemas::{banks::BankKind, ids::TypeId, item_types::datetime};

use crate::{
    edges::{self, Circle},
    expressions::Named,
    interpreter::around::Standings,
};

/// A small generator whose whole state is its seed.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % sides
    }

    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.roll(100) < percent
    }

    pub(crate) fn one<T: Clone>(&mut self, of: &[T]) -> T {
        of[usize::try_from(self.roll(of.len() as u64)).unwrap()].clone()
    }

    pub(crate) fn some<T>(&mut self, most: u64, mut make: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..=self.roll(most.max(1))).map(|_| make(self)).collect()
    }
}

const SYLLABLES: [&str; 50] = [
    "a",
    "b",
    "ba",
    "na",
    "scam",
    "coin",
    "Free",
    "money",
    "wal",
    "let",
    "ß",
    "Ü",
    "İ",
    "ı",
    "Σ",
    "ς",
    "é",
    "e\u{301}",
    "日本",
    "語",
    "\u{200b}",
    "👨\u{200d}👩",
    "Ａ",
    "ﬁ",
    "ש",
    "\u{202e}",
    "0",
    "1",
    "K",
    "\u{212a}",
    "ẞ",
    "i\u{307}",
    "e\u{301}\u{323}",
    "ﬃ",
    "ｆｒ",
    "ｶﾞ",
    "한국",
    "\u{1112}\u{1161}",
    "مر\u{64e}",
    "ש\u{5b8}",
    "👍🏽",
    "🇩🇪",
    "1\u{fe0f}\u{20e3}",
    "❤\u{fe0f}",
    "\u{feff}",
    "\u{2066}",
    " ",
    " ",
    " ",
    "-",
];

const FIELDS: [(&str, Shape); 15] = [
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
    ("links", Shape::list(Kind::Text)),
];

const CELLS: [&str; 9] =
    ["s", "s0", "s00twy01mtw0", "s02", "u33dc0", "u33dc1v00000", "u33db2m", "xbpbpbpbpbpb", "80000"];

const HOSTS: [&str; 8] = [
    "a.example",
    "bad.example",
    "www.Bad.example",
    "xbad.example",
    "bücher.example",
    "example",
    "b-c.d.example",
    "10.0.0.1",
];

const DOMAINS: [&str; 6] =
    ["bad.example", "Bücher.example", "www.bad.example", "d.example", "c.d.example", "zzz.invalid"];

/// What the rules of a world are mostly about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lean {
    Nothing,
    /// Few circles, and items on their edges.
    Places,
    /// Few facts that many conditions ask for, each in its own way.
    Asking,
    /// Something that announces a rule, and numbers that have to lie in ranges.
    Numbers,
}

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
        let types =
            ["post", "page", "user"].iter().enumerate().take(1 + usize::try_from(dice.roll(3)).unwrap());
        let types = types.map(|(nth, name)| {
            let kept: Vec<_> = FIELDS.iter().filter(|(name, _)| *name == "text" || dice.chance(80)).collect();
            let mut fields: BTreeMap<_, _> =
                kept.into_iter().map(|(name, shape)| ((*name).to_owned(), *shape)).collect();
            fields.insert(MIXED.to_owned(), Shape::one(if nth == 0 { Kind::Text } else { Kind::Number }));
            (TypeId::new(name), fields)
        });
        let mut world = Self {
            types: types.collect(),
            words: Vec::new(),
            circles: (0..3).map(|_| edges::circle(dice)).collect(),
            lean: dice.one(&[Lean::Nothing, Lean::Nothing, Lean::Places, Lean::Asking, Lean::Numbers]),
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
        self.banks.iter().for_each(|bank| vocabulary.bank(bank.clone()));
        for key in ["faces", "flags"] {
            vocabulary.bank(Bank { key: key.into(), kind: BankKind::Pdq, entries: [].into() });
        }
        self.windows.iter().for_each(|window| vocabulary.window(window.clone()));
        vocabulary
    }

    fn banks(&self, dice: &mut Dice) -> Vec<Bank> {
        use BankKind::{Domain, Geo, Regex, Text};
        let kinds =
            [("words", Text), ("more", Text), ("patterns", Regex), ("places", Geo), ("hosts", Domain)];
        let bank = |(key, kind): (&str, BankKind)| {
            let most = dice.one(&[0, 2, 2, 30]);
            let mut values = dice.some(most, |dice| match kind {
                Text => self.word(dice),
                // Sometimes one that is none.
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
            let entry = |(nth, value)| BankEntry {
                id: format!("e{nth}").into(),
                value,
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
        let named = Named {
            texts: of(Shape::one(Kind::Text)),
            numbers: of(Shape::one(Kind::Number)),
            booleans: of(Shape::one(Kind::Boolean)),
            text_lists: of(Shape::list(Kind::Text)),
            number_lists: of(Shape::list(Kind::Number)),
            words: ["en", "de", "u1", &self.words[0]].map(str::to_owned).to_vec(),
        };
        if fields.contains_key("createdAt") && dice.chance(10) {
            return "item.data.createdAt >= timestamp('2025-06-01T00:00:00.000Z')".to_owned();
        }
        named.truth(dice, 2)
    }

    fn geo(&self, dice: &mut Dice, fields: &BTreeMap<String, Shape>) -> Json {
        let hashes: Vec<_> =
            ["place", "route"].into_iter().filter(|name| fields.contains_key(*name)).collect();
        let pair = ["north", "east"].iter().all(|name| fields.contains_key(*name));
        let mut leaf = match (hashes.is_empty(), pair) {
            (false, false) => json!({"in": hashes}),
            (false, true) if dice.chance(50) => json!({"in": [dice.one(&hashes)]}),
            (_, true) => json!({"lat": "north", "lng": "east"}),
            (true, false) => return self.text(dice, fields),
        };
        let circle = |dice: &mut Dice| {
            let Circle { lat, lng, metres } = self.circle(dice);
            if dice.chance(50) {
                json!({"lat": lat, "lng": lng, "m": metres})
            } else {
                json!({"lat": lat, "lng": lng, "km": metres / 1000.0})
            }
        };
        if dice.chance(50) {
            leaf["within"] = if dice.chance(50) { circle(dice) } else { json!(dice.some(20, circle)) };
        }
        if dice.chance(30) {
            let mut cells = dice.some(2, |dice| dice.one(&CELLS));
            cells.sort_unstable();
            cells.dedup();
            leaf["cells"] = json!(cells);
        }
        if dice.chance(30) || leaf.get("within").is_none() && leaf.get("cells").is_none() {
            leaf["bank"] = json!("places");
        }
        json!({"geo": leaf})
    }

    /// Mostly one of the few that items lie on the edges of.
    fn circle(&self, dice: &mut Dice) -> Circle {
        if dice.chance(80) { dice.one(&self.circles) } else { edges::circle(dice) }
    }

    fn domain(&self, dice: &mut Dice, fields: &BTreeMap<String, Shape>) -> Json {
        let mut paths: Vec<_> =
            ["links", "text"].into_iter().filter(|name| fields.contains_key(*name)).collect();
        paths.truncate(1 + usize::from(dice.chance(40)));
        let mut leaf = json!({"in": paths});
        if dice.chance(50) {
            leaf["any_of"] = json!(dice.some(2, |dice| dice.one(&DOMAINS)));
        }
        if dice.chance(50) || leaf.get("any_of").is_none() {
            leaf["bank"] = json!("hosts");
        }
        json!({"domain": leaf})
    }

    fn window(&self, dice: &mut Dice, nth: u64) -> Json {
        let (type_id, fields) = dice.one(&self.types);
        let mut window = json!({"window": format!("w{nth}"), "over": dice.one(&["1h", "30d"])});
        if dice.chance(50) {
            window["item_types"] = json!([type_id.as_str()]);
        }
        let paths = |kinds: &[Kind]| -> Vec<String> {
            let fitting = fields.iter().filter(|(name, shape)| *name != MIXED && kinds.contains(&shape.kind));
            fitting.map(|(name, _)| name.clone()).collect()
        };
        let any = [Kind::Text, Kind::Number, Kind::Boolean, Kind::Datetime, Kind::Related];
        if dice.chance(60) {
            window["by"] = json!(dice.one(&paths(&any)));
        }
        match (dice.roll(3), paths(&[Kind::Number])) {
            (0, numbers) if !numbers.is_empty() => window["sum"] = json!(dice.one(&numbers)),
            (1, _) => window["distinct"] = json!(dice.one(&paths(&any))),
            _ => {}
        }
        if dice.chance(40) {
            let fields = fields.clone().into_iter().filter(|(name, _)| name != MIXED).collect();
            window["where"] = match dice.roll(3) {
                0 => json!({"not": self.text(dice, &fields)}),
                1 => json!({"all": [self.text(dice, &fields), {"field": self.field(dice, &fields)}]}),
                _ => json!({"any": [self.text(dice, &fields), {"field": self.field(dice, &fields)}]}),
            };
        }
        window
    }

    /// A condition that depends on what is not in the item.
    fn asking(&self, dice: &mut Dice, fields: &BTreeMap<String, Shape>) -> Json {
        let kind = if self.lean == Lean::Asking && dice.chance(50) { 2 } else { dice.roll(8) };
        match kind {
            0 => json!({"strikes": {"gte": 1 + dice.roll(4)}}),
            1 => json!({"strikes": {"gt": dice.roll(4), "within": dice.one(&["1d", "7d"])}}),
            2 | 3 => {
                let fits = |window: &&Json| window["by"].as_str().is_none_or(|by| fields.contains_key(by));
                let fitting: Vec<_> = self.windows.iter().filter(fits).collect();
                if fitting.is_empty() {
                    return json!({"strikes": {"gte": 1}});
                }
                let window = &dice.one(&fitting)["window"];
                match dice.chance(50) {
                    true => {
                        json!({"count": {"window": window, "gte": dice.one(&[json!(1), json!(2), json!(2.5), json!(4)])}})
                    }
                    false => {
                        json!({"count": {"window": window, "gt": dice.one(&[json!(0), json!(1), json!(3)])}})
                    }
                }
            }
            4 | 5 => self.media(dice, fields),
            _ => {
                let mut score = json!({"model": dice.one(&["mean", "spam", "nude"])});
                if dice.chance(40) {
                    score["label"] = json!("rude");
                }
                score[dice.one(&["gte", "gt"])] = dice.one(&[json!(0.2), json!(0.3), json!(0)]);
                if dice.chance(40) {
                    score[dice.one(&["lte", "lt"])] = dice.one(&[json!(0.7), json!(0.9), json!(1)]);
                }
                json!({"score": score})
            }
        }
    }

    fn media(&self, dice: &mut Dice, fields: &BTreeMap<String, Shape>) -> Json {
        let paths = ["text", "tags"].iter().filter(|name| fields.contains_key(**name)).collect::<Vec<_>>();
        let mut leaf = json!({"in": [dice.one(&paths)]});
        if dice.chance(40) {
            let states = ["ok", "low_quality", "undecodable", "too_large", "blocked_address", "fetch_failed"];
            leaf["state"] = match dice.chance(50) {
                true => json!(dice.one(&states)),
                false => json!([dice.one(&states[..2]), dice.one(&states[2..])]),
            };
            return json!({"media": leaf});
        }
        if dice.chance(50) {
            leaf["bank"] = json!(dice.one(&["faces", "flags"]));
        }
        if dice.chance(40) {
            leaf["kind"] = json!(dice.one(&["pdq", "md5"]));
        }
        if dice.chance(30) {
            leaf["labels"] = json!(["bare"]);
        }
        if dice.chance(40) || leaf.as_object().is_some_and(|leaf| leaf.len() == 1) {
            leaf["max_distance"] = json!(dice.one(&[4, 16, 31]));
        }
        json!({"media": leaf})
    }

    pub(crate) fn rule(&self, dice: &mut Dice, nth: usize) -> Json {
        let only = dice.one(&self.types);
        let named = dice.chance(70);
        let fields: BTreeMap<String, Shape> = if named {
            only.1.clone()
        } else {
            // A rule for all item types can only compare what is the same in all.
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
        if named {
            rule["item_types"] = json!([only.0.as_str()]);
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
            11 => self.asking(dice, fields),
            12..=14 => json!({"all": dice.some(3, |dice| self.condition(dice, fields, depth - 1))}),
            15 | 16 => json!({"any": dice.some(3, |dice| self.condition(dice, fields, depth - 1))}),
            _ => json!({"not": self.condition(dice, fields, depth - 1)}),
        }
    }

    /// A rule that something announces, and that one to three ranges of numbers can refute.
    fn guarded(&self, dice: &mut Dice, fields: &BTreeMap<String, Shape>) -> Json {
        let ordered = |shape: &Shape| {
            matches!(shape.kind, Kind::Number | Kind::Datetime) && shape.container != Container::Map
        };
        let names: Vec<_> = fields.iter().filter(|(name, shape)| *name != MIXED && ordered(shape)).collect();
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

    fn text(&self, dice: &mut Dice, fields: &BTreeMap<String, Shape>) -> Json {
        let mut paths: Vec<String> = fields
            .iter()
            .filter(|(_, shape)| shape.kind == Kind::Text)
            .map(
                |(name, shape)| {
                    if shape.container == Container::Map { format!("{name}.lang") } else { name.clone() }
                },
            )
            .collect();
        if fields.contains_key("author") {
            paths.push("author.id".to_owned());
        }
        let mut chosen = dice.some(2, |dice| dice.one(&paths));
        chosen.sort();
        chosen.dedup();
        let mut leaf = json!({"in": chosen});
        let kind = dice.one(&["any_of", "any_of", "words", "all_of", "regex", "bank"]);
        if kind == "bank" {
            let bank = dice.one(&["words", "more", "patterns"]);
            leaf["bank"] = json!(bank);
            if bank != "patterns" && dice.chance(40) {
                leaf["view"] = json!(dice.one(&["raw", "folded", "collapsed"]));
            }
            if bank != "patterns" && dice.chance(30) {
                leaf["word"] = json!(true);
            }
            if dice.chance(30) {
                leaf["min_distinct"] = json!(1 + dice.roll(3));
            }
            return json!({"text": leaf});
        }
        leaf[kind] = if kind == "regex" {
            json!(dice.some(2, |dice| self.pattern(dice)))
        } else {
            let most = if kind == "all_of" { 1 } else { dice.one(&[0, 1, 3, 3, 60]) };
            json!(dice.some(most, |dice| self.word(dice)))
        };
        if dice.chance(40) {
            leaf["view"] = json!(dice.one(&["raw", "lower"]));
        } else if kind != "regex" && dice.chance(60) {
            leaf["view"] = json!(dice.one(&["folded", "collapsed"]));
        }
        if kind.ends_with("_of") && dice.chance(20) {
            leaf["word"] = json!(true);
        }
        let count = leaf[kind].as_array().map_or(0, Vec::len);
        if kind != "all_of" && count > 1 && dice.chance(30) {
            leaf["min_distinct"] = json!(1 + dice.roll(count.min(3) as u64));
        }
        json!({"text": leaf})
    }

    /// Mostly one of the world's words, sometimes one that hardly any text holds.
    fn word(&self, dice: &mut Dice) -> String {
        let word = if dice.chance(15) { word(dice) } else { dice.one(&self.words) };
        match word.trim() {
            "" => "b".to_owned(),
            _ if dice.chance(2) => word.repeat(1 + 900 / word.len()),
            _ => word,
        }
    }

    fn pattern(&self, dice: &mut Dice) -> String {
        let (a, b) = (regex::escape(&self.word(dice)), regex::escape(&self.word(dice)));
        match dice.roll(12) {
            0 => a,
            1 => format!("(?i){a}"),
            2 => format!("{a}|{b}"),
            3 => format!(r"\b{a}\b"),
            4 => format!(r"{a}\s*{b}"),
            5 => format!("(?:{a})+"),
            6 => format!("(?i:{a})?{b}"),
            7 => r"[ab]{2,}\d*".to_owned(),
            8 => format!("^.{{0,9}}{a}"),
            9 => format!("(?i)(?:{a}|{b})x?"),
            10 => "(?:scam|coin) ?[a-c]?".to_owned(),
            _ => format!(".?{b}$"),
        }
    }

    fn field(&self, dice: &mut Dice, fields: &BTreeMap<String, Shape>) -> Json {
        let names: Vec<_> = fields.keys().cloned().collect();
        let name = dice.one(&names);
        let shape = fields[&name];
        let (path, kind) = match (shape.container, shape.kind) {
            (Container::Map, kind) => (format!("{name}.lang"), kind),
            (_, Kind::Geohash) => (name, Kind::Text),
            (_, Kind::Related) if dice.chance(50) => (format!("{name}.id"), Kind::Text),
            (_, kind) => (name, kind),
        };
        let mut leaf = json!({ "path": path });
        let ordered = matches!(kind, Kind::Number | Kind::Datetime);
        match dice.roll(if ordered { 7 } else { 4 }) {
            _ if kind == Kind::Text && dice.chance(40) => {
                let op = dice.one(&["starts_with", "ends_with", "contains"]);
                let part = |dice: &mut Dice| match dice.roll(3) {
                    0 => json!(dice.one(&["e", "n", "u", "1", "U"])),
                    1 => json!(dice.one(&SYLLABLES)),
                    _ => self.operand(dice, kind),
                };
                leaf[op] = if dice.chance(50) { part(dice) } else { json!(dice.some(6, part)) };
            }
            6 if kind == Kind::Datetime => {
                let span = json!({dice.one(&["ago", "ahead"]): dice.one(&["1d", "30d", "400d"])});
                leaf[dice.one(&["gt", "lte", "eq"])] = span;
            }
            0 => leaf["exists"] = json!(dice.chance(50)),
            1 => leaf[dice.one(&["in", "not_in"])] = json!(dice.some(4, |dice| self.operand(dice, kind))),
            2 => leaf["ne"] = self.operand(dice, kind),
            3 => leaf["eq"] = self.operand(dice, kind),
            _ => {
                leaf[dice.one(&["gt", "gte"])] = self.operand(dice, kind);
                if dice.chance(60) {
                    leaf[dice.one(&["lt", "lte"])] = self.operand(dice, kind);
                }
            }
        }
        if dice.chance(10) && leaf.get("exists").is_none() {
            leaf[dice.one(&["ne", "exists"])] = self.operand(dice, kind);
            if leaf.get("exists").is_some() {
                leaf["exists"] = json!(true);
            }
        }
        if kind == Kind::Text && dice.chance(20) {
            leaf["ignore_case"] = json!(true);
        }
        if leaf.get("exists").is_none() && dice.chance(30) {
            leaf["of"] = json!(dice.one(&["any", "all", "none"]));
        }
        leaf
    }

    /// Few values, so that comparisons hold often enough.
    fn operand(&self, dice: &mut Dice, kind: Kind) -> Json {
        match kind {
            Kind::Text => json!(dice.one(&["en", "de", "u1", "u2", &self.words[0]])),
            // In the corner of a cell, one that belongs to it or the last one inside.
            Kind::Geohash if dice.chance(30) => {
                let (cell, corner) = (dice.one(&CELLS), dice.one(&["0", "z", "b", "p"]));
                json!(format!("{cell}{}", corner.repeat(12 - cell.len())))
            }
            Kind::Geohash => json!(dice.one(&CELLS)),
            Kind::Number => dice.one(&[
                json!(0),
                json!(1),
                json!(2),
                json!(2.5),
                json!(3),
                json!(9_007_199_254_740_993_i64),
            ]),
            Kind::Boolean => json!(dice.chance(50)),
            Kind::Datetime => {
                json!(dice.one(&[
                    "2026-01-01T00:00:00.000Z",
                    "2025-06-01T00:00:00.000Z",
                    "2024-01-01T00:00:00.000Z"
                ]))
            }
            Kind::Related => json!({"typeId": dice.one(&["user", "post"]), "id": dice.one(&["u1", "u2"])}),
        }
    }

    pub(crate) fn item(&self, dice: &mut Dice) -> (usize, Data) {
        let nth = usize::try_from(dice.roll(self.types.len() as u64)).unwrap();
        let mut data = Map::new();
        for (name, shape) in &self.types[nth].1 {
            if !dice.chance(75) {
                continue;
            }
            let value = |dice: &mut Dice| match shape.kind {
                Kind::Text if name == "links" => json!(link(dice)),
                Kind::Text if name.len() != 6 || dice.chance(50) => json!(self.prose(dice)),
                kind => self.operand(dice, kind),
            };
            let value = match shape.container {
                Container::One => value(dice),
                Container::List => (0..dice.roll(4)).map(|_| value(dice)).collect(),
                Container::Map => json!({"lang": value(dice), "x": value(dice)}),
            };
            data.insert(name.clone(), value);
        }
        if ["north", "east"].iter().all(|name| self.types[nth].1.contains_key(*name)) && dice.chance(60) {
            let (lat, lng) = if dice.chance(80) {
                let circle = dice.one(&self.circles);
                edges::of_circle(dice, circle)
            } else {
                let cell = dice.one(&CELLS);
                edges::of_cell(dice, cell)
            };
            data.insert("north".to_owned(), json!(lat));
            data.insert("east".to_owned(), json!(lng));
        }
        (nth, Data { fields: self.types[nth].1.clone(), data: Json::Object(data) })
    }

    fn prose(&self, dice: &mut Dice) -> String {
        let most = dice.one(&[1, 4, 20, 60]);
        let parts = dice.some(most, |dice| match dice.roll(8) {
            0 => self.word(dice),
            1 => self.word(dice).to_uppercase(),
            3 => {
                let word = self.word(dice);
                disguised(dice, &word)
            }
            2 => format!(" {} ", self.word(dice)),
            4 if dice.chance(30) => format!(" {} ", link(dice)),
            _ => dice.one(&SYLLABLES).to_owned(),
        });
        parts.concat()
    }
}

fn link(dice: &mut Dice) -> String {
    let (a, b) = (dice.one(&HOSTS), dice.one(&HOSTS));
    match dice.roll(9) {
        0 => format!("https://{a}/x?y={b}"),
        1 => format!("HTTP://me:pw@{a}:80/{b}"),
        2 => format!("see {a}, or ({b})."),
        3 => format!("https://{a}?to=https://{b}#x"),
        4 => format!("mail me@{a};<a href=\"//{b}\">"),
        5 => format!("://{a} {b}://"),
        6 => format!("\u{200b}{a}  ({b}.\u{200b}"),
        7 => "https://nobody.invalid/".to_owned(),
        _ => format!("https://{a}"),
    }
}

/// A word as somebody writes it who does not want it to be found.
fn disguised(dice: &mut Dice, word: &str) -> String {
    let mut disguised = String::new();
    for character in word.chars() {
        let other = match character {
            'o' => '0',
            'e' => '3',
            'a' => '@',
            'l' => '1',
            's' => '$',
            other => other,
        };
        let shown = if dice.chance(50) { other } else { character };
        (0..dice.one(&[1, 1, 1, 2, 4])).for_each(|_| disguised.push(shown));
        if dice.chance(10) {
            disguised.push('\u{200b}');
        }
    }
    disguised
}

fn word(dice: &mut Dice) -> String {
    let most = dice.one(&[0, 1, 1, 3, 5]);
    dice.some(most, |dice| dice.one(&SYLLABLES)).concat()
}

pub(crate) fn standings(dice: &mut Dice) -> Standings {
    let spans = [None, Some("1d".to_owned()), Some("1w".to_owned())];
    spans.into_iter().map(|span| (span, dice.one(&[None, Some(0), Some(2), Some(4)]))).collect()
}

/// The data of an item, read as its type says.
pub(crate) struct Data {
    fields: BTreeMap<String, Shape>,
    pub(crate) data: Json,
}

impl Fields for Data {
    fn field(&self, name: &str) -> Option<Value<'_>> {
        let kind = self.fields.get(name)?.kind;
        Some(match self.data.get(name)? {
            Json::Array(list) => Value::List(list.iter().map(|value| scalar(kind, value)).collect()),
            Json::Object(map) if kind != Kind::Related => {
                Value::Map(map.iter().map(|(key, value)| (key.as_str(), scalar(kind, value))).collect())
            }
            value => scalar(kind, value),
        })
    }
}

fn scalar(kind: Kind, value: &Json) -> Value<'_> {
    match kind {
        Kind::Text | Kind::Geohash => Value::Text(value.as_str().unwrap()),
        Kind::Number => Value::Number(Number::parse(&value.to_string()).unwrap()),
        Kind::Boolean => Value::Boolean(value.as_bool().unwrap()),
        Kind::Datetime => Value::Datetime(datetime::parse(value.as_str().unwrap()).unwrap()),
        Kind::Related => {
            Value::Related { type_id: value["typeId"].as_str().unwrap(), id: value["id"].as_str().unwrap() }
        }
    }
}

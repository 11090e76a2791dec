//! Rule sets and items of the mixes, from a generator with a fixed seed.
//!
//! It measures nothing.

use serde_json::{Value as Json, json};
use tidegate_schemas::{
    ids::TypeId,
    item_types::{ItemType, Mode, Values},
    validation_error::Pointer,
};

/// What the rules of a set look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mix {
    /// Keywords only.
    M1,
    /// Keywords, patterns, variants, numbers, labels, standings, in the shares of rule sets in use.
    M2,
    /// M2 with so many in a hundred rules that cannot be indexed.
    M3(u64),
    /// M1 with ten planted hits an item.
    M4,
    /// Words of two to five letters, as whole words.
    M5,
    /// Words and texts in other scripts.
    M6,
    /// M2 on one text of 64 KB.
    M7,
    /// Rules that cannot be indexed and that no number refutes, each with a condition of its own.
    M8,
}

impl Mix {
    pub(crate) const ALL: [Self; 10] = [
        Self::M1,
        Self::M2,
        Self::M3(5),
        Self::M3(20),
        Self::M3(100),
        Self::M4,
        Self::M5,
        Self::M6,
        Self::M7,
        Self::M8,
    ];

    pub(crate) fn name(self) -> String {
        match self {
            Self::M3(share) => format!("M3-{share}"),
            other => format!("{other:?}"),
        }
    }
}

pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % sides as u64).unwrap()
    }
}

/// Texts and words are made of the same syllables, so that a search walks along real beginnings of words.
struct Tongue {
    syllables: Vec<String>,
}

impl Tongue {
    fn latin() -> Self {
        let (consonants, vowels) = ("bcdfghklmnprstvw", "aeiou");
        let mut syllables: Vec<String> =
            consonants.chars().flat_map(|c| vowels.chars().map(move |v| format!("{c}{v}"))).collect();
        syllables.extend(["an", "er", "in", "on", "st", "th", "ing", "ent", "ion", "ter"].map(str::to_owned));
        Self { syllables }
    }

    fn other() -> Self {
        let mut syllables: Vec<String> = ('\u{4e00}'..'\u{4e40}').map(String::from).collect();
        syllables.extend("бвгдклмнрст".chars().flat_map(|c| "аеио".chars().map(move |v| format!("{c}{v}"))));
        syllables.extend(["😀", "👍🏽", "👩\u{200d}👧", "กา", "שלום", "مر"].map(str::to_owned));
        Self { syllables }
    }

    fn word(&self, dice: &mut Dice, syllables: usize) -> String {
        (0..syllables).map(|_| self.syllables[dice.roll(self.syllables.len())].as_str()).collect()
    }

    fn text(&self, dice: &mut Dice, bytes: usize, planted: &[String]) -> String {
        let mut text = String::with_capacity(bytes + 32);
        let mut planted = planted.iter();
        while text.len() < bytes {
            let part = 1 + dice.roll(4);
            if part == 2
                && let Some(word) = planted.next()
            {
                text.push_str(word);
            } else {
                let word = self.word(dice, part);
                let mut letters = word.chars();
                // A capital now and then: lowering must cost what it costs.
                match letters.next().filter(|_| dice.roll(8) == 0) {
                    Some(first) => text.extend(first.to_uppercase().chain(letters)),
                    None => text.push_str(&word),
                }
            }
            text.push_str([" ", " ", " ", ", ", ". ", " "][dice.roll(6)]);
        }
        planted.for_each(|word| {
            text.push_str(word);
            text.push(' ');
        });
        text
    }
}

pub(crate) struct Set {
    pub(crate) rules: Vec<Json>,
    /// The `data` of each item.
    pub(crate) items: Vec<Json>,
    /// One more, which rules match that are not indexed.
    pub(crate) open: Json,
    pub(crate) item_type: ItemType,
}

pub(crate) const ITEM_TYPE: &str = "post";

fn item_type() -> ItemType {
    let field = |name: &str, kind: &str| json!({"name": name, "type": kind});
    let document = json!({"item_type": ITEM_TYPE, "name": "Post", "kind": "CONTENT", "fields": [
        field("text", "STRING"), field("topic", "STRING"), field("label", "STRING"), field("likes", "NUMBER"),
        field("ageDays", "NUMBER"), field("verified", "BOOLEAN"), field("createdAt", "DATETIME"),
    ]});
    ItemType::compile(&serde_json::from_value(document).unwrap(), "1", &[TypeId::new(ITEM_TYPE)].into())
}

impl Set {
    pub(crate) fn new(mix: Mix, rules: usize, items: usize) -> Self {
        let tongue = if mix == Mix::M6 { Tongue::other() } else { Tongue::latin() };
        let mut dice = Dice(0x7469_6465);
        // The words of rules that one hit is enough for.
        let mut words = Vec::new();
        let rules: Vec<Json> = (0..rules).map(|nth| rule(mix, &tongue, &mut dice, nth, &mut words)).collect();
        let items = (0..items).map(|nth| item(mix, &tongue, &mut dice, nth, &words)).collect();
        let mut open = item(mix, &tongue, &mut dice, 0, &words);
        (open["verified"], open["ageDays"], open["topic"]) = (json!(false), json!(0), json!("topic-1000"));
        Self { rules, items, open, item_type: item_type() }
    }

    pub(crate) fn read(&self, item: &Json) -> Values {
        self.check(&item.to_string())
    }

    pub(crate) fn check(&self, text: &str) -> Values {
        self.item_type.check(text.as_bytes(), Mode::Partial, &Pointer::Root).unwrap()
    }
}

fn rule(mix: Mix, tongue: &Tongue, dice: &mut Dice, nth: usize, words: &mut Vec<String>) -> Json {
    let when = match mix {
        Mix::M1 | Mix::M4 | Mix::M6 => keyword(tongue, dice, words),
        Mix::M5 => short(dice, words),
        Mix::M8 => json!({"field": {"path": "topic", "ends_with": (1_000 + nth).to_string()}}),
        Mix::M3(share) if (nth as u64 * 61) % 100 < share => unindexed(dice),
        Mix::M2 | Mix::M3(_) | Mix::M7 => realistic(tongue, dice, nth, words),
    };
    json!({"rule": format!("rule-{nth}"), "status": "live", "item_types": [ITEM_TYPE], "when": when,
        "policies": ["spam"], "actions": ["limit_reach"]})
}

/// One to three words, so long that hardly any text holds them by chance.
fn keyword(tongue: &Tongue, dice: &mut Dice, words: &mut Vec<String>) -> Json {
    let own: Vec<String> = (0..1 + dice.roll(3)).map(|_| tongue.word(dice, 4)).collect();
    words.push(own[0].clone());
    let kind = ["any_of", "words"][dice.roll(2)];
    json!({"text": {"in": ["text"], kind: own}})
}

fn short(dice: &mut Dice, words: &mut Vec<String>) -> Json {
    let length = 2 + dice.roll(4);
    let word: String =
        (0..length).map(|_| char::from(b"abcdefghijklmnopqrstuvwxyz"[dice.roll(26)])).collect();
    words.push(word.clone());
    json!({"text": {"in": ["text"], "words": [word]}})
}

/// A comparison that selects 1 to 20 % of the items.
fn number(dice: &mut Dice) -> Json {
    let share = 1 + dice.roll(20);
    match dice.roll(2) {
        0 => json!({"field": {"path": "likes", "gt": 10_000 - share * 100}}),
        _ => json!({"field": {"path": "ageDays", "lt": share * 40}}),
    }
}

fn realistic(tongue: &Tongue, dice: &mut Dice, nth: usize, words: &mut Vec<String>) -> Json {
    // By sevens, so that a small set has all kinds of rules too.
    match nth * 7 % 20 {
        0..=5 => keyword(tongue, dice, words),
        6..=8 => json!({"all": [number(dice), keyword(tongue, dice, &mut Vec::new()),
            {"not": {"text": {"in": ["text"], "any_of": [tongue.word(dice, 2)]}}}]}),
        9..=11 => {
            let (a, b) = (tongue.word(dice, 4), tongue.word(dice, 2));
            let pattern = [
                format!(r"(?i)\b{a}s?\b"),
                format!(r"{a}\s+{b}"),
                format!(r"{b}[0-9]{{2,}}{a}"),
                format!(r"(?i)(?:{b}|{a}) ?{a}"),
            ][dice.roll(4)]
            .clone();
            json!({"text": {"in": ["text"], "regex": pattern}})
        }
        12..=14 => {
            let word = tongue.word(dice, 4);
            let view = ["folded", "collapsed"][nth % 2];
            json!({"text": {"in": ["text"], "any_of": [word], "view": view}})
        }
        15 | 16 => json!({"all": [number(dice), number(dice),
            {"field": {"path": "topic", "eq": format!("topic-{}", dice.roll(2_000))}}]}),
        17 | 18 => json!({"all": [{"field": {"path": "verified", "eq": false}}, number(dice),
            {"field": {"path": "label", "in": [format!("l{}", dice.roll(20_000)), format!("l{}", dice.roll(20_000))]}}]}),
        _ => {
            json!({"all": [keyword(tongue, dice, &mut Vec::new()), {"strikes": {"gte": 3, "within": "30d"}}]})
        }
    }
}

/// Nothing that such a rule needs can be looked up: it needs something to be absent, or any of many numbers.
fn unindexed(dice: &mut Dice) -> Json {
    let likes = dice.roll(10_000);
    json!({"all": [
        {"not": {"field": {"path": "verified", "eq": true}}},
        {"field": {"path": "likes", "ne": likes}},
        {"not": {"field": {"path": "ageDays", "gte": 1 + dice.roll(3)}}},
    ]})
}

fn item(mix: Mix, tongue: &Tongue, dice: &mut Dice, nth: usize, words: &[String]) -> Json {
    let planted = match mix {
        Mix::M4 => 10,
        // No word of a rule: nothing to plant.
        _ if words.is_empty() => 0,
        _ => usize::from(nth % 10 < 3),
    };
    let planted: Vec<String> = (0..planted).map(|_| words[dice.roll(words.len())].clone()).collect();
    let bytes = if mix == Mix::M7 { 64_000 } else { 290 };
    json!({
        "text": tongue.text(dice, bytes, &planted),
        "topic": format!("topic-{}", dice.roll(2_000)),
        "label": format!("l{}", dice.roll(20_000)),
        "likes": dice.roll(10_000),
        "ageDays": dice.roll(4_000),
        "verified": dice.roll(4) == 0,
        "createdAt": "2026-01-01T00:00:00.000Z",
    })
}

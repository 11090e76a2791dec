//! Generates random words and patterns, conditions that search them, and prose that contains some of them, also in disguise.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};
use tidegate_rules::{Container, Kind, Shape};

use super::{Dice, World, places::link};

pub(super) const SYLLABLES: [&str; 50] = [
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

impl World {
    pub(super) fn text(&self, dice: &mut Dice, fields: &BTreeMap<String, Shape>) -> Json {
        let mut paths: Vec<String> = fields
            .iter()
            .filter(|(_, shape)| matches!(shape.kind, Kind::Text | Kind::Media))
            .map(
                |(name, shape)| {
                    if shape.container == Container::Map { format!("{name}.lang") } else { name.clone() }
                },
            )
            .collect();
        if fields.contains_key("author") {
            paths.push("author.id".to_owned());
        }
        let mut selected_paths = dice.list(2, |dice| dice.one(&paths));
        selected_paths.sort();
        selected_paths.dedup();
        let mut leaf = json!({"in": selected_paths});
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
            json!(dice.list(2, |dice| self.pattern(dice)))
        } else {
            let max_words = if kind == "all_of" { 1 } else { dice.one(&[0, 1, 3, 3, 60]) };
            json!(dice.list(max_words, |dice| self.word(dice)))
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

    /// Mostly one of the world's words, sometimes one that hardly any text contains.
    pub(super) fn word(&self, dice: &mut Dice) -> String {
        let word = if dice.chance(15) { word(dice) } else { dice.one(&self.words) };
        match word.trim() {
            "" => "b".to_owned(),
            _ if dice.chance(2) => word.repeat(1 + dice.one(&[900, 900, 900, 9_900]) / word.len()),
            _ => word,
        }
    }

    pub(super) fn pattern(&self, dice: &mut Dice) -> String {
        // A longer pattern exceeds the limit.
        let mut word = || regex::escape(&self.word(dice).chars().take(300).collect::<String>());
        let (a, b) = (word(), word());
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

    pub(super) fn prose(&self, dice: &mut Dice) -> String {
        let max_parts = dice.one(&[1, 4, 20, 60]);
        let parts = dice.list(max_parts, |dice| match dice.roll(8) {
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

/// A word in disguise, as an author writes it to avoid being found.
fn disguised(dice: &mut Dice, word: &str) -> String {
    let mut disguised = String::new();
    for character in word.chars() {
        let substitute = match character {
            'o' => '0',
            'e' => '3',
            'a' => '@',
            'l' => '1',
            's' => '$',
            other => other,
        };
        let letter = if dice.chance(50) { substitute } else { character };
        (0..dice.one(&[1, 1, 1, 2, 4])).for_each(|_| disguised.push(letter));
        if dice.chance(10) {
            disguised.push('\u{200b}');
        }
    }
    disguised
}

pub(super) fn word(dice: &mut Dice) -> String {
    let max_syllables = dice.one(&[0, 1, 1, 3, 5]);
    dice.list(max_syllables, |dice| dice.one(&SYLLABLES)).concat()
}

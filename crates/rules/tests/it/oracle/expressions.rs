//! Generates random expressions over the fields of the random item types.

use super::Dice;

/// Existing fields by the kind of their values.
pub(crate) struct ExpressionFields<'n> {
    pub(crate) texts: Vec<&'n str>,
    pub(crate) numbers: Vec<&'n str>,
    pub(crate) booleans: Vec<&'n str>,
    pub(crate) text_lists: Vec<&'n str>,
    pub(crate) number_lists: Vec<&'n str>,
    /// Lists and maps.
    pub(crate) sized: Vec<&'n str>,
    /// Words to compare texts with.
    pub(crate) words: Vec<String>,
}

pub(crate) fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\\', "\\\\").replace('\'', "\\'").replace(['\n', '\r'], " "))
}

impl ExpressionFields<'_> {
    fn one(dice: &mut Dice, of: &[&str]) -> Option<String> {
        (!of.is_empty()).then(|| format!("item.data.{}", dice.one(of)))
    }

    fn word(&self, dice: &mut Dice) -> String {
        quoted(&dice.one(&self.words))
    }

    fn text(&self, dice: &mut Dice) -> String {
        Self::one(dice, &self.texts).unwrap_or_else(|| "'en'".to_owned())
    }

    fn number(&self, dice: &mut Dice, depth: u64) -> String {
        let field = Self::one(dice, &self.numbers);
        match dice.roll(if depth == 0 { 4 } else { 9 }) {
            0 => dice.one(&["0", "1", "2", "3", "7"]).to_owned(),
            1..=3 => field.unwrap_or_else(|| "2".to_owned()),
            4 => format!("size({})", self.text(dice)),
            5 => match Self::one(dice, &self.sized) {
                Some(list) => format!("{list}.size()"),
                None => "1".to_owned(),
            },
            6 => format!("-{}", self.number(dice, 0)),
            _ => {
                let sign = dice.one(&["+", "-", "*", "/", "%"]);
                format!("({} {sign} {})", self.number(dice, depth - 1), self.number(dice, depth - 1))
            }
        }
    }

    fn part(&self, dice: &mut Dice) -> String {
        let call = dice.one(&["contains", "startsWith", "endsWith"]);
        let word =
            if dice.chance(50) { self.word(dice) } else { dice.one(&["'e'", "'n'", "''", "'u'"]).to_owned() };
        format!(".{call}({word})")
    }

    pub(crate) fn truth(&self, dice: &mut Dice, depth: u64) -> String {
        let order = |dice: &mut Dice| dice.one(&["==", "!=", "<", "<=", ">", ">="]);
        match dice.roll(if depth == 0 { 11 } else { 17 }) {
            0 | 1 => format!("{} {} {}", self.number(dice, 0), order(dice), self.number(dice, 0)),
            2 | 3 => format!("{} {} {}", self.number(dice, 2), order(dice), self.number(dice, 1)),
            4 => format!("{} {} {}", self.text(dice), dice.one(&["==", "!="]), self.word(dice)),
            5 => format!("{}{}", self.text(dice), self.part(dice)),
            6 => format!("{} in [{}, {}]", self.text(dice), self.word(dice), self.word(dice)),
            7 => match Self::one(dice, &self.booleans) {
                Some(field) => format!("{field}{}", dice.one(&["", " == false", " != true"])),
                None => "true".to_owned(),
            },
            8 => match Self::one(dice, &self.number_lists) {
                Some(list) => match dice.roll(3) {
                    0 => format!("{} in {list}", self.number(dice, 0)),
                    1 => format!("{list}.all(n, n {} 2)", order(dice)),
                    _ => {
                        format!("{list}.exists(n, n * 2 {} {} && n != 1)", order(dice), self.number(dice, 0))
                    }
                },
                None => "!false".to_owned(),
            },
            9 => match Self::one(dice, &self.text_lists) {
                Some(list) => match dice.roll(4) {
                    0 => format!("{} in {list}", self.word(dice)),
                    1 => format!("{list}.exists(t, t{})", self.part(dice)),
                    2 => format!("{list}.all(t, size(t) > {} || t == {})", dice.roll(6), self.text(dice)),
                    _ => format!("{list}.exists(t, t == {})", self.word(dice)),
                },
                None => "1 > 2".to_owned(),
            },
            10 => match dice.roll(3) {
                0 => format!("{}.matches('^[a-e]?n')", self.text(dice)),
                1 => format!("{} == {}", self.text(dice), self.text(dice)),
                _ => {
                    // A key of an absent map is an error in CEL, and absent here.
                    let plain_texts = self.texts.iter().copied().filter(|text| !text.contains('.')).collect();
                    match Self::one(dice, &[plain_texts, self.numbers.clone(), self.sized.clone()].concat()) {
                        Some(field) => format!("has({field})"),
                        None => "false".to_owned(),
                    }
                }
            },
            11..=13 => format!("{} && {}", self.grouped(dice, depth), self.grouped(dice, depth)),
            14 | 15 => format!("{} || {}", self.grouped(dice, depth), self.grouped(dice, depth)),
            _ => format!("!({})", self.truth(dice, depth - 1)),
        }
    }

    fn grouped(&self, dice: &mut Dice, depth: u64) -> String {
        let truth = self.truth(dice, depth - 1);
        if truth.contains("||") || truth.contains("&&") || dice.chance(20) {
            format!("({truth})")
        } else {
            truth
        }
    }
}

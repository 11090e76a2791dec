//! Generates random comparisons of fields and their operands. Each kind has few values, so that comparisons hold often
//! enough.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};
use tidegate_rules::{Container, Kind, Shape};

use super::{Dice, World, places::CELLS, texts::SYLLABLES};

impl World {
    pub(crate) fn field(&self, dice: &mut Dice, fields: &BTreeMap<String, Shape>) -> Json {
        let names: Vec<_> = fields.keys().cloned().collect();
        let name = dice.one(&names);
        let shape = fields[&name];
        let (path, kind) = match (shape.container, shape.kind) {
            (Container::Map, kind) => (format!("{name}.lang"), kind),
            (_, Kind::Geohash | Kind::Media) => (name, Kind::Text),
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
                leaf[op] = if dice.chance(50) { part(dice) } else { json!(dice.list(6, part)) };
            }
            6 if kind == Kind::Datetime => {
                let span = json!({dice.one(&["ago", "ahead"]): dice.one(&["1d", "30d", "400d"])});
                leaf[dice.one(&["gt", "lte", "eq"])] = span;
            }
            0 => leaf["exists"] = json!(dice.chance(50)),
            1 => leaf[dice.one(&["in", "not_in"])] = json!(dice.list(4, |dice| self.operand(dice, kind))),
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
    pub(super) fn operand(&self, dice: &mut Dice, kind: Kind) -> Json {
        match kind {
            Kind::Text | Kind::Url | Kind::Media => {
                json!(dice.one(&["en", "de", "u1", "u2", &self.words[0]]))
            }
            // A corner of a cell that belongs to it, or the last place inside.
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
                json!(9_007_199_254_740_992.0),
                json!(u64::MAX),
                json!(18_446_744_073_709_551_616.0),
                json!(i64::MIN),
                serde_json::from_str(&i128::MAX.to_string()).unwrap(),
                json!(1.7e38),
                json!(1.701_411_834_604_692_3e38),
                json!(0.1),
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
}

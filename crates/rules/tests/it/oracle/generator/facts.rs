//! Generates random conditions on facts beyond the item, their windows, and strike points. The answers are drawn in the
//! interpreter's `around`.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value as Json, json};
use tidegate_rules::{Kind, Shape};

use super::{Dice, Lean, MIXED, World};
use crate::oracle::interpreter::around::Standings;

const MODELS: [&str; 3] = ["mean", "spam", "nude"];

impl World {
    /// Texts that models return: none, one, or several.
    pub(crate) fn model_texts(&self, dice: &mut Dice) -> BTreeMap<String, Vec<Arc<str>>> {
        let texts =
            |dice: &mut Dice| (0..dice.one(&[0, 1, 1, 1, 3])).map(|_| self.prose(dice).into()).collect();
        MODELS.iter().map(|model| ((*model).to_owned(), texts(dice))).collect()
    }

    pub(super) fn window(&self, dice: &mut Dice, nth: u64) -> Json {
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

    /// A condition on facts beyond the item.
    pub(super) fn fact_condition(&self, dice: &mut Dice, fields: &BTreeMap<String, Shape>) -> Json {
        let kind = if self.lean == Lean::Asking && dice.chance(50) { 2 } else { dice.roll(8) };
        match kind {
            0 => json!({"strikes": {"gte": 1 + dice.roll(4)}}),
            1 => json!({"strikes": {"gt": dice.roll(4), "within": dice.one(&["1d", "7d"])}}),
            2 | 3 => {
                let has_key_field =
                    |window: &&Json| window["by"].as_str().is_none_or(|by| fields.contains_key(by));
                let fitting: Vec<_> = self.windows.iter().filter(has_key_field).collect();
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
            6 if dice.chance(50) => {
                let mut text = self.text(dice, fields)["text"].clone();
                text.as_object_mut().unwrap().remove("in");
                text["model"] = json!(dice.one(&MODELS));
                json!({"model_text": text})
            }
            _ => {
                let mut score = json!({"model": dice.one(&MODELS)});
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
        let media = fields.iter().filter(|(_, shape)| shape.kind == Kind::Media);
        let paths: Vec<_> = media.map(|(name, _)| name.clone()).collect();
        if paths.is_empty() {
            return self.text(dice, fields);
        }
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
}

pub(crate) fn standings(dice: &mut Dice) -> Standings {
    let spans = [None, Some("1d".to_owned()), Some("1w".to_owned())];
    spans.into_iter().map(|span| (span, dice.one(&[None, Some(0), Some(2), Some(4)]))).collect()
}

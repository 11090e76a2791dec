//! Generates random items of the item types, and reads them for a plan. Their texts are generated in `texts`.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json, json};
use tidegate_rules::{Container, Fields, Kind, Number, Shape, Value};
use tidegate_schemas::item_types::datetime;

use super::{
    Dice, World,
    places::{CELLS, link},
};
use crate::oracle::edges;

impl World {
    pub(crate) fn item(&self, dice: &mut Dice) -> (usize, Data) {
        let nth = usize::try_from(dice.roll(self.types.len() as u64)).unwrap();
        let mut data = Map::new();
        for (name, shape) in &self.types[nth].1 {
            if !dice.chance(75) {
                continue;
            }
            let value = |dice: &mut Dice| match shape.kind {
                Kind::Media => json!(link(dice)),
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
}

/// Data of an item, read by its type.
pub(crate) struct Data {
    pub(crate) fields: BTreeMap<String, Shape>,
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
        Kind::Text | Kind::Url | Kind::Geohash | Kind::Media => Value::Text(value.as_str().unwrap()),
        Kind::Number => Value::Number(match value.to_string().parse() {
            Ok(whole) => Number::Whole(whole),
            Err(_) => Number::Fraction(value.as_f64().unwrap()),
        }),
        Kind::Boolean => Value::Boolean(value.as_bool().unwrap()),
        Kind::Datetime => Value::Datetime(datetime::parse(value.as_str().unwrap()).unwrap()),
        Kind::Related => {
            Value::Related { type_id: value["typeId"].as_str().unwrap(), id: value["id"].as_str().unwrap() }
        }
    }
}

//! Rules that use the conditions of other rules: alone, in chains, several times, and below `all`, `any` and `not`.

use serde_json::{Value as Json, json};

use super::{Dice, Lean, World};

impl World {
    /// Rule documents in either order: a rule may precede the rules that it uses.
    pub(crate) fn rules(&self, dice: &mut Dice, count: usize) -> Vec<Json> {
        let mut rules: Vec<Json> = Vec::with_capacity(count);
        for nth in 0..count {
            let mut rule = self.rule(dice, nth);
            // The fields of the used rule must exist in all item types of the rule that uses it.
            let is_usable =
                |other: &&Json| self.lean == Lean::Types || other["item_types"] == rule["item_types"];
            let usable_keys: Vec<Json> =
                rules.iter().filter(is_usable).map(|other| other["rule"].clone()).collect();
            if !usable_keys.is_empty() && dice.chance(60) {
                plant(dice, &mut rule["when"], &usable_keys);
            }
            rules.push(rule);
        }
        // Half of the plans list rules before the rules that they use.
        dice.chance(50).then(|| rules.reverse());
        rules
    }
}

/// Puts uses of other rules into a condition.
fn plant(dice: &mut Dice, when: &mut Json, others: &[Json]) {
    let use_of_rule = |dice: &mut Dice| json!({"rule": dice.one(others)});
    *when = match dice.roll(8) {
        0 => use_of_rule(dice),
        1 => json!({"not": use_of_rule(dice)}),
        2 => json!({"all": [use_of_rule(dice), when, use_of_rule(dice)]}),
        3 => json!({"any": [when, {"not": use_of_rule(dice)}]}),
        _ => return plant_inside(dice, when, others),
    };
}

fn plant_inside(dice: &mut Dice, condition: &mut Json, others: &[Json]) {
    let Some((key, inner)) = condition.as_object_mut().and_then(|object| object.iter_mut().next()) else {
        return;
    };
    match (key.as_str(), inner) {
        ("not", inner) if dice.chance(30) => *inner = json!({"rule": dice.one(others)}),
        ("not", inner) => plant_inside(dice, inner, others),
        ("all" | "any", Json::Array(parts)) => {
            parts.iter_mut().for_each(|part| plant_inside(dice, part, others));
            while dice.chance(40) {
                let place = usize::try_from(dice.roll(1 + parts.len() as u64)).unwrap();
                parts.insert(place, json!({"rule": dice.one(others)}));
            }
        }
        _ => {}
    }
}

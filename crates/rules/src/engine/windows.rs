//! Collects the entries that an item adds to windows. The caller stores the counts.

use std::collections::HashMap;

use tidegate_schemas::ids::{TypeId, WindowId};

use super::Run;
use crate::{
    compile::windows::CountingWindow,
    item::{Item, Trigger, Value},
    leaves::input::values_of,
    limits::OutOfSteps,
    logic::{self, Mask},
    search::hashing::BuildFastHasher,
    windows::{Amount, Measure, WindowEntry, WindowKey, hash_member},
};

/// Entries that an item adds, and the windows that lack some of its entries.
pub(crate) type WindowAdditions = (Vec<WindowEntry>, Vec<WindowId>);

/// Indices of the windows of each item type.
pub(crate) fn windows_by_type<'t>(
    windows: &[CountingWindow],
    types: impl Iterator<Item = &'t TypeId>,
) -> HashMap<TypeId, Box<[usize]>, BuildFastHasher> {
    let windows_of_type = |type_id: &TypeId| {
        let concerns =
            |window: &CountingWindow| window.item_types.is_empty() || window.item_types.contains(type_id);
        windows.iter().enumerate().filter(|(_, window)| concerns(window)).map(|(nth, _)| nth).collect()
    };
    types
        .map(|type_id| (type_id.clone(), windows_of_type(type_id)))
        .filter(|(_, windows): &(_, Box<[_]>)| !windows.is_empty())
        .collect()
}

impl CountingWindow {
    /// Adds the item's entries, if the window counts it.
    pub(crate) fn add(&self, item: &Item<'_>, run: &mut Run<'_, '_>, added: &mut WindowAdditions) {
        // The item of a report or an appeal was counted when it was submitted.
        if item.on != Trigger::Item {
            return;
        }
        run.steps.next_rule();
        match self.collect_entries(item, run, &mut added.0) {
            Ok(true) => {}
            Ok(false) | Err(OutOfSteps) => added.1.push(self.window.key.clone()),
        }
    }

    /// Adds the item's entries. False if some keys or members are missing.
    fn collect_entries(
        &self,
        item: &Item<'_>,
        run: &mut Run<'_, '_>,
        entries: &mut Vec<WindowEntry>,
    ) -> Result<bool, OutOfSteps> {
        run.steps.take(1)?;
        let input = run.input;
        let (keys, more_keys) = values_of(self.key_slot, input, WindowKey::from_value);
        // Without a key the window does not count the item, and no entry is missing.
        if keys.is_empty() {
            return Ok(true);
        }
        if let Some((node, leaves)) = &self.condition
            && logic::decide(node, &mut |nth| run.mask(leaves[nth]))? != Mask::PASSED
        {
            return Ok(true);
        }
        let (mut amount, mut members, mut more_members) = (Amount::ZERO, Vec::new(), false);
        match (self.window.measure, self.measured_slot) {
            (Measure::Distinct, Some(slot)) => {
                (members, more_members) = values_of(Some(slot), input, hash_member);
                if members.is_empty() {
                    return Ok(true);
                }
            }
            (Measure::Sum, Some(slot)) => {
                for (_, value) in input.fields.slot(slot).values.iter().flatten() {
                    run.steps.take(1)?;
                    if let Value::Number(number) = value {
                        amount = amount.plus(Amount::from_number(*number));
                    }
                }
                // A sum of zero leaves every count as it is.
                if amount == Amount::ZERO {
                    return Ok(true);
                }
            }
            _ => amount = Amount::ONE,
        }
        entries.extend(keys.into_iter().map(|key| WindowEntry {
            window: self.window.key.clone(),
            key,
            bucket: self.window.bucket_of(item.now),
            at: item.now,
            amount,
            members: members.clone(),
            retention_millis: self.window.retention_millis(),
        }));
        Ok(!more_keys && !more_members)
    }
}

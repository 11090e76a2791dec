//! Validates an item's `data` against its type and returns the typed values. Fields that the type does not declare are
//! ignored.

use super::{
    coerce::{Coercion, InvalidValue},
    fields::ItemType,
    output::Output,
    roles::Role,
    values::Values,
};
use crate::{
    json::{self, Kind, Node},
    nearest::{nearest, truncate_name},
    validation_error::{Pointer, ValidationError, ValidationErrors},
};

/// Required completeness of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// All required fields and all fields that roles require must have values.
    Strict,
    /// All fields are optional; present values must be valid.
    Partial,
}

impl ItemType {
    /// Checks the bytes of a `data` object. `base` is its pointer in the request.
    pub fn check(&self, data: &[u8], mode: Mode, base: &Pointer<'_>) -> Result<Values, Vec<ValidationError>> {
        let tape = json::scan_at(data, base)?;
        let mut faults = ValidationErrors::default();
        let slots = self.read_slots(tape.root(data), mode, base, &mut faults);
        faults.or(slots.map(|slots| Values { shape: self.shape.clone(), slots }))
    }

    /// Checks like [`ItemType::check`] without returning values, for data that is already scanned with its request.
    pub fn check_scanned(
        &self,
        data: Node<'_>,
        mode: Mode,
        base: &Pointer<'_>,
        faults: &mut ValidationErrors,
    ) {
        self.read_slots::<()>(data, mode, base, faults);
    }

    /// Returns the values in the order of the type's fields. `None` if there is an error.
    fn read_slots<K: Output>(
        &self,
        data: Node<'_>,
        mode: Mode,
        base: &Pointer<'_>,
        faults: &mut ValidationErrors,
    ) -> Option<Vec<Option<K>>> {
        if data.kind() != Kind::Object {
            let detail = format!("`data` must be an object, not {}.", data.kind().name());
            faults.push(ValidationError::data(base, detail));
            return None;
        }
        // The list can contain errors of other items, so only its growth counts.
        let earlier_faults = faults.count();
        let mut slots = vec![None; self.shape.fields.len()];
        let mut invalid_slots = Vec::new();
        let mut coercion = Coercion { strict: self.strict, types: &self.types, faults };
        for (name, node) in data.entries() {
            // Undeclared fields stay in the client's bytes only.
            let Some(slot) = self.shape.slot(&name) else { continue };
            match coercion.coerce_field(&self.shape.fields[slot], node, &base.key(&name)) {
                Ok(value) => slots[slot] = value,
                Err(InvalidValue) => invalid_slots.push(slot),
            }
        }
        // A partial item states only some fields, so required fields and roles are not checked.
        if mode == Mode::Strict {
            for (slot, field) in self.shape.fields.iter().enumerate() {
                // An invalid value is already reported, so the field does not count as missing too.
                if field.required && slots[slot].is_none() && !invalid_slots.contains(&slot) {
                    faults.push(ValidationError::data(
                        &base.key(&field.name),
                        self.describe_missing(&field.name, data),
                    ));
                }
            }
            self.check_roles(|slot| slots[slot].is_some() || invalid_slots.contains(&slot), base, faults);
        }
        (faults.count() == earlier_faults).then_some(slots)
    }

    /// Describes a missing field, and suggests an undeclared field with a similar name.
    fn describe_missing(&self, field: &str, data: Node<'_>) -> String {
        let similar_name = data
            .entries()
            .map(|(name, _)| name)
            .find(|name| self.shape.slot(name).is_none() && nearest(name, [field]).is_some());
        match similar_name {
            Some(name) => {
                format!(
                    "The required field `{field}` is missing. Did you mean `{field}` instead of `{}`?",
                    truncate_name(&name)
                )
            }
            None => format!("The required field `{field}` is missing."),
        }
    }

    fn check_roles(
        &self,
        has_value: impl Fn(usize) -> bool,
        base: &Pointer<'_>,
        faults: &mut ValidationErrors,
    ) {
        let slot_of = |role: Role| self.shape.by_role[role as usize];
        for role in Role::ALL {
            let Some(slot) = slot_of(role).filter(|slot| has_value(*slot)) else { continue };
            let name = &self.shape.fields[slot].name;
            for required_role in role.required_roles() {
                if !slot_of(*required_role).is_some_and(&has_value) {
                    faults.push(ValidationError::roles(
                        &base.key(name),
                        format!(
                            "The field `{name}` has the role `{}`, which requires a value in the field with the role `{}`.",
                            role.name(),
                            required_role.name()
                        ),
                    ));
                }
            }
        }
    }
}

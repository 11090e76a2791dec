//! Checks an item's `data` against its type and returns its values.
//!
//! It does not judge the item around the data, and leaves fields that the type does not declare alone.

use super::{
    coerce::{Coercion, Refused},
    fields::ItemType,
    output::Output,
    roles::Role,
    values::Values,
};
use crate::{
    json::{self, Kind, Node},
    nearest::{nearest, shown},
    validation_error::{Pointer, ValidationError, ValidationErrors},
};

/// Completeness that the data must have. Coercion is up to the type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Every required field must be there, and the roles complete.
    Strict,
    /// No field is required: what is there must fit.
    Partial,
}

impl ItemType {
    /// Checks the bytes of a `data` object that stands at `base` of its request.
    pub fn check(&self, data: &[u8], mode: Mode, base: &Pointer<'_>) -> Result<Values, Vec<ValidationError>> {
        let tape = json::scan_at(data, base)?;
        let mut faults = ValidationErrors::default();
        let slots = self.slots(tape.root(data), mode, base, &mut faults);
        faults.or(slots.map(|slots| Values { shape: self.shape.clone(), slots }))
    }

    /// Checks like [`ItemType::check`], for data that was scanned along with its request and whose values are not
    /// needed.
    pub fn judge(&self, data: Node<'_>, mode: Mode, base: &Pointer<'_>, faults: &mut ValidationErrors) {
        self.slots::<()>(data, mode, base, faults);
    }

    /// Returns the stored values by field, if nothing is wrong.
    fn slots<K: Output>(
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
        let before = faults.count();
        let mut slots = vec![None; self.shape.fields.len()];
        let mut refused = Vec::new();
        let mut coercion = Coercion { strict: self.strict, types: &self.types, faults };
        for (name, node) in data.entries() {
            let Some(slot) = self.shape.slot(&name) else { continue };
            match coercion.field(&self.shape.fields[slot], node, &base.key(&name)) {
                Ok(value) => slots[slot] = value,
                Err(Refused) => refused.push(slot),
            }
        }
        if mode == Mode::Strict {
            for (slot, field) in self.shape.fields.iter().enumerate() {
                if field.required && slots[slot].is_none() && !refused.contains(&slot) {
                    faults
                        .push(ValidationError::data(&base.key(&field.name), self.missing(&field.name, data)));
                }
            }
            self.check_roles(|slot| slots[slot].is_some() || refused.contains(&slot), base, faults);
        }
        (faults.count() == before).then_some(slots)
    }

    /// Names an unknown field that may have been meant for the missing one.
    fn missing(&self, field: &str, data: Node<'_>) -> String {
        let meant = data
            .entries()
            .map(|(name, _)| name)
            .find(|name| self.shape.slot(name).is_none() && nearest(name, [field]).is_some());
        match meant {
            Some(name) => {
                format!("The required field `{field}` is missing. Did you mean it by `{}`?", shown(&name))
            }
            None => format!("The required field `{field}` is missing."),
        }
    }

    fn check_roles(
        &self,
        present: impl Fn(usize) -> bool,
        base: &Pointer<'_>,
        faults: &mut ValidationErrors,
    ) {
        let field = |role: Role| self.shape.by_role[role as usize];
        for role in Role::ALL {
            let Some(slot) = field(role).filter(|slot| present(*slot)) else { continue };
            let name = &self.shape.fields[slot].name;
            for needed in role.needs() {
                if !field(*needed).is_some_and(&present) {
                    faults.push(ValidationError::roles(
                        &base.key(name),
                        format!(
                            "The field `{name}` has the role `{}`, which needs a field with the role `{}` beside it.",
                            role.name(),
                            needed.name()
                        ),
                    ));
                }
            }
        }
    }
}

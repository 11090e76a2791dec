//! Validates context items. An invalid one is kept and marked instead of refused.
//!
//! The main item of a request is validated strictly by its endpoint.

use tidegate_catalog::Compiled;
use tidegate_schemas::{
    item_types::Mode,
    json::Node,
    records,
    validation_error::{Pointer, ValidationErrors},
    wire::{Request, items::ContextItem},
};

use crate::config::{find_unknown_reference, has_item_type};

/// Number of stored faults per item.
const MAX_KEPT_FAULTS: usize = 5;

/// True if the configuration has the types of all items that name a type.
pub(crate) fn has_all_types(config: &Compiled, items: &[ContextItem]) -> bool {
    items
        .iter()
        .filter(|item| !item.type_id.as_str().is_empty())
        .all(|item| has_item_type(config, &item.type_id, item.type_version.as_deref()))
}

/// Builds the log entries of context items, each with its faults.
pub(crate) fn check_context_items<T>(
    config: &Compiled,
    request: &Request<T>,
    items: &[ContextItem],
) -> Vec<records::ContextItem> {
    let root = request.root();
    items
        .iter()
        .map(|item| records::ContextItem {
            type_id: item.type_id.clone(),
            id: item.id.clone(),
            type_version: item.type_version.clone(),
            variant: item.variant,
            data: item.data.clone(),
            fault: item.fault.clone().or_else(|| find_fault(config, root, item)),
            as_sent: item.as_sent.clone(),
        })
        .collect()
}

fn find_fault(config: &Compiled, root: Node<'_>, item: &ContextItem) -> Option<String> {
    if let Some(reference) = find_unknown_reference(config, &item.type_id, item.type_version.as_deref()) {
        return Some(reference.detail());
    }
    let item_type = config.item_type_at(&item.type_id, item.type_version.as_deref())?;
    let data = item.data_in(root)?;
    // `Partial`: context may lack required fields, because moderators only read it.
    let mut faults = ValidationErrors::default();
    item_type.check_scanned(data, Mode::Partial, &Pointer::Root, &mut faults);
    let lines: Vec<_> =
        faults.into_vec().into_iter().take(MAX_KEPT_FAULTS).map(|fault| fault.to_string()).collect();
    (!lines.is_empty()).then(|| lines.join(" "))
}

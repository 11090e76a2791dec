//! Items that only give context: what does not fit is kept and marked, never refused.
//!
//! Items that a request is about are checked strictly, by their endpoints.

use tidegate_catalog::Compiled;
use tidegate_schemas::{
    item_types::Mode,
    json::Node,
    records,
    validation_error::{Pointer, ValidationErrors},
    wire::{Request, items::ContextItem},
};

use crate::config::{knows, unknown};

/// Number of an item's errors that are kept.
const KEPT: usize = 5;

/// True if the configuration has the types of all that name one.
pub(crate) fn all_known(config: &Compiled, items: &[ContextItem]) -> bool {
    items
        .iter()
        .filter(|item| !item.type_id.as_str().is_empty())
        .all(|item| knows(config, &item.type_id, item.type_version.as_deref()))
}

/// The items as the log keeps them, each with what is wrong with it.
pub(crate) fn checked<T>(
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
            fault: item.fault.clone().or_else(|| fault(config, root, item)),
            as_sent: item.as_sent.clone(),
        })
        .collect()
}

fn fault(config: &Compiled, root: Node<'_>, item: &ContextItem) -> Option<String> {
    if let Some(unknown) = unknown(config, &item.type_id, item.type_version.as_deref()) {
        return Some(unknown.detail());
    }
    let item_type = config.item_type_at(&item.type_id, item.type_version.as_deref())?;
    let data = item.data_in(root)?;
    let mut faults = ValidationErrors::default();
    item_type.judge(data, Mode::Partial, &Pointer::Root, &mut faults);
    let lines: Vec<_> = faults.into_vec().into_iter().take(KEPT).map(|fault| fault.to_string()).collect();
    (!lines.is_empty()).then(|| lines.join(" "))
}

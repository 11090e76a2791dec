//! Removes from a rule document what cannot be read.

use serde_json::{Value as Json, json};

use crate::error::RuleError;

/// The document with other conditions in the place of those at fault, and without other keys at fault; `None` if its
/// own key is one of them. All that is left keeps its path.
pub(super) fn readable(document: &Json, faults: &[RuleError]) -> Option<Json> {
    let mut document = document.clone();
    for fault in faults {
        let steps: Vec<&str> = fault.pointer.split('/').skip(1).collect();
        match steps.as_slice() {
            [] | ["rule", ..] => return None,
            ["when", rest @ ..] => {
                let node = condition(document.get_mut("when")?, rest);
                // Says nothing, and is well in every rule.
                *node = json!({"strikes": {"gte": 1}});
            }
            [key, ..] => drop(document.as_object_mut()?.remove(*key)),
        }
    }
    Some(document)
}

/// The innermost condition on the way.
fn condition<'d>(node: &'d mut Json, steps: &[&str]) -> &'d mut Json {
    let inner = match steps {
        [of @ ("all" | "any"), nth, ..]
            if nth.parse::<usize>().is_ok_and(|nth| node[*of].get(nth).is_some()) =>
        {
            2
        }
        ["not", ..] if node.get("not").is_some() => 1,
        _ => return node,
    };
    let (way, rest) = steps.split_at(inner);
    let inner = way.iter().fold(node, |node, step| match step.parse::<usize>() {
        Ok(nth) => &mut node[nth],
        Err(_) => &mut node[*step],
    });
    condition(inner, rest)
}

//! Continues to read a document after an invalid value by replacing or removing the value, so that one run reports all
//! errors. Replaced places are returned, because errors there are not the author's.

use serde::de::DeserializeOwned;

use super::tree::{Misfit, Shape, Step, Tree};

/// Result of reading a document.
pub(super) struct Reading<T> {
    /// `None` if no replacement makes the document readable.
    pub(super) document: Option<T>,
    /// Path and message of each invalid value.
    pub(super) misfits: Vec<(Vec<Step>, String)>,
    /// Places of replaced or removed values.
    pub(super) substituted: Vec<Vec<Step>>,
}

/// Maximum number of errors per document.
const MAX_MISFITS: usize = 100;

/// Maximum number of values that are read again. Each error reads the whole document several times more, so a large
/// document with many errors reports only the first ones.
const MAX_PARTS: usize = 2_000_000;

pub(super) fn read<T: DeserializeOwned>(tree: &mut Tree) -> Reading<T> {
    let mut reading = Reading { document: None, misfits: Vec::new(), substituted: Vec::new() };
    let max_misfits = (MAX_PARTS / tree.count_parts()).clamp(1, MAX_MISFITS);
    let mut result = T::deserialize(&*tree);
    // Twice the limit, because a replacement can itself need another one.
    for _ in 0..2 * max_misfits {
        let misfit = match result {
            Ok(document) => {
                reading.document = Some(document);
                break;
            }
            Err(misfit) => misfit,
        };
        let place = place(&misfit);
        // A removed value can be reported as missing, and a replacement can be invalid: neither is an error of the
        // document.
        if !reading.substituted.iter().any(|substituted| place.starts_with(substituted)) {
            if reading.misfits.len() == max_misfits {
                break;
            }
            reading.misfits.push((misfit.path(), misfit.message.clone()));
        }
        if misfit.unknown_field {
            // Unknown fields are removed without a note: no other error depends on them.
            if !tree.remove(&place) {
                break;
            }
            result = T::deserialize(&*tree);
            continue;
        }
        let Some((substituted, next_result)) = substitute(tree, &place, &misfit) else { break };
        *tree = substituted;
        result = next_result;
        // A place can need several replacements, but is listed once.
        if !reading.substituted.contains(&place) {
            reading.substituted.push(place);
        }
    }
    reading
}

/// Returns the path of the invalid or missing value.
fn place(misfit: &Misfit) -> Vec<Step> {
    let mut path = misfit.path();
    path.extend(misfit.missing_field.map(|field| Step::Key(field.to_owned())));
    path
}

/// Returns the tree without the invalid value, and the result of reading it. Tries values of each shape in turn.
fn substitute<T: DeserializeOwned>(
    tree: &Tree,
    at: &[Step],
    misfit: &Misfit,
) -> Option<(Tree, Result<T, Misfit>)> {
    let text = |text: &str| Some(Shape::Text(text.to_owned()));
    let mut candidates: Vec<Option<Shape>> = misfit.valid_variant.map(text).into_iter().collect();
    if misfit.missing_field.is_none() && matches!(at.last(), Some(Step::Key(_))) {
        candidates.push(None);
    }
    candidates.extend([text("1d"), Some(Shape::Number(1.into())), Some(Shape::List(Vec::new()))]);
    candidates.extend([Some(Shape::Map(Vec::new())), Some(Shape::Bool(false))]);
    if matches!(at.last(), Some(Step::Index(_))) {
        // Removal is tried last, because it shifts the indices of the following members.
        candidates.push(None);
    }
    let mut nth = 0;
    while let Some(shape) = candidates.get(nth).cloned() {
        nth += 1;
        // Each candidate starts from the unchanged tree.
        let mut substituted = tree.clone();
        let is_applied = match shape {
            Some(shape) => substituted.set_value(at, shape),
            None => substituted.remove(at),
        };
        match T::deserialize(&substituted) {
            Err(next) if !is_applied || place(&next).starts_with(at) => {
                // The error for a text states a valid variant of the expected enum.
                if let Some(fitting) =
                    next.valid_variant.map(text).filter(|fitting| !candidates.contains(fitting))
                {
                    candidates.push(fitting);
                }
            }
            result if is_applied => return Some((substituted, result)),
            _ => {}
        }
    }
    None
}

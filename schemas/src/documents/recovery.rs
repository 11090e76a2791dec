//! Reads on in a document after a value that does not fit: something that does is put in its place.
//!
//! What was put in is named, for nothing may be said of it.

use serde::de::DeserializeOwned;

use super::tree::{Misfit, Shape, Step, Tree};

/// Result of reading a document.
pub(super) struct Reading<T> {
    /// `None`: nothing that was tried makes it readable.
    pub(super) document: Option<T>,
    /// Path and message.
    pub(super) misfits: Vec<(Vec<Step>, String)>,
    /// Places where a value was put in or left out.
    pub(super) substituted: Vec<Vec<Step>>,
}

/// Faults of one document that are looked for.
const MOST: usize = 100;

/// Every fault reads the whole document some times more: of a large one with many faults, the first are told.
const MOST_PARTS: usize = 2_000_000;

pub(super) fn read<T: DeserializeOwned>(tree: &mut Tree) -> Reading<T> {
    let mut reading = Reading { document: None, misfits: Vec::new(), substituted: Vec::new() };
    let most = (MOST_PARTS / tree.parts()).clamp(1, MOST);
    let mut next = T::deserialize(&*tree);
    for _ in 0..2 * most {
        let misfit = match next {
            Ok(document) => {
                reading.document = Some(document);
                break;
            }
            Err(misfit) => misfit,
        };
        let place = place(&misfit);
        // What was left out may be missing now, and what was put in may not fit: neither is the document's fault.
        if !reading.substituted.iter().any(|substituted| place.starts_with(substituted)) {
            if reading.misfits.len() == most {
                break;
            }
            reading.misfits.push((misfit.path(), misfit.message.clone()));
        }
        if misfit.unknown_field {
            // What is said of the whole does not depend on it.
            if !tree.remove(&place) {
                break;
            }
            next = T::deserialize(&*tree);
            continue;
        }
        let Some((substituted, then)) = substitute(tree, &place, &misfit) else { break };
        *tree = substituted;
        next = then;
        if !reading.substituted.contains(&place) {
            reading.substituted.push(place);
        }
    }
    reading
}

/// The value that is wrong or missing.
fn place(misfit: &Misfit) -> Vec<Step> {
    let mut path = misfit.path();
    path.extend(misfit.missing.map(|field| Step::Key(field.to_owned())));
    path
}

/// The tree without the fault, and what it reads as now.
fn substitute<T: DeserializeOwned>(
    tree: &Tree,
    at: &[Step],
    misfit: &Misfit,
) -> Option<(Tree, Result<T, Misfit>)> {
    let text = |text: &str| Some(Shape::Text(text.to_owned()));
    let mut tries: Vec<Option<Shape>> = misfit.fitting.map(text).into_iter().collect();
    if misfit.missing.is_none() && matches!(at.last(), Some(Step::Key(_))) {
        tries.push(None);
    }
    tries.extend([text("1d"), Some(Shape::Number(1.into())), Some(Shape::List(Vec::new()))]);
    tries.extend([Some(Shape::Map(Vec::new())), Some(Shape::Bool(false))]);
    if matches!(at.last(), Some(Step::Index(_))) {
        // Late, for it gives those behind it another place.
        tries.push(None);
    }
    let mut nth = 0;
    while let Some(shape) = tries.get(nth).cloned() {
        nth += 1;
        let mut substituted = tree.clone();
        let is_done = match shape {
            Some(shape) => substituted.put(at, shape),
            None => substituted.remove(at),
        };
        match T::deserialize(&substituted) {
            Err(next) if !is_done || place(&next).starts_with(at) => {
                // A text that was tried tells which ones would fit.
                if let Some(fitting) = next.fitting.map(text).filter(|fitting| !tries.contains(fitting)) {
                    tries.push(fitting);
                }
            }
            then if is_done => return Some((substituted, then)),
            _ => {}
        }
    }
    None
}

//! Hosts with signs in their names that stand in a run with further signs, such as `👉i❤.ws`.

use std::ops::Range;

use super::{DOTS, Host, Letter, escape, is_around, is_letter, is_part, letters, may_have_dots, name};

/// Signs that a name has at most, to be found beside others.
const MOST: usize = 8;

/// The hosts in a run that signs part from the rest of it. The run's own beginning and end are those of a host only if
/// nothing else forbids it.
pub(super) fn parted(run: &str, start: usize, begins: bool, ends: bool, found: &mut Vec<Host<'_>>) {
    if !may_have_dots(run) {
        return;
    }
    let letters = letters(run);
    for part in parts(run, &letters) {
        let is_whole = part.start == 0 && part.end == letters.len();
        if !is_whole && (begins || part.start > 0) && (ends || part.end < letters.len()) {
            found.extend(name(&letters[part], start, false));
        }
    }
}

/// Parts that begin with the run or behind a sign, and ends with the run or before a sign. No top-level domain has a
/// sign, so none is in the last label.
fn parts(run: &str, letters: &[Letter]) -> Vec<Range<usize>> {
    let (mut parts, mut begins) = (Vec::new(), vec![0]);
    // Whether a label begins, and whether the last one has no sign.
    let (mut fresh, mut plain) = (true, false);
    let until = |end: usize, begins: &[usize], parts: &mut Vec<_>| {
        let few = begins.len().saturating_sub(MOST + 1)..begins.len() - 1;
        parts.extend(begins[few].iter().map(|begin| *begin..end));
    };
    for (nth, letter) in letters.iter().enumerate() {
        if is_sign(run, letter) {
            if plain {
                until(nth, &begins, &mut parts);
            }
            // A sign may be read as several.
            if nth > 0 && letters[nth - 1].from == letter.from {
                begins.pop();
            }
            begins.push(nth + 1);
            (fresh, plain) = (false, false);
        } else if DOTS.contains(&letter.letter) {
            fresh = true;
        } else if fresh && !is_around(letter.letter) {
            (fresh, plain) = (false, true);
        }
    }
    if plain {
        until(letters.len(), &begins, &mut parts);
    }
    parts
}

fn is_sign(run: &str, letter: &Letter) -> bool {
    let written = &run[letter.from..letter.to];
    let c = escape(written).map(|(c, _)| c).or_else(|| written.chars().next());
    c.is_some_and(|c| !is_letter(c) && !is_part(c))
}

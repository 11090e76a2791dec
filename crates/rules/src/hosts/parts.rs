//! Finds hosts with symbols in their names inside of a run with further symbols, such as `👉i❤.ws`.

use std::ops::Range;

use super::{
    DOTS, Host, Letter, build_host, decode_escape, decode_letters, is_inner, is_letter, is_part,
    may_have_dots,
};

/// Maximum number of symbols in a name next to other symbols.
const MAX_SIGNS: usize = 8;

/// Adds the hosts between symbols of a run. A host that begins or ends with the run itself counts only if the text around
/// the run permits it.
pub(super) fn add_parts(run: &str, start: usize, begins: bool, ends: bool, hosts: &mut Vec<Host<'_>>) {
    if !may_have_dots(run) {
        return;
    }
    let letters = decode_letters(run);
    for part in find_parts(run, &letters) {
        let is_whole = part.start == 0 && part.end == letters.len();
        if !is_whole && (begins || part.start > 0) && (ends || part.end < letters.len()) {
            hosts.extend(build_host(&letters[part], start, false));
        }
    }
}

/// Ranges that begin with the run or after a symbol, and end with the run or before a symbol. No top-level domain has a
/// symbol, so the last label of a range has none.
fn find_parts(run: &str, letters: &[Letter]) -> Vec<Range<usize>> {
    let (mut parts, mut begins) = (Vec::new(), vec![0]);
    // `fresh`: a label begins. `plain`: the last label has no symbol.
    let (mut fresh, mut plain) = (true, false);
    let add_ranges_to = |end: usize, begins: &[usize], parts: &mut Vec<_>| {
        // The number of begins is bounded. Otherwise the ranges would grow with the square of the symbols.
        let recent_begins = begins.len().saturating_sub(MAX_SIGNS + 1)..begins.len() - 1;
        parts.extend(begins[recent_begins].iter().map(|begin| *begin..end));
    };
    for (nth, letter) in letters.iter().enumerate() {
        if is_sign(run, letter) {
            if plain {
                add_ranges_to(nth, &begins, &mut parts);
            }
            // A symbol can be mapped to several characters; a part begins after the last of them.
            if nth > 0 && letters[nth - 1].from == letter.from {
                begins.pop();
            }
            begins.push(nth + 1);
            (fresh, plain) = (false, false);
        } else if DOTS.contains(&letter.letter) {
            fresh = true;
        } else if fresh && !is_inner(letter.letter) {
            (fresh, plain) = (false, true);
        }
    }
    if plain {
        add_ranges_to(letters.len(), &begins, &mut parts);
    }
    parts
}

fn is_sign(run: &str, letter: &Letter) -> bool {
    let source = &run[letter.from..letter.to];
    let c = decode_escape(source).map(|(c, _)| c).or_else(|| source.chars().next());
    c.is_some_and(|c| !is_letter(c) && !is_part(c))
}

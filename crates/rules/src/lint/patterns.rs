//! Patterns that no text can match, such as `a^b`.
//!
//! It sees classes without members, and places in a text that cannot be where they are asked for.

use regex_syntax::hir::{Hir, HirKind, Look};

/// Whether it is certain that nothing matches; a pattern that is none may match.
pub(super) fn never(pattern: &str) -> bool {
    regex_syntax::Parser::new().parse(pattern).is_ok_and(|hir| fails(&hir))
}

fn fails(hir: &Hir) -> bool {
    match hir.kind() {
        // It has no shortest match if it has no members.
        HirKind::Class(_) => hir.properties().minimum_len().is_none(),
        HirKind::Capture(capture) => fails(&capture.sub),
        HirKind::Repetition(repetition) => repetition.min > 0 && fails(&repetition.sub),
        HirKind::Alternation(parts) => parts.iter().all(fails),
        HirKind::Concat(parts) => {
            let length = |part: &Hir| part.properties().minimum_len().unwrap_or_default();
            let letters = |parts: &[Hir]| parts.iter().any(|part| length(part) > 0);
            parts.iter().any(fails)
                || parts.iter().enumerate().any(|(nth, part)| {
                    let needs = part.properties();
                    needs.look_set_prefix().contains(Look::Start) && letters(&parts[..nth])
                        || needs.look_set_suffix().contains(Look::End) && letters(&parts[nth + 1..])
                })
        }
        HirKind::Empty | HirKind::Literal(_) | HirKind::Look(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_that_nothing_can_match_is_seen() {
        for pattern in
            ["a^b", r"a\Ab", "a$b", r"a\zb", "[a&&b]", "x(^y|^z)", "(a|b)+^", "($)[0-9]", "(a^b|c$d)"]
        {
            assert!(never(pattern), "{pattern}");
        }
        for pattern in
            ["^ab$", "(?m)a\n^b", "a*^b", "x?$y?", "(^a|b)c", "b(^a|c)", "([a&&b])?", r"\bx\b", "("]
        {
            assert!(!never(pattern), "{pattern}");
        }
    }
}

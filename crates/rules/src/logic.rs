//! Logic of condition trees over the outcomes passed, failed, inapplicable and errored.

use tidegate_schemas::ids::RuleId;

tidegate_schemas::string_enum! {
    /// Result of a condition.
    pub enum ConditionResult {
        Passed = "passed",
        Failed = "failed",
        /// The item has no value to compare.
        Inapplicable = "inapplicable",
        Errored = "errored",
        /// Not evaluated, because it could not change the outcome.
        Skipped = "skipped",
    }
}

/// A condition tree over numbered leaves, numbered in document order.
#[derive(Debug)]
pub(crate) enum Node {
    All(Vec<Node>),
    Any(Vec<Node>),
    Not(Box<Node>),
    Leaf(usize),
}

/// Node that stands for the condition of another rule. Only explanations show it; evaluation uses the parts of that
/// condition directly.
#[derive(Debug)]
pub(crate) struct RuleUse {
    /// Number of the node in preorder.
    pub(crate) node: usize,
    pub(crate) rule: RuleId,
}

/// Set of outcomes that are still possible: one if decided, several while a fact is pending, none if skipped. Bits are in
/// the order of precedence in `all`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mask(u8);

impl Mask {
    pub(crate) const SKIPPED: Self = Self(0);
    pub(crate) const FAILED: Self = Self(1);
    pub(crate) const ERRORED: Self = Self(2);
    pub(crate) const INAPPLICABLE: Self = Self(4);
    pub(crate) const PASSED: Self = Self(8);
    /// Depends on a fact that always exists: passed, failed, or errored if the look-up fails.
    pub(crate) const PENDING: Self = Self(1 | 2 | 8);
    /// Depends on a fact that may not exist, and is inapplicable then.
    pub(crate) const OPEN: Self = Self(1 | 2 | 4 | 8);

    pub(crate) fn from_bool(passed: bool) -> Self {
        if passed { Self::PASSED } else { Self::FAILED }
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// True while the outcome depends on a fact.
    pub(crate) fn is_pending(self) -> bool {
        self.0.count_ones() > 1
    }

    pub(crate) fn may_pass(self) -> bool {
        self.0 & Self::PASSED.0 != 0
    }

    /// `all`: failed, else errored, else inapplicable, else passed.
    pub(crate) fn and(self, other: Self) -> Self {
        let mut result = 0;
        for bit in [1, 2, 4, 8] {
            // An outcome is possible if one side can have it while the other side has the same or one of lower precedence.
            let at_least = !(bit - 1);
            let from_self = self.0 & bit != 0 && other.0 & at_least != 0;
            let from_other = other.0 & bit != 0 && self.0 & at_least != 0;
            if from_self || from_other {
                result |= bit;
            }
        }
        Self(result)
    }

    /// `any`: passed, else errored, else inapplicable, else failed. That is `all` with passed and failed swapped.
    pub(crate) fn or(self, other: Self) -> Self {
        self.not().and(other.not()).not()
    }

    /// Swaps passed and failed only.
    pub(crate) fn not(self) -> Self {
        Self(self.0 & 0b0110 | (self.0 & 1) << 3 | (self.0 & 8) >> 3)
    }

    /// Result for explanations. An undecided leaf counts as skipped; a finished evaluation has none.
    pub(crate) fn result(self) -> ConditionResult {
        match self {
            Self::PASSED => ConditionResult::Passed,
            Self::FAILED => ConditionResult::Failed,
            Self::ERRORED => ConditionResult::Errored,
            Self::INAPPLICABLE => ConditionResult::Inapplicable,
            _ => ConditionResult::Skipped,
        }
    }
}

/// Evaluates a tree in document order, and stops at the leaf that decides it.
pub(crate) fn decide<E>(node: &Node, leaf: &mut impl FnMut(usize) -> Result<Mask, E>) -> Result<Mask, E> {
    match node {
        Node::Leaf(nth) => leaf(*nth),
        Node::Not(inner) => decide(inner, leaf).map(Mask::not),
        Node::All(inner) => {
            let mut mask = Mask::PASSED;
            for node in inner {
                mask = mask.and(decide(node, leaf)?);
                if mask == Mask::FAILED {
                    break;
                }
            }
            Ok(mask)
        }
        Node::Any(inner) => {
            let mut mask = Mask::FAILED;
            for node in inner {
                mask = mask.or(decide(node, leaf)?);
                if mask == Mask::PASSED {
                    break;
                }
            }
            Ok(mask)
        }
    }
}

/// Evaluates a tree as far as its leaves are known, and collects the pending leaves that can still change its outcome, in
/// document order. Leaves of decided parts are left out.
pub(crate) fn collect_undecided(
    node: &Node,
    leaf: &impl Fn(usize) -> Mask,
    pending: &mut Vec<usize>,
) -> Mask {
    let outer_count = pending.len();
    let mask = match node {
        Node::Leaf(nth) => {
            let mask = leaf(*nth);
            if mask.is_pending() {
                pending.push(*nth);
            }
            mask
        }
        Node::Not(inner) => collect_undecided(inner, leaf, pending).not(),
        // Stops where `decide` stops: that walk never evaluated the leaves behind, so their masks are empty.
        Node::All(inner) => {
            let mut mask = Mask::PASSED;
            for node in inner {
                mask = mask.and(collect_undecided(node, leaf, pending));
                if mask == Mask::FAILED {
                    break;
                }
            }
            mask
        }
        Node::Any(inner) => {
            let mut mask = Mask::FAILED;
            for node in inner {
                mask = mask.or(collect_undecided(node, leaf, pending));
                if mask == Mask::PASSED {
                    break;
                }
            }
            mask
        }
    };
    if !mask.is_pending() {
        // The part is decided, so its pending leaves cannot change the outcome of the tree.
        pending.truncate(outer_count);
    }
    mask
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::OutOfSteps;

    const F: Mask = Mask::FAILED;
    const E: Mask = Mask::ERRORED;
    const I: Mask = Mask::INAPPLICABLE;
    const P: Mask = Mask::PASSED;

    #[test]
    fn all_is_failed_else_errored_else_inapplicable_else_passed() {
        let table = [
            (F, [(F, F), (E, F), (I, F), (P, F)]),
            (E, [(F, F), (E, E), (I, E), (P, E)]),
            (I, [(F, F), (E, E), (I, I), (P, I)]),
            (P, [(F, F), (E, E), (I, I), (P, P)]),
        ];
        for (left, row) in table {
            for (right, expected) in row {
                assert_eq!(left.and(right), expected, "{left:?} and {right:?}");
            }
        }
    }

    #[test]
    fn any_is_passed_else_errored_else_inapplicable_else_failed() {
        let table = [
            (F, [(F, F), (E, E), (I, I), (P, P)]),
            (E, [(F, E), (E, E), (I, E), (P, P)]),
            (I, [(F, I), (E, E), (I, I), (P, P)]),
            (P, [(F, P), (E, P), (I, P), (P, P)]),
        ];
        for (left, row) in table {
            for (right, expected) in row {
                assert_eq!(left.or(right), expected, "{left:?} or {right:?}");
            }
        }
    }

    #[test]
    fn not_swaps_passed_and_failed_only() {
        assert_eq!([F, E, I, P].map(Mask::not), [P, E, I, F]);
    }

    #[test]
    fn possible_results_are_those_of_all_assignments() {
        let single = |mask: Mask| [F, E, I, P].into_iter().filter(move |one| mask.0 & one.0 != 0);
        for left in (1..16).map(Mask) {
            for right in (1..16).map(Mask) {
                let pairs = || single(left).flat_map(|a| single(right).map(move |b| (a, b)));
                let and = pairs().fold(0, |mask, (a, b)| mask | a.and(b).0);
                let or = pairs().fold(0, |mask, (a, b)| mask | a.or(b).0);
                assert_eq!((left.and(right), left.or(right)), (Mask(and), Mask(or)), "{left:?} {right:?}");
            }
        }
    }

    #[test]
    fn only_pending_leaves_that_matter_are_gathered() {
        let tree = Node::Any(vec![
            Node::All(vec![Node::Leaf(0), Node::Leaf(1)]),
            Node::All(vec![Node::Leaf(2), Node::Not(Box::new(Node::Leaf(3)))]),
        ]);
        let gathered = |masks: [Mask; 4]| {
            let mut pending = Vec::new();
            let mask = collect_undecided(&tree, &|nth| masks[nth], &mut pending);
            (mask.is_pending(), pending)
        };
        let open = Mask::OPEN;
        assert_eq!(gathered([open, P, open, open]), (true, vec![0, 2, 3]));
        assert_eq!(gathered([open, F, open, F]), (true, vec![2]), "the first part is decided");
        assert_eq!(gathered([P, P, open, open]), (false, vec![]), "the whole is decided");
        let not_looked_at = Mask::SKIPPED;
        assert_eq!(gathered([F, not_looked_at, open, F]), (true, vec![2]));
    }

    #[test]
    fn condition_tree_stops_at_the_deciding_part() {
        let tree = |any: bool| {
            let leaves = (0..3).map(Node::Leaf).collect();
            if any { Node::Any(leaves) } else { Node::All(leaves) }
        };
        for code in 0..64_usize {
            let leaf = |nth: usize| [F, E, I, P][code / [1, 4, 16][nth] % 4];
            for any in [false, true] {
                let mut seen = 0;
                let decided = decide(&tree(any), &mut |nth| {
                    seen = nth + 1;
                    Ok::<_, OutOfSteps>(leaf(nth))
                });
                let fold = |a: Mask, b: Mask| if any { a.or(b) } else { a.and(b) };
                assert_eq!(decided, Ok(fold(fold(leaf(0), leaf(1)), leaf(2))));
                let deciding = if any { P } else { F };
                let first = (0..3).find(|nth| leaf(*nth) == deciding);
                assert_eq!(seen, first.map_or(3, |nth| nth + 1));
            }
        }
    }
}

//! Decides which counts of a table are too small to show, and which others must be hidden with them.
//!
//! The assumed reader knows the table's total from elsewhere, and knows this procedure.

use crate::form::Answer;

/// Counts by answer.
pub(crate) type Counts = [u64; Answer::ALL.len()];

/// Counts of a table that may be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    /// Too few people answered, whatever they answered.
    Nothing,
    /// The flags say which cells are hidden.
    All { hidden: Hidden },
}

pub(crate) type Hidden = [bool; Answer::ALL.len()];

/// Hides every count from 1 to k - 1, and the smallest other ones until the hidden counts are neither a single one
/// nor of fewer than k people. If they could be found out even so, all counts are hidden. A table is left out by its
/// total alone, so that its absence reveals nothing else.
///
/// With more people than `answers` to choose from, hiding all counts always works: a table of ones except for a
/// single count is hidden whole, too, whichever answer that count is of. With as many people as answers it may be
/// nothing but ones.
pub(crate) fn suppress(counts: &Counts, k: u64, answers: u64) -> Shown {
    let total = counts.iter().sum::<u64>();
    if total <= answers {
        return Shown::Nothing;
    }
    match first_choice(counts, k) {
        None => Shown::Nothing,
        Some(hidden) if !hidden.contains(&true) || ambiguous(counts, hidden, k) => Shown::All { hidden },
        Some(_) => Shown::All { hidden: counts.map(|count| count > 0) },
    }
}

/// The fewest answers of a table that is not left out.
pub(crate) fn least(k: u64, answers: u64) -> u64 {
    k.max(answers + 1)
}

/// Like [`suppress`], for a table with counts that its source hides. What the total leaves for them is unknown here,
/// so everything is hidden with them, and there has to be something to hide.
pub(crate) fn suppress_with(counts: &Counts, unknown: Hidden, k: u64, answers: u64) -> Shown {
    let shown = suppress(counts, k, answers);
    if !unknown.contains(&true) || shown == Shown::Nothing {
        return shown;
    }
    let mut hidden = unknown;
    hidden.iter_mut().zip(counts).for_each(|(hidden, count)| *hidden |= *count > 0);
    if hidden.iter().filter(|hidden| **hidden).count() < 2 { Shown::Nothing } else { Shown::All { hidden } }
}

/// Returns the number of participants, or `None` if showing it would reveal something: nobody may learn that fewer
/// than k people have not answered a table, or none of the shown ones. `tables` has each table's total and the part
/// that is shown. People outside all tables have answered what is left out, which holds at most `unseen` answers; if
/// nearly all of those must be there, each total would be known, with one answer missing still to whoever has given
/// two.
pub(crate) fn tell(all: u64, tables: &[(u64, u64)], unseen: u64, k: u64) -> Option<u64> {
    let sums = tables.iter().fold((0, 0), |sums, table| (sums.0 + table.0, sums.1 + table.1));
    let tells = |part: u64| (1..k).contains(&all.saturating_sub(part));
    let tells = tables.iter().chain([&sums]).any(|(total, shown)| tells(*total) || tells(*shown));
    let rest = all.saturating_sub(sums.0);
    let fills = rest > 0 && rest + 1 >= unseen;
    (!tells && !fills).then_some(all)
}

fn first_choice(counts: &Counts, k: u64) -> Option<Hidden> {
    if counts.iter().sum::<u64>() < k {
        return None;
    }
    let mut hidden = counts.map(|count| (1..k).contains(&count));
    let some = hidden.contains(&true);
    while some && gives_itself_away(counts, hidden, k) {
        let others = (0..counts.len()).filter(|at| !hidden[*at] && counts[*at] > 0);
        hidden[others.min_by_key(|at| counts[*at])?] = true;
    }
    Some(hidden)
}

/// True if every hidden count, and every sum of hidden counts below k, could have another value for a reader who
/// knows the total and this procedure. Depends only on what is shown, so that tables that look alike are treated
/// alike.
fn ambiguous(counts: &Counts, hidden: Hidden, k: u64) -> bool {
    let cells: Vec<_> = (0..counts.len()).filter(|at| hidden[*at]).collect();
    let sum = cells.iter().map(|at| counts[*at]).sum();
    let mut search = Search { k, hidden, cells: &cells, table: *counts, seen: [None; SUMS], certain: true };
    // All are small but one at most: there is never more than one that only covers the others.
    (0..=cells.len()).any(|large| search.fill(0, large, sum))
}

struct Search<'s> {
    k: u64,
    hidden: Hidden,
    cells: &'s [usize],
    table: Counts,
    /// Sum of each choice of hidden cells (as a bit set), as long as it was always the same.
    seen: [Option<u64>; SUMS],
    /// Something that must not be is certain so far.
    certain: bool,
}

const SUMS: usize = 1 << Answer::ALL.len();

impl Search<'_> {
    /// Tries what the cells from `at` on could be, `left` in all; true as soon as nothing is certain any more.
    fn fill(&mut self, at: usize, large: usize, left: u64) -> bool {
        if at == self.cells.len() {
            if left == 0 && first_choice(&self.table, self.k) == Some(self.hidden) {
                self.note();
            }
            return !self.certain;
        }
        let cell = self.cells[at];
        let last = at + 1 == self.cells.len();
        if at == large {
            // What the small ones leave over; they come first or are tried one by one below.
            let small = (self.cells.len() - at - 1) as u64;
            let least = left.saturating_sub(small * (self.k - 1)).max(self.k);
            return (least..=left.saturating_sub(small)).any(|value| {
                self.table[cell] = value;
                self.fill(at + 1, large, left - value)
            });
        }
        let range = if last { left..=left } else { 1..=left.min(self.k - 1) };
        let most = self.k;
        range.filter(|value| (1..most).contains(value)).any(|value| {
            self.table[cell] = value;
            self.fill(at + 1, large, left - value)
        })
    }

    fn note(&mut self) {
        self.certain = false;
        for choice in 1..1_usize << self.cells.len() {
            let chosen = self.cells.iter().enumerate().filter(|(bit, _)| choice >> bit & 1 == 1);
            let sum = chosen.map(|(_, cell)| self.table[*cell]).sum();
            let seen = &mut self.seen[choice];
            match *seen {
                None => *seen = Some(sum),
                Some(before) if before != sum => *seen = Some(UNCERTAIN),
                Some(_) => {}
            }
            self.certain |= *seen != Some(UNCERTAIN) && (sum < self.k || choice.is_power_of_two());
        }
    }
}

/// No sum: hidden counts are at least 1. Once noted it stays, for no sum equals it.
const UNCERTAIN: u64 = 0;

/// One hidden count is the total less the others, and so is the sum of all; counts that add up to how many they are, are
/// all ones.
fn gives_itself_away(counts: &Counts, hidden: Hidden, k: u64) -> bool {
    let cells = hidden.iter().filter(|hidden| **hidden).count() as u64;
    let sum: u64 = counts.iter().zip(hidden).filter(|(_, hidden)| *hidden).map(|(count, _)| count).sum();
    cells == 1 || sum == cells || sum < k
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    fn counts(cells: &[u64]) -> Counts {
        let mut counts = Counts::default();
        counts[..cells.len()].copy_from_slice(cells);
        counts
    }

    /// All a reader can see, with the total that they are taken to know.
    type Seen = (u64, Vec<Option<u64>>);

    fn seen(table: &Counts, k: u64, answers: u64) -> Option<Seen> {
        let Shown::All { hidden } = suppress(table, k, answers) else { return None };
        let cells = table.iter().zip(hidden).map(|(count, hidden)| (!hidden).then_some(*count)).collect();
        Some((table.iter().sum(), cells))
    }

    /// Every table of three or four cells with this total.
    fn tables(total: u64, answers: u64) -> impl Iterator<Item = Counts> {
        let fourth = move |rest| if answers == 3 { 0..=0 } else { 0..=rest };
        (0..=total).flat_map(move |a| {
            (0..=total - a)
                .flat_map(move |b| fourth(total - a - b).map(move |d| counts(&[a, b, total - a - b - d, d])))
        })
    }

    #[test]
    fn hidden_counts_cannot_be_found_by_subtraction() {
        for (answers, most) in [(3, 48), (4, 22)] {
            for (k, total) in (3..=6).flat_map(|k| (0..=most).map(move |total| (k, total))) {
                let mut alike: BTreeMap<Seen, Vec<Counts>> = BTreeMap::new();
                let mut left_out = Vec::new();
                for table in tables(total, answers) {
                    match seen(&table, k, answers) {
                        Some(seen) => alike.entry(seen).or_default().push(table),
                        None => left_out.push(table),
                    }
                }
                assert!(left_out.is_empty() || alike.is_empty(), "k {k} total {total}: {left_out:?}");
                assert!(left_out.is_empty() || total <= answers.max(k - 1), "k {k} total {total}");
                alike.into_iter().for_each(|((_, cells), tables)| hidden_ones_stay_so(&cells, &tables, k));
            }
        }
    }

    fn hidden_ones_stay_so(cells: &[Option<u64>], tables: &[Counts], k: u64) {
        assert!(cells.iter().flatten().all(|shown| *shown == 0 || *shown >= k), "{tables:?} k {k}");
        let hidden: Vec<_> = (0..cells.len()).filter(|at| cells[*at].is_none()).collect();
        for choice in 1..1_usize << hidden.len() {
            let sum = |table: &Counts| -> u64 {
                let chosen = hidden.iter().enumerate().filter(|(bit, _)| choice >> bit & 1 == 1);
                chosen.map(|(_, at)| table[*at]).sum()
            };
            let possible: BTreeSet<_> = tables.iter().map(sum).collect();
            let together = !choice.is_power_of_two() && possible.iter().all(|sum| *sum >= k);
            assert!(possible.len() > 1 || together, "{tables:?} k {k} cells {choice:b} of {hidden:?}");
        }
    }

    #[test]
    fn what_would_be_the_only_one_to_be_left_out_is_hidden_whole() {
        for table in [[5, 4, 4], [5, 5, 4], [6, 6, 4], [11, 11, 4]] {
            let hidden = [true, true, true, false, false, false];
            assert_eq!(suppress(&counts(&table), 5, 3), Shown::All { hidden }, "{table:?}");
        }
        // Three people and three answers: each may have given another one, and then hiding would hide nothing.
        assert_eq!(suppress(&counts(&[3]), 3, 3), Shown::Nothing);
    }

    /// Number of answers to an item, and the part of it that is shown.
    type Table = (u64, u64);

    /// And how many with answers are left out.
    fn tables_of(answers: &[Vec<Option<usize>>], k: u64) -> (u64, Vec<Table>, u64) {
        let mut counted: Vec<Counts> = vec![Counts::default(); answers.first().map_or(0, Vec::len)];
        for (item, answer) in answers.iter().flat_map(|own| own.iter().enumerate()) {
            answer.iter().for_each(|answer| counted[item][*answer] += 1);
        }
        let people = answers.iter().filter(|own| own.iter().any(Option::is_some)).count() as u64;
        let of = |counts: &Counts| match suppress(counts, k, 3) {
            Shown::Nothing => None,
            Shown::All { hidden } => {
                let shown =
                    counts.iter().zip(hidden).filter(|(_, hidden)| !hidden).map(|(count, _)| count).sum();
                Some((counts.iter().sum(), shown))
            }
        };
        let tables: Vec<_> = counted.iter().filter_map(of).collect();
        let any = counted.iter().filter(|counts| counts.iter().any(|count| *count > 0)).count();
        (people, tables.clone(), (any - tables.len()) as u64)
    }

    proptest! {
        #[test]
        fn shown_totals_never_differ_by_few_people(
            answers in (1..5_usize).prop_flat_map(|items| prop::collection::vec(
                prop::collection::vec(prop::option::of(0..3_usize), items..=items), 0..24
            )),
            k in 3_u64..7,
        ) {
            let (people, tables, left_out) = tables_of(&answers, k);
            let responses: u64 = tables.iter().map(|(_, shown)| shown).sum();
            if let Some(told) = tell(people, &tables, left_out * (least(k, 3) - 1), k) {
                let totals = tables.iter().flat_map(|(total, shown)| [*total, *shown]);
                for other in totals.chain([responses, tables.iter().map(|(total, _)| total).sum()]) {
                    let rest = told.saturating_sub(other);
                    prop_assert!(rest == 0 || rest >= k, "{told} people, {other} in {tables:?}");
                }
            }
            for (total, shown) in &tables {
                prop_assert!(total == shown || total - shown >= k);
                prop_assert!(responses == *shown || responses - shown >= k || *shown == 0);
            }
        }
    }

    #[test]
    fn a_number_of_people_that_is_not_told_may_be_several() {
        for k in 3..7 {
            let least = least(k, 3);
            let ones = (least..16).map(|one| vec![one]);
            let twos = (least..16).flat_map(|one| (least..=one).map(move |two| vec![one, two]));
            for (totals, left_out) in
                ones.chain(twos).flat_map(|totals| (0..4).map(move |out| (totals.clone(), out)))
            {
                let tables: Vec<_> = totals.iter().map(|total| (*total, *total)).collect();
                let sum: u64 = totals.iter().sum();
                // Fewer have answered what is left out, and nobody has answered nothing.
                let unseen = left_out * (least - 1);
                let (told, hidden): (Vec<u64>, Vec<u64>) = (totals[0]..=sum + unseen)
                    .partition(|people| tell(*people, &tables, unseen, k).is_some());
                assert!(hidden.len() != 1, "k {k} {totals:?} {left_out}: {hidden:?}");
                for rest in told.iter().filter_map(|people| people.checked_sub(sum)).filter(|rest| *rest > 0)
                {
                    // The others of what is left out hold this many at most. One answer may be known to be a second one.
                    let others = (left_out - 1) * (least - 1);
                    let possible = (rest + 1).saturating_sub(others).max(1)..least;
                    assert!(possible.count() > 1, "k {k} {totals:?} {left_out}: {rest}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn nothing_below_k_is_ever_shown(cells in prop::collection::vec(0_u64..40, 6), k in 3_u64..12) {
            let table = counts(&cells);
            match suppress(&table, k, 6) {
                Shown::Nothing => {}
                Shown::All { hidden } => {
                    prop_assert!(cells.iter().sum::<u64>() >= k);
                    for (count, hidden) in table.iter().zip(hidden) {
                        prop_assert!(hidden || *count == 0 || *count >= k);
                        prop_assert!(!hidden || *count > 0);
                    }
                    prop_assert!(hidden.iter().filter(|hidden| **hidden).count() != 1);
                    let together: u64 = cells.iter().zip(hidden).filter(|(_, hidden)| *hidden).map(|it| it.0).sum();
                    prop_assert!(together == 0 || together >= k);
                }
            }
        }
    }

    #[test]
    fn large_tables_are_shown_whole() {
        assert_eq!(suppress(&counts(&[9, 0, 5]), 5, 3), Shown::All { hidden: Default::default() });
        assert_eq!(suppress(&counts(&[2, 2]), 5, 3), Shown::Nothing);
        // Without the third, three people would be known to have said one of two things.
        let hidden = [true, true, true, false, false, false];
        assert_eq!(suppress(&counts(&[1, 2, 20]), 5, 3), Shown::All { hidden });
    }
}

//! Suppresses small counts of a table, and further counts from which the small ones could be deduced.
//!
//! Threat model: the reader knows the table's total from another source, and knows this procedure.

use crate::form::Answer;

/// Counts by answer.
pub(crate) type Counts = [u64; Answer::ALL.len()];

/// Disclosure decision for a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disclosure {
    /// The whole table is omitted: too few people answered.
    Withheld,
    /// Cells with a flag are hidden, the others disclosed.
    Table { hidden: HiddenCells },
}

pub(crate) type HiddenCells = [bool; Answer::ALL.len()];

/// Hides every count from 1 to k - 1. If the hidden counts are a single one or belong to fewer than k people, also
/// hides the smallest other counts. If the hidden counts can be deduced nevertheless, hides all counts. A table is
/// omitted depending on its total only, so its absence does not reveal its counts.
///
/// Hiding all counts is safe if more people answered than there are `answers`: the table could be all ones except
/// for any one cell. With as many people as answers, it could only be all ones, so such a table is omitted.
pub(crate) fn suppress(counts: &Counts, k: u64, answers: u64) -> Disclosure {
    let total = counts.iter().sum::<u64>();
    // Every answer could have one person at most, so even a fully hidden table would be deducible.
    if total <= answers {
        return Disclosure::Withheld;
    }
    match choose_hidden_cells(counts, k) {
        None => Disclosure::Withheld,
        // Either no cell needs hiding, or the hidden ones cannot be deduced.
        Some(hidden) if !hidden.contains(&true) || is_ambiguous(counts, hidden, k) => {
            Disclosure::Table { hidden }
        }
        Some(_) => Disclosure::Table { hidden: counts.map(|count| count > 0) },
    }
}

/// Smallest total of a table that is disclosed.
pub(crate) fn min_total(k: u64, answers: u64) -> u64 {
    k.max(answers + 1)
}

/// Variant of [`suppress`] for a table with counts hidden by its source. Their share of the total is unknown here, so
/// all nonzero counts are hidden with them. The table is omitted if fewer than two cells are hidden then.
pub(crate) fn suppress_with(counts: &Counts, unknown: HiddenCells, k: u64, answers: u64) -> Disclosure {
    let disclosure = suppress(counts, k, answers);
    if !unknown.contains(&true) || disclosure == Disclosure::Withheld {
        return disclosure;
    }
    let mut hidden_cells = unknown;
    hidden_cells.iter_mut().zip(counts).for_each(|(is_hidden, count)| *is_hidden |= *count > 0);
    if hidden_cells.iter().filter(|is_hidden| **is_hidden).count() < 2 {
        Disclosure::Withheld
    } else {
        Disclosure::Table { hidden: hidden_cells }
    }
}

/// Returns the number of participants, or `None` if it must not be disclosed. It must not reveal that fewer than k
/// people have not answered a table, or none of the disclosed ones.
///
/// `tables` holds each table's total and its disclosed part. People outside all tables have answered omitted tables
/// only, which hold at most `unseen` answers. If these people account for all of the answers, the omitted totals
/// would be known. A person who has given two of the answers could conclude so from one less.
pub(crate) fn suppress_participants(
    participants: u64,
    tables: &[(u64, u64)],
    unseen: u64,
    k: u64,
) -> Option<u64> {
    let sums = tables.iter().fold((0, 0), |sums, table| (sums.0 + table.0, sums.1 + table.1));
    let leaves_few = |part: u64| (1..k).contains(&participants.saturating_sub(part));
    let reveals_few =
        tables.iter().chain([&sums]).any(|(total, shown_sum)| leaves_few(*total) || leaves_few(*shown_sum));
    let outside_people = participants.saturating_sub(sums.0);
    // Each outside person needs at least one unseen answer, which bounds the omitted totals from below.
    let bounds_unseen_answers = outside_people > 0 && outside_people + 1 >= unseen;
    (!reveals_few && !bounds_unseen_answers).then_some(participants)
}

/// Lowers the counts of a table to multiples of k, for bundles of one source with overlapping periods: the difference of
/// two lowered counts leaves several possible values for the difference of the true ones. `None` if the table is omitted.
///
/// Counts below k become 0 and look like true zeros, so no count has to be hidden. Given the total, counts could only be
/// deduced if each is one less than a multiple of k. Such a table is omitted if it has a small count, and so are all
/// tables with totals for which it could be the only one.
pub(crate) fn lower_table(counts: &Counts, k: u64, answers: &[Answer]) -> Option<Counts> {
    let total = counts.iter().sum::<u64>();
    let max_hidden_total = answers.len() as u64 * (k - 1);
    let lowered_counts = counts.map(|count| lower_count(count, k));
    let hidden_total = total - lowered_counts.iter().sum::<u64>();
    let has_small_count = answers.iter().any(|answer| lowered_counts[*answer as usize] == 0);
    let is_deducible = hidden_total == max_hidden_total && has_small_count;
    (total > max_hidden_total && !is_deducible).then_some(lowered_counts)
}

/// Lowers a count to a multiple of `step`, which is at least 1.
fn lower_count(count: u64, step: u64) -> u64 {
    count - count % step
}

/// Number of participants for a bundle whose counts are multiples of `step`. Limited to the sum of the published counts:
/// a larger number would confirm answers in omitted tables.
pub(crate) fn lower_participants(participants: u64, shown_sum: u64, step: u64) -> u64 {
    lower_count(participants, step).min(shown_sum)
}

fn choose_hidden_cells(counts: &Counts, k: u64) -> Option<HiddenCells> {
    if counts.iter().sum::<u64>() < k {
        return None;
    }
    let mut hidden_cells = counts.map(|count| (1..k).contains(&count));
    let has_small_counts = hidden_cells.contains(&true);
    // Each step hides the smallest visible count, which loses the least information.
    while has_small_counts && is_deducible(counts, hidden_cells, k) {
        let visible_cells = (0..counts.len()).filter(|at| !hidden_cells[*at] && counts[*at] > 0);
        hidden_cells[visible_cells.min_by_key(|at| counts[*at])?] = true;
    }
    Some(hidden_cells)
}

/// True if every hidden count, and every sum of hidden counts below k, has several possible values for a reader who
/// knows the total and this procedure. Depends on the disclosed cells only, so that tables with equal disclosed cells
/// are treated equally.
fn is_ambiguous(counts: &Counts, hidden_cells: HiddenCells, k: u64) -> bool {
    let cells: Vec<_> = (0..counts.len()).filter(|at| hidden_cells[*at]).collect();
    let sum = cells.iter().map(|at| counts[*at]).sum();
    let mut search = ReconstructionSearch {
        k,
        hidden_cells,
        cells: &cells,
        table: *counts,
        sums: [None; SUMS],
        is_certain: true,
    };
    // At most one hidden cell is large: the procedure hides one large cell to cover small ones, never two.
    (0..=cells.len()).any(|large| search.try_cells(0, large, sum))
}

struct ReconstructionSearch<'s> {
    k: u64,
    hidden_cells: HiddenCells,
    cells: &'s [usize],
    table: Counts,
    /// Sum of each subset of hidden cells (bit set), as long as all solutions agree on it.
    sums: [Option<u64>; SUMS],
    /// True while a sum that must stay secret has a single possible value.
    is_certain: bool,
}

const SUMS: usize = 1 << Answer::ALL.len();

impl ReconstructionSearch<'_> {
    /// Enumerates values of the cells from `at`, which sum to `remaining`. Returns true once no secret is certain.
    fn try_cells(&mut self, at: usize, large_index: usize, remaining: u64) -> bool {
        if at == self.cells.len() {
            // The reader knows the procedure, so only tables with the same hidden cells are possible.
            if remaining == 0 && choose_hidden_cells(&self.table, self.k) == Some(self.hidden_cells) {
                self.record_solution();
            }
            return !self.is_certain;
        }
        let cell = self.cells[at];
        let is_last = at + 1 == self.cells.len();
        if at == large_index {
            // The large cell takes the rest of the sum, less what the small cells after it can hold.
            let small_cells = (self.cells.len() - at - 1) as u64;
            let min_value = remaining.saturating_sub(small_cells * (self.k - 1)).max(self.k);
            return (min_value..=remaining.saturating_sub(small_cells)).any(|value| {
                self.table[cell] = value;
                self.try_cells(at + 1, large_index, remaining - value)
            });
        }
        let range = if is_last { remaining..=remaining } else { 1..=remaining.min(self.k - 1) };
        let limit = self.k;
        range.filter(|value| (1..limit).contains(value)).any(|value| {
            self.table[cell] = value;
            self.try_cells(at + 1, large_index, remaining - value)
        })
    }

    fn record_solution(&mut self) {
        self.is_certain = false;
        for choice in 1..1_usize << self.cells.len() {
            let subset = self.cells.iter().enumerate().filter(|(bit, _)| choice >> bit & 1 == 1);
            let sum = subset.map(|(_, cell)| self.table[*cell]).sum();
            let known_sum = &mut self.sums[choice];
            match *known_sum {
                None => *known_sum = Some(sum),
                Some(before) if before != sum => *known_sum = Some(AMBIGUOUS_SUM),
                Some(_) => {}
            }
            // Secrets are single counts, and sums of fewer than k people.
            self.is_certain |=
                *known_sum != Some(AMBIGUOUS_SUM) && (sum < self.k || choice.is_power_of_two());
        }
    }
}

/// Marks a subset with several possible sums. No real sum is 0, since hidden counts are at least 1.
const AMBIGUOUS_SUM: u64 = 0;

/// True if the hidden cells follow from the total: a single hidden count is the rest of the total, and counts that
/// sum to their own number are all ones. Also true if fewer than k people are behind them.
fn is_deducible(counts: &Counts, hidden_cells: HiddenCells, k: u64) -> bool {
    let cells = hidden_cells.iter().filter(|is_hidden| **is_hidden).count() as u64;
    let sum: u64 =
        counts.iter().zip(hidden_cells).filter(|(_, is_hidden)| *is_hidden).map(|(count, _)| count).sum();
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
    type VisibleTable = (u64, Vec<Option<u64>>);

    fn visible_table(table: &Counts, k: u64, answers: u64) -> Option<VisibleTable> {
        let Disclosure::Table { hidden } = suppress(table, k, answers) else { return None };
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
    fn hidden_counts_cannot_be_deduced() {
        for (answers, most) in [(3, 48), (4, 22)] {
            for (k, total) in (3..=6).flat_map(|k| (0..=most).map(move |total| (k, total))) {
                let mut tables_by_view: BTreeMap<VisibleTable, Vec<Counts>> = BTreeMap::new();
                let mut left_out = Vec::new();
                for table in tables(total, answers) {
                    match visible_table(&table, k, answers) {
                        Some(seen) => tables_by_view.entry(seen).or_default().push(table),
                        None => left_out.push(table),
                    }
                }
                assert!(
                    left_out.is_empty() || tables_by_view.is_empty(),
                    "k {k} total {total}: {left_out:?}"
                );
                assert!(left_out.is_empty() || total <= answers.max(k - 1), "k {k} total {total}");
                tables_by_view
                    .into_iter()
                    .for_each(|((_, cells), tables)| assert_hidden_cells_stay_ambiguous(&cells, &tables, k));
            }
        }
    }

    fn assert_hidden_cells_stay_ambiguous(cells: &[Option<u64>], tables: &[Counts], k: u64) {
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

    /// Answers of a phase with one, two or three possible ones.
    const ANSWERS: [Answer; 3] = [Answer::Agree, Answer::Disagree, Answer::Pass];

    /// Every table with this total and number of possible answers.
    fn tables_of_answers(total: u64, answers: usize) -> impl Iterator<Item = Counts> {
        tables(total, 3).filter(move |table| table[answers..].iter().all(|count| *count == 0))
    }

    #[test]
    fn lowered_counts_cannot_be_deduced_from_the_total() {
        for (k, answers) in (3..=6).flat_map(|k| (1..=3).map(move |answers| (k, answers))) {
            for total in 0..=9 * k {
                let mut tables_by_view: BTreeMap<_, Vec<Counts>> = BTreeMap::new();
                for table in tables_of_answers(total, answers) {
                    let view = lower_table(&table, k, &ANSWERS[..answers]);
                    assert!(view.is_none_or(|counts| counts.iter().any(|count| *count >= k)));
                    tables_by_view.entry(view).or_default().push(table);
                }
                // The whole table sums to the total, which is known. With one answer, the count is known with it.
                for (view, tables) in tables_by_view.into_iter().filter(|_| answers > 1) {
                    for choice in 1..(1_usize << answers) - 1 {
                        let chosen = || (0..answers).filter(move |at| choice >> at & 1 == 1);
                        let possible: BTreeSet<u64> =
                            tables.iter().map(|table| chosen().map(|at| table[at]).sum()).collect();
                        let is_small = possible.iter().any(|sum| (1..k).contains(sum));
                        assert!(
                            possible.len() > 1 || !is_small,
                            "k {k} total {total} {view:?} cells {choice:b}: {possible:?}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn two_recurring_bundles_cannot_be_subtracted() {
        for (k, answers) in (3..=4).flat_map(|k| (1..=3).map(move |answers| (k, answers))) {
            let max_total = answers as u64 * (k - 1) + 2 * k;
            let views: Vec<_> = (0..=max_total)
                .flat_map(|total| tables_of_answers(total, answers))
                .map(|table| (table, lower_table(&table, k, &ANSWERS[..answers])))
                .collect();
            // Possible differences of each sum of cells, as bits, by the views of both bundles.
            let mut differences: BTreeMap<_, [u64; 8]> = BTreeMap::new();
            for (earlier, earlier_view) in &views {
                for (later, later_view) in &views {
                    // The period of the later bundle contains that of the earlier one.
                    if earlier.iter().zip(later).any(|(earlier, later)| earlier > later) {
                        continue;
                    }
                    let possible = differences.entry((earlier_view, later_view)).or_default();
                    for (choice, possible) in possible.iter_mut().enumerate() {
                        let chosen = (0..3).filter(|at| choice >> at & 1 == 1);
                        *possible |= 1 << chosen.map(|at| later[at] - earlier[at]).sum::<u64>();
                    }
                }
            }
            // Tables beyond the largest total could share a view with larger counts.
            let is_complete = |view: &Option<Counts>| {
                view.is_none_or(|counts| counts.iter().sum::<u64>() + answers as u64 * (k - 1) <= max_total)
            };
            for (views, possible) in differences.into_iter().filter(|(views, _)| is_complete(views.1)) {
                for (choice, possible) in possible.into_iter().enumerate().skip(1) {
                    let is_small = possible & ((1 << k) - 2) != 0;
                    assert!(
                        possible.count_ones() > 1 || !is_small,
                        "k {k} {views:?} cells {choice:b}: {possible:b}"
                    );
                }
            }
        }
    }

    #[test]
    fn numbers_of_participants_of_two_recurring_bundles_cannot_be_subtracted() {
        for k in 3..=6 {
            // True number, sum of the published counts.
            let published = |participants, sum| lower_participants(participants, sum, k);
            for (earlier_sum, later_sum) in
                (0..6).flat_map(|sum| (sum..6).map(move |later| (sum * k, later * k)))
            {
                let mut differences: BTreeMap<_, BTreeSet<u64>> = BTreeMap::new();
                for earlier in 0..8 * k {
                    for later in earlier..8 * k {
                        let view = (published(earlier, earlier_sum), published(later, later_sum));
                        differences.entry(view).or_default().insert(later - earlier);
                    }
                }
                for (view, possible) in differences {
                    assert!(possible.len() > 1, "k {k} {view:?}: {possible:?}");
                }
            }
            assert_eq!(published(100 * k, 2 * k), 2 * k);
            assert_eq!(published(2 * k - 1, 100 * k), k);
        }
    }

    #[test]
    fn table_that_would_be_unique_is_hidden_entirely() {
        for table in [[5, 4, 4], [5, 5, 4], [6, 6, 4], [11, 11, 4]] {
            let hidden = [true, true, true, false, false, false];
            assert_eq!(suppress(&counts(&table), 5, 3), Disclosure::Table { hidden }, "{table:?}");
        }
        // Three people and three answers: each may have given another one, and then hiding would hide nothing.
        assert_eq!(suppress(&counts(&[3]), 3, 3), Disclosure::Withheld);
    }

    /// Number of answers to an item, and the part of it that is shown.
    type Table = (u64, u64);

    /// And how many with answers are left out.
    fn tables_of(answers: &[Vec<Option<usize>>], k: u64) -> (u64, Vec<Table>, u64) {
        let mut counts_by_item: Vec<Counts> = vec![Counts::default(); answers.first().map_or(0, Vec::len)];
        for (item, answer) in
            answers.iter().flat_map(|answers_of_person| answers_of_person.iter().enumerate())
        {
            answer.iter().for_each(|answer| counts_by_item[item][*answer] += 1);
        }
        let people =
            answers.iter().filter(|answers_of_person| answers_of_person.iter().any(Option::is_some)).count()
                as u64;
        let of = |counts: &Counts| match suppress(counts, k, 3) {
            Disclosure::Withheld => None,
            Disclosure::Table { hidden } => {
                let shown_sum =
                    counts.iter().zip(hidden).filter(|(_, hidden)| !hidden).map(|(count, _)| count).sum();
                Some((counts.iter().sum(), shown_sum))
            }
        };
        let tables: Vec<_> = counts_by_item.iter().filter_map(of).collect();
        let answered_items =
            counts_by_item.iter().filter(|counts| counts.iter().any(|count| *count > 0)).count();
        (people, tables.clone(), (answered_items - tables.len()) as u64)
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
            if let Some(told) = suppress_participants(people, &tables, left_out * (min_total(k, 3) - 1), k) {
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
    fn hidden_number_of_people_stays_ambiguous() {
        for k in 3..7 {
            let min_total = min_total(k, 3);
            let ones = (min_total..16).map(|one| vec![one]);
            let twos = (min_total..16).flat_map(|one| (min_total..=one).map(move |two| vec![one, two]));
            for (totals, left_out) in
                ones.chain(twos).flat_map(|totals| (0..4).map(move |out| (totals.clone(), out)))
            {
                let tables: Vec<_> = totals.iter().map(|total| (*total, *total)).collect();
                let sum: u64 = totals.iter().sum();
                // Fewer have answered what is left out, and nobody has answered nothing.
                let unseen = left_out * (min_total - 1);
                let (told, hidden): (Vec<u64>, Vec<u64>) = (totals[0]..=sum + unseen)
                    .partition(|people| suppress_participants(*people, &tables, unseen, k).is_some());
                assert!(hidden.len() != 1, "k {k} {totals:?} {left_out}: {hidden:?}");
                for rest in told.iter().filter_map(|people| people.checked_sub(sum)).filter(|rest| *rest > 0)
                {
                    // The others of what is left out hold this many at most. One answer may be known to be a second one.
                    let others = (left_out - 1) * (min_total - 1);
                    let possible = (rest + 1).saturating_sub(others).max(1)..min_total;
                    assert!(possible.count() > 1, "k {k} {totals:?} {left_out}: {rest}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn counts_below_k_are_never_shown(cells in prop::collection::vec(0_u64..40, 6), k in 3_u64..12) {
            let table = counts(&cells);
            match suppress(&table, k, 6) {
                Disclosure::Withheld => {}
                Disclosure::Table { hidden } => {
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
    fn large_counts_are_shown_unless_deducible() {
        assert_eq!(suppress(&counts(&[9, 0, 5]), 5, 3), Disclosure::Table { hidden: Default::default() });
        assert_eq!(suppress(&counts(&[2, 2]), 5, 3), Disclosure::Withheld);
        // Without the third, three people would be known to have said one of two things.
        let hidden = [true, true, true, false, false, false];
        assert_eq!(suppress(&counts(&[1, 2, 20]), 5, 3), Disclosure::Table { hidden });
    }
}

//! Builds responses and outcomes of bundles: from suppressed counts without participants, and from individual
//! answers.
//!
//! Suppression is implemented in `privacy::suppression`.

use std::collections::BTreeSet;

use crate::{
    bundle::write::{
        document::{ItemLine, Outcomes, Summary},
        row_lines::RowFormatter,
    },
    form::{Answer, SOURCE_RESPONSE_COUNTS},
    model::{BundleHeader, SINGLE},
    plural::{format_count, was_or_were},
    privacy::suppression::{
        Disclosure, lower_participants, lower_table, min_total, suppress_participants, suppress_with,
    },
    storage::rows::NO_OBJECT,
    tally::{CountTable, Tally},
};

/// Answers to a pair of items.
const COMPARED: [Answer; 4] = [Answer::Pass, Answer::PreferSubject, Answer::PreferObject, Answer::Equal];

/// Outcomes of a bundle with participants: counts of its answers, published outcomes and group members.
pub(super) fn individual_outcomes<'h>(
    head: &'h BundleHeader,
    tally: &Tally,
    members: &[Vec<String>],
) -> Outcomes<'h> {
    let mut outcomes = Outcomes::new(&head.phases);
    if let Some(questions) = &head.questions {
        for item in &head.items {
            let published_outcomes = item.outcomes.iter();
            published_outcomes
                .for_each(|outcome| outcomes.add_published_outcome(&item.key, &item.id, outcome));
        }
        for (at, question) in questions.iter().enumerate() {
            let (key, id) = (head.question_key(at), &head.question_item(at).id);
            outcomes.add_counts(question.phase, &key, id, tally.question(at), SINGLE, &[]);
        }
        return outcomes;
    }
    for (at, item) in head.items.iter().enumerate() {
        // The tally counts a compared item only as the subject, so its counts would be incomplete.
        if !head.pairwise {
            outcomes.add_counts(0, &item.key, &item.id, tally.question(at), SINGLE, &[]);
        }
        item.outcomes.iter().for_each(|outcome| outcomes.add_published_outcome(&item.key, &item.id, outcome));
        if !head.groups.is_empty() {
            outcomes.add_group_counts(&item.key, &item.id, &head.groups, tally.groups(at), SINGLE);
        }
    }
    if let Some(first) = head.items.first() {
        for (name, members) in head.groups.iter().zip(members) {
            outcomes.add_group_members(name, &first.id, members);
        }
    }
    outcomes
}

/// Counts of a bundle without participants.
#[derive(Debug)]
pub(super) struct PublicCounts {
    tables: Vec<(CountTable, [bool; Answer::ALL.len()])>,
    /// True for each item that appears in the bundle.
    pub(super) shown_items: Vec<bool>,
    items_dropped: u64,
    tables_dropped: u64,
    /// Upper bound of the number of answers in omitted tables.
    max_unseen_answers: u64,
    cells_hidden: u64,
    k: Option<u64>,
    /// Published counts are multiples of this number.
    step: u64,
}

/// Selects the counts to disclose; all of them if there is no `k`.
pub(super) fn select_public_counts(
    tables: &[CountTable],
    head: &BundleHeader,
    k: Option<u64>,
) -> PublicCounts {
    let Some(k) = k else {
        let tables = tables.iter().map(|table| (*table, Default::default())).collect();
        let items = vec![true; head.items.len()];
        return PublicCounts {
            tables,
            shown_items: items,
            items_dropped: 0,
            tables_dropped: 0,
            max_unseen_answers: 0,
            cells_hidden: 0,
            k: None,
            step: 1,
        };
    };
    if head.is_recurring {
        return select_recurring_counts(tables, head, k);
    }
    let mut kept_tables = Vec::new();
    let (mut cells_hidden, mut max_unseen_answers) = (0, 0);
    for table in tables {
        // A comparison has one more possible answer, which raises the smallest total to disclose.
        let answers = if table.object == NO_OBJECT { SINGLE.len() } else { COMPARED.len() } as u64;
        let disclosure = suppress_with(&table.counts, table.unknown.hidden_answers, k, answers);
        if let Disclosure::Table { hidden: hidden_cells } = disclosure {
            cells_hidden += hidden_cells.iter().filter(|is_hidden| **is_hidden).count() as u64;
            kept_tables.push((*table, hidden_cells));
        } else if table.counts.iter().any(|count| *count > 0) {
            // Items without answers, such as rejected ones, may be recognisable, so they add to no bound.
            max_unseen_answers += min_total(k, answers) - 1;
        }
    }
    let mut items = vec![false; head.items.len()];
    for (table, _) in &kept_tables {
        items[table.subject as usize] = true;
        if table.object != NO_OBJECT {
            // Both items of a disclosed pair appear in the bundle.
            items[table.object as usize] = true;
        }
    }
    let items_dropped = items.iter().filter(|is_kept| !**is_kept).count() as u64;
    let tables_dropped = (tables.len() - kept_tables.len()) as u64;
    PublicCounts {
        tables: kept_tables,
        shown_items: items,
        items_dropped,
        tables_dropped,
        max_unseen_answers,
        cells_hidden,
        k: Some(k),
        step: 1,
    }
}

/// Selects and lowers the counts of a source whose bundles may be subtracted from each other.
fn select_recurring_counts(tables: &[CountTable], head: &BundleHeader, k: u64) -> PublicCounts {
    let mut items = vec![true; head.items.len()];
    // Items without a question, such as policies, have no counts to hide.
    for question in head.questions.iter().flatten() {
        items[question.item as usize] = false;
    }
    let mut kept_tables = Vec::new();
    for table in tables {
        let question = head.question(table.subject as usize);
        let answers = head.phases[usize::from(question.phase)].answers;
        if let Some(counts) = lower_table(&table.counts, k, answers) {
            kept_tables.push((CountTable { counts, ..*table }, Default::default()));
            items[question.item as usize] = true;
        }
    }
    PublicCounts {
        tables: kept_tables,
        shown_items: items,
        items_dropped: 0,
        tables_dropped: 0,
        max_unseen_answers: 0,
        cells_hidden: 0,
        k: Some(k),
        step: k,
    }
}

impl PublicCounts {
    /// Number of participants; `None` if it would disclose a property of fewer than `k` of them.
    pub(super) fn participants(&self, all: u64) -> Option<u64> {
        let Some(k) = self.k else { return Some(all) };
        let totals = self.tables.iter().map(|(table, hidden_cells)| {
            let cells = || table.counts.iter().zip(hidden_cells);
            let shown_sum =
                cells().filter(|(_, is_hidden)| !**is_hidden).map(|(count, _)| count).sum::<u64>();
            (table.counts.iter().sum(), shown_sum)
        });
        let totals: Vec<_> = totals.collect();
        if self.step > 1 {
            let shown_sum = totals.iter().map(|(_, shown_sum)| shown_sum).sum();
            return Some(lower_participants(all, shown_sum, self.step));
        }
        // If all answers are hidden, the bundle must not confirm that anyone answered.
        let has_visible_answers = totals.iter().any(|(_, shown_sum)| *shown_sum > 0);
        suppress_participants(all, &totals, self.max_unseen_answers, k)
            .map(|all| if has_visible_answers { all } else { 0 })
    }

    pub(super) fn notes(&self) -> Vec<String> {
        let Some(k) = self.k else { return Vec::new() };
        if self.step > 1 {
            // Without numbers of items: those of two bundles could be subtracted.
            return vec![
                format!("Items without {k} equal answers in a phase are left out."),
                format!(
                    "Counts and the number of participants are lowered to multiples of {k}, so that two bundles \
                        cannot be subtracted from each other: 0 stands for 0 to {}.",
                    k - 1
                ),
                "Single decisions are left out. Times are rounded to days.".to_owned(),
            ];
        }
        let of_pairs = self.tables.iter().any(|(table, _)| table.object != NO_OBJECT);
        let mut notes = vec![
            dropped_note(self.items_dropped, "item", k, of_pairs),
            format!(
                "{} counts from 1 to {} and counts that would reveal them are hidden{}.",
                self.cells_hidden,
                k - 1,
                if of_pairs { "" } else { "; they are named in outcomes" }
            ),
            "Counts of the source and of groups are left out: they would reveal hidden counts.".to_owned(),
            "Times are rounded to days. Coverage refers to the shown counts.".to_owned(),
        ];
        if of_pairs {
            notes.push(dropped_note(self.tables_dropped, "pair", k, of_pairs));
        }
        notes
    }

    fn cells(&self) -> impl Iterator<Item = (&CountTable, Answer, u64)> {
        self.tables.iter().flat_map(|(table, hidden_cells)| {
            Answer::ALL.into_iter().filter_map(move |answer| {
                let (count, is_hidden) = (table.counts[answer as usize], hidden_cells[answer as usize]);
                (count > 0 && !is_hidden).then_some((table, answer, count))
            })
        })
    }

    /// Formats the responses.
    pub(super) fn lines(&self, formatter: &RowFormatter) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (at, (table, answer, count)) in self.cells().enumerate() {
            bytes.extend_from_slice(if at == 0 { b"\n" } else { b",\n" });
            formatter.write_tally(&mut bytes, table.subject, table.object, answer, count);
        }
        bytes
    }

    /// Outcomes of the disclosed counts; with `published`, also those of the source.
    pub(super) fn outcomes<'h>(&self, head: &'h BundleHeader, published: bool) -> Outcomes<'h> {
        let mut outcomes = Outcomes::new(&head.phases);
        for (table, hidden_cells) in self.tables.iter().filter(|(table, _)| table.object == NO_OBJECT) {
            let at = table.subject as usize;
            let (phase, key, item) = (head.question(at).phase, head.question_key(at), head.question_item(at));
            let unknown_counts = &table.unknown;
            let answers =
                SINGLE.iter().copied().filter(|answer| !unknown_counts.absent_answers[*answer as usize]);
            let answers: Vec<_> = answers.collect();
            // Counts hidden by the source are listed as suppressed as well.
            let hidden_cells: Vec<_> = hidden_cells
                .iter()
                .zip(unknown_counts.hidden_answers)
                .map(|(is_hidden, is_unknown)| *is_hidden || is_unknown)
                .collect();
            outcomes.add_counts(phase, &key, &item.id, &table.counts, &answers, &hidden_cells);
        }
        for item in &head.items {
            let other_outcomes = item
                .outcomes
                .iter()
                .filter(|outcome| outcome.is_public || published && outcome.kind != SOURCE_RESPONSE_COUNTS);
            other_outcomes.for_each(|outcome| outcomes.add_published_outcome(&item.key, &item.id, outcome));
        }
        outcomes
    }

    /// Summary of the disclosed counts only: a total over all answers would reveal the hidden ones.
    pub(super) fn summary(
        &self,
        head: &BundleHeader,
        lines: &[ItemLine],
        participants: Option<u64>,
    ) -> Summary {
        let participants = participants.unwrap_or_default();
        // Hidden items do not count: coverage describes the disclosed counts.
        let eligible: BTreeSet<_> = (0..head.items.len())
            .filter(|at| lines[*at].is_published && head.items[*at].is_eligible())
            .collect();
        let (mut responses, mut answered) = (0_u64, 0_u64);
        let mut compared_pairs = BTreeSet::new();
        for (table, _, count) in self.cells() {
            responses += count;
            let subject = head.question(table.subject as usize).item as usize;
            let object = table.object as usize;
            if table.object == NO_OBJECT {
                answered += if eligible.contains(&subject) { count } else { 0 };
            } else if eligible.contains(&subject) && eligible.contains(&object) {
                compared_pairs.insert((subject.min(object), subject.max(object)));
            }
        }
        let eligible = eligible.len() as u64;
        let phase = if head.pairwise {
            crate::form::coverage::Phase::Pairwise { eligible, compared: compared_pairs.len() as u64 }
        } else {
            crate::form::coverage::Phase::Single { participants, eligible, answered }
        };
        let items = lines.iter().filter(|line| line.is_published).count() as u64;
        Summary { participants, items, responses, coverage: crate::form::coverage::of([phase]) }
    }
}

fn dropped_note(dropped: u64, noun: &str, k: u64, of_pairs: bool) -> String {
    let answers = if of_pairs { COMPARED.len() } else { SINGLE.len() };
    let min_answers = min_total(k, answers as u64);
    format!(
        "{} {} left out: fewer than {min_answers} answers.",
        format_count(dropped, noun),
        was_or_were(dropped)
    )
}

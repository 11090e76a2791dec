//! Counts of responses by item, group and pair.

#![allow(clippy::cast_possible_truncation, reason = "a list of items in memory is shorter than 2^32")]

use std::collections::HashSet;

use crate::{
    form::{Answer, coverage},
    model::BundleHeader,
    privacy::suppression::{Counts, HiddenCells},
    storage::rows::{NO_OBJECT, Row},
};

#[derive(Debug)]
pub(crate) struct Tally {
    /// Counts by question: answers to the item alone, and comparisons with the item as subject.
    questions: Vec<Counts>,
    /// Counts by question and group; the first group holds participants without one.
    groups: Vec<Counts>,
    group_count: usize,
    /// Number of distinct participants with an answer, by question.
    participants_by_question: Vec<u64>,
    pairs: Option<PairTables>,
    rows: u64,
}

/// Counts of comparisons. Rows of one ordered pair arrive consecutively.
#[derive(Debug, Default)]
struct PairTables {
    tables: Vec<CountTable>,
    unordered: HashSet<(u32, u32)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CountTable {
    pub(crate) subject: u32,
    pub(crate) object: u32,
    pub(crate) counts: Counts,
    /// Answers with unknown counts: `counts` is a lower bound for them.
    pub(crate) unknown: UnknownCounts,
}

/// Answers of an item or pair with unknown counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct UnknownCounts {
    pub(crate) hidden_answers: HiddenCells,
    /// True for answers that, as far as the source says, were not offered.
    pub(crate) absent_answers: HiddenCells,
}

impl CountTable {
    /// Table with all of its counts known.
    pub(crate) fn new(subject: u32, object: u32, counts: Counts) -> Self {
        Self { subject, object, counts, unknown: UnknownCounts::default() }
    }
}

impl Tally {
    pub(crate) fn new(questions: usize, groups: usize, pairwise: bool) -> Self {
        let group_count = if groups == 0 { 0 } else { groups + 1 };
        Self {
            questions: vec![Counts::default(); questions],
            groups: vec![Counts::default(); questions * group_count],
            group_count,
            participants_by_question: vec![0; questions],
            pairs: pairwise.then(PairTables::default),
            rows: 0,
        }
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::new(self.questions.len(), self.group_count.saturating_sub(1), self.pairs.is_some());
    }

    #[inline]
    pub(crate) fn add(&mut self, row: Row, answer_number: u32) {
        self.rows += 1;
        let (question, answer) = (row.subject as usize, row.answer() as usize);
        self.questions[question][answer] += 1;
        // Event bundles have several rows per participant and item; coverage counts the pair once.
        self.participants_by_question[question] += u64::from(answer_number == 1);
        if self.group_count > 0 {
            self.groups[question * self.group_count + row.group()][answer] += 1;
        }
        if let Some(pairs) = &mut self.pairs {
            pairs.add(row);
        }
    }

    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    pub(crate) fn question(&self, at: usize) -> &Counts {
        &self.questions[at]
    }

    /// Counts of a question by group, without participants outside all groups.
    pub(crate) fn groups(&self, at: usize) -> &[Counts] {
        match self.group_count {
            0 => &[],
            count => &self.groups[at * count + 1..(at + 1) * count],
        }
    }

    /// One count table per question or compared pair.
    pub(crate) fn tables(&self) -> Vec<CountTable> {
        match &self.pairs {
            Some(pairs) => pairs.tables.clone(),
            None => {
                let tables = self.questions.iter().enumerate();
                tables.map(|(at, counts)| CountTable::new(at as u32, NO_OBJECT, *counts)).collect()
            }
        }
    }

    pub(crate) fn coverage(&self, head: &BundleHeader, participants: u64) -> f64 {
        // No participant is expected to answer all moderation claims, so none of them is eligible.
        if head.questions.is_some() {
            return coverage::of([]);
        }
        let items = &head.items;
        let eligible = items.iter().filter(|item| item.is_eligible()).count() as u64;
        let phase = match &self.pairs {
            Some(pairs) => {
                let is_eligible = |at: u32| items[at as usize].is_eligible();
                let compared = pairs
                    .unordered
                    .iter()
                    .filter(|(first, second)| is_eligible(*first) && is_eligible(*second))
                    .count();
                coverage::Phase::Pairwise { eligible, compared: compared as u64 }
            }
            None => {
                let answered = items
                    .iter()
                    .zip(&self.participants_by_question)
                    .filter(|(item, _)| item.is_eligible())
                    .map(|(_, count)| count);
                coverage::Phase::Single { participants, eligible, answered: answered.sum() }
            }
        };
        coverage::of([phase])
    }
}

impl PairTables {
    fn add(&mut self, row: Row) {
        if row.object == NO_OBJECT {
            return;
        }
        let answer = row.answer() as usize;
        match self.tables.last_mut() {
            // Rows are sorted by pair, so only the last table can match.
            Some(last) if last.subject == row.subject && last.object == row.object => {
                last.counts[answer] += 1;
            }
            _ => {
                let mut counts = [0; Answer::ALL.len()];
                counts[answer] = 1;
                self.tables.push(CountTable::new(row.subject, row.object, counts));
                // Coverage counts a pair once, whichever idea was on the left.
                self.unordered.insert((row.subject.min(row.object), row.subject.max(row.object)));
            }
        }
    }
}

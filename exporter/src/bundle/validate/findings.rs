//! Findings of a validation: the total of each rule and its first locations.
//!
//! No more findings are kept than will be listed, nor more than the memory for them holds.

use std::collections::BinaryHeap;

use super::{
    member_names::KnownName,
    rules::{Rule, Severity},
};
use crate::json::Position;

/// A rule that does not hold at a place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Bytes before the place; of a packed file, before it was packed.
    pub offset: u64,
    /// Line number, from 1.
    pub line: u64,
    pub rule: Rule,
    /// JSON Pointer. Names that are neither of the form nor of known words may be data: it ends with their object.
    pub pointer: String,
    /// Beginning of the value at this place, if values were asked for.
    pub value: Option<String>,
}

impl Finding {
    /// Bytes that the finding takes in memory.
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.pointer.capacity() + self.value.as_ref().map_or(0, String::capacity)
    }
}

/// A part of a place's JSON Pointer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Name(&'static str),
    Index(u64),
    /// A name that the form does not know.
    KnownName(KnownName),
    /// Name that may identify somebody: the pointer ends before it.
    Hidden,
}

#[derive(Debug)]
pub(crate) struct Findings {
    totals: Vec<u64>,
    /// First findings of each rule, the last of them on top.
    kept: Vec<BinaryHeap<Finding>>,
    /// Offset of the last kept finding of each rule whose list is full.
    last: Vec<u64>,
    /// Number of findings to list.
    most: usize,
    /// Number of findings to keep of each rule: `most`, or fewer once memory was full.
    most_per_rule: usize,
    /// Bytes of the kept findings, and their bound.
    bytes: usize,
    memory: usize,
    values: bool,
}

/// Characters of a value that are shown.
const SHOWN: usize = 80;

impl Findings {
    pub(crate) fn new(most: usize, values: bool, memory: usize) -> Self {
        let kept = Rule::ALL.iter().map(|_| BinaryHeap::new()).collect();
        let last = if most == 0 { 0 } else { u64::MAX };
        Self {
            totals: vec![0; Rule::ALL.len()],
            kept,
            last: vec![last; Rule::ALL.len()],
            most,
            most_per_rule: most,
            bytes: 0,
            memory,
            values,
        }
    }

    /// Counts a place that would not be kept; false if it would be, and has to be added.
    #[inline]
    pub(crate) fn only_count(&mut self, rule: Rule, at: Position) -> bool {
        let beyond = at.offset >= self.last[rule as usize];
        self.totals[rule as usize] += u64::from(beyond);
        beyond
    }

    #[cold]
    pub(crate) fn add(&mut self, rule: Rule, at: Position, steps: &[Step], value: Option<&[u8]>) {
        if self.only_count(rule, at) {
            return;
        }
        let index = rule as usize;
        self.totals[index] += 1;
        let value = value.filter(|_| self.values).map(excerpt);
        let finding = Finding { offset: at.offset, line: at.line, rule, pointer: pointer(steps), value };
        self.bytes += finding.bytes();
        self.kept[index].push(finding);
        self.trim(index);
        // Halves the longest lists, so that each rule keeps its first places.
        while self.bytes > self.memory
            && let Some(longest) = self.kept.iter().map(BinaryHeap::len).max()
            && longest > 1
        {
            self.most_per_rule = longest / 2;
            (0..self.kept.len()).for_each(|index| self.trim(index));
        }
    }

    /// Drops the last findings of a rule beyond the number to keep.
    fn trim(&mut self, index: usize) {
        let kept = &mut self.kept[index];
        while kept.len() > self.most_per_rule
            && let Some(dropped) = kept.pop()
        {
            self.bytes -= dropped.bytes();
        }
        if kept.len() == self.most_per_rule
            && let Some(last) = kept.peek()
        {
            self.last[index] = last.offset;
        }
    }

    /// The rule turned out not to apply.
    pub(crate) fn forget(&mut self, rule: Rule) {
        self.totals[rule as usize] = 0;
        self.bytes -= self.kept[rule as usize].drain().map(|finding| finding.bytes()).sum::<usize>();
        self.last[rule as usize] = if self.most == 0 { 0 } else { u64::MAX };
    }

    /// The line of the first place where one of the rules does not hold.
    pub(crate) fn first(&self, is_wanted: impl Fn(Rule) -> bool) -> Option<u64> {
        let wanted = self.kept.iter().flatten().filter(|finding| is_wanted(finding.rule));
        wanted.min().map(|finding| finding.line)
    }

    pub(crate) fn into_parts(self) -> (Vec<(Rule, u64)>, Vec<Finding>) {
        let totals = Rule::ALL.iter().map(|rule| (*rule, self.totals[*rule as usize]));
        let mut findings: Vec<Finding> = self.kept.into_iter().flatten().collect();
        findings.sort();
        // What makes a bundle invalid must not be pushed out by what does not.
        let errors = findings.iter().filter(|finding| finding.rule.severity() == Severity::Error).count();
        let mut warnings = self.most.saturating_sub(errors);
        let mut errors = self.most;
        findings.retain(|finding| {
            let left = match finding.rule.severity() {
                Severity::Error => &mut errors,
                Severity::Warning => &mut warnings,
            };
            let keep = *left > 0;
            *left -= usize::from(keep);
            keep
        });
        (totals.filter(|(_, total)| *total > 0).collect(), findings)
    }
}

fn pointer(steps: &[Step]) -> String {
    let mut pointer = String::new();
    for step in steps.iter().take_while(|step| !matches!(step, Step::Hidden)) {
        pointer.push('/');
        match step {
            Step::Name(name) => pointer.push_str(name),
            Step::Index(index) => pointer.push_str(&index.to_string()),
            Step::KnownName(name) => pointer.push_str(name.as_str()),
            Step::Hidden => {}
        }
    }
    pointer
}

fn excerpt(value: &[u8]) -> String {
    let start = &value[..value.len().min(4 * SHOWN)];
    let text = String::from_utf8_lossy(start);
    let shown: String = text.chars().take(SHOWN).flat_map(char::escape_debug).collect();
    if text.chars().count() > SHOWN || start.len() < value.len() { shown + "..." } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(offset: u64) -> Position {
        Position { offset, line: 1 }
    }

    #[test]
    fn first_findings_are_kept_and_all_are_counted() {
        let mut findings = Findings::new(2, true, usize::MAX);
        for offset in [50, 40, 90, 10, 70] {
            findings.add(Rule::Type, at(offset), &[Step::Name("items"), Step::Index(offset)], Some(b"a\nb"));
        }
        findings.add(Rule::PlainRef, at(5), &[], None);
        findings.add(Rule::Uri, at(60), &[], None);
        findings.add(Rule::Again, at(1), &[], None);
        findings.forget(Rule::Again);
        let (totals, findings) = findings.into_parts();
        assert_eq!(totals, [(Rule::Type, 5), (Rule::Uri, 1), (Rule::PlainRef, 1)]);
        let places: Vec<_> = findings.iter().map(|finding| finding.offset).collect();
        assert_eq!(places, [10, 40]);
        assert_eq!(
            (findings[0].pointer.as_str(), findings[0].value.as_deref()),
            ("/items/10", Some("a\\nb"))
        );
    }
    #[test]
    fn full_memory_keeps_the_first_findings_of_each_rule() {
        let mut findings = Findings::new(usize::MAX, false, 8 << 10);
        for offset in (0..10_000).rev() {
            findings.add(Rule::Type, at(offset), &[Step::Name("items"), Step::Index(offset)], None);
        }
        findings.add(Rule::Uri, at(20_000), &[], None);
        assert!(findings.bytes <= 8 << 10, "{} bytes", findings.bytes);
        let (totals, findings) = findings.into_parts();
        assert_eq!(totals, [(Rule::Type, 10_000), (Rule::Uri, 1)]);
        let (uri, types) = findings.split_last().expect("findings are kept");
        assert_eq!(uri.rule, Rule::Uri);
        assert!(types.len() > 20, "{} are kept", types.len());
        assert!(types.iter().zip(0..).all(|(finding, offset)| finding.offset == offset), "the first ones");
    }
}

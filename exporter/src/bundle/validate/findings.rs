//! Collects the findings of a validation: the total of each rule, and its first findings up to a number and a memory
//! limit.

use std::collections::BinaryHeap;

use super::{
    member_names::KnownName,
    rules::{Rule, Severity},
};
use crate::json::Position;

/// Violation of a rule at a position.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Offset of the violation in the unpacked document, in bytes.
    pub offset: u64,
    /// Line number, from 1.
    pub line: u64,
    pub rule: Rule,
    /// JSON Pointer. A member name that neither the form nor a word list contains can be personal data; the pointer
    /// then ends at the object with this member.
    pub pointer: String,
    /// Beginning of the value at the position, if values were requested.
    pub value: Option<String>,
}

impl Finding {
    /// Bytes that the finding takes in memory.
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.pointer.capacity() + self.value.as_ref().map_or(0, String::capacity)
    }
}

/// Step of a JSON Pointer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Name(&'static str),
    Index(u64),
    /// Name that is not in the form, but consists of listed words.
    KnownName(KnownName),
    /// Name that can identify a person. The pointer ends before it.
    Hidden,
}

/// Totals and first findings by rule. Lists are indexed by `Rule as usize`.
#[derive(Debug)]
pub(crate) struct Findings {
    totals: Vec<u64>,
    /// First findings of each rule, with the last of them at the top of the heap.
    findings: Vec<BinaryHeap<Finding>>,
    /// Offset from which on findings of a rule are only counted: that of the last kept finding, if the list is full.
    drop_from_offset: Vec<u64>,
    /// Maximum number of findings to list.
    max_listed: usize,
    /// Maximum number of findings to keep of each rule: `max_listed`, or fewer after the memory was full.
    max_per_rule: usize,
    /// Bytes of the kept findings, and their limit.
    bytes: usize,
    max_bytes: usize,
    with_values: bool,
}

/// Maximum length of a quoted value, in characters.
const MAX_VALUE_CHARS: usize = 80;

impl Findings {
    pub(crate) fn new(max_listed: usize, with_values: bool, max_bytes: usize) -> Self {
        let findings = Rule::ALL.iter().map(|_| BinaryHeap::new()).collect();
        let drop_from_offset = if max_listed == 0 { 0 } else { u64::MAX };
        Self {
            totals: vec![0; Rule::ALL.len()],
            findings,
            drop_from_offset: vec![drop_from_offset; Rule::ALL.len()],
            max_listed,
            max_per_rule: max_listed,
            bytes: 0,
            max_bytes,
            with_values,
        }
    }

    /// Counts a finding that would be dropped. False if it would be kept; the caller then has to `add` it. Saves the
    /// caller the work for a finding that is only counted.
    #[inline]
    pub(crate) fn count_if_dropped(&mut self, rule: Rule, at: Position) -> bool {
        let is_dropped = at.offset >= self.drop_from_offset[rule as usize];
        self.totals[rule as usize] += u64::from(is_dropped);
        is_dropped
    }

    #[cold]
    pub(crate) fn add(&mut self, rule: Rule, at: Position, steps: &[Step], value: Option<&[u8]>) {
        if self.count_if_dropped(rule, at) {
            return;
        }
        let index = rule as usize;
        self.totals[index] += 1;
        let value = value.filter(|_| self.with_values).map(excerpt);
        let finding =
            Finding { offset: at.offset, line: at.line, rule, pointer: format_pointer(steps), value };
        self.bytes += finding.bytes();
        self.findings[index].push(finding);
        self.trim(index);
        // Halves the longest lists when memory is full, so that each rule keeps its first findings.
        while self.bytes > self.max_bytes
            && let Some(longest) = self.findings.iter().map(BinaryHeap::len).max()
            && longest > 1
        {
            self.max_per_rule = longest / 2;
            (0..self.findings.len()).for_each(|index| self.trim(index));
        }
    }

    /// Drops the last findings of a rule beyond the number to keep.
    fn trim(&mut self, index: usize) {
        let findings = &mut self.findings[index];
        while findings.len() > self.max_per_rule
            && let Some(dropped) = findings.pop()
        {
            self.bytes -= dropped.bytes();
        }
        if findings.len() == self.max_per_rule
            && let Some(last) = findings.peek()
        {
            self.drop_from_offset[index] = last.offset;
        }
    }

    /// Removes all findings of a rule that turned out not to apply.
    pub(crate) fn discard(&mut self, rule: Rule) {
        self.totals[rule as usize] = 0;
        self.bytes -= self.findings[rule as usize].drain().map(|finding| finding.bytes()).sum::<usize>();
        self.drop_from_offset[rule as usize] = if self.max_listed == 0 { 0 } else { u64::MAX };
    }

    /// Line of the first violation of a rule for which `is_relevant` is true.
    pub(crate) fn first_line(&self, is_relevant: impl Fn(Rule) -> bool) -> Option<u64> {
        let relevant_findings = self.findings.iter().flatten().filter(|finding| is_relevant(finding.rule));
        relevant_findings.min().map(|finding| finding.line)
    }

    pub(crate) fn into_parts(self) -> (Vec<(Rule, u64)>, Vec<Finding>) {
        let totals = Rule::ALL.iter().map(|rule| (*rule, self.totals[*rule as usize]));
        let mut findings: Vec<Finding> = self.findings.into_iter().flatten().collect();
        findings.sort();
        // Errors have precedence over warnings, so that a list of an invalid bundle always shows an error.
        let errors = findings.iter().filter(|finding| finding.rule.severity() == Severity::Error).count();
        let mut remaining_warnings = self.max_listed.saturating_sub(errors);
        let mut remaining_errors = self.max_listed;
        findings.retain(|finding| {
            let remaining = match finding.rule.severity() {
                Severity::Error => &mut remaining_errors,
                Severity::Warning => &mut remaining_warnings,
            };
            let is_listed = *remaining > 0;
            *remaining -= usize::from(is_listed);
            is_listed
        });
        (totals.filter(|(_, total)| *total > 0).collect(), findings)
    }
}

fn format_pointer(steps: &[Step]) -> String {
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
    let prefix = &value[..value.len().min(4 * MAX_VALUE_CHARS)];
    let text = String::from_utf8_lossy(prefix);
    let escaped_text: String = text.chars().take(MAX_VALUE_CHARS).flat_map(char::escape_debug).collect();
    if text.chars().count() > MAX_VALUE_CHARS || prefix.len() < value.len() {
        escaped_text + "..."
    } else {
        escaped_text
    }
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
        findings.discard(Rule::Again);
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

//! Finds duplicate names among the unknown members of the objects that are being read, up to a number of names for
//! each.

use super::{
    findings::{Findings, Step},
    rules::Rule,
};
use crate::json::Position;

/// Stack of member names: those of the innermost object are last.
#[derive(Debug)]
pub(super) struct UnknownMembers {
    names: Vec<u8>,
    spans: Vec<(usize, usize, Position)>,
    max_per_object: usize,
}

impl UnknownMembers {
    pub(super) fn new(max_per_object: usize) -> Self {
        Self { names: Vec::new(), spans: Vec::new(), max_per_object }
    }

    /// Starts an object. Returns the value to pass to `add` and `end`.
    pub(super) fn begin(&self) -> usize {
        self.spans.len()
    }

    /// Adds a name. False for the first name beyond the limit, so that it is reported once; later names are ignored.
    pub(super) fn add(&mut self, begin: usize, name: &[u8], at: Position) -> bool {
        let count = self.spans.len() - begin;
        if count > self.max_per_object {
            return true;
        }
        let start = self.names.len();
        self.names.extend_from_slice(name);
        self.spans.push((start, self.names.len(), at));
        count < self.max_per_object
    }

    /// Ends an object: reports its duplicate names and removes them from the stack.
    pub(super) fn end(&mut self, begin: usize, findings: &mut Findings, steps: &[Step]) {
        let spans = &mut self.spans[begin..];
        let Some(first) = spans.first().map(|(start, ..)| *start) else { return };
        if spans.len() > 1 {
            let names = &self.names;
            // Position is the second key, so that the first occurrence of a name is not reported.
            spans.sort_by(|left, right| {
                names[left.0..left.1].cmp(&names[right.0..right.1]).then(left.2.cmp(&right.2))
            });
            for pair in spans.windows(2) {
                let [left, right] = [pair[0], pair[1]];
                let name = &names[right.0..right.1];
                if names[left.0..left.1] == *name {
                    findings.add(Rule::Twice, right.2, steps, Some(name));
                }
            }
        }
        self.spans.truncate(begin);
        self.names.truncate(first);
    }
}

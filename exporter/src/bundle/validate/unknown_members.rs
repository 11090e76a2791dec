//! Names of unknown members of the open objects, to find duplicates.
//!
//! No more names are kept than the limits allow.

use super::{
    findings::{Findings, Step},
    rules::Rule,
};
use crate::json::Position;

#[derive(Debug)]
pub(super) struct Members {
    names: Vec<u8>,
    spans: Vec<(usize, usize, Position)>,
    most: usize,
}

impl Members {
    pub(super) fn new(most: usize) -> Self {
        Self { names: Vec::new(), spans: Vec::new(), most }
    }

    pub(super) fn begin(&self) -> usize {
        self.spans.len()
    }

    /// False for the first of its object that is too many; further ones are passed over.
    pub(super) fn add(&mut self, begin: usize, name: &[u8], at: Position) -> bool {
        let count = self.spans.len() - begin;
        if count > self.most {
            return true;
        }
        let start = self.names.len();
        self.names.extend_from_slice(name);
        self.spans.push((start, self.names.len(), at));
        count < self.most
    }

    pub(super) fn end(&mut self, begin: usize, findings: &mut Findings, steps: &[Step]) {
        let spans = &mut self.spans[begin..];
        let Some(first) = spans.first().map(|(start, ..)| *start) else { return };
        if spans.len() > 1 {
            let names = &self.names;
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

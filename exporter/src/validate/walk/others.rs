//! Values that the form says nothing about: read for how they are written, whom they name and how many they count.
//!
//! What the form does say something about is the walk's.

use std::io::Read;

use super::{
    super::{faults::Step, rules::Rule},
    Sink, Walk, flaws,
};
use crate::{
    form::{COUNTS_OF_PEOPLE, Hand},
    json::Stop,
};

/// Which numbers count people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counting {
    Nothing,
    /// Those of members whose names say so.
    ByName,
    All,
}

impl Counting {
    /// Of a member of an object that counts like this; its name is told if it is not a source's own.
    pub(super) fn member(self, name: &[u8]) -> (Self, Option<&'static str>) {
        if self == Self::Nothing {
            return (self, None);
        }
        let known = COUNTS_OF_PEOPLE.into_iter().find(|known| known.as_bytes() == name);
        (if known.is_some() { Self::All } else { self }, known)
    }

    /// Numbers in a list may be anything.
    fn element(self) -> Self {
        if self == Self::All { Self::ByName } else { self }
    }
}

impl<R: Read, S: Sink> Walk<'_, R, S> {
    /// A member that the form says nothing about.
    pub(super) fn other(&mut self, counting: Counting, name: Option<&'static str>) -> Result<(), Stop> {
        let depth = self.steps.len();
        self.steps.extend(name.map(Step::Name));
        self.any(counting)?;
        self.steps.truncate(depth);
        Ok(())
    }

    /// A value that the form says nothing about.
    pub(super) fn any(&mut self, counting: Counting) -> Result<(), Stop> {
        let byte = self.reader.next()?;
        let at = self.reader.position();
        match byte {
            b'"' => {
                let text = self.reader.string()?;
                if text.flaws != 0 {
                    flaws(self.faults, &text, at, &self.steps);
                }
                if self.sink.identifies(text.bytes, Hand::Tool) {
                    self.faults.add(Rule::HidesIdentifiers, at, &self.steps, Some(text.bytes));
                }
            }
            b'-' | b'0'..=b'9' => match self.reader.number()? {
                None => self.faults.add(Rule::Long, at, &self.steps, None),
                Some(number) if !number.double.is_finite() => {
                    self.faults.add(Rule::Huge, at, &self.steps, None);
                }
                Some(number) if counting == Counting::All && self.sink.is_small(number) => {
                    self.faults.add(Rule::SmallOutcome, at, &self.steps, None);
                }
                Some(_) => {}
            },
            b't' => self.reader.word("true")?,
            b'f' => self.reader.word("false")?,
            b'n' => self.reader.word("null")?,
            b'[' | b'{' if self.depth == self.reader.limits().depth => {
                self.faults.add(Rule::Deep, self.reader.position(), &self.steps, None);
                self.reader.pass_nested()?;
            }
            b'[' => _ = self.elements(|walk, _| walk.any(counting.element()))?,
            b'{' => self.any_object(counting)?,
            _ => return Err(self.reader.unexpected()),
        }
        Ok(())
    }

    fn any_object(&mut self, counting: Counting) -> Result<(), Stop> {
        self.enter()?;
        self.reader.pass();
        let others = self.members.begin();
        if self.reader.next()? == b'}' {
            self.reader.pass();
        } else {
            loop {
                let at = self.reader.position();
                if self.reader.next()? != b'"' {
                    return Err(self.reader.unexpected());
                }
                let key = self.reader.string()?;
                if key.flaws != 0 {
                    flaws(self.faults, &key, at, &self.steps);
                }
                if !self.members.add(others, key.bytes, at) {
                    self.faults.add(Rule::Members, at, &self.steps, None);
                }
                if self.sink.identifies(key.bytes, Hand::Tool) {
                    self.faults.add(Rule::HidesIdentifiers, at, &self.steps, Some(key.bytes));
                }
                let (inner, name) = counting.member(key.bytes);
                self.reader.expect(b':')?;
                self.other(inner, name)?;
                if !self.another(b'}')? {
                    break;
                }
            }
        }
        self.members.end(others, self.faults, &self.steps);
        self.depth -= 1;
        Ok(())
    }
}

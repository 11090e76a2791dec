//! Values that the form says nothing about: read for how they are written, and passed by.
//!
//! What the form does say something about is the walk's.

use std::io::Read;

use super::{super::rules::Rule, Sink, Walk, flaws};
use crate::json::Stop;

impl<R: Read, S: Sink> Walk<'_, R, S> {
    /// A value that the form says nothing about.
    pub(super) fn any(&mut self) -> Result<(), Stop> {
        let byte = self.reader.next()?;
        let at = self.reader.position();
        match byte {
            b'"' => {
                let text = self.reader.string()?;
                if text.flaws != 0 {
                    flaws(self.faults, &text, at, &self.steps);
                }
            }
            b'-' | b'0'..=b'9' => match self.reader.number()? {
                None => self.faults.add(Rule::Long, at, &self.steps, None),
                Some(number) if !number.double.is_finite() => {
                    self.faults.add(Rule::Huge, at, &self.steps, None);
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
            b'[' => _ = self.elements(|walk, _| walk.any())?,
            b'{' => self.any_object()?,
            _ => return Err(self.reader.unexpected()),
        }
        Ok(())
    }

    fn any_object(&mut self) -> Result<(), Stop> {
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
                self.reader.expect(b':')?;
                self.any()?;
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

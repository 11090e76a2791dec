//! Reads values that the form does not describe: how they are written, whom they name, and how many people they
//! count.

use std::io::Read;

use super::{
    super::{
        findings::Step,
        locations::outcome::GROUPED,
        member_names::{KnownName, counts_people, is_time},
        rules::Rule,
        sink::Sink,
    },
    GroupSums, Walk, flaws,
};
use crate::{
    form::{Answer, Hand},
    json::{Number, Stop},
};

/// Numbers that count people, or are times, below a member the form does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counting {
    Nothing,
    /// Numbers of members whose names say so.
    ByName,
    /// None; those whose names say so are times.
    TimesByName,
    All,
    /// None of them; they are times.
    Times,
    /// May count people or be a time, by its name.
    Either,
}

impl Counting {
    /// Mode for a member of this object, and its name if that may be shown.
    pub(super) fn member(self, name: &[u8]) -> (Self, Step) {
        let step = KnownName::of(name).map_or(Step::Hidden, Step::KnownName);
        let counting = match self {
            Self::ByName => match (counts_people(name), is_time(name)) {
                (true, true) => Self::Either,
                (true, false) => Self::All,
                (false, true) => Self::Times,
                (false, false) => self,
            },
            Self::TimesByName if is_time(name) => Self::Times,
            _ => self,
        };
        (counting, step)
    }

    /// An object in a list may have ids, too.
    fn element(self, begins_with: u8) -> Self {
        if self.counts() && begins_with == b'{' { Self::ByName } else { self }
    }

    fn counts(self) -> bool {
        matches!(self, Self::All | Self::Either)
    }

    fn times(self) -> bool {
        matches!(self, Self::Times | Self::Either)
    }
}

/// A count that is written as a text.
pub(super) fn written(text: &[u8]) -> Option<Number> {
    let text = std::str::from_utf8(text).ok()?.trim();
    let digits = text
        .split_once('.')
        .map_or(text, |(whole, zeros)| if zeros.bytes().all(|byte| byte == b'0') { whole } else { "" });
    digits.parse().ok().map(Number::small)
}

/// True if a number named like a time must not be shared.
fn is_fine(sink: &impl Sink, number: Number) -> bool {
    number.whole && sink.is_fine_count(number.count())
}

impl<R: Read, S: Sink> Walk<'_, R, S> {
    /// A member that the form says nothing about.
    pub(super) fn other(&mut self, counting: Counting, name: Step) -> Result<(), Stop> {
        self.steps.push(name);
        self.any(counting)?;
        self.steps.pop();
        Ok(())
    }

    /// The groups of an outcome: what they have answered together is held in its row.
    pub(super) fn next_groups(&mut self, counting: Counting, name: Step, level: usize) -> Result<(), Stop> {
        self.reader.next()?;
        let at = self.reader.position();
        self.split = Some(GroupSums { depth: self.depth + 2, sums: [Some(0); Answer::ALL.len()] });
        self.other(counting, name)?;
        let sums = self.split.take().map(|split| split.sums).unwrap_or_default();
        for (answer, sum) in sums.into_iter().enumerate() {
            // Of what no group has answered nothing is said.
            if let Some(sum) = sum.filter(|sum| *sum > 0) {
                self.rows[level].put_number(GROUPED + answer, at, Number::small(sum));
            }
        }
        Ok(())
    }

    /// Adds a group's answer, whose value has just been read. Small numbers have been reported already.
    fn add_to_split(&mut self, answer: Answer) {
        let Some(split) = &mut self.split else { return };
        let sum = &mut split.sums[answer as usize];
        let number = self.number.take().filter(|(_, number)| number.whole && self.depth == split.depth);
        let count = number.and_then(|(_, number)| u64::try_from(number.count()).ok());
        *sum = sum.zip(count).and_then(|(sum, count)| sum.checked_add(count));
    }

    /// A value that the form says nothing about.
    pub(super) fn any(&mut self, counting: Counting) -> Result<(), Stop> {
        let byte = self.reader.next()?;
        let at = self.reader.position();
        match byte {
            b'"' => {
                let text = self.reader.string()?;
                if text.flaws != 0 {
                    flaws(self.findings, &text, at, &self.steps);
                }
                if self.sink.identifies(text.bytes, Hand::Tool) {
                    self.findings.add(Rule::HidesIdentifiers, at, &self.steps, Some(text.bytes));
                }
                self.sink.said(text.bytes);
                self.number = written(text.bytes).map(|number| (at, number));
                let fine = self.sink.is_fine(text.bytes)
                    || counting.times()
                        && (self.sink.is_clock(text.bytes)
                            || written(text.bytes).is_some_and(|it| is_fine(self.sink, it)));
                if fine {
                    self.findings.add(Rule::FineTime, at, &self.steps, Some(text.bytes));
                }
                if counting.counts() && written(text.bytes).is_some_and(|it| self.sink.is_small(it)) {
                    self.findings.add(Rule::SmallOutcome, at, &self.steps, Some(text.bytes));
                }
            }
            b'-' | b'0'..=b'9' => match self.reader.number()? {
                None => self.findings.add(Rule::Long, at, &self.steps, None),
                Some(number) if !number.double.is_finite() => {
                    self.findings.add(Rule::Huge, at, &self.steps, None);
                }
                // Where it is small, that is the fault.
                Some(number) if counting.counts() && !self.sink.is_small(number) => {
                    self.number = Some((at, number));
                    if counting.times() && is_fine(self.sink, number) {
                        self.findings.add(Rule::FineTime, at, &self.steps, None);
                    }
                }
                Some(number) if counting.counts() && self.sink.is_small(number) => {
                    self.findings.add(Rule::SmallOutcome, at, &self.steps, None);
                }
                Some(number) if counting.times() && is_fine(self.sink, number) => {
                    self.findings.add(Rule::FineTime, at, &self.steps, None);
                }
                Some(_) => {}
            },
            b't' => self.reader.word("true")?,
            b'f' => self.reader.word("false")?,
            b'n' => self.reader.word("null")?,
            b'[' | b'{' if self.depth == self.reader.limits().depth => {
                self.findings.add(Rule::Deep, self.reader.position(), &self.steps, None);
                self.reader.pass_nested()?;
            }
            b'[' => {
                let each = |walk: &mut Self, index| {
                    let begins_with = walk.reader.next()?;
                    walk.steps.push(Step::Index(index));
                    walk.any(counting.element(begins_with))?;
                    walk.steps.pop();
                    Ok(())
                };
                self.elements(each)?;
            }
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
                    flaws(self.findings, &key, at, &self.steps);
                }
                if !self.members.add(others, key.bytes, at) {
                    self.findings.add(Rule::Members, at, &self.steps, None);
                }
                if self.sink.identifies(key.bytes, Hand::Tool) {
                    self.findings.add(Rule::HidesIdentifiers, at, &self.steps, Some(key.bytes));
                }
                self.sink.said(key.bytes);
                let (inner, name) = counting.member(key.bytes);
                let answer = if self.split.is_some() { Answer::parse(key.bytes) } else { None };
                self.reader.expect(b':')?;
                let begins_with = self.reader.next()?;
                self.number = None;
                self.other(inner, name)?;
                if let Some(answer) = answer {
                    self.number = self.number.filter(|_| !b"[{".contains(&begins_with));
                    self.add_to_split(answer);
                }
                if !self.another(b'}')? {
                    break;
                }
            }
        }
        self.members.end(others, self.findings, &self.steps);
        self.depth -= 1;
        Ok(())
    }
}

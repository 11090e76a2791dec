//! Reads values that the form does not define. Checks their syntax, and searches them for references to people, times
//! and small counts.

use std::io::Read;

use super::{
    super::{
        findings::Step,
        locations::outcome::GROUP_SUMS,
        member_names::{KnownName, counts_people, is_time},
        rules::Rule,
        sink::Sink,
    },
    GroupSums, Walk, add_flaws,
};
use crate::{
    form::{Answer, TextAuthor},
    json::{Number, Stop},
};

/// Meaning of the numbers in an unknown member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NumberMeaning {
    Unknown,
    /// Counts or times, depending on the name of the member.
    CountsByName,
    /// Times, depending on the name of the member, and no counts.
    TimesByName,
    Count,
    /// All numbers are times.
    Time,
    /// The name fits a count of people and a time.
    CountOrTime,
}

impl NumberMeaning {
    /// Meaning of the numbers in a member of this object, and the member's step in the pointer.
    pub(super) fn of_member(self, name: &[u8]) -> (Self, Step) {
        let step = KnownName::from_name(name).map_or(Step::Hidden, Step::KnownName);
        let meaning = match self {
            Self::CountsByName => match (counts_people(name), is_time(name)) {
                (true, true) => Self::CountOrTime,
                (true, false) => Self::Count,
                (false, true) => Self::Time,
                (false, false) => self,
            },
            Self::TimesByName if is_time(name) => Self::Time,
            _ => self,
        };
        (meaning, step)
    }

    /// Meaning of the numbers in an element of this list. Objects in a list of counts can also have ids, so their
    /// numbers are classified by name.
    fn of_element(self, first_byte: u8) -> Self {
        if self.may_be_count() && first_byte == b'{' { Self::CountsByName } else { self }
    }

    fn may_be_count(self) -> bool {
        matches!(self, Self::Count | Self::CountOrTime)
    }

    fn may_be_time(self) -> bool {
        matches!(self, Self::Time | Self::CountOrTime)
    }
}

/// Parses a count in a text, such as `"12"` or `"12.0"`.
pub(super) fn parse_count(text: &[u8]) -> Option<Number> {
    let text = std::str::from_utf8(text).ok()?.trim();
    let digits = text
        .split_once('.')
        .map_or(text, |(digits, zeros)| if zeros.bytes().all(|byte| byte == b'0') { digits } else { "" });
    digits.parse().ok().map(Number::from_u64)
}

/// True if a number with the name of a time must not be shared.
fn is_finer_than_day(sink: &impl Sink, number: Number) -> bool {
    number.is_whole && sink.is_epoch_finer_than_day(number.saturating_count())
}

impl<R: Read, S: Sink> Walk<'_, R, S> {
    /// Reads the value of an unknown member.
    pub(super) fn read_unknown_member(&mut self, meaning: NumberMeaning, name: Step) -> Result<(), Stop> {
        self.steps.push(name);
        self.read_unknown(meaning)?;
        self.steps.pop();
        Ok(())
    }

    /// Reads the `groups` of an outcome, and stores the sum of each answer in its row.
    pub(super) fn read_groups(
        &mut self,
        meaning: NumberMeaning,
        name: Step,
        level: usize,
    ) -> Result<(), Stop> {
        self.reader.next()?;
        let at = self.reader.position();
        // Answers are two levels below: in a group, in `groups`.
        self.group_sums = Some(GroupSums { depth: self.depth + 2, sums: [Some(0); Answer::ALL.len()] });
        self.read_unknown_member(meaning, name)?;
        let sums = self.group_sums.take().map(|group_sums| group_sums.sums).unwrap_or_default();
        for (answer, sum) in sums.into_iter().enumerate() {
            // With a sum of zero, the count outside the groups is the total itself, which other rules check.
            if let Some(sum) = sum.filter(|sum| *sum > 0) {
                self.rows[level].put_number(GROUP_SUMS + answer, at, Number::from_u64(sum));
            }
        }
        Ok(())
    }

    /// Adds the count of a group's answer, which was just read, to its sum. Small counts are reported already.
    fn add_to_group_sums(&mut self, answer: Answer) {
        let Some(group_sums) = &mut self.group_sums else { return };
        let sum = &mut group_sums.sums[answer as usize];
        let number =
            self.last_number.take().filter(|(_, number)| number.is_whole && self.depth == group_sums.depth);
        let count = number.and_then(|(_, number)| u64::try_from(number.saturating_count()).ok());
        *sum = sum.zip(count).and_then(|(sum, count)| sum.checked_add(count));
    }

    /// Reads an unknown value of any type.
    pub(super) fn read_unknown(&mut self, meaning: NumberMeaning) -> Result<(), Stop> {
        let byte = self.reader.next()?;
        let at = self.reader.position();
        match byte {
            b'"' => {
                let text = self.reader.read_string()?;
                if text.flaws != 0 {
                    add_flaws(self.findings, &text, at, &self.steps);
                }
                if self.sink.identifies(text.bytes, TextAuthor::Tool) {
                    self.findings.add(Rule::HidesIdentifiers, at, &self.steps, Some(text.bytes));
                }
                self.sink.on_free_text(text.bytes);
                self.last_number = parse_count(text.bytes).map(|number| (at, number));
                let is_finer_than_day = self.sink.is_finer_than_day(text.bytes)
                    || meaning.may_be_time()
                        && (self.sink.is_clock(text.bytes)
                            || parse_count(text.bytes)
                                .is_some_and(|number| is_finer_than_day(self.sink, number)));
                if is_finer_than_day {
                    self.findings.add(Rule::FineTime, at, &self.steps, Some(text.bytes));
                }
                if meaning.may_be_count()
                    && parse_count(text.bytes).is_some_and(|number| self.sink.is_below_k(number))
                {
                    self.findings.add(Rule::SmallOutcome, at, &self.steps, Some(text.bytes));
                }
            }
            b'-' | b'0'..=b'9' => match self.reader.read_number()? {
                None => self.findings.add(Rule::Long, at, &self.steps, None),
                Some(number) if !number.double.is_finite() => {
                    self.findings.add(Rule::Huge, at, &self.steps, None);
                }
                // Small counts are reported by the next arm, and are not added to sums.
                Some(number) if meaning.may_be_count() && !self.sink.is_below_k(number) => {
                    self.last_number = Some((at, number));
                    if meaning.may_be_time() && is_finer_than_day(self.sink, number) {
                        self.findings.add(Rule::FineTime, at, &self.steps, None);
                    }
                }
                Some(number) if meaning.may_be_count() && self.sink.is_below_k(number) => {
                    self.findings.add(Rule::SmallOutcome, at, &self.steps, None);
                }
                Some(number) if meaning.may_be_time() && is_finer_than_day(self.sink, number) => {
                    self.findings.add(Rule::FineTime, at, &self.steps, None);
                }
                Some(_) => {}
            },
            b't' => self.reader.expect_literal("true")?,
            b'f' => self.reader.expect_literal("false")?,
            b'n' => self.reader.expect_literal("null")?,
            // Skipped without recursion, so that deep nesting cannot exhaust the stack.
            b'[' | b'{' if self.depth == self.reader.limits().depth => {
                self.findings.add(Rule::Deep, self.reader.position(), &self.steps, None);
                self.reader.skip_container()?;
            }
            b'[' => {
                let read_element = |walk: &mut Self, index| {
                    let first_byte = walk.reader.next()?;
                    walk.steps.push(Step::Index(index));
                    walk.read_unknown(meaning.of_element(first_byte))?;
                    walk.steps.pop();
                    Ok(())
                };
                self.read_elements(read_element)?;
            }
            b'{' => self.read_unknown_object(meaning)?,
            _ => return Err(self.reader.unexpected_error()),
        }
        Ok(())
    }

    fn read_unknown_object(&mut self, meaning: NumberMeaning) -> Result<(), Stop> {
        self.enter_container()?;
        self.reader.advance();
        let first_unknown = self.unknown_members.begin();
        if self.reader.next()? == b'}' {
            self.reader.advance();
        } else {
            loop {
                let at = self.reader.position();
                if self.reader.next()? != b'"' {
                    return Err(self.reader.unexpected_error());
                }
                let key = self.reader.read_string()?;
                if key.flaws != 0 {
                    add_flaws(self.findings, &key, at, &self.steps);
                }
                if !self.unknown_members.add(first_unknown, key.bytes, at) {
                    self.findings.add(Rule::Members, at, &self.steps, None);
                }
                if self.sink.identifies(key.bytes, TextAuthor::Tool) {
                    self.findings.add(Rule::HidesIdentifiers, at, &self.steps, Some(key.bytes));
                }
                self.sink.on_free_text(key.bytes);
                let (member_meaning, name) = meaning.of_member(key.bytes);
                let answer = if self.group_sums.is_some() { Answer::parse(key.bytes) } else { None };
                self.reader.expect(b':')?;
                let first_byte = self.reader.next()?;
                self.last_number = None;
                self.read_unknown_member(member_meaning, name)?;
                if let Some(answer) = answer {
                    // Numbers inside a list or an object are not the answer's count.
                    self.last_number = self.last_number.filter(|_| !b"[{".contains(&first_byte));
                    self.add_to_group_sums(answer);
                }
                if !self.skip_separator(b'}')? {
                    break;
                }
            }
        }
        self.unknown_members.end(first_unknown, self.findings, &self.steps);
        self.depth -= 1;
        Ok(())
    }
}

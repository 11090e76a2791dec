//! Reads a document along the form: reports every place where it does not fit, and passes its rows to a [`Sink`].
//!
//! Members may come in any order.

mod unknown_values;

use std::io::Read;

use self::unknown_values::{Counting, written};
use super::{
    findings::{Findings, Step},
    locations::{
        item,
        outcome::{HIDDEN, MEMBERS, SUPPRESSED},
    },
    member_names::is_total,
    row::Row,
    rules::Rule,
    sink::{Part, Sink},
    unknown_members::Members,
    value_rules::{check_number, check_text, other_type},
};
use crate::{
    form::{ARTIFACT, Answer, COUNTS, Field, Hand, Object, Value},
    json::{Flaw, Number, Position, Reader, Stop, Text, Why},
    unpack::CompressionError,
};

pub(crate) struct Walk<'w, R, S> {
    reader: Reader<R>,
    form: &'static Object,
    schema: &'w str,
    findings: &'w mut Findings,
    sink: &'w mut S,
    steps: Vec<Step>,
    /// Rows of the bundle, of an object in it, and of an object in that.
    rows: [Row; 3],
    part: Part,
    depth: usize,
    members: Members,
    /// The number that was read last, of those that the form says nothing about.
    number: Option<(Position, Number)>,
    /// Sums of the groups of the outcome that is being read.
    split: Option<GroupSums>,
    no_object: Option<Position>,
}

/// End of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) bytes: u64,
    /// Rule and position that stopped the reading.
    pub(crate) stopped: Option<(Rule, Position)>,
    /// Position of the document if it is not an object.
    pub(crate) no_object: Option<Position>,
}

/// Sums of what the groups of an outcome have answered.
struct GroupSums {
    /// Depth of the answers of a group.
    depth: usize,
    /// Sum of each answer; `None` if it appears where it should not, or cannot be added.
    sums: [Option<u64>; Answer::ALL.len()],
}

/// Meaning of a member's name.
enum MemberName {
    Field(usize),
    /// Unknown member: what it counts, and its name if that may be shown.
    Other(Counting, Step),
    /// None of the form's, and how many answers there are in all.
    Total(Counting, Step),
    /// None of the form's, and holds what groups have answered.
    Groups(Counting, Step),
}

impl<'w, R: Read, S: Sink> Walk<'w, R, S> {
    pub(crate) fn new(
        reader: Reader<R>,
        form: &'static Object,
        schema: &'w str,
        findings: &'w mut Findings,
        sink: &'w mut S,
    ) -> Self {
        let members = Members::new(reader.limits().members);
        Self {
            reader,
            form,
            schema,
            findings,
            sink,
            steps: Vec::new(),
            rows: Default::default(),
            part: Part::Source,
            depth: 0,
            members,
            number: None,
            split: None,
            no_object: None,
        }
    }

    /// Reads the whole document. Errors that stop the reading are among the findings.
    pub(crate) fn run(mut self) -> Result<End, Stop> {
        let stopped = match self.document() {
            Ok(()) => None,
            Err(Stop::Invalid(why, at)) => Some((why.into(), at)),
            Err(Stop::Io(error)) => match CompressionError::of(&error) {
                None => return Err(Stop::Io(error)),
                Some(CompressionError::Cut) => Some((Rule::Truncated, self.reader.position())),
                Some(_) => Some((Rule::Packed, self.reader.position())),
            },
            Err(stop) => return Err(stop),
        };
        if let Some((rule, at)) = stopped {
            self.findings.add(rule, at, &self.steps, None);
        }
        Ok(End { bytes: self.reader.position().offset, stopped, no_object: self.no_object })
    }

    fn document(&mut self) -> Result<(), Stop> {
        if self.reader.mark()? {
            self.findings.add(Rule::Mark, Position { offset: 0, line: 1 }, &[], None);
        }
        if self.reader.next()? == b'{' {
            self.object(self.form, 0)?;
            self.sink.top(&self.rows[0]);
        } else {
            let at = self.reader.position();
            self.no_object = Some(at);
            self.any(Counting::Nothing)?;
            self.findings.add(Rule::Type, at, &[], None);
        }
        let more = match self.reader.peek() {
            Err(Stop::Io(error)) if CompressionError::of(&error) == Some(CompressionError::Followed) => true,
            next => next?.is_some(),
        };
        if more {
            self.findings.add(Rule::Trailing, self.reader.position(), &[], None);
        }
        Ok(())
    }

    /// An object of the form, whose brace `next` has given; its values are in `rows[level]` afterwards.
    fn object(&mut self, form: &'static Object, level: usize) -> Result<(), Stop> {
        self.enter()?;
        let at = self.reader.position();
        self.rows[level].begin(at);
        self.reader.pass();
        let others = self.members.begin();
        let mut guess = 0;
        if self.reader.next()? == b'}' {
            self.reader.pass();
        } else {
            loop {
                let at = self.reader.position();
                // Fields mostly come in the order of the form, and are written as plainly.
                let named = match form.fields.get(guess) {
                    Some(next) if self.reader.name(next.name) => MemberName::Field(guess),
                    _ => self.name(form, level, at, others)?,
                };
                match named {
                    MemberName::Field(field) => {
                        guess = field + 1;
                        let field_form = &form.fields[field];
                        self.steps.push(Step::Name(field_form.name));
                        if self.rows[level].has(field) {
                            self.findings.add(Rule::Twice, at, &self.steps, None);
                        }
                        self.value(&field_form.value, level, field)?;
                        self.steps.pop();
                    }
                    MemberName::Other(counting, name) => self.other(counting, name)?,
                    MemberName::Groups(counting, name) => {
                        self.next_groups(counting, name, level)?;
                    }
                    MemberName::Total(counting, name) => {
                        let begins_with = self.reader.next()?;
                        self.number = None;
                        self.other(counting, name)?;
                        if let Some((at, number)) = self.number.take()
                            && !b"[{".contains(&begins_with)
                        {
                            self.rows[level].put_more(at, number);
                        }
                    }
                }
                if !self.another(b'}')? {
                    break;
                }
            }
        }
        self.members.end(others, self.findings, &self.steps);
        let row = &self.rows[level];
        for (index, field) in form.fields.iter().enumerate() {
            if field.required && !row.has(index) {
                self.steps.push(Step::Name(field.name));
                self.findings.add(Rule::Required, at, &self.steps, None);
                self.steps.pop();
            }
        }
        self.depth -= 1;
        Ok(())
    }

    /// Reads a member's name and looks up its field.
    fn name(
        &mut self,
        form: &'static Object,
        level: usize,
        at: Position,
        others: usize,
    ) -> Result<MemberName, Stop> {
        if self.reader.next()? != b'"' {
            return Err(self.reader.unexpected());
        }
        let key = self.reader.string()?;
        let known = |field: &Field| key.flaws == 0 && field.name.as_bytes() == key.bytes;
        let field = form.fields.iter().position(known);
        if key.flaws != 0 {
            flaws(self.findings, &key, at, &self.steps);
        }
        let named = if let Some(field) = field {
            MemberName::Field(field)
        } else {
            if !form.open {
                self.findings.add(Rule::Additional, at, &self.steps, Some(key.bytes));
            }
            if !self.members.add(others, key.bytes, at) {
                self.findings.add(Rule::Members, at, &self.steps, None);
            }
            if self.sink.identifies(key.bytes, Hand::Tool) {
                self.findings.add(Rule::HidesIdentifiers, at, &self.steps, Some(key.bytes));
            }
            self.sink.said(key.bytes);
            let around = match self.part {
                _ if std::ptr::eq(form, &COUNTS) => Counting::All,
                _ if std::ptr::eq(form, &ARTIFACT) => Counting::TimesByName,
                Part::Outcomes if level == 1 => Counting::ByName,
                _ => Counting::Nothing,
            };
            let (counting, name) = around.member(key.bytes);
            if around == Counting::ByName && key.bytes == b"groups" {
                MemberName::Groups(counting, name)
            } else if around == Counting::ByName && is_total(key.bytes) {
                MemberName::Total(counting, name)
            } else {
                MemberName::Other(counting, name)
            }
        };
        self.reader.expect(b':')?;
        Ok(named)
    }

    fn value(&mut self, form: &'static Value, level: usize, field: usize) -> Result<(), Stop> {
        let byte = self.reader.next()?;
        let at = self.reader.position();
        match byte {
            b'"' => {
                let text = self.reader.string()?;
                let row = &mut self.rows[level];
                row.put_text(field, at, text.bytes);
                if text.flaws != 0 {
                    flaws(self.findings, &text, at, &self.steps);
                }
                if let Some(rule) = check_text(form, &text, self.schema) {
                    self.findings.add(rule, at, &self.steps, Some(text.bytes));
                }
                // What is said of responses, and what items say, is looked at where they are judged.
                let of_row = level == 1
                    && (self.part == Part::Responses || self.part == Part::Items && field == item::TEXT);
                if !of_row {
                    self.sink.said(text.bytes);
                }
                // Of the bundle itself another member may come next.
                if (self.part == Part::Outcomes && level > 0 || matches!(form, Value::Anything))
                    && self.sink.is_fine(text.bytes)
                {
                    self.findings.add(Rule::FineTime, at, &self.steps, Some(text.bytes));
                }
                if self.part == Part::Outcomes
                    && level == 2
                    && written(text.bytes).is_some_and(|number| self.sink.is_small(number))
                {
                    self.findings.add(Rule::SmallOutcome, at, &self.steps, Some(text.bytes));
                }
                let hand = match form {
                    Value::Text(bounds) | Value::TextOrNull(bounds) => bounds.hand,
                    Value::Anything => Some(Hand::Tool),
                    _ => None,
                };
                if let Some(hand) = hand
                    && self.sink.identifies(text.bytes, hand)
                {
                    self.findings.add(Rule::HidesIdentifiers, at, &self.steps, Some(text.bytes));
                }
            }
            b'{' => match form {
                Value::Object(inner) => {
                    self.rows[level].put_other(field, at);
                    if level > 0 {
                        return self.object(inner, level + 1);
                    }
                    if let Some(part) = Part::at(field) {
                        self.part = part;
                        self.object(inner, 1)?;
                        self.sink.part(part, &self.rows[1]);
                    }
                }
                _ => self.mismatch(form, level, field, at)?,
            },
            b'[' => match form {
                Value::List { of, least } => {
                    self.rows[level].put_other(field, at);
                    self.list(of, *least, level, field, at)?;
                }
                Value::Texts => {
                    self.rows[level].put_other(field, at);
                    self.texts(field)?;
                }
                // Of these lists it is known how long they are.
                Value::Anything if level == 1 && self.part == Part::Outcomes && field == MEMBERS => {
                    let count = self.members()?;
                    self.rows[level].put_number(field, at, Number::small(count));
                }
                Value::Anything if level == 1 && self.part == Part::Outcomes && field == SUPPRESSED => {
                    self.rows[level].put_other(field, at);
                    if let Some((count, answers)) = self.distinct()? {
                        self.rows[level].put_number(field, at, Number::small(count));
                        self.rows[level].put_number(HIDDEN, at, Number::small(answers));
                    }
                }
                _ => self.mismatch(form, level, field, at)?,
            },
            b'-' | b'0'..=b'9' => {
                let number = self.reader.number()?;
                match number {
                    None => {
                        self.rows[level].put_other(field, at);
                        self.findings.add(Rule::Long, at, &self.steps, None);
                    }
                    // Of that field a number is how many names its list has.
                    Some(_) if level == 1 && self.part == Part::Outcomes && field == SUPPRESSED => {
                        self.rows[level].put_other(field, at);
                    }
                    Some(number) => {
                        self.rows[level].put_number(field, at, number);
                        if !number.double.is_finite() {
                            self.findings.add(Rule::Huge, at, &self.steps, None);
                        }
                        if let Some(rule) = check_number(form, &number) {
                            let shown = format!("{}", number.double);
                            self.findings.add(rule, at, &self.steps, Some(shown.as_bytes()));
                        }
                    }
                }
            }
            b't' | b'f' => {
                self.reader.word(if byte == b't' { "true" } else { "false" })?;
                self.rows[level].put_flag(field, at, byte == b't');
                if !matches!(form, Value::Flag | Value::Anything) {
                    self.findings.add(other_type(form), at, &self.steps, None);
                }
            }
            b'n' => {
                self.reader.word("null")?;
                self.rows[level].put_null(field, at);
                if !matches!(form, Value::TextOrNull(_) | Value::Anything) {
                    self.findings.add(other_type(form), at, &self.steps, None);
                }
            }
            _ => return Err(self.reader.unexpected()),
        }
        Ok(())
    }

    #[cold]
    fn mismatch(&mut self, form: &Value, level: usize, field: usize, at: Position) -> Result<(), Stop> {
        self.rows[level].put_other(field, at);
        if !matches!(form, Value::Anything) {
            self.findings.add(other_type(form), at, &self.steps, None);
        }
        let counting = if self.part == Part::Provenance { Counting::TimesByName } else { Counting::Nothing };
        self.any(counting)
    }

    fn list(
        &mut self,
        of: &'static Object,
        least: u64,
        level: usize,
        field: usize,
        at: Position,
    ) -> Result<(), Stop> {
        let part = Part::at(field).filter(|_| level == 0);
        self.part = part.unwrap_or(self.part);
        let count = self.elements(|walk, index| {
            walk.steps.push(Step::Index(index));
            if walk.reader.next()? == b'{' {
                walk.rows[2].begin(Position::default());
                walk.rows[level + 1].index = index;
                walk.object(of, level + 1)?;
                match part {
                    Some(part) => {
                        let [_, row, inner] = &walk.rows;
                        let counts = (part == Part::Outcomes).then_some(inner);
                        walk.sink.entry(part, row, counts, walk.findings)?;
                    }
                    None => walk.sink.artifact(&walk.rows[level + 1]),
                }
            } else {
                let at = walk.reader.position();
                walk.any(Counting::Nothing)?;
                walk.findings.add(Rule::Type, at, &walk.steps, None);
            }
            walk.steps.pop();
            Ok(())
        })?;
        if count < least {
            self.findings.add(Rule::Few, at, &self.steps, None);
        }
        if let Some(part) = part {
            self.sink.ended(part);
        }
        Ok(())
    }

    /// The elements of an array, whose bracket `next` has given; how many there were.
    fn elements(&mut self, mut each: impl FnMut(&mut Self, u64) -> Result<(), Stop>) -> Result<u64, Stop> {
        self.enter()?;
        self.reader.pass();
        let mut count = 0;
        if self.reader.next()? == b']' {
            self.reader.pass();
        } else {
            loop {
                each(self, count)?;
                count += 1;
                if !self.another(b']')? {
                    break;
                }
            }
        }
        self.depth -= 1;
        Ok(count)
    }

    /// Reads the participants that an outcome names; other elements are skipped.
    fn members(&mut self) -> Result<u64, Stop> {
        let outcome = self.rows[1].index;
        self.names(Hand::Reference, |sink, index, name| match name {
            Some((at, name)) => sink.member(outcome, index, at, name),
            None => Ok(()),
        })
    }

    /// Number of distinct names and the answers among them; `None` if the list holds anything but names. Long lists
    /// are cut off.
    fn distinct(&mut self) -> Result<Option<(u64, u64)>, Stop> {
        let (mut seen, mut only_names) = (Vec::<Box<[u8]>>::new(), true);
        self.names(Hand::Tool, |_, _, name| {
            match name {
                Some((_, name)) if seen.len() < ENOUGH && !seen.iter().any(|before| **before == *name) => {
                    seen.push(name.into());
                }
                Some(_) => {}
                None => only_names = false,
            }
            Ok(())
        })?;
        let answers = seen.iter().filter_map(|name| Answer::parse(name));
        let answers = answers.fold(0, |answers, answer| answers | 1 << answer as u64);
        Ok(only_names.then_some((seen.len() as u64, answers)))
    }

    /// Reads the elements of an array of names, and whatever else is in it.
    fn names(
        &mut self,
        hand: Hand,
        mut each: impl FnMut(&mut S, u64, Option<(Position, &[u8])>) -> Result<(), Stop>,
    ) -> Result<u64, Stop> {
        self.elements(|walk, index| {
            if walk.reader.next()? != b'"' {
                walk.any(Counting::Nothing)?;
                return each(walk.sink, index, None);
            }
            let at = walk.reader.position();
            let text = walk.reader.string()?;
            if text.flaws != 0 {
                flaws(walk.findings, &text, at, &walk.steps);
            }
            if walk.sink.identifies(text.bytes, hand) {
                walk.steps.push(Step::Index(index));
                walk.findings.add(Rule::HidesIdentifiers, at, &walk.steps, Some(text.bytes));
                walk.steps.pop();
            }
            walk.sink.said(text.bytes);
            each(walk.sink, index, Some((at, text.bytes)))
        })
    }

    fn texts(&mut self, field: usize) -> Result<(), Stop> {
        self.elements(|walk, index| {
            walk.steps.push(Step::Index(index));
            let byte = walk.reader.next()?;
            let at = walk.reader.position();
            if byte == b'"' {
                let text = walk.reader.string()?;
                if text.flaws != 0 {
                    flaws(walk.findings, &text, at, &walk.steps);
                }
                if walk.sink.identifies(text.bytes, Hand::Tool) {
                    walk.findings.add(Rule::HidesIdentifiers, at, &walk.steps, Some(text.bytes));
                }
                walk.sink.said(text.bytes);
                walk.sink.text(walk.part, field, text.bytes);
            } else {
                walk.any(Counting::Nothing)?;
                walk.findings.add(Rule::Type, at, &walk.steps, None);
            }
            walk.steps.pop();
            Ok(())
        })
        .map(drop)
    }

    /// True if the container continues after an element.
    #[inline]
    fn another(&mut self, end: u8) -> Result<bool, Stop> {
        match self.reader.next()? {
            b',' => {
                self.reader.pass();
                self.reader.next()?;
                Ok(true)
            }
            byte if byte == end => {
                self.reader.pass();
                Ok(false)
            }
            _ => Err(self.reader.unexpected()),
        }
    }

    fn enter(&mut self) -> Result<(), Stop> {
        if self.depth == self.reader.limits().depth {
            return Err(Stop::Invalid(Why::Deep, self.reader.position()));
        }
        self.depth += 1;
        Ok(())
    }
}

/// More answers than there are.
const ENOUGH: usize = 16;

#[cold]
fn flaws(findings: &mut Findings, text: &Text<'_>, at: Position, steps: &[Step]) {
    for flaw in Flaw::ALL.into_iter().filter(|flaw| text.flaws & *flaw as u8 != 0) {
        let rule = match flaw {
            Flaw::Encoding => Rule::Encoding,
            Flaw::Control => Rule::Control,
            Flaw::Escape => Rule::Escape,
            Flaw::Surrogate => Rule::Surrogate,
            Flaw::Long => Rule::Long,
        };
        findings.add(rule, at, steps, Some(text.bytes));
    }
}

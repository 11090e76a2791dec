//! Reads a document along its form, with members in any order: reports violations of the form, and passes rows to a
//! [`Sink`].

mod unknown_values;

use std::io::Read;

use self::unknown_values::{NumberMeaning, parse_count};
use super::{
    findings::{Findings, Step},
    locations::{
        item,
        outcome::{MEMBERS, SUPPRESSED, SUPPRESSED_ANSWERS},
    },
    member_names::is_total,
    row::Row,
    rules::Rule,
    sink::{Part, Sink},
    unknown_members::UnknownMembers,
    value_rules::{check_number, check_text, type_rule},
};
use crate::{
    form::{ARTIFACT, Answer, COUNTS, Field, Object, TextAuthor, Value},
    json::{Flaw, InvalidReason, Number, Position, Reader, Stop, Text},
    unpack::CompressionError,
};

/// Recursive descent over one document.
pub(crate) struct Walk<'w, R, S> {
    reader: Reader<R>,
    form: &'static Object,
    schema: &'w str,
    findings: &'w mut Findings,
    sink: &'w mut S,
    steps: Vec<Step>,
    /// Rows by nesting level: the document, an object in it, and an object in that one.
    rows: [Row; 3],
    part: Part,
    depth: usize,
    unknown_members: UnknownMembers,
    /// Last number that was read as an unknown value.
    last_number: Option<(Position, Number)>,
    /// Sums over the groups of the current outcome.
    group_sums: Option<GroupSums>,
    non_object_at: Option<Position>,
}

/// Result of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WalkEnd {
    pub(crate) bytes: u64,
    /// Rule and position of the error that stopped the walk.
    pub(crate) stop: Option<(Rule, Position)>,
    /// Position of the document if it is not an object.
    pub(crate) non_object_at: Option<Position>,
}

/// Sums of the answers over all groups of an outcome.
struct GroupSums {
    /// Depth of a group's answers.
    depth: usize,
    /// Sum of each answer; `None` if a value of it is at another depth, not a count, or overflows the sum.
    sums: [Option<u64>; Answer::ALL.len()],
}

/// Meaning of a member's name.
enum MemberName {
    Field(usize),
    /// Unknown member: meaning of its numbers, and its step in the pointer.
    Other(NumberMeaning, Step),
    /// Unknown member with the name of a total of answers.
    Total(NumberMeaning, Step),
    /// Unknown member `groups` of an outcome, with the answers by group.
    Groups(NumberMeaning, Step),
}

impl<'w, R: Read, S: Sink> Walk<'w, R, S> {
    pub(crate) fn new(
        reader: Reader<R>,
        form: &'static Object,
        schema: &'w str,
        findings: &'w mut Findings,
        sink: &'w mut S,
    ) -> Self {
        let members = UnknownMembers::new(reader.limits().members);
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
            unknown_members: members,
            last_number: None,
            group_sums: None,
            non_object_at: None,
        }
    }

    /// Reads the whole document. Syntax errors that stop the walk become findings.
    pub(crate) fn run(mut self) -> Result<WalkEnd, Stop> {
        let stop = match self.read_document() {
            Ok(()) => None,
            Err(Stop::Invalid(why, at)) => Some((why.into(), at)),
            Err(Stop::Io(error)) => match CompressionError::of(&error) {
                None => return Err(Stop::Io(error)),
                Some(CompressionError::Truncated) => Some((Rule::Truncated, self.reader.position())),
                Some(_) => Some((Rule::Packed, self.reader.position())),
            },
            Err(stop) => return Err(stop),
        };
        if let Some((rule, at)) = stop {
            self.findings.add(rule, at, &self.steps, None);
        }
        Ok(WalkEnd { bytes: self.reader.position().offset, stop, non_object_at: self.non_object_at })
    }

    fn read_document(&mut self) -> Result<(), Stop> {
        if self.reader.skip_byte_order_mark()? {
            self.findings.add(Rule::Mark, Position { offset: 0, line: 1 }, &[], None);
        }
        if self.reader.next()? == b'{' {
            self.read_object(self.form, 0)?;
            self.sink.on_document(&self.rows[0]);
        } else {
            let at = self.reader.position();
            self.non_object_at = Some(at);
            // Read to its end, because syntax errors in it are reported too.
            self.read_unknown(NumberMeaning::Unknown)?;
            self.findings.add(Rule::Type, at, &[], None);
        }
        // After the document, data that follow the compressed part are the same violation as trailing text.
        let has_trailing_data = match self.reader.peek() {
            Err(Stop::Io(error)) if CompressionError::of(&error) == Some(CompressionError::TrailingData) => {
                true
            }
            next => next?.is_some(),
        };
        if has_trailing_data {
            self.findings.add(Rule::Trailing, self.reader.position(), &[], None);
        }
        Ok(())
    }

    /// Reads an object of the form into `rows[level]`. Its brace is the byte that `next` returned.
    fn read_object(&mut self, form: &'static Object, level: usize) -> Result<(), Stop> {
        self.enter_container()?;
        let at = self.reader.position();
        self.rows[level].begin(at);
        self.reader.advance();
        let first_unknown = self.unknown_members.begin();
        let mut expected_field = 0;
        if self.reader.next()? == b'}' {
            self.reader.advance();
        } else {
            loop {
                let at = self.reader.position();
                // Fast path: fields are mostly in the order of the form and without escapes.
                let member = match form.fields.get(expected_field) {
                    Some(field) if self.reader.skip_name(field.name) => MemberName::Field(expected_field),
                    _ => self.read_name(form, level, at, first_unknown)?,
                };
                match member {
                    MemberName::Field(field) => {
                        expected_field = field + 1;
                        let field_form = &form.fields[field];
                        self.steps.push(Step::Name(field_form.name));
                        if self.rows[level].has(field) {
                            self.findings.add(Rule::Twice, at, &self.steps, None);
                        }
                        self.read_value(&field_form.value, level, field)?;
                        self.steps.pop();
                    }
                    MemberName::Other(meaning, name) => self.read_unknown_member(meaning, name)?,
                    MemberName::Groups(meaning, name) => {
                        self.read_groups(meaning, name, level)?;
                    }
                    MemberName::Total(meaning, name) => {
                        let first_byte = self.reader.next()?;
                        // An earlier member may have left a number that is not this one's.
                        self.last_number = None;
                        self.read_unknown_member(meaning, name)?;
                        // Numbers inside a list or an object are not the total itself.
                        if let Some((at, number)) = self.last_number.take()
                            && !b"[{".contains(&first_byte)
                        {
                            self.rows[level].put_total(at, number);
                        }
                    }
                }
                if !self.skip_separator(b'}')? {
                    break;
                }
            }
        }
        self.unknown_members.end(first_unknown, self.findings, &self.steps);
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

    /// Reads a member's name and the colon, and looks up its field.
    fn read_name(
        &mut self,
        form: &'static Object,
        level: usize,
        at: Position,
        first_unknown: usize,
    ) -> Result<MemberName, Stop> {
        if self.reader.next()? != b'"' {
            return Err(self.reader.unexpected_error());
        }
        let key = self.reader.read_string()?;
        // A name with flaws is no field, even if the bytes that replace them spell one.
        let is_named = |field: &Field| key.flaws == 0 && field.name.as_bytes() == key.bytes;
        let field = form.fields.iter().position(is_named);
        if key.flaws != 0 {
            add_flaws(self.findings, &key, at, &self.steps);
        }
        let member = if let Some(field) = field {
            MemberName::Field(field)
        } else {
            if !form.open {
                self.findings.add(Rule::Additional, at, &self.steps, Some(key.bytes));
            }
            if !self.unknown_members.add(first_unknown, key.bytes, at) {
                self.findings.add(Rule::Members, at, &self.steps, None);
            }
            if self.sink.identifies(key.bytes, TextAuthor::Tool) {
                self.findings.add(Rule::HidesIdentifiers, at, &self.steps, Some(key.bytes));
            }
            self.sink.on_free_text(key.bytes);
            let parent_meaning = match self.part {
                _ if std::ptr::eq(form, &COUNTS) => NumberMeaning::Count,
                _ if std::ptr::eq(form, &ARTIFACT) => NumberMeaning::TimesByName,
                Part::Outcomes if level == 1 => NumberMeaning::CountsByName,
                _ => NumberMeaning::Unknown,
            };
            let (meaning, name) = parent_meaning.of_member(key.bytes);
            if parent_meaning == NumberMeaning::CountsByName && key.bytes == b"groups" {
                MemberName::Groups(meaning, name)
            } else if parent_meaning == NumberMeaning::CountsByName && is_total(key.bytes) {
                MemberName::Total(meaning, name)
            } else {
                MemberName::Other(meaning, name)
            }
        };
        self.reader.expect(b':')?;
        Ok(member)
    }

    fn read_value(&mut self, form: &'static Value, level: usize, field: usize) -> Result<(), Stop> {
        let byte = self.reader.next()?;
        let at = self.reader.position();
        match byte {
            b'"' => {
                let text = self.reader.read_string()?;
                let row = &mut self.rows[level];
                row.put_text(field, at, text.bytes);
                if text.flaws != 0 {
                    add_flaws(self.findings, &text, at, &self.steps);
                }
                if let Some(rule) = check_text(form, &text, self.schema) {
                    self.findings.add(rule, at, &self.steps, Some(text.bytes));
                }
                // Fields of responses and texts of items have checks of their own in `Content`.
                let is_checked_with_row = level == 1
                    && (self.part == Part::Responses || self.part == Part::Items && field == item::TEXT);
                if !is_checked_with_row {
                    self.sink.on_free_text(text.bytes);
                }
                // `part` is still `Outcomes` while members of the document after the outcomes are read, hence the
                // level.
                if (self.part == Part::Outcomes && level > 0 || matches!(form, Value::Arbitrary))
                    && self.sink.is_finer_than_day(text.bytes)
                {
                    self.findings.add(Rule::FineTime, at, &self.steps, Some(text.bytes));
                }
                // A small count reveals as much if it is written as a text.
                if self.part == Part::Outcomes
                    && level == 2
                    && parse_count(text.bytes).is_some_and(|number| self.sink.is_below_k(number))
                {
                    self.findings.add(Rule::SmallOutcome, at, &self.steps, Some(text.bytes));
                }
                let author = match form {
                    Value::Text(bounds) | Value::TextOrNull(bounds) => bounds.author,
                    Value::Arbitrary => Some(TextAuthor::Tool),
                    _ => None,
                };
                if let Some(author) = author
                    && self.sink.identifies(text.bytes, author)
                {
                    self.findings.add(Rule::HidesIdentifiers, at, &self.steps, Some(text.bytes));
                }
            }
            b'{' => match form {
                Value::Object(inner) => {
                    self.rows[level].put_other(field, at);
                    if level > 0 {
                        return self.read_object(inner, level + 1);
                    }
                    if let Some(part) = Part::at(field) {
                        self.part = part;
                        self.read_object(inner, 1)?;
                        self.sink.on_part(part, &self.rows[1]);
                    }
                }
                _ => self.read_mismatch(form, level, field, at)?,
            },
            b'[' => match form {
                Value::List { of, least } => {
                    self.rows[level].put_other(field, at);
                    self.read_list(of, *least, level, field, at)?;
                }
                Value::Texts => {
                    self.rows[level].put_other(field, at);
                    self.read_texts(field)?;
                }
                // The data card check needs the lengths of these two lists.
                Value::Arbitrary if level == 1 && self.part == Part::Outcomes && field == MEMBERS => {
                    let count = self.read_members()?;
                    self.rows[level].put_number(field, at, Number::from_u64(count));
                }
                Value::Arbitrary if level == 1 && self.part == Part::Outcomes && field == SUPPRESSED => {
                    self.rows[level].put_other(field, at);
                    if let Some((count, answers)) = self.read_distinct_names()? {
                        self.rows[level].put_number(field, at, Number::from_u64(count));
                        self.rows[level].put_number(SUPPRESSED_ANSWERS, at, Number::from_u64(answers));
                    }
                }
                _ => self.read_mismatch(form, level, field, at)?,
            },
            b'-' | b'0'..=b'9' => {
                let number = self.reader.read_number()?;
                match number {
                    None => {
                        self.rows[level].put_other(field, at);
                        self.findings.add(Rule::Long, at, &self.steps, None);
                    }
                    // A number in this slot stands for the length of the list of names, so a number in the document
                    // must not be stored there.
                    Some(_) if level == 1 && self.part == Part::Outcomes && field == SUPPRESSED => {
                        self.rows[level].put_other(field, at);
                    }
                    Some(number) => {
                        self.rows[level].put_number(field, at, number);
                        if !number.double.is_finite() {
                            self.findings.add(Rule::Huge, at, &self.steps, None);
                        }
                        if let Some(rule) = check_number(form, &number) {
                            let value = format!("{}", number.double);
                            self.findings.add(rule, at, &self.steps, Some(value.as_bytes()));
                        }
                    }
                }
            }
            b't' | b'f' => {
                self.reader.expect_literal(if byte == b't' { "true" } else { "false" })?;
                self.rows[level].put_flag(field, at, byte == b't');
                if !matches!(form, Value::Flag | Value::Arbitrary) {
                    self.findings.add(type_rule(form), at, &self.steps, None);
                }
            }
            b'n' => {
                self.reader.expect_literal("null")?;
                self.rows[level].put_null(field, at);
                if !matches!(form, Value::TextOrNull(_) | Value::Arbitrary) {
                    self.findings.add(type_rule(form), at, &self.steps, None);
                }
            }
            _ => return Err(self.reader.unexpected_error()),
        }
        Ok(())
    }

    #[cold]
    fn read_mismatch(&mut self, form: &Value, level: usize, field: usize, at: Position) -> Result<(), Stop> {
        self.rows[level].put_other(field, at);
        if !matches!(form, Value::Arbitrary) {
            self.findings.add(type_rule(form), at, &self.steps, None);
        }
        let meaning =
            if self.part == Part::Provenance { NumberMeaning::TimesByName } else { NumberMeaning::Unknown };
        self.read_unknown(meaning)
    }

    fn read_list(
        &mut self,
        element_form: &'static Object,
        least: u64,
        level: usize,
        field: usize,
        at: Position,
    ) -> Result<(), Stop> {
        let part = Part::at(field).filter(|_| level == 0);
        self.part = part.unwrap_or(self.part);
        let count = self.read_elements(|walk, index| {
            walk.steps.push(Step::Index(index));
            if walk.reader.next()? == b'{' {
                // An element without a nested object must not see that of the element before.
                walk.rows[2].begin(Position::default());
                walk.rows[level + 1].index = index;
                walk.read_object(element_form, level + 1)?;
                match part {
                    Some(part) => {
                        let [_, row, nested_row] = &walk.rows;
                        let counts = (part == Part::Outcomes).then_some(nested_row);
                        walk.sink.on_entry(part, row, counts, walk.findings)?;
                    }
                    None => walk.sink.on_artifact(&walk.rows[level + 1]),
                }
            } else {
                let at = walk.reader.position();
                walk.read_unknown(NumberMeaning::Unknown)?;
                walk.findings.add(Rule::Type, at, &walk.steps, None);
            }
            walk.steps.pop();
            Ok(())
        })?;
        if count < least {
            self.findings.add(Rule::Few, at, &self.steps, None);
        }
        if let Some(part) = part {
            self.sink.on_list_end(part);
        }
        Ok(())
    }

    /// Reads an array, calling `handle` at the start of each element, and returns the number of elements. Its bracket
    /// is the byte that `next` returned.
    fn read_elements(
        &mut self,
        mut handle: impl FnMut(&mut Self, u64) -> Result<(), Stop>,
    ) -> Result<u64, Stop> {
        self.enter_container()?;
        self.reader.advance();
        let mut count = 0;
        if self.reader.next()? == b']' {
            self.reader.advance();
        } else {
            loop {
                handle(self, count)?;
                count += 1;
                if !self.skip_separator(b']')? {
                    break;
                }
            }
        }
        self.depth -= 1;
        Ok(count)
    }

    /// Reads the participants that an outcome lists as members. Other elements are skipped.
    fn read_members(&mut self) -> Result<u64, Stop> {
        let outcome = self.rows[1].index;
        self.read_names(TextAuthor::Reference, |sink, index, name| match name {
            Some((at, name)) => sink.on_member(outcome, index, at, name),
            None => Ok(()),
        })
    }

    /// Reads a list of names. Returns the number of distinct names, up to [`MAX_DISTINCT_NAMES`], and the answers among
    /// them as a bit set; `None` if the list has other elements than texts.
    fn read_distinct_names(&mut self) -> Result<Option<(u64, u64)>, Stop> {
        let (mut distinct_names, mut only_names) = (Vec::<Box<[u8]>>::new(), true);
        self.read_names(TextAuthor::Tool, |_, _, name| {
            match name {
                Some((_, name))
                    if distinct_names.len() < MAX_DISTINCT_NAMES
                        && !distinct_names.iter().any(|known_name| **known_name == *name) =>
                {
                    distinct_names.push(name.into());
                }
                Some(_) => {}
                None => only_names = false,
            }
            Ok(())
        })?;
        let answers = distinct_names.iter().filter_map(|name| Answer::parse(name));
        let answers = answers.fold(0, |answers, answer| answers | 1 << answer as u64);
        Ok(only_names.then_some((distinct_names.len() as u64, answers)))
    }

    /// Reads an array of names, and calls `handle` with each name, or `None` for an element of another type.
    fn read_names(
        &mut self,
        author: TextAuthor,
        mut handle: impl FnMut(&mut S, u64, Option<(Position, &[u8])>) -> Result<(), Stop>,
    ) -> Result<u64, Stop> {
        self.read_elements(|walk, index| {
            if walk.reader.next()? != b'"' {
                walk.read_unknown(NumberMeaning::Unknown)?;
                return handle(walk.sink, index, None);
            }
            let at = walk.reader.position();
            let text = walk.reader.read_string()?;
            if text.flaws != 0 {
                add_flaws(walk.findings, &text, at, &walk.steps);
            }
            if walk.sink.identifies(text.bytes, author) {
                walk.steps.push(Step::Index(index));
                walk.findings.add(Rule::HidesIdentifiers, at, &walk.steps, Some(text.bytes));
                walk.steps.pop();
            }
            walk.sink.on_free_text(text.bytes);
            handle(walk.sink, index, Some((at, text.bytes)))
        })
    }

    fn read_texts(&mut self, field: usize) -> Result<(), Stop> {
        self.read_elements(|walk, index| {
            walk.steps.push(Step::Index(index));
            let byte = walk.reader.next()?;
            let at = walk.reader.position();
            if byte == b'"' {
                let text = walk.reader.read_string()?;
                if text.flaws != 0 {
                    add_flaws(walk.findings, &text, at, &walk.steps);
                }
                if walk.sink.identifies(text.bytes, TextAuthor::Tool) {
                    walk.findings.add(Rule::HidesIdentifiers, at, &walk.steps, Some(text.bytes));
                }
                walk.sink.on_free_text(text.bytes);
                walk.sink.on_list_text(walk.part, field, text.bytes);
            } else {
                walk.read_unknown(NumberMeaning::Unknown)?;
                walk.findings.add(Rule::Type, at, &walk.steps, None);
            }
            walk.steps.pop();
            Ok(())
        })
        .map(drop)
    }

    /// Consumes a comma or the closing bracket `end`; true if another element follows.
    #[inline]
    fn skip_separator(&mut self, end: u8) -> Result<bool, Stop> {
        match self.reader.next()? {
            b',' => {
                self.reader.advance();
                // Skips white space: the position must be that of the next element.
                self.reader.next()?;
                Ok(true)
            }
            byte if byte == end => {
                self.reader.advance();
                Ok(false)
            }
            _ => Err(self.reader.unexpected_error()),
        }
    }

    fn enter_container(&mut self) -> Result<(), Stop> {
        if self.depth == self.reader.limits().depth {
            return Err(Stop::Invalid(InvalidReason::TooDeep, self.reader.position()));
        }
        self.depth += 1;
        Ok(())
    }
}

/// Number of distinct names after which further ones are ignored. Larger than the number of answers.
const MAX_DISTINCT_NAMES: usize = 16;

#[cold]
fn add_flaws(findings: &mut Findings, text: &Text<'_>, at: Position, steps: &[Step]) {
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

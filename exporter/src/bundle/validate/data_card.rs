//! Checks that a bundle's data card is true, and that a bundle declared fit for sharing is.
//!
//! A card may claim more than the bundle holds, never less.

use std::io;

use super::{
    findings::{Findings, Step},
    locations::{ID, add_finding, item, outcome, response},
    row::Row,
    rules::Rule,
    sink::Part,
    totals::{Counted, Item, Tally},
    unique::Sums,
};
use crate::{
    form::{Answer, DATA_CARD, GROUP_MEMBERS, SUMMARY, TEXT_REVIEWED_BY, aggregation, publication},
    json::{Number, Position},
    privacy::{
        identifying_text::is_address,
        participants::{has_pseudonym, refers},
    },
};

/// Rules that are checked row by row and apply only to shared bundles.
pub(super) const SHARED_ROW_BY_ROW: [Rule; 7] = [
    Rule::SmallCell,
    Rule::FineTime,
    Rule::SmallOutcome,
    Rule::LoneHidden,
    Rule::SmallHidden,
    Rule::UnclearHidden,
    Rule::SmallUngrouped,
];

const DATA: usize = 0;
const IDENTIFIERS: usize = 1;
const TEXT: usize = 2;
const LINKAGE: usize = 3;
const AGGREGATION: usize = 4;
const PUBLICATION: usize = 5;
const SHARING: usize = 7;
/// Field of the summary.
const PARTICIPANTS: usize = 0;

#[derive(Debug)]
pub(crate) struct Card {
    k: u64,
    flags: [Option<(bool, Position)>; 9],
    events: bool,
    /// Position of an aggregation that claims counts without links.
    unlinked: Option<Position>,
    public: Option<Position>,
    /// Some response names its participant.
    named: bool,
    reviewed: bool,
    texts: bool,
    linked: bool,
    /// Number of participants in the summary.
    participants: Option<(u128, Position)>,
}

impl Card {
    pub(crate) fn new(k: u64) -> Self {
        Self {
            k,
            flags: [None; 9],
            events: false,
            unlinked: None,
            public: None,
            named: false,
            reviewed: false,
            texts: false,
            linked: false,
            participants: None,
        }
    }

    pub(crate) fn take(&mut self, row: &Row) {
        for (field, flag) in self.flags.iter_mut().enumerate() {
            *flag = row.flag(field).map(|flag| (flag, row.position(field)));
        }
        let says = |field: usize, word: &str| row.text(field) == Some(word.as_bytes());
        self.events = says(AGGREGATION, aggregation::EVENTS);
        let unlinked =
            says(AGGREGATION, aggregation::ITEM_COUNTS) || says(AGGREGATION, aggregation::PAIR_COUNTS);
        self.unlinked = unlinked.then(|| row.position(AGGREGATION));
        self.public = says(PUBLICATION, publication::PUBLIC).then(|| row.position(PUBLICATION));
    }

    /// True if the bundle claims to hold every answer, not only the latest.
    pub(crate) fn is_of_events(&self) -> bool {
        self.events
    }

    pub(crate) fn summary(&mut self, row: &Row) {
        self.participants =
            row.number(PARTICIPANTS).map(|number| (number.count(), row.position(PARTICIPANTS)));
    }

    pub(crate) fn is_small(&self, number: Number) -> bool {
        number.whole && (1..u128::from(self.k)).contains(&number.count())
    }

    /// An entry of `provenance.notes`.
    pub(crate) fn note(&mut self, note: &[u8]) {
        self.reviewed |= note.strip_prefix(TEXT_REVIEWED_BY.as_bytes()).is_some_and(|who| !who.is_empty());
    }

    /// A text that a participant wrote.
    pub(crate) fn text(&mut self, text: &[u8]) {
        self.texts |= !text.is_empty();
    }

    /// Notes a reference to a participant in a text where none is expected.
    pub(crate) fn said(&mut self, text: &[u8]) {
        self.linked |= !self.linked && refers(text);
    }

    /// A time that may matter.
    pub(crate) fn item(&mut self, row: &Row, findings: &mut Findings) {
        if row.text(item::CREATED).is_some_and(|time| !is_day(time)) {
            add_finding(findings, Rule::FineTime, Part::Items, row, item::CREATED);
        }
    }

    /// Checks what a single response reveals; whether that matters is known once the card has been read.
    #[inline]
    pub(crate) fn response(&mut self, row: &Row, pseudonymous: bool, findings: &mut Findings) {
        let add = |findings: &mut Findings, rule: Rule, field: usize, name: &'static str| {
            let steps = [Step::Name(Part::Responses.name()), Step::Index(row.index), Step::Name(name)];
            findings.add(rule, row.position(field), &steps, row.text(field));
        };
        if let Some(participant) = row.text(response::PARTICIPANT) {
            (self.linked, self.named) = (true, true);
            if !pseudonymous && is_address(participant) {
                add(findings, Rule::HidesIdentifiers, response::PARTICIPANT, "participantRef");
            }
            if !pseudonymous && is_counted(participant) {
                add(findings, Rule::PlainRef, response::PARTICIPANT, "participantRef");
            }
        }
        if !self.linked
            && let Some(id) = row.text(ID)
        {
            let called_by = [response::PHASE, response::SUBJECT, response::OBJECT];
            self.linked =
                refers(id) || has_pseudonym(id, &called_by.map(|it| row.text(it).unwrap_or_default()));
        }
        // Mostly every response has such a count and time, and mostly they do not matter.
        if row.number(response::COUNT).is_some_and(|count| self.is_small(count))
            && !findings.only_count(Rule::SmallCell, row.position(response::COUNT))
        {
            add(findings, Rule::SmallCell, response::COUNT, "count");
        }
        if row.text(response::OCCURRED).is_some_and(|time| !is_day(time))
            && !findings.only_count(Rule::FineTime, row.position(response::OCCURRED))
        {
            add(findings, Rule::FineTime, response::OCCURRED, "occurredAt");
        }
    }

    /// Numbers of an outcome; whether they matter is known when the card is.
    pub(crate) fn outcome(&mut self, row: &Row, counts: Option<&Row>, findings: &mut Findings) {
        let count = |field: usize| row.number(field).map_or(0, |number| number.count());
        let is_group = row.text(outcome::TYPE) == Some(GROUP_MEMBERS.as_bytes());
        self.linked |= is_group && count(outcome::MEMBERS) > 0;
        let called_by = [outcome::PHASE, outcome::ITEM].map(|it| row.text(it).unwrap_or_default());
        self.linked |= has_pseudonym(row.text(ID).unwrap_or_default(), &called_by);
        let here = [Step::Name(Part::Outcomes.name()), Step::Index(row.index)];
        let mut add = |rule: Rule, at: Position, names: &[&'static str]| {
            let names = names.iter().map(|name| Step::Name(name));
            let steps: Vec<_> = here.into_iter().chain(names).collect();
            findings.add(rule, at, &steps, None);
        };
        let observed = row.number(outcome::OBSERVATIONS);
        if observed.is_some_and(|observed| self.is_small(observed)) {
            add(Rule::SmallOutcome, row.position(outcome::OBSERVATIONS), &["observations"]);
        }
        if row.has(outcome::SUPPRESSED) {
            // A list of names is held as how many it has; anything else is no number here.
            let rule = match row.number(outcome::SUPPRESSED) {
                None => Some(Rule::UnclearHidden),
                Some(_) => (count(outcome::SUPPRESSED) == 1).then_some(Rule::LoneHidden),
            };
            rule.into_iter().for_each(|rule| add(rule, row.position(outcome::SUPPRESSED), &["suppressed"]));
        }
        let Some(counts) = counts else { return };
        let mut shown = 0_u128;
        for answer in Answer::ALL {
            let Some(number) = counts.number(answer as usize) else { continue };
            shown = shown.saturating_add(number.count());
            if self.is_small(number) {
                add(Rule::SmallOutcome, counts.position(answer as usize), &["counts", answer.as_str()]);
            }
        }
        // Of other counts than answers it is not known what they are a part of.
        let hides_few = |total: Option<Number>| {
            let left = total.map_or(0, |total| total.count().saturating_sub(shown));
            shown > 0 && (1..u128::from(self.k)).contains(&left)
        };
        if hides_few(observed) {
            add(Rule::SmallHidden, row.position(outcome::OBSERVATIONS), &["observations"]);
        }
        for total in Row::MORE.filter(|total| hides_few(row.number(*total))) {
            add(Rule::SmallHidden, row.position(total), &[]);
        }
    }

    pub(crate) fn judge(
        &self,
        counted: &Counted,
        items: &[Item],
        tallies: &[Tally],
        cells: Sums<13>,
        findings: &mut Findings,
    ) -> io::Result<()> {
        for (said, field, rule) in [
            (self.unlinked, AGGREGATION, Rule::LinkedCounts),
            (self.public, PUBLICATION, Rule::PublicLinkage),
        ] {
            if let Some(at) = said
                && self.named
            {
                let steps = [Step::Name(Part::DataCard.name()), Step::Name(DATA_CARD.fields[field].name)];
                findings.add(rule, at, &steps, None);
            }
        }
        let says = |field: usize| self.flags[field].map(|(flag, _)| flag);
        let mut hold = |holds: bool, rule: Rule, field: usize| {
            if let Some((_, at)) = self.flags[field]
                && !holds
            {
                let steps = [Step::Name(Part::DataCard.name()), Step::Name(DATA_CARD.fields[field].name)];
                findings.add(rule, at, &steps, None);
            }
        };
        let shared = says(SHARING) == Some(true);
        let data = counted.responses > 0 || self.texts;
        hold(says(DATA) != Some(false) || !data, Rule::HidesData, DATA);
        hold(says(LINKAGE) != Some(false) || !self.linked, Rule::HidesLinkage, LINKAGE);
        hold(says(TEXT) != Some(false) || !self.texts, Rule::HidesText, TEXT);
        let linked = self.linked || says(LINKAGE) == Some(true);
        hold(!shared || !linked, Rule::SharesLinkage, SHARING);
        hold(!shared || says(IDENTIFIERS) != Some(true), Rule::SharesIdentifiers, SHARING);
        let unread = (self.texts || says(TEXT) == Some(true)) && !self.reviewed;
        hold(!shared || !unread, Rule::SharesText, SHARING);
        if says(IDENTIFIERS) != Some(false) {
            findings.forget(Rule::HidesIdentifiers);
        }
        if !shared {
            SHARED_ROW_BY_ROW.into_iter().for_each(|rule| findings.forget(rule));
            return Ok(());
        }
        let is_few = |people: u128| (1..u128::from(self.k)).contains(&people);
        // Of answers that may be of one participant it is not known how many gave them.
        let people = self.participants.filter(|_| !self.events).map_or(0, |(participants, _)| participants);
        if let Some((participants, at)) = self.participants {
            let steps = [Step::Name(Part::Summary.name()), Step::Name(SUMMARY.fields[PARTICIPANTS].name)];
            if is_few(participants) {
                findings.add(Rule::SmallSummary, at, &steps, None);
            }
            if counted.answers > 0 && is_few(people.saturating_sub(counted.answers)) {
                findings.add(Rule::SmallUnseen, at, &steps, None);
            }
        }
        let small = |count: u64| count > 0 && count < self.k;
        let mut few = |item: u32, rule: Rule| {
            let item = &items[item as usize];
            let steps = [Step::Name(Part::Items.name()), Step::Index(item.index)];
            findings.add(rule, item.at, &steps, None);
        };
        for tally in tallies {
            let answered: u128 = tally.single.iter().map(|count| u128::from(*count)).sum();
            if tally.whole && is_few(people.saturating_sub(answered)) {
                few(tally.item, Rule::SmallSilent);
            }
            if small(tally.single.iter().fold(0, |sum, count| sum.saturating_add(*count))) {
                few(tally.item, Rule::SmallItem);
            }
            tally.single.iter().filter(|count| small(**count)).for_each(|_| few(tally.item, Rule::SmallCell));
        }
        cells.finish(|cell, count| {
            if small(count)
                && let Some(subject) = cell.get(4..8).and_then(|item| item.try_into().ok())
            {
                few(u32::from_be_bytes(subject), Rule::SmallCell);
            }
        })
    }
}

/// A text that is a time, in the ways in which tools write it, and finer than a day.
pub(super) fn is_fine(text: &[u8]) -> bool {
    let text = text.trim_ascii_start();
    dated(text).or_else(|| in_words(text)).is_some_and(|time| !is_midnight(time))
}

/// A time of day without a date.
pub(super) fn is_clock(text: &[u8]) -> bool {
    let text = text.trim_ascii();
    let is_time =
        |byte: &u8| byte.is_ascii_digit() || b":.,+-\x20ZAPMUTC".contains(&byte.to_ascii_uppercase());
    begins_as_clock(text) && text.iter().all(is_time) && !is_midnight(text)
}

/// Time of day behind a numeric date: of a month, a week or a year, with any separators.
fn dated(text: &[u8]) -> Option<&[u8]> {
    const BEHIND: &[u8] = b"Tt ,";
    let end = text.iter().take(12).position(|byte| BEHIND.contains(byte))?;
    let (date, rest) = text.split_at(end);
    let digits = date.iter().filter(|byte| byte.is_ascii_digit()).count();
    let between = date.iter().filter(|byte| b"-/.Ww".contains(byte)).count();
    let joined = matches!(rest, [b'T' | b't', ..]);
    let is_date = match between {
        0 => joined && (digits == 7 || digits == 8),
        1 => digits == 7,
        2 | 3 => (4..=8).contains(&digits),
        _ => false,
    };
    let time = &rest[rest.iter().position(|byte| !BEHIND.contains(byte))?..];
    let is_time = begins_as_clock(time) || joined && like(time, b"0000");
    (is_date && digits + between == date.len() && is_time).then_some(time)
}

fn begins_as_clock(text: &[u8]) -> bool {
    like(text, b"00:00") || like(text, b"0:00")
}

fn is_midnight(time: &[u8]) -> bool {
    let time = match time {
        [b'1', b'2', rest @ ..] if time.to_ascii_lowercase().ends_with(b"am") => rest,
        time => time,
    };
    !time.iter().any(|byte| (b'1'..=b'9').contains(byte))
}

/// True if the text begins like the pattern, in which `0` matches any digit.
fn like(text: &[u8], pattern: &[u8]) -> bool {
    let fits =
        |(byte, wanted): (&u8, &u8)| if *wanted == b'0' { byte.is_ascii_digit() } else { byte == wanted };
    text.len() >= pattern.len() && text.iter().zip(pattern).all(fits)
}

/// The time of day of a date as mails (RFC 2822), browsers and `date` write it.
fn in_words(text: &[u8]) -> Option<&[u8]> {
    const MONTHS: [&[u8]; 12] =
        [b"jan", b"feb", b"mar", b"apr", b"may", b"jun", b"jul", b"aug", b"sep", b"oct", b"nov", b"dec"];
    // Most texts are longer than a date, and what begins otherwise is none.
    let words = || {
        let words = text.split(|byte| b" ,\t".contains(byte)).filter(|word| !word.is_empty());
        words.take(7)
    };
    let is_month = |word: &[u8]| {
        word.len() >= 3
            && MONTHS.iter().any(|month| month.eq_ignore_ascii_case(&word[..3]))
            && word.iter().all(u8::is_ascii_alphabetic)
    };
    let is_number = |word: &[u8], most: usize| word.len() <= most && word.iter().all(u8::is_ascii_digit);
    let days = words().filter(|word| is_number(word, 2) || is_number(word, 4)).count();
    if days < 2 || !words().any(is_month) {
        return None;
    }
    words().find(|word| begins_as_clock(word))
}

/// Seconds or milliseconds since 1970 that are no beginning of a day.
pub(super) fn is_fine_count(count: u128) -> bool {
    match count {
        100_000_000..100_000_000_000 => !count.is_multiple_of(86_400),
        100_000_000_000..100_000_000_000_000 => !count.is_multiple_of(86_400_000),
        _ => false,
    }
}

/// Midnight in UTC.
fn is_day(time: &[u8]) -> bool {
    let rest = time.get(10..).unwrap_or_default();
    let rest = rest.strip_prefix(b"T00:00:00").or_else(|| rest.strip_prefix(b"t00:00:00"));
    let Some(rest) = rest else { return false };
    let rest = rest.strip_prefix(b".").unwrap_or(rest);
    let zeros = rest.iter().take_while(|byte| **byte == b'0').count();
    matches!(&rest[zeros..], b"Z" | b"z" | b"+00:00" | b"-00:00")
}

/// A few digits at the end, perhaps after a letter, as in `participant:p12`: such numbers are quickly tried.
#[inline]
fn is_counted(participant: &[u8]) -> bool {
    let digits = participant.iter().rev().take(11).take_while(|byte| byte.is_ascii_digit()).count();
    if !(1..=10).contains(&digits) {
        return false;
    }
    match &participant[..participant.len() - digits] {
        [] | [.., b':'] => true,
        [letter] | [.., b':', letter] => letter.is_ascii_alphabetic(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counted_names_are_told_from_pseudonyms() {
        for counted in ["7", "p12", "participant:p12", "participant:12", "session:1234567890"] {
            assert!(is_counted(counted.as_bytes()), "{counted}");
        }
        for other in [
            "participant:0123456789abcdef0123456789abcdef",
            "participant:abcdefabcdefabcdefabcdefabcdef12",
            "participant:12345678901234567890123456789012",
            "session:3f2b8c1e-0000-4000-8000-000000000001",
            "",
            "ada",
        ] {
            assert!(!is_counted(other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn a_time_of_day_is_found_behind_a_date_however_it_is_written() {
        for fine in [
            "2026-01-01T10:15",
            "2026-01-01 10:15:00",
            "20260101T1015Z",
            "2026-W01-4T10:15",
            "2026W014T1015",
            "2026-001T10:15",
            "2026001T1015",
            "01/02/2026 10:15",
            "1/2/26, 9:05 PM",
            "2026/01/02 10:15",
            "01.02.2026, 10:15",
            "1/2/2026, 12:00:00 PM",
            "Thu, 1 Jan 2026 10:15:00 +0000",
        ] {
            assert!(is_fine(fine.as_bytes()), "{fine}");
        }
        for other in [
            "2026-01-01T00:00:00Z",
            "2026-W01-4T00:00",
            "1/2/2026, 12:00:00 AM",
            "01/02/2026",
            "01/02/2026 10 people",
            "2024/2025 10:15",
            "1.5 10:15",
            "12345678 10:15",
            "10:15",
            "",
            " ",
            "2026-01-01T",
        ] {
            assert!(!is_fine(other.as_bytes()), "{other}");
        }
        for clock in ["10:15", "9:05", " 10:15:30.5 ", "10:15 pm", "10:15Z", "10:15 UTC"] {
            assert!(is_clock(clock.as_bytes()), "{clock}");
        }
        for other in ["00:00", "12:00 AM", "10", "10:15 to 11", "1:2", "a 10:15", ""] {
            assert!(!is_clock(other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn a_day_is_midnight_in_utc() {
        for day in ["2024-05-06T00:00:00Z", "2024-05-06T00:00:00.000Z", "2024-05-06T00:00:00+00:00"] {
            assert!(is_day(day.as_bytes()), "{day}");
        }
        for fine in ["2024-05-06T00:00:01Z", "2024-05-06T00:00:00.001Z", "2024-05-06T00:00:00+01:00", ""] {
            assert!(!is_day(fine.as_bytes()), "{fine}");
        }
    }
}

//! Checks the claims of a bundle's data card, and the privacy of a bundle that is marked for public sharing. A card may
//! claim more personal data than the bundle contains, never less.

use std::io;

use super::{
    findings::{Findings, Step},
    locations::{ID, add_finding, item, outcome, response},
    row::Row,
    rules::Rule,
    sink::Part,
    totals::{BundleCounts, Item, Tally},
    unique::Sums,
};
use crate::{
    form::{Answer, DATA_CARD, GROUP_MEMBERS, SUMMARY, TEXT_REVIEWED_BY, aggregation, publication},
    json::{Number, Position},
    privacy::{
        identifying_text::is_address,
        participants::{has_pseudonym, mentions_participant},
    },
};

/// Rules of shared bundles that are checked row by row. Their findings are discarded if the card turns out not to mark
/// the bundle for sharing.
pub(super) const SHARED_ROW_BY_ROW: [Rule; 7] = [
    Rule::SmallCell,
    Rule::FineTime,
    Rule::SmallOutcome,
    Rule::LoneHidden,
    Rule::SmallHidden,
    Rule::UnclearHidden,
    Rule::SmallUngrouped,
];

const CONTAINS_DATA: usize = 0;
const CONTAINS_IDENTIFIERS: usize = 1;
const CONTAINS_TEXT: usize = 2;
const CONTAINS_LINKAGE: usize = 3;
const AGGREGATION: usize = 4;
const PUBLICATION: usize = 5;
const SUITABLE_FOR_SHARING: usize = 7;
/// Index of `participants` in the summary.
const SUMMARY_PARTICIPANTS: usize = 0;

/// State of the checks against the data card, which can be read after the rows.
#[derive(Debug)]
pub(crate) struct Card {
    k: u64,
    flags: [Option<(bool, Position)>; 9],
    has_events: bool,
    /// Position of `aggregation`, if it claims counts that are not linked to participants.
    unlinked_at: Option<Position>,
    public_at: Option<Position>,
    /// True if a response names its participant.
    has_named_responses: bool,
    is_text_reviewed: bool,
    has_texts: bool,
    has_linkage: bool,
    /// Value and position of `summary.participants`.
    stated_participants: Option<(u128, Position)>,
}

impl Card {
    pub(crate) fn new(k: u64) -> Self {
        Self {
            k,
            flags: [None; 9],
            has_events: false,
            unlinked_at: None,
            public_at: None,
            has_named_responses: false,
            is_text_reviewed: false,
            has_texts: false,
            has_linkage: false,
            stated_participants: None,
        }
    }

    pub(crate) fn read_card(&mut self, row: &Row) {
        for (field, flag) in self.flags.iter_mut().enumerate() {
            *flag = row.flag(field).map(|flag| (flag, row.position(field)));
        }
        let is_word = |field: usize, word: &str| row.text(field) == Some(word.as_bytes());
        self.has_events = is_word(AGGREGATION, aggregation::EVENTS);
        let claims_counts =
            is_word(AGGREGATION, aggregation::ITEM_COUNTS) || is_word(AGGREGATION, aggregation::PAIR_COUNTS);
        self.unlinked_at = claims_counts.then(|| row.position(AGGREGATION));
        self.public_at = is_word(PUBLICATION, publication::PUBLIC).then(|| row.position(PUBLICATION));
    }

    /// True if the bundle claims to hold all answers, not only the latest of each participant.
    pub(crate) fn is_of_events(&self) -> bool {
        self.has_events
    }

    pub(crate) fn read_summary(&mut self, row: &Row) {
        self.stated_participants = row
            .number(SUMMARY_PARTICIPANTS)
            .map(|number| (number.saturating_count(), row.position(SUMMARY_PARTICIPANTS)));
    }

    pub(crate) fn is_below_k(&self, number: Number) -> bool {
        number.is_whole && (1..u128::from(self.k)).contains(&number.saturating_count())
    }

    /// Checks an entry of `provenance.notes` for the name of a reviewer of the texts.
    pub(crate) fn read_note(&mut self, note: &[u8]) {
        self.is_text_reviewed |=
            note.strip_prefix(TEXT_REVIEWED_BY.as_bytes()).is_some_and(|reviewer| !reviewer.is_empty());
    }

    /// Records a text written by a participant.
    pub(crate) fn note_participant_text(&mut self, text: &[u8]) {
        self.has_texts |= !text.is_empty();
    }

    /// Records a reference to a participant in a text or name outside the fields for participants.
    pub(crate) fn note_reference(&mut self, text: &[u8]) {
        self.has_linkage |= !self.has_linkage && mentions_participant(text);
    }

    /// Checks the creation time of an item.
    pub(crate) fn check_item(&mut self, row: &Row, findings: &mut Findings) {
        if row.text(item::CREATED).is_some_and(|time| !is_midnight_in_utc(time)) {
            add_finding(findings, Rule::FineTime, Part::Items, row, item::CREATED);
        }
    }

    /// Checks a response as if the bundle were shared. `check` discards the findings if the card does not say so.
    #[inline]
    pub(crate) fn check_response(&mut self, row: &Row, is_pseudonym: bool, findings: &mut Findings) {
        let add = |findings: &mut Findings, rule: Rule, field: usize, name: &'static str| {
            let steps = [Step::Name(Part::Responses.name()), Step::Index(row.index), Step::Name(name)];
            findings.add(rule, row.position(field), &steps, row.text(field));
        };
        if let Some(participant) = row.text(response::PARTICIPANT) {
            (self.has_linkage, self.has_named_responses) = (true, true);
            if !is_pseudonym && is_address(participant) {
                add(findings, Rule::HidesIdentifiers, response::PARTICIPANT, "participantRef");
            }
            if !is_pseudonym && is_numbered(participant) {
                add(findings, Rule::PlainRef, response::PARTICIPANT, "participantRef");
            }
        }
        if !self.has_linkage
            && let Some(id) = row.text(ID)
        {
            let references = [response::PHASE, response::SUBJECT, response::OBJECT];
            self.has_linkage = mentions_participant(id)
                || has_pseudonym(id, &references.map(|field| row.text(field).unwrap_or_default()));
        }
        // A private bundle has such a count and time in each response, so a finding that is only counted must be cheap.
        if row.number(response::COUNT).is_some_and(|count| self.is_below_k(count))
            && !findings.count_if_dropped(Rule::SmallCell, row.position(response::COUNT))
        {
            add(findings, Rule::SmallCell, response::COUNT, "count");
        }
        if row.text(response::OCCURRED).is_some_and(|time| !is_midnight_in_utc(time))
            && !findings.count_if_dropped(Rule::FineTime, row.position(response::OCCURRED))
        {
            add(findings, Rule::FineTime, response::OCCURRED, "occurredAt");
        }
    }

    /// Checks an outcome as if the bundle were shared. `check` discards the findings if the card does not say so.
    pub(crate) fn check_outcome(&mut self, row: &Row, counts: Option<&Row>, findings: &mut Findings) {
        let count_of = |field: usize| row.number(field).map_or(0, |number| number.saturating_count());
        let is_group = row.text(outcome::TYPE) == Some(GROUP_MEMBERS.as_bytes());
        self.has_linkage |= is_group && count_of(outcome::MEMBERS) > 0;
        let references = [outcome::PHASE, outcome::ITEM].map(|field| row.text(field).unwrap_or_default());
        self.has_linkage |= has_pseudonym(row.text(ID).unwrap_or_default(), &references);
        let outcome_steps = [Step::Name(Part::Outcomes.name()), Step::Index(row.index)];
        let mut add = |rule: Rule, at: Position, names: &[&'static str]| {
            let names = names.iter().map(|name| Step::Name(name));
            let steps: Vec<_> = outcome_steps.into_iter().chain(names).collect();
            findings.add(rule, at, &steps, None);
        };
        let observations = row.number(outcome::OBSERVATIONS);
        if observations.is_some_and(|observed| self.is_below_k(observed)) {
            add(Rule::SmallOutcome, row.position(outcome::OBSERVATIONS), &["observations"]);
        }
        if row.has(outcome::SUPPRESSED) {
            // The walk stores a list of names as its length, and any other value as no number.
            let rule = match row.number(outcome::SUPPRESSED) {
                None => Some(Rule::UnclearHidden),
                Some(_) => (count_of(outcome::SUPPRESSED) == 1).then_some(Rule::LoneHidden),
            };
            rule.into_iter().for_each(|rule| add(rule, row.position(outcome::SUPPRESSED), &["suppressed"]));
        }
        let Some(counts) = counts else { return };
        let mut shown_sum = 0_u128;
        for answer in Answer::ALL {
            let Some(number) = counts.number(answer as usize) else { continue };
            shown_sum = shown_sum.saturating_add(number.saturating_count());
            if self.is_below_k(number) {
                add(Rule::SmallOutcome, counts.position(answer as usize), &["counts", answer.as_str()]);
            }
        }
        // Only the six answers are subtracted: other counts may overlap them.
        let hides_few = |total: Option<Number>| {
            let hidden_count = total.map_or(0, |total| total.saturating_count().saturating_sub(shown_sum));
            shown_sum > 0 && (1..u128::from(self.k)).contains(&hidden_count)
        };
        if hides_few(observations) {
            add(Rule::SmallHidden, row.position(outcome::OBSERVATIONS), &["observations"]);
        }
        for total in Row::TOTALS.filter(|total| hides_few(row.number(*total))) {
            add(Rule::SmallHidden, row.position(total), &[]);
        }
    }

    pub(crate) fn check(
        &self,
        counted: &BundleCounts,
        items: &[Item],
        tallies: &[Tally],
        cells: Sums<13>,
        findings: &mut Findings,
    ) -> io::Result<()> {
        for (claimed_at, field, rule) in [
            (self.unlinked_at, AGGREGATION, Rule::LinkedCounts),
            (self.public_at, PUBLICATION, Rule::PublicLinkage),
        ] {
            if let Some(at) = claimed_at
                && self.has_named_responses
            {
                let steps = [Step::Name(Part::DataCard.name()), Step::Name(DATA_CARD.fields[field].name)];
                findings.add(rule, at, &steps, None);
            }
        }
        let flag_value = |field: usize| self.flags[field].map(|(flag, _)| flag);
        let mut require = |holds: bool, rule: Rule, field: usize| {
            if let Some((_, at)) = self.flags[field]
                && !holds
            {
                let steps = [Step::Name(Part::DataCard.name()), Step::Name(DATA_CARD.fields[field].name)];
                findings.add(rule, at, &steps, None);
            }
        };
        let is_shared = flag_value(SUITABLE_FOR_SHARING) == Some(true);
        let has_data = counted.responses > 0 || self.has_texts;
        require(flag_value(CONTAINS_DATA) != Some(false) || !has_data, Rule::HidesData, CONTAINS_DATA);
        require(
            flag_value(CONTAINS_LINKAGE) != Some(false) || !self.has_linkage,
            Rule::HidesLinkage,
            CONTAINS_LINKAGE,
        );
        require(flag_value(CONTAINS_TEXT) != Some(false) || !self.has_texts, Rule::HidesText, CONTAINS_TEXT);
        let has_linkage = self.has_linkage || flag_value(CONTAINS_LINKAGE) == Some(true);
        require(!is_shared || !has_linkage, Rule::SharesLinkage, SUITABLE_FOR_SHARING);
        require(
            !is_shared || flag_value(CONTAINS_IDENTIFIERS) != Some(true),
            Rule::SharesIdentifiers,
            SUITABLE_FOR_SHARING,
        );
        let has_unreviewed_text =
            (self.has_texts || flag_value(CONTAINS_TEXT) == Some(true)) && !self.is_text_reviewed;
        require(!is_shared || !has_unreviewed_text, Rule::SharesText, SUITABLE_FOR_SHARING);
        if flag_value(CONTAINS_IDENTIFIERS) != Some(false) {
            findings.discard(Rule::HidesIdentifiers);
        }
        if !is_shared {
            SHARED_ROW_BY_ROW.into_iter().for_each(|rule| findings.discard(rule));
            return Ok(());
        }
        let is_few = |people: u128| (1..u128::from(self.k)).contains(&people);
        // Events can be several answers of one participant, so the number of people is unknown.
        let max_people =
            self.stated_participants.filter(|_| !self.has_events).map_or(0, |(participants, _)| participants);
        if let Some((participants, at)) = self.stated_participants {
            let steps =
                [Step::Name(Part::Summary.name()), Step::Name(SUMMARY.fields[SUMMARY_PARTICIPANTS].name)];
            if is_few(participants) {
                findings.add(Rule::SmallSummary, at, &steps, None);
            }
            if counted.answers > 0 && is_few(max_people.saturating_sub(counted.answers)) {
                findings.add(Rule::SmallUnseen, at, &steps, None);
            }
        }
        let is_small_count = |count: u64| count > 0 && count < self.k;
        let mut add_item_finding = |item: u32, rule: Rule| {
            let item = &items[item as usize];
            let steps = [Step::Name(Part::Items.name()), Step::Index(item.index)];
            findings.add(rule, item.at, &steps, None);
        };
        for tally in tallies {
            let answer_count: u128 = tally.single_item_counts.iter().map(|count| u128::from(*count)).sum();
            if tally.shows_all_opinions && is_few(max_people.saturating_sub(answer_count)) {
                add_item_finding(tally.item, Rule::SmallSilent);
            }
            if is_small_count(
                tally.single_item_counts.iter().fold(0, |sum, count| sum.saturating_add(*count)),
            ) {
                add_item_finding(tally.item, Rule::SmallItem);
            }
            tally
                .single_item_counts
                .iter()
                .filter(|count| is_small_count(**count))
                .for_each(|_| add_item_finding(tally.item, Rule::SmallCell));
        }
        cells.finish(|cell, count| {
            if is_small_count(count)
                && let Some(subject) = cell.get(4..8).and_then(|item| item.try_into().ok())
            {
                add_item_finding(u32::from_be_bytes(subject), Rule::SmallCell);
            }
        })
    }
}

/// True if the text is a date with a time of day other than midnight, in one of the formats that tools use.
pub(super) fn is_finer_than_day(text: &[u8]) -> bool {
    let text = text.trim_ascii_start();
    time_after_date(text).or_else(|| time_of_worded_date(text)).is_some_and(|time| !is_midnight(time))
}

/// True if the text is a time of day without a date, other than midnight.
pub(super) fn is_clock(text: &[u8]) -> bool {
    let text = text.trim_ascii();
    let is_clock_byte =
        |byte: &u8| byte.is_ascii_digit() || b":.,+-\x20ZAPMUTC".contains(&byte.to_ascii_uppercase());
    starts_with_clock(text) && text.iter().all(is_clock_byte) && !is_midnight(text)
}

/// Returns the time of day after a numeric date: a calendar, week or ordinal date with any separators.
fn time_after_date(text: &[u8]) -> Option<&[u8]> {
    const SEPARATORS: &[u8] = b"Tt ,";
    let end = text.iter().take(12).position(|byte| SEPARATORS.contains(byte))?;
    let (date, rest) = text.split_at(end);
    let digits = date.iter().filter(|byte| byte.is_ascii_digit()).count();
    let separators = date.iter().filter(|byte| b"-/.Ww".contains(byte)).count();
    let has_letter_t = matches!(rest, [b'T' | b't', ..]);
    let is_date = match separators {
        // Compact ISO date (20260101, 2026001). Without the `T`, such digits can be any number.
        0 => has_letter_t && (digits == 7 || digits == 8),
        // Ordinal date (2026-001), or compact week date (2026W014).
        1 => digits == 7,
        // Calendar date in any order, or week date (2026-W01-4).
        2 | 3 => (4..=8).contains(&digits),
        _ => false,
    };
    let time = &rest[rest.iter().position(|byte| !SEPARATORS.contains(byte))?..];
    let is_time = starts_with_clock(time) || has_letter_t && starts_like(time, b"0000");
    (is_date && digits + separators == date.len() && is_time).then_some(time)
}

fn starts_with_clock(text: &[u8]) -> bool {
    starts_like(text, b"00:00") || starts_like(text, b"0:00")
}

fn is_midnight(time: &[u8]) -> bool {
    let time = match time {
        // 12 AM is midnight, in spite of its digits.
        [b'1', b'2', rest @ ..] if time.to_ascii_lowercase().ends_with(b"am") => rest,
        time => time,
    };
    !time.iter().any(|byte| (b'1'..=b'9').contains(byte))
}

/// True if the text starts with the pattern, in which `0` matches any digit.
fn starts_like(text: &[u8], pattern: &[u8]) -> bool {
    let matches_pattern = |(byte, pattern_byte): (&u8, &u8)| {
        if *pattern_byte == b'0' { byte.is_ascii_digit() } else { byte == pattern_byte }
    };
    text.len() >= pattern.len() && text.iter().zip(pattern).all(matches_pattern)
}

/// Returns the time of day of a date with the name of a month, as in mails (RFC 2822), browsers and `date`.
fn time_of_worded_date(text: &[u8]) -> Option<&[u8]> {
    const MONTHS: [&[u8]; 12] =
        [b"jan", b"feb", b"mar", b"apr", b"may", b"jun", b"jul", b"aug", b"sep", b"oct", b"nov", b"dec"];
    // Only the first words are searched: most texts are longer than a date, and a time is at the start of its text.
    let words = || {
        let words = text.split(|byte| b" ,\t".contains(byte)).filter(|word| !word.is_empty());
        words.take(7)
    };
    let is_month = |word: &[u8]| {
        word.len() >= 3
            && MONTHS.iter().any(|month| month.eq_ignore_ascii_case(&word[..3]))
            && word.iter().all(u8::is_ascii_alphabetic)
    };
    let is_number =
        |word: &[u8], max_length: usize| word.len() <= max_length && word.iter().all(u8::is_ascii_digit);
    let days = words().filter(|word| is_number(word, 2) || is_number(word, 4)).count();
    // A date has at least a day and a year.
    if days < 2 || !words().any(is_month) {
        return None;
    }
    words().find(|word| starts_with_clock(word))
}

/// True if the number can be seconds or milliseconds since 1970, and is not the start of a day.
pub(super) fn is_epoch_finer_than_day(count: u128) -> bool {
    // Both ranges start in 1973. Smaller numbers are more likely to be counts.
    match count {
        100_000_000..100_000_000_000 => !count.is_multiple_of(86_400),
        100_000_000_000..100_000_000_000_000 => !count.is_multiple_of(86_400_000),
        _ => false,
    }
}

/// True if the date-time is midnight in UTC.
fn is_midnight_in_utc(time: &[u8]) -> bool {
    let rest = time.get(10..).unwrap_or_default();
    let rest = rest.strip_prefix(b"T00:00:00").or_else(|| rest.strip_prefix(b"t00:00:00"));
    let Some(rest) = rest else { return false };
    let rest = rest.strip_prefix(b".").unwrap_or(rest);
    let zeros = rest.iter().take_while(|byte| **byte == b'0').count();
    matches!(&rest[zeros..], b"Z" | b"z" | b"+00:00" | b"-00:00")
}

/// True if the reference ends in a short number, optionally after one letter, as in `participant:p12`. Such references
/// can be guessed by counting.
#[inline]
fn is_numbered(participant: &[u8]) -> bool {
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
    fn numbered_references_differ_from_pseudonyms() {
        for numbered in ["7", "p12", "participant:p12", "participant:12", "session:1234567890"] {
            assert!(is_numbered(numbered.as_bytes()), "{numbered}");
        }
        for other in [
            "participant:0123456789abcdef0123456789abcdef",
            "participant:abcdefabcdefabcdefabcdefabcdef12",
            "participant:12345678901234567890123456789012",
            "session:3f2b8c1e-0000-4000-8000-000000000001",
            "",
            "ada",
        ] {
            assert!(!is_numbered(other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn times_of_day_are_found_in_all_date_formats() {
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
            assert!(is_finer_than_day(fine.as_bytes()), "{fine}");
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
            assert!(!is_finer_than_day(other.as_bytes()), "{other}");
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
            assert!(is_midnight_in_utc(day.as_bytes()), "{day}");
        }
        for fine in ["2024-05-06T00:00:01Z", "2024-05-06T00:00:00.001Z", "2024-05-06T00:00:00+01:00", ""] {
            assert!(!is_midnight_in_utc(fine.as_bytes()), "{fine}");
        }
    }
}

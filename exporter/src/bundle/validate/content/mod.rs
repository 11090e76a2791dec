//! Checks that span several parts of a bundle: ids, references, and the figures behind the summary and the data card.
//! The lists can be in any order: rows before the targets of their references are deferred.

mod responses;

use std::{collections::HashMap, io};

use super::{
    data_card::{Card, is_clock, is_epoch_finer_than_day, is_finer_than_day},
    findings::{Findings, Step},
    groups::Groups,
    locations::{
        ID, add_finding, decode_location, decode_question, encode_location, item, outcome, steps_to_row,
    },
    participants::Participants,
    row::Row,
    rules::{Level, Rule},
    sink::{Part, Sink},
    spool::DeferredRows,
    totals::{BundleCounts, Item, Phase, Summary, Tally},
    unique::{KeySet, KeyState, RepeatFinder, Sums},
};
use crate::{
    form::{
        Answer, ELIGIBLE_STATUSES, GROUP_MEMBERS, GROUP_RESPONSE_COUNTS, ORIGIN_PARTICIPANT, ORIGINS,
        RESPONSE_COUNTS, TextAuthor,
    },
    json::{Number, Position, Stop},
    privacy::identifying_text::{identifies, is_address},
    storage::spill::SpillOptions,
};

/// Index of each phase or item by its id.
pub(super) type IndexById = HashMap<Box<[u8]>, u32>;

/// Phase of an item with an unresolved reference.
const UNKNOWN_PHASE: u32 = u32::MAX;

/// State of the checks.
#[derive(Debug)]
pub(crate) struct Content {
    pub(crate) level: Level,
    pub(crate) delib: bool,
    pub(crate) phases: Vec<Phase>,
    pub(super) phase_indexes: IndexById,
    pub(crate) items: Vec<Item>,
    pub(super) item_indexes: IndexById,
    /// True for each list that was read to its end: phases, items, responses, outcomes.
    ended_lists: [bool; 4],
    /// Deferred items, responses and outcomes. Phases have no references.
    deferred_rows: [DeferredRows; 3],
    pub(super) response_ids: RepeatFinder,
    pub(super) outcome_ids: RepeatFinder,
    /// Keys of question and participant. A key may occur once, except in bundles of events.
    pub(super) answers: RepeatFinder,
    /// Buffer for the key of the current response.
    pub(super) answer_key: Vec<u8>,
    pub(crate) participants: Participants,
    groups: Groups,
    /// Unordered pairs of eligible items with a comparison, by phase.
    pub(crate) compared_pairs: KeySet,
    /// Counts by phase, subject, object and answer.
    pub(crate) pair_counts: Sums<13>,
    pub(crate) tallies: Vec<Tally>,
    /// Index in `tallies` by phase and item.
    tally_indexes: HashMap<(u32, u32), u32>,
    last_row: LastRow,
    pub(crate) counts: BundleCounts,
    pub(crate) summary: Summary,
    pub(crate) card: Card,
}

/// Numbers of keys at the start of each list that have to be read again, because they were skipped as ascending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeysToReread {
    pub(in crate::bundle::validate) responses: u64,
    pub(in crate::bundle::validate) outcomes: u64,
    pub(in crate::bundle::validate) answers: u64,
}

impl KeysToReread {
    pub(crate) fn is_empty(self) -> bool {
        self == Self { responses: 0, outcomes: 0, answers: 0 }
    }
}

/// Cache of the last row's lookups, since neighbouring responses mostly share phase and subject.
#[derive(Debug, Default)]
struct LastRow {
    phase: Option<(Vec<u8>, Option<u32>)>,
    subject: Option<(Vec<u8>, Option<u32>)>,
    tally: Option<((u32, u32), u32)>,
    pair: Option<[u8; 12]>,
}

impl Content {
    pub(crate) fn new(
        level: Level,
        delib: bool,
        k: u64,
        spill_options: &SpillOptions,
        is_rereadable: bool,
    ) -> Self {
        let share = spill_options.share(10);
        Self {
            level,
            delib,
            phases: Vec::new(),
            phase_indexes: IndexById::new(),
            items: Vec::new(),
            item_indexes: IndexById::new(),
            ended_lists: [false; 4],
            deferred_rows: [(); 3].map(|()| DeferredRows::new(spill_options.share(64))),
            response_ids: RepeatFinder::new(share.clone(), is_rereadable),
            outcome_ids: RepeatFinder::new(share.clone(), is_rereadable),
            answers: RepeatFinder::new(share.clone(), is_rereadable),
            answer_key: Vec::new(),
            participants: Participants::new(&share),
            groups: Groups::new(share.clone()),
            compared_pairs: KeySet::new(share.clone()),
            pair_counts: Sums::new(share),
            tallies: Vec::new(),
            tally_indexes: HashMap::new(),
            last_row: LastRow::default(),
            counts: BundleCounts::default(),
            summary: Summary::default(),
            card: Card::new(k),
        }
    }

    fn check_phase(&mut self, row: &Row, findings: &mut Findings) -> io::Result<()> {
        self.counts.phases += 1;
        let index = u32::try_from(self.phases.len()).map_err(io::Error::other)?;
        self.phases.push(Phase::default());
        let Some(id) = row.text(ID) else { return Ok(()) };
        if self.phase_indexes.contains_key(id) {
            add_finding(findings, Rule::PhaseId, Part::Phases, row, ID);
        } else {
            // References resolve to the first phase with an id.
            self.phase_indexes.insert(id.into(), index);
        }
        self.check_empty_id(id, Part::Phases, row, findings);
        Ok(())
    }

    fn check_item(&mut self, row: &Row, findings: &mut Findings) -> io::Result<()> {
        self.counts.items += 1;
        let index = u32::try_from(self.items.len()).map_err(io::Error::other)?;
        let phase = row.text(item::PHASE).map(|id| self.phase_indexes.get(id).copied());
        if phase == Some(None) {
            add_finding(findings, Rule::PhaseRef, Part::Items, row, item::PHASE);
        }
        let is_eligible = row
            .text(item::STATUS)
            .is_some_and(|status| ELIGIBLE_STATUSES.iter().any(|eligible| eligible.as_bytes() == status));
        self.items.push(Item {
            phase: phase.flatten().unwrap_or(UNKNOWN_PHASE),
            is_eligible,
            at: row.at,
            index: row.index,
        });
        if let Some(id) = row.text(ID) {
            if self.item_indexes.contains_key(id) {
                add_finding(findings, Rule::ItemId, Part::Items, row, ID);
            } else {
                // References resolve to the first item with an id.
                self.item_indexes.insert(id.into(), index);
            }
            self.check_empty_id(id, Part::Items, row, findings);
        }
        let origin = row.text(item::ORIGIN);
        if self.delib
            && origin
                .is_some_and(|origin| !ORIGINS.iter().any(|known_origin| known_origin.as_bytes() == origin))
        {
            add_finding(findings, Rule::DelibOrigin, Part::Items, row, item::ORIGIN);
        }
        if self.level >= Level::Privacy {
            self.card.check_item(row, findings);
        }
        if self.level >= Level::Privacy && origin == Some(ORIGIN_PARTICIPANT.as_bytes()) {
            self.card.note_participant_text(row.text(item::TEXT).unwrap_or_default());
        }
        Ok(())
    }

    fn check_empty_id(&self, id: &[u8], part: Part, row: &Row, findings: &mut Findings) {
        if self.delib && id.is_empty() {
            add_finding(findings, Rule::DelibEmpty, part, row, ID);
        }
    }

    fn check_outcome(&mut self, row: &Row, counts: Option<&Row>, findings: &mut Findings) {
        self.counts.outcomes += 1;
        if self.level >= Level::Privacy {
            self.card.check_outcome(row, counts, findings);
        }
        let part = Part::Outcomes;
        let phase = row.text(outcome::PHASE).map(|id| self.phase_indexes.get(id).copied());
        let item = row.text(outcome::ITEM).map(|id| self.item_indexes.get(id).copied());
        for (reference, field, rule) in
            [(phase, outcome::PHASE, Rule::PhaseRef), (item, outcome::ITEM, Rule::ItemRef)]
        {
            if reference == Some(None) {
                add_finding(findings, rule, part, row, field);
            }
        }
        let kind = row.text(outcome::TYPE);
        if let Some(Some(phase)) = phase
            && kind == Some(GROUP_MEMBERS.as_bytes())
        {
            self.groups.add_group(row.index, phase);
        }
        if self.level >= Level::Privacy
            && kind == Some(GROUP_RESPONSE_COUNTS.as_bytes())
            && let (Some(Some(phase)), Some(Some(item))) = (phase, item)
        {
            self.check_ungrouped((phase, item), row, findings);
        }
        let Some(counts) = counts else { return };
        let suppressed_bits =
            row.number(outcome::SUPPRESSED_ANSWERS).map_or(0, |answers| answers.saturating_count());
        let is_suppressed = |answer: Answer| suppressed_bits & 1 << answer as u128 != 0;
        let steps_to = |answer: Option<Answer>| {
            let [list, index] = steps_to_row(part, row.index);
            let answer = answer.map(|answer| Step::Name(answer.as_str()));
            [Some(list), Some(index), Some(Step::Name("counts")), answer]
                .into_iter()
                .flatten()
                .collect::<Vec<_>>()
        };
        if self.level >= Level::Summary {
            let is_contradictory =
                |answer: &Answer| is_suppressed(*answer) && counts.number(*answer as usize).is_some();
            for answer in Answer::ALL.into_iter().filter(is_contradictory) {
                findings.add(
                    Rule::HiddenCount,
                    counts.position(answer as usize),
                    &steps_to(Some(answer)),
                    None,
                );
            }
        }
        if self.level < Level::Summary || kind != Some(RESPONSE_COUNTS.as_bytes()) {
            return;
        }
        let question = match (phase, item) {
            (Some(Some(phase)), Some(Some(item))) => Some((phase, item)),
            // With an unresolved reference there are no responses to compare.
            _ => None,
        };
        let tally = question.and_then(|question| self.tally_indexes.get(&question));
        let tally = tally.map(|tally| &self.tallies[*tally as usize]);
        for answer in Answer::ALL.into_iter().filter(|answer| counts.has(*answer as usize)) {
            let field = answer as usize;
            let actual = tally.map_or(0, |tally| tally.counts[field]);
            let number = counts.number(field);
            let is_correct = number.is_some_and(|number| {
                let is_count = number.is_whole && number.is_at_least(0);
                is_count
                    && (question.is_none()
                        || u64::try_from(number.saturating_count()).unwrap_or(u64::MAX) == actual)
            });
            if !is_correct {
                let steps = steps_to(Some(answer));
                let value = number.map(|number| number.double.to_string());
                let value = value.as_deref().map(str::as_bytes).or_else(|| counts.text(field));
                findings.add(Rule::Counts, counts.position(field), &steps, value);
            }
        }
        // An answer that is neither counted nor suppressed must not occur. If `suppressed` is not a list of names, any
        // answer can be suppressed, and this is not checked.
        let is_clear = !row.has(outcome::SUPPRESSED) || row.has(outcome::SUPPRESSED_ANSWERS);
        let is_unreported = |answer: Answer| !counts.has(answer as usize) && !is_suppressed(answer);
        let was_given = |answer: Answer| tally.is_some_and(|tally| tally.counts[answer as usize] > 0);
        if is_clear && Answer::ALL.into_iter().any(|answer| is_unreported(answer) && was_given(answer)) {
            findings.add(Rule::Counts, row.position(outcome::COUNTS), &steps_to(None), None);
        }
        let opinions = [Answer::Agree, Answer::Disagree, Answer::Pass];
        let suppresses_any =
            row.number(outcome::SUPPRESSED).is_some_and(|names| names.saturating_count() > 0);
        if is_clear && !suppresses_any && opinions.into_iter().all(|answer| counts.has(answer as usize)) {
            let tally = question.and_then(|question| self.tally_indexes.get(&question));
            tally.into_iter().for_each(|tally| self.tallies[*tally as usize].shows_all_opinions = true);
        }
    }

    /// Checks the number of people outside the groups of an outcome: the count of an answer minus the sum of the
    /// groups.
    fn check_ungrouped(&self, question: (u32, u32), row: &Row, findings: &mut Findings) {
        let Some(tally) = self.tally_indexes.get(&question) else { return };
        for (answer, counted) in self.tallies[*tally as usize].counts.iter().enumerate() {
            let field = outcome::GROUP_SUMS + answer;
            let Some(grouped) = row.number(field) else { continue };
            let ungrouped_count = u128::from(*counted).saturating_sub(grouped.saturating_count());
            if self.card.is_below_k(Number::from_u64(u64::try_from(ungrouped_count).unwrap_or(u64::MAX))) {
                let [list, index] = steps_to_row(Part::Outcomes, row.index);
                findings.add(
                    Rule::SmallUngrouped,
                    row.position(field),
                    &[list, index, Step::Name("groups")],
                    None,
                );
            }
        }
    }

    /// Checks that an id is unique. Needs no other list, so it is not deferred with the rest of the row.
    fn check_id(&mut self, part: Part, row: &Row, findings: &mut Findings) -> io::Result<()> {
        let (repeat_finder, rule) = match part {
            Part::Responses => (&mut self.response_ids, Rule::ResponseId),
            Part::Outcomes => (&mut self.outcome_ids, Rule::OutcomeId),
            _ => return Ok(()),
        };
        let Some(id) = row.text(ID) else { return Ok(()) };
        match repeat_finder.push(id, || encode_location(row, row.position(ID)))? {
            KeyState::New | KeyState::Undecided => {}
            KeyState::Repeated => add_finding(findings, rule, part, row, ID),
            KeyState::OrderBroken => findings.discard(rule),
        }
        self.check_empty_id(id, part, row, findings);
        Ok(())
    }

    /// Checks the deferred rows. Only keys that were skipped are unchecked afterwards.
    pub(crate) fn check_deferred_rows(&mut self, findings: &mut Findings) -> Result<(), Stop> {
        self.ended_lists = [true; 4];
        for part in [Part::Items, Part::Responses, Part::Outcomes] {
            let slot = &mut self.deferred_rows[part as usize - Part::Items as usize];
            let empty = DeferredRows::new(SpillOptions { memory: 0, folder: std::path::PathBuf::new() });
            let rows = std::mem::replace(slot, empty);
            rows.replay(part == Part::Outcomes, |row, counts| self.check_row(part, row, counts, findings))?;
        }
        Ok(())
    }

    fn check_row(
        &mut self,
        part: Part,
        row: &Row,
        counts: Option<&Row>,
        findings: &mut Findings,
    ) -> Result<(), Stop> {
        match part {
            Part::Phases => self.check_phase(row, findings)?,
            Part::Items => self.check_item(row, findings)?,
            Part::Responses => self.check_response(row, findings)?,
            _ => self.check_outcome(row, counts.filter(|_| row.has(outcome::COUNTS)), findings),
        }
        Ok(())
    }

    /// Numbers of ids and answers at the start of the lists that have to be read again.
    pub(crate) fn skipped_keys(&self) -> KeysToReread {
        KeysToReread {
            responses: self.response_ids.skipped_count(),
            outcomes: self.outcome_ids.skipped_count(),
            answers: self.answers.skipped_count(),
        }
    }

    /// True if all ids and answers have to be read again, because some have equal hashes.
    pub(crate) fn needs_second_pass(&mut self) -> io::Result<bool> {
        let mut needs_reread = false;
        for repeat_finder in [&mut self.response_ids, &mut self.outcome_ids, &mut self.answers] {
            needs_reread |= repeat_finder.needs_reread()?;
        }
        Ok(needs_reread)
    }

    /// Runs the checks that need the whole document.
    pub(crate) fn finish(mut self, findings: &mut Findings) -> io::Result<BundleCounts> {
        for (repeat_finder, part, rule) in [
            (self.response_ids, Part::Responses, Rule::ResponseId),
            (self.outcome_ids, Part::Outcomes, Rule::OutcomeId),
        ] {
            repeat_finder.finish(|key, location| {
                let (at, index) = decode_location(location);
                let steps = [Step::Name(part.name()), Step::Index(index), Step::Name("id")];
                findings.add(rule, at, &steps, Some(key));
                Ok(())
            })?;
        }
        let (tallies, tally_indexes) = (&mut self.tallies, &self.tally_indexes);
        self.answers.finish(|key, location| {
            let (at, index) = decode_location(location);
            findings.add(Rule::Again, at, &steps_to_row(Part::Responses, index), None);
            if let Some((phase, subject, 0)) = decode_question(key)
                && let Some(tally) = tally_indexes.get(&(phase, subject))
            {
                tallies[*tally as usize].repeated_count += 1;
            }
            Ok(())
        })?;
        // A bundle of events can have several answers of one participant to one question.
        if self.card.is_of_events() {
            findings.discard(Rule::Again);
        }
        let (phases, groups) = (&mut self.phases, &mut self.groups);
        let mut group_result = Ok(());
        self.counts.participants = self.participants.finish(|phase, participant| {
            if !groups.is_empty() && group_result.is_ok() {
                group_result = groups.add_answered_phase(phase, &participant.to_bytes());
            }
            if let Some(phase) = phases.get_mut(phase as usize) {
                phase.participants += 1;
            }
        })?;
        group_result?;
        if self.level >= Level::Summary {
            self.groups.check_members(findings)?;
            self.compared_pairs.finish(|key| {
                let phase = key.first_chunk().map_or(UNKNOWN_PHASE, |phase| u32::from_be_bytes(*phase));
                if let Some(phase) = self.phases.get_mut(phase as usize) {
                    phase.compared_pairs += 1;
                }
            })?;
            self.summary.check(&self.counts, &self.phases, &self.items, &self.tallies, findings);
        }
        if self.level >= Level::Privacy {
            self.card.check(&self.counts, &self.items, &self.tallies, self.pair_counts, findings)?;
        }
        Ok(self.counts)
    }
}

impl Sink for Content {
    fn on_entry(
        &mut self,
        part: Part,
        row: &Row,
        counts: Option<&Row>,
        findings: &mut Findings,
    ) -> Result<(), Stop> {
        if self.level < Level::Refs {
            // At this level references are not checked, so entries are only counted.
            match part {
                Part::Phases => self.counts.phases += 1,
                Part::Items => self.counts.items += 1,
                Part::Responses => self.counts.responses += 1,
                _ => self.counts.outcomes += 1,
            }
            return Ok(());
        }
        self.check_id(part, row, findings)?;
        // References point only to lists that are earlier in the form. These lists must be complete, with no deferred
        // rows left.
        let list = part as usize - Part::Phases as usize;
        let is_checkable = self.ended_lists[..list].iter().all(|has_ended| *has_ended)
            && self.deferred_rows[..list.saturating_sub(1)].iter().all(DeferredRows::is_empty);
        if is_checkable {
            return self.check_row(part, row, counts, findings);
        }
        if part == Part::Responses {
            // Deferred rows are checked in another order than that of the file, on which a second pass relies.
            self.answers.keep_all_keys();
        }
        Ok(self.deferred_rows[list - 1].push(row, counts)?)
    }

    fn on_list_end(&mut self, part: Part) {
        self.ended_lists[part as usize - Part::Phases as usize] = true;
    }

    fn on_part(&mut self, part: Part, row: &Row) {
        match part {
            Part::Summary => {
                self.summary.read_summary(row);
                self.card.read_summary(row);
            }
            Part::DataCard => self.card.read_card(row),
            _ => {}
        }
    }

    fn on_member(&mut self, outcome: u64, index: u64, at: Position, reference: &[u8]) -> Result<(), Stop> {
        if self.level < Level::Summary {
            return Ok(());
        }
        Ok(self.groups.add_member(outcome, index, at, reference)?)
    }

    fn on_free_text(&mut self, text: &[u8]) {
        self.card.note_reference(text);
    }

    fn identifies(&self, text: &[u8], hand: TextAuthor) -> bool {
        self.level >= Level::Privacy
            && match hand {
                TextAuthor::Reference => is_address(text),
                _ => identifies(&String::from_utf8_lossy(text), hand),
            }
    }

    fn is_finer_than_day(&self, time: &[u8]) -> bool {
        self.level >= Level::Privacy && is_finer_than_day(time)
    }

    fn is_clock(&self, time: &[u8]) -> bool {
        self.level >= Level::Privacy && is_clock(time)
    }

    fn is_epoch_finer_than_day(&self, count: u128) -> bool {
        self.level >= Level::Privacy && is_epoch_finer_than_day(count)
    }

    fn is_below_k(&self, number: Number) -> bool {
        self.level >= Level::Privacy && self.card.is_below_k(number)
    }

    fn on_list_text(&mut self, part: Part, _field: usize, text: &[u8]) {
        if part == Part::Provenance {
            self.card.read_note(text);
        }
    }
}

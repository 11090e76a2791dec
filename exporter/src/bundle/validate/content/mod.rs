//! Checks that span several parts of a bundle: ids, references, and the figures behind the summary and the data card.
//!
//! Rows may come in any order; a row that comes before what it refers to is deferred.

mod responses;

use std::{collections::HashMap, io};

use super::{
    data_card::{Card, is_clock, is_fine, is_fine_count},
    findings::{Findings, Step},
    groups::Groups,
    locations::{ID, add_finding, at_row, item, location_of, outcome, question_of, rest},
    participants::Participants,
    row::Row,
    rules::{Level, Rule},
    sink::{Part, Sink},
    spool::DeferredRows,
    totals::{Counted, Item, Phase, Summary, Tally},
    unique::{Seen, Set, Sums, Unique},
};
use crate::{
    form::{
        Answer, ELIGIBLE_STATUSES, GROUP_MEMBERS, GROUP_RESPONSE_COUNTS, Hand, ORIGIN_PARTICIPANT, ORIGINS,
        RESPONSE_COUNTS,
    },
    json::{Number, Position, Stop},
    privacy::identifying_text::{identifies, is_address},
    storage::spill::SpillOptions,
};

/// Ids of phases or items, whole.
pub(super) type Names = HashMap<Box<[u8]>, u32>;

/// Phase of an item whose phase is unknown.
const NOWHERE: u32 = u32::MAX;

#[derive(Debug)]
pub(crate) struct Content {
    pub(crate) level: Level,
    pub(crate) delib: bool,
    pub(crate) phases: Vec<Phase>,
    pub(super) phase_names: Names,
    pub(crate) items: Vec<Item>,
    pub(super) item_names: Names,
    /// True for each of the four lists that has ended.
    over: [bool; 4],
    later: [DeferredRows; 3],
    pub(super) response_ids: Unique,
    pub(super) outcome_ids: Unique,
    pub(super) answers: Unique,
    pub(super) key: Vec<u8>,
    pub(crate) participants: Participants,
    groups: Groups,
    pub(crate) compared: Set,
    pub(crate) cells: Sums<13>,
    pub(crate) tallies: Vec<Tally>,
    tally_of: HashMap<(u32, u32), u32>,
    last: LastRow,
    pub(crate) counted: Counted,
    pub(crate) summary: Summary,
    pub(crate) card: Card,
}

/// Numbers of keys at the start of each list that have to be read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeysToReread {
    pub(in crate::bundle::validate) responses: u64,
    pub(in crate::bundle::validate) outcomes: u64,
    pub(in crate::bundle::validate) answers: u64,
}

impl KeysToReread {
    pub(crate) fn is_nothing(self) -> bool {
        self == Self { responses: 0, outcomes: 0, answers: 0 }
    }
}

/// Neighbours mostly share phase and subject.
#[derive(Debug, Default)]
struct LastRow {
    phase: Option<(Vec<u8>, Option<u32>)>,
    subject: Option<(Vec<u8>, Option<u32>)>,
    tally: Option<((u32, u32), u32)>,
    pair: Option<[u8; 12]>,
}

impl Content {
    pub(crate) fn new(level: Level, delib: bool, k: u64, room: &SpillOptions, again: bool) -> Self {
        let share = room.share(10);
        Self {
            level,
            delib,
            phases: Vec::new(),
            phase_names: Names::new(),
            items: Vec::new(),
            item_names: Names::new(),
            over: [false; 4],
            later: [(); 3].map(|()| DeferredRows::new(room.share(64))),
            response_ids: Unique::new(share.clone(), again),
            outcome_ids: Unique::new(share.clone(), again),
            answers: Unique::new(share.clone(), again),
            key: Vec::new(),
            participants: Participants::new(&share),
            groups: Groups::new(share.clone()),
            compared: Set::new(share.clone()),
            cells: Sums::new(share),
            tallies: Vec::new(),
            tally_of: HashMap::new(),
            last: LastRow::default(),
            counted: Counted::default(),
            summary: Summary::default(),
            card: Card::new(k),
        }
    }

    fn phase(&mut self, row: &Row, findings: &mut Findings) -> io::Result<()> {
        self.counted.phases += 1;
        let index = u32::try_from(self.phases.len()).map_err(io::Error::other)?;
        self.phases.push(Phase::default());
        let Some(id) = row.text(ID) else { return Ok(()) };
        if self.phase_names.contains_key(id) {
            add_finding(findings, Rule::PhaseId, Part::Phases, row, ID);
        } else {
            self.phase_names.insert(id.into(), index);
        }
        self.check_empty(id, Part::Phases, row, findings);
        Ok(())
    }

    fn item(&mut self, row: &Row, findings: &mut Findings) -> io::Result<()> {
        self.counted.items += 1;
        let index = u32::try_from(self.items.len()).map_err(io::Error::other)?;
        let phase = row.text(item::PHASE).map(|id| self.phase_names.get(id).copied());
        if phase == Some(None) {
            add_finding(findings, Rule::PhaseRef, Part::Items, row, item::PHASE);
        }
        let eligible = row
            .text(item::STATUS)
            .is_some_and(|status| ELIGIBLE_STATUSES.iter().any(|eligible| eligible.as_bytes() == status));
        self.items.push(Item {
            phase: phase.flatten().unwrap_or(NOWHERE),
            eligible,
            at: row.at,
            index: row.index,
        });
        if let Some(id) = row.text(ID) {
            if self.item_names.contains_key(id) {
                add_finding(findings, Rule::ItemId, Part::Items, row, ID);
            } else {
                self.item_names.insert(id.into(), index);
            }
            self.check_empty(id, Part::Items, row, findings);
        }
        let origin = row.text(item::ORIGIN);
        if self.delib && origin.is_some_and(|origin| !ORIGINS.iter().any(|known| known.as_bytes() == origin))
        {
            add_finding(findings, Rule::DelibOrigin, Part::Items, row, item::ORIGIN);
        }
        if self.level >= Level::Privacy {
            self.card.item(row, findings);
        }
        if self.level >= Level::Privacy && origin == Some(ORIGIN_PARTICIPANT.as_bytes()) {
            self.card.text(row.text(item::TEXT).unwrap_or_default());
        }
        Ok(())
    }

    fn check_empty(&self, id: &[u8], part: Part, row: &Row, findings: &mut Findings) {
        if self.delib && id.is_empty() {
            add_finding(findings, Rule::DelibEmpty, part, row, ID);
        }
    }

    fn outcome(&mut self, row: &Row, counts: Option<&Row>, findings: &mut Findings) {
        self.counted.outcomes += 1;
        if self.level >= Level::Privacy {
            self.card.outcome(row, counts, findings);
        }
        let part = Part::Outcomes;
        let phase = row.text(outcome::PHASE).map(|id| self.phase_names.get(id).copied());
        let item = row.text(outcome::ITEM).map(|id| self.item_names.get(id).copied());
        for (found, field, rule) in
            [(phase, outcome::PHASE, Rule::PhaseRef), (item, outcome::ITEM, Rule::ItemRef)]
        {
            if found == Some(None) {
                add_finding(findings, rule, part, row, field);
            }
        }
        let kind = row.text(outcome::TYPE);
        if let Some(Some(phase)) = phase
            && kind == Some(GROUP_MEMBERS.as_bytes())
        {
            self.groups.group(row.index, phase);
        }
        if self.level >= Level::Privacy
            && kind == Some(GROUP_RESPONSE_COUNTS.as_bytes())
            && let (Some(Some(phase)), Some(Some(item))) = (phase, item)
        {
            self.ungrouped((phase, item), row, findings);
        }
        let Some(counts) = counts else { return };
        let hidden = row.number(outcome::HIDDEN).map_or(0, |answers| answers.count());
        let is_hidden = |answer: Answer| hidden & 1 << answer as u128 != 0;
        let at = |answer: Option<Answer>| {
            let [list, index] = at_row(part, row.index);
            let answer = answer.map(|answer| Step::Name(answer.as_str()));
            [Some(list), Some(index), Some(Step::Name("counts")), answer]
                .into_iter()
                .flatten()
                .collect::<Vec<_>>()
        };
        if self.level >= Level::Summary {
            let both = |answer: &Answer| is_hidden(*answer) && counts.number(*answer as usize).is_some();
            for answer in Answer::ALL.into_iter().filter(both) {
                findings.add(Rule::HiddenCount, counts.position(answer as usize), &at(Some(answer)), None);
            }
        }
        if self.level < Level::Summary || kind != Some(RESPONSE_COUNTS.as_bytes()) {
            return;
        }
        let known = match (phase, item) {
            (Some(Some(phase)), Some(Some(item))) => Some((phase, item)),
            // Its responses cannot be found.
            _ => None,
        };
        let tally = known.and_then(|known| self.tally_of.get(&known));
        let tally = tally.map(|tally| &self.tallies[*tally as usize]);
        for answer in Answer::ALL.into_iter().filter(|answer| counts.has(*answer as usize)) {
            let field = answer as usize;
            let counted = tally.map_or(0, |tally| tally.counts[field]);
            let number = counts.number(field);
            let fits = number.is_some_and(|number| {
                let is_count = number.whole && number.at_least(0);
                is_count && (known.is_none() || u64::try_from(number.count()).unwrap_or(u64::MAX) == counted)
            });
            if !fits {
                let steps = at(Some(answer));
                let value = number.map(|number| number.double.to_string());
                let value = value.as_deref().map(str::as_bytes).or_else(|| counts.text(field));
                findings.add(Rule::Counts, counts.position(field), &steps, value);
            }
        }
        // What is neither counted nor hidden is not there; what is hidden in another way may be anything.
        let is_clear = !row.has(outcome::SUPPRESSED) || row.has(outcome::HIDDEN);
        let unsaid = |answer: Answer| !counts.has(answer as usize) && !is_hidden(answer);
        let given = |answer: Answer| tally.is_some_and(|tally| tally.counts[answer as usize] > 0);
        if is_clear && Answer::ALL.into_iter().any(|answer| unsaid(answer) && given(answer)) {
            findings.add(Rule::Counts, row.position(outcome::COUNTS), &at(None), None);
        }
        let opinions = [Answer::Agree, Answer::Disagree, Answer::Pass];
        let hides = row.number(outcome::SUPPRESSED).is_some_and(|names| names.count() > 0);
        if is_clear && !hides && opinions.into_iter().all(|answer| counts.has(answer as usize)) {
            let tally = known.and_then(|known| self.tally_of.get(&known));
            tally.into_iter().for_each(|tally| self.tallies[*tally as usize].whole = true);
        }
    }

    /// Checks the number of people outside the groups of an outcome, who are all who answered less the groups' sum.
    fn ungrouped(&self, known: (u32, u32), row: &Row, findings: &mut Findings) {
        let Some(tally) = self.tally_of.get(&known) else { return };
        for (answer, counted) in self.tallies[*tally as usize].counts.iter().enumerate() {
            let field = outcome::GROUPED + answer;
            let Some(grouped) = row.number(field) else { continue };
            let rest = u128::from(*counted).saturating_sub(grouped.count());
            if self.card.is_small(Number::small(u64::try_from(rest).unwrap_or(u64::MAX))) {
                let [list, index] = at_row(Part::Outcomes, row.index);
                findings.add(
                    Rule::SmallUngrouped,
                    row.position(field),
                    &[list, index, Step::Name("groups")],
                    None,
                );
            }
        }
    }

    /// Ids need not wait for anything.
    fn id(&mut self, part: Part, row: &Row, findings: &mut Findings) -> io::Result<()> {
        let (unique, rule) = match part {
            Part::Responses => (&mut self.response_ids, Rule::ResponseId),
            Part::Outcomes => (&mut self.outcome_ids, Rule::OutcomeId),
            _ => return Ok(()),
        };
        let Some(id) = row.text(ID) else { return Ok(()) };
        match unique.push(id, || rest(row, row.position(ID)))? {
            Seen::New | Seen::Later => {}
            Seen::Again => add_finding(findings, rule, part, row, ID),
            Seen::Broken => findings.forget(rule),
        }
        self.check_empty(id, part, row, findings);
        Ok(())
    }

    /// Judges what had to wait; afterwards only keys that were lost are missing.
    pub(crate) fn settle(&mut self, findings: &mut Findings) -> Result<(), Stop> {
        self.over = [true; 4];
        for part in [Part::Items, Part::Responses, Part::Outcomes] {
            let slot = &mut self.later[part as usize - Part::Items as usize];
            let empty = DeferredRows::new(SpillOptions { memory: 0, folder: std::path::PathBuf::new() });
            let later = std::mem::replace(slot, empty);
            later.replay(part == Part::Outcomes, |row, counts| self.judge(part, row, counts, findings))?;
        }
        Ok(())
    }

    fn judge(
        &mut self,
        part: Part,
        row: &Row,
        counts: Option<&Row>,
        findings: &mut Findings,
    ) -> Result<(), Stop> {
        match part {
            Part::Phases => self.phase(row, findings)?,
            Part::Items => self.item(row, findings)?,
            Part::Responses => self.response(row, findings)?,
            _ => self.outcome(row, counts.filter(|_| row.has(outcome::COUNTS)), findings),
        }
        Ok(())
    }

    /// Returns how many ids of responses and outcomes, and how many answers, have to be read again from the start.
    pub(crate) fn lost(&self) -> KeysToReread {
        KeysToReread {
            responses: self.response_ids.lost(),
            outcomes: self.outcome_ids.lost(),
            answers: self.answers.lost(),
        }
    }

    /// True if all ids and answers have to be read again because some may be equal.
    pub(crate) fn wants(&mut self) -> io::Result<bool> {
        let mut wants = false;
        for unique in [&mut self.response_ids, &mut self.outcome_ids, &mut self.answers] {
            wants |= unique.wants()?;
        }
        Ok(wants)
    }

    /// Judges what could not be judged row by row.
    pub(crate) fn finish(mut self, findings: &mut Findings) -> io::Result<Counted> {
        for (unique, part, rule) in [
            (self.response_ids, Part::Responses, Rule::ResponseId),
            (self.outcome_ids, Part::Outcomes, Rule::OutcomeId),
        ] {
            unique.finish(|key, rest| {
                let (at, index) = location_of(rest);
                let steps = [Step::Name(part.name()), Step::Index(index), Step::Name("id")];
                findings.add(rule, at, &steps, Some(key));
                Ok(())
            })?;
        }
        let (tallies, tally_of) = (&mut self.tallies, &self.tally_of);
        self.answers.finish(|key, rest| {
            let (at, index) = location_of(rest);
            findings.add(Rule::Again, at, &at_row(Part::Responses, index), None);
            if let Some((phase, subject, 0)) = question_of(key)
                && let Some(tally) = tally_of.get(&(phase, subject))
            {
                tallies[*tally as usize].repeated += 1;
            }
            Ok(())
        })?;
        if self.card.is_of_events() {
            findings.forget(Rule::Again);
        }
        let (phases, groups) = (&mut self.phases, &mut self.groups);
        let mut kept = Ok(());
        self.counted.participants = self.participants.finish(|phase, who| {
            if !groups.is_empty() && kept.is_ok() {
                kept = groups.answered(phase, &who.written());
            }
            if let Some(phase) = phases.get_mut(phase as usize) {
                phase.participants += 1;
            }
        })?;
        kept?;
        if self.level >= Level::Summary {
            self.groups.judge(findings)?;
            self.compared.finish(|key| {
                let phase = key.first_chunk().map_or(NOWHERE, |phase| u32::from_be_bytes(*phase));
                if let Some(phase) = self.phases.get_mut(phase as usize) {
                    phase.compared += 1;
                }
            })?;
            self.summary.judge(&self.counted, &self.phases, &self.items, &self.tallies, findings);
        }
        if self.level >= Level::Privacy {
            self.card.judge(&self.counted, &self.items, &self.tallies, self.cells, findings)?;
        }
        Ok(self.counted)
    }
}

impl Sink for Content {
    fn entry(
        &mut self,
        part: Part,
        row: &Row,
        counts: Option<&Row>,
        findings: &mut Findings,
    ) -> Result<(), Stop> {
        if self.level < Level::Refs {
            // Nothing refers to anything; only how much there is is told.
            match part {
                Part::Phases => self.counted.phases += 1,
                Part::Items => self.counted.items += 1,
                Part::Responses => self.counted.responses += 1,
                _ => self.counted.outcomes += 1,
            }
            return Ok(());
        }
        self.id(part, row, findings)?;
        // Each list needs those before it, whole and judged.
        let before = part as usize - Part::Phases as usize;
        let ready = self.over[..before].iter().all(|over| *over)
            && self.later[..before.saturating_sub(1)].iter().all(DeferredRows::is_empty);
        if ready {
            return self.judge(part, row, counts, findings);
        }
        if part == Part::Responses {
            self.answers.keep_all();
        }
        Ok(self.later[before - 1].push(row, counts)?)
    }

    fn ended(&mut self, part: Part) {
        self.over[part as usize - Part::Phases as usize] = true;
    }

    fn part(&mut self, part: Part, row: &Row) {
        match part {
            Part::Summary => {
                self.summary.take(row);
                self.card.summary(row);
            }
            Part::DataCard => self.card.take(row),
            _ => {}
        }
    }

    fn member(&mut self, outcome: u64, index: u64, at: Position, reference: &[u8]) -> Result<(), Stop> {
        if self.level < Level::Summary {
            return Ok(());
        }
        Ok(self.groups.member(outcome, index, at, reference)?)
    }

    fn said(&mut self, text: &[u8]) {
        self.card.said(text);
    }

    fn identifies(&self, text: &[u8], hand: Hand) -> bool {
        self.level >= Level::Privacy
            && match hand {
                Hand::Reference => is_address(text),
                _ => identifies(&String::from_utf8_lossy(text), hand),
            }
    }

    fn is_fine(&self, time: &[u8]) -> bool {
        self.level >= Level::Privacy && is_fine(time)
    }

    fn is_clock(&self, time: &[u8]) -> bool {
        self.level >= Level::Privacy && is_clock(time)
    }

    fn is_fine_count(&self, count: u128) -> bool {
        self.level >= Level::Privacy && is_fine_count(count)
    }

    fn is_small(&self, number: Number) -> bool {
        self.level >= Level::Privacy && self.card.is_small(number)
    }

    fn text(&mut self, part: Part, _field: usize, text: &[u8]) {
        if part == Part::Provenance {
            self.card.note(text);
        }
    }
}

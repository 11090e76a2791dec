//! Checks and counts one response: its references, the question that it answers, and its share of each total. The
//! parent module checks its id.

use std::io;

use super::{Content, IndexById, UNKNOWN_PHASE};
use crate::{
    bundle::validate::{
        findings::Findings,
        locations::{add_finding, encode_location, response, steps_to_row},
        row::Row,
        rules::{Level, Rule},
        sink::Part,
        totals::Tally,
        unique::KeyState,
    },
    form::{Answer, SecondItem},
    privacy::participants::parse_reference,
};

impl Content {
    pub(super) fn check_response(&mut self, row: &Row, findings: &mut Findings) -> io::Result<()> {
        let part = Part::Responses;
        self.counts.responses += 1;
        let phase = row
            .text(response::PHASE)
            .map(|id| look_up_cached(&mut self.last_row.phase, id, &self.phase_indexes));
        let subject = row
            .text(response::SUBJECT)
            .map(|id| look_up_cached(&mut self.last_row.subject, id, &self.item_indexes));
        let object = row.text(response::OBJECT).map(|id| self.item_indexes.get(id).copied());
        for (reference, field, rule) in [
            (phase, response::PHASE, Rule::PhaseRef),
            (subject, response::SUBJECT, Rule::SubjectRef),
            (object, response::OBJECT, Rule::ObjectRef),
        ] {
            if reference == Some(None) {
                add_finding(findings, rule, part, row, field);
            }
        }
        if object.is_some() && row.text(response::SUBJECT) == row.text(response::OBJECT) {
            add_finding(findings, Rule::Itself, part, row, response::OBJECT);
        }
        let answer = row.text(response::ANSWER).and_then(Answer::parse);
        match answer.map(Answer::second_item) {
            Some(SecondItem::Required) if !row.has(response::OBJECT) => {
                add_finding(findings, Rule::NoSecond, part, row, response::OBJECT);
            }
            Some(SecondItem::Forbidden) if row.has(response::OBJECT) => {
                add_finding(findings, Rule::Second, part, row, response::OBJECT);
            }
            _ => {}
        }
        let count = row.number(response::COUNT).map_or(0, |count| count.saturating_count());
        self.counts.answers = self.counts.answers.saturating_add(count);
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        let participant = row.text(response::PARTICIPANT);
        if participant.is_some() && count > 1 {
            add_finding(findings, Rule::Many, part, row, response::COUNT);
        }
        if row.is_null(response::PARTICIPANT) {
            self.counts.unlinked += 1;
        }
        let pseudonym = participant.and_then(parse_reference);
        if self.level >= Level::Privacy {
            self.card.check_response(row, pseudonym.is_some(), findings);
        }
        let phase = phase.flatten();
        if self.level >= Level::Summary
            && let Some(participant) = participant
        {
            self.participants.add(phase.unwrap_or(UNKNOWN_PHASE), participant, pseudonym)?;
        }
        let (Some(phase), Some(Some(subject))) = (phase, subject) else { return Ok(()) };
        if object == Some(None) {
            return Ok(());
        }
        let object = object.flatten();
        let tally = self.tally_index(phase, subject)?;
        if let Some(participant) = participant {
            self.set_answer_key(phase, subject, object, participant);
            let single_answers = u64::from(object.is_none());
            self.tallies[tally].answered_count += single_answers;
            match self.answers.push(&self.answer_key, || encode_location(row, row.at))? {
                KeyState::New | KeyState::Undecided => {}
                KeyState::Repeated => {
                    self.tallies[tally].repeated_count += single_answers;
                    findings.add(Rule::Again, row.at, &steps_to_row(part, row.index), None);
                }
                // From here on `finish` reports all repetitions, so findings and counts so far are dropped.
                KeyState::OrderBroken => {
                    self.tallies.iter_mut().for_each(|tally| tally.repeated_count = 0);
                    findings.discard(Rule::Again);
                }
            }
        }
        let phase_figures = &mut self.phases[phase as usize];
        phase_figures.has_unlinked_responses |= participant.is_none();
        phase_figures.is_pairwise |= object.is_some();
        let Some(answer) = answer else { return Ok(()) };
        match object {
            None => {
                let cell = &mut self.tallies[tally].single_item_counts[answer as usize];
                *cell = cell.saturating_add(count);
            }
            Some(object) => self.count_comparison(phase, subject, object, answer, count)?,
        }
        let cell = &mut self.tallies[tally].counts[answer as usize];
        *cell = cell.saturating_add(count);
        Ok(())
    }

    /// Sets `answer_key` to the question and participant. A participant may answer a question once.
    #[inline]
    pub(in crate::bundle::validate) fn set_answer_key(
        &mut self,
        phase: u32,
        subject: u32,
        object: Option<u32>,
        participant: &[u8],
    ) {
        self.answer_key.clear();
        self.answer_key.extend_from_slice(&phase.to_be_bytes());
        self.answer_key.extend_from_slice(&subject.to_be_bytes());
        // Zero is for answers without an object, so that their keys are first.
        self.answer_key.extend_from_slice(&object.map_or(0, |object| object + 1).to_be_bytes());
        self.answer_key.extend_from_slice(participant);
    }

    fn count_comparison(
        &mut self,
        phase: u32,
        subject: u32,
        object: u32,
        answer: Answer,
        count: u64,
    ) -> io::Result<()> {
        let is_eligible = |item: u32| {
            let item = &self.items[item as usize];
            item.is_eligible && item.phase == phase
        };
        if self.level >= Level::Summary && subject != object && is_eligible(subject) && is_eligible(object) {
            // The pair is unordered: both directions of a comparison cover it.
            let mut pair = [0; 12];
            pair[..4].copy_from_slice(&phase.to_be_bytes());
            pair[4..8].copy_from_slice(&subject.min(object).to_be_bytes());
            pair[8..].copy_from_slice(&subject.max(object).to_be_bytes());
            // Neighbouring rows mostly compare the same pair, which saves a look-up in the set.
            if self.last_row.pair != Some(pair) {
                self.compared_pairs.insert(&pair)?;
                self.last_row.pair = Some(pair);
            }
        }
        if self.level >= Level::Privacy {
            let mut cell = [0; 13];
            cell[..4].copy_from_slice(&phase.to_be_bytes());
            cell[4..8].copy_from_slice(&subject.to_be_bytes());
            cell[8..12].copy_from_slice(&object.to_be_bytes());
            cell[12] = answer as u8;
            self.pair_counts.add(cell, count)?;
        }
        Ok(())
    }

    fn tally_index(&mut self, phase: u32, item: u32) -> io::Result<usize> {
        let key = (phase, item);
        if let Some((last, tally)) = self.last_row.tally
            && last == key
        {
            return Ok(tally as usize);
        }
        let next_index = u32::try_from(self.tallies.len()).map_err(io::Error::other)?;
        let tally = *self.tally_indexes.entry(key).or_insert(next_index);
        if tally == next_index {
            self.tallies.push(Tally::new(phase, item));
        }
        self.last_row.tally = Some((key, tally));
        Ok(tally as usize)
    }
}

#[inline]
fn look_up_cached(cache: &mut Option<(Vec<u8>, Option<u32>)>, id: &[u8], indexes: &IndexById) -> Option<u32> {
    if let Some((name, cached_index)) = cache
        && name == id
    {
        return *cached_index;
    }
    let found_index = indexes.get(id).copied();
    let (name, cached_index) = cache.get_or_insert_default();
    name.clear();
    name.extend_from_slice(id);
    *cached_index = found_index;
    found_index
}

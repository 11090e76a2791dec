//! Checks and counts one response: its references, the question it answers, and its share of every count.
//!
//! Ids of rows of any kind are checked in the parent module.

use std::io;

use super::{Content, NOWHERE, Names};
use crate::{
    bundle::validate::{
        findings::Findings,
        locations::{add_finding, at_row, response, rest},
        row::Row,
        rules::{Level, Rule},
        sink::Part,
        totals::Tally,
        unique::Seen,
    },
    form::{Answer, Second},
    privacy::participants::number_of,
};

impl Content {
    pub(super) fn response(&mut self, row: &Row, findings: &mut Findings) -> io::Result<()> {
        let part = Part::Responses;
        self.counted.responses += 1;
        let phase = row.text(response::PHASE).map(|id| known(&mut self.last.phase, id, &self.phase_names));
        let subject =
            row.text(response::SUBJECT).map(|id| known(&mut self.last.subject, id, &self.item_names));
        let object = row.text(response::OBJECT).map(|id| self.item_names.get(id).copied());
        for (found, field, rule) in [
            (phase, response::PHASE, Rule::PhaseRef),
            (subject, response::SUBJECT, Rule::SubjectRef),
            (object, response::OBJECT, Rule::ObjectRef),
        ] {
            if found == Some(None) {
                add_finding(findings, rule, part, row, field);
            }
        }
        if object.is_some() && row.text(response::SUBJECT) == row.text(response::OBJECT) {
            add_finding(findings, Rule::Itself, part, row, response::OBJECT);
        }
        let answer = row.text(response::ANSWER).and_then(Answer::parse);
        match answer.map(Answer::second) {
            Some(Second::Required) if !row.has(response::OBJECT) => {
                add_finding(findings, Rule::NoSecond, part, row, response::OBJECT);
            }
            Some(Second::Forbidden) if row.has(response::OBJECT) => {
                add_finding(findings, Rule::Second, part, row, response::OBJECT);
            }
            _ => {}
        }
        let count = row.number(response::COUNT).map_or(0, |count| count.count());
        self.counted.answers = self.counted.answers.saturating_add(count);
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        let participant = row.text(response::PARTICIPANT);
        if participant.is_some() && count > 1 {
            add_finding(findings, Rule::Many, part, row, response::COUNT);
        }
        if row.is_null(response::PARTICIPANT) {
            self.counted.unlinked += 1;
        }
        let pseudonym = participant.and_then(number_of);
        if self.level >= Level::Privacy {
            self.card.response(row, pseudonym.is_some(), findings);
        }
        let phase = phase.flatten();
        if self.level >= Level::Summary
            && let Some(participant) = participant
        {
            self.participants.add(phase.unwrap_or(NOWHERE), participant, pseudonym)?;
        }
        let (Some(phase), Some(Some(subject))) = (phase, subject) else { return Ok(()) };
        if object == Some(None) {
            return Ok(());
        }
        let object = object.flatten();
        let tally = self.tally(phase, subject)?;
        if let Some(participant) = participant {
            self.put_key(phase, subject, object, participant);
            let alone = u64::from(object.is_none());
            self.tallies[tally].answered += alone;
            match self.answers.push(&self.key, || rest(row, row.at))? {
                Seen::New | Seen::Later => {}
                Seen::Again => {
                    self.tallies[tally].repeated += alone;
                    findings.add(Rule::Again, row.at, &at_row(part, row.index), None);
                }
                Seen::Broken => {
                    self.tallies.iter_mut().for_each(|tally| tally.repeated = 0);
                    findings.forget(Rule::Again);
                }
            }
        }
        let of_phase = &mut self.phases[phase as usize];
        of_phase.unlinked |= participant.is_none();
        of_phase.pairwise |= object.is_some();
        let Some(answer) = answer else { return Ok(()) };
        match object {
            None => {
                let cell = &mut self.tallies[tally].single[answer as usize];
                *cell = cell.saturating_add(count);
            }
            Some(object) => self.comparison(phase, subject, object, answer, count)?,
        }
        let cell = &mut self.tallies[tally].counts[answer as usize];
        *cell = cell.saturating_add(count);
        Ok(())
    }

    /// Sets the key of the question that a participant may answer once.
    #[inline]
    pub(in crate::bundle::validate) fn put_key(
        &mut self,
        phase: u32,
        subject: u32,
        object: Option<u32>,
        participant: &[u8],
    ) {
        self.key.clear();
        self.key.extend_from_slice(&phase.to_be_bytes());
        self.key.extend_from_slice(&subject.to_be_bytes());
        // Those without an object come first.
        self.key.extend_from_slice(&object.map_or(0, |object| object + 1).to_be_bytes());
        self.key.extend_from_slice(participant);
    }

    fn comparison(
        &mut self,
        phase: u32,
        subject: u32,
        object: u32,
        answer: Answer,
        count: u64,
    ) -> io::Result<()> {
        let eligible = |item: u32| {
            let item = &self.items[item as usize];
            item.eligible && item.phase == phase
        };
        if self.level >= Level::Summary && subject != object && eligible(subject) && eligible(object) {
            let mut pair = [0; 12];
            pair[..4].copy_from_slice(&phase.to_be_bytes());
            pair[4..8].copy_from_slice(&subject.min(object).to_be_bytes());
            pair[8..].copy_from_slice(&subject.max(object).to_be_bytes());
            if self.last.pair != Some(pair) {
                self.compared.insert(&pair)?;
                self.last.pair = Some(pair);
            }
        }
        if self.level >= Level::Privacy {
            let mut cell = [0; 13];
            cell[..4].copy_from_slice(&phase.to_be_bytes());
            cell[4..8].copy_from_slice(&subject.to_be_bytes());
            cell[8..12].copy_from_slice(&object.to_be_bytes());
            cell[12] = answer as u8;
            self.cells.add(cell, count)?;
        }
        Ok(())
    }

    fn tally(&mut self, phase: u32, item: u32) -> io::Result<usize> {
        let key = (phase, item);
        if let Some((last, tally)) = self.last.tally
            && last == key
        {
            return Ok(tally as usize);
        }
        let next = u32::try_from(self.tallies.len()).map_err(io::Error::other)?;
        let tally = *self.tally_of.entry(key).or_insert(next);
        if tally == next {
            self.tallies.push(Tally::new(phase, item));
        }
        self.last.tally = Some((key, tally));
        Ok(tally as usize)
    }
}

#[inline]
fn known(last: &mut Option<(Vec<u8>, Option<u32>)>, id: &[u8], names: &Names) -> Option<u32> {
    if let Some((name, found)) = last
        && name == id
    {
        return *found;
    }
    let found = names.get(id).copied();
    let (name, index) = last.get_or_insert_default();
    name.clear();
    name.extend_from_slice(id);
    *index = found;
    found
}

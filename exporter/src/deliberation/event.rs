//! Events of claims, and their encoding for the sort on disk. Encoded events are ordered by time; equal rows have equal
//! encodings.

use serde::{Deserialize, Serialize};

use crate::{form::Answer, timestamp::Timestamp};

/// Dataset of an event's row. The order decides which of several simultaneous events is the origin of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum EventKind {
    Report,
    RuleAction,
    Decision,
    Appeal,
}

impl EventKind {
    pub(super) const ALL: [Self; 4] = [Self::Report, Self::RuleAction, Self::Decision, Self::Appeal];
}

/// Event of one claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) kind: EventKind,
    /// Time of the event itself, such as that of a report on the platform.
    pub(super) occurred_at: Timestamp,
    pub(super) recorded_at: Timestamp,
    /// Pseudonym of the row.
    pub(super) row: u128,
    /// True for the first claim of a row, so that rows can be counted.
    pub(super) is_first_of_row: bool,
    /// Pseudonym of the reporting or appealing user or of the moderator; 0 for none.
    pub(super) person: u128,
    pub(super) decision: Option<DecisionDetails>,
}

/// Kind of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum DecisionClass {
    Review,
    Appeal,
    /// Actions that the platform took itself, without a job.
    Platform,
}

/// Content of a decision, as far as a claim needs it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DecisionDetails {
    pub(super) class: DecisionClass,
    pub(super) verdict: String,
    /// Answer to the claim.
    answer: String,
    pub(super) actions: Vec<String>,
    pub(super) policies: Vec<String>,
    /// Milliseconds since the job was opened, if that is known.
    pub(super) latency: Option<i64>,
}

impl DecisionDetails {
    pub(super) fn new(
        class: DecisionClass,
        verdict: &str,
        answer: Answer,
        actions: &[String],
        policies: &[String],
        latency: Option<i64>,
    ) -> Self {
        Self {
            class,
            verdict: verdict.to_owned(),
            answer: answer.as_str().to_owned(),
            actions: actions.to_vec(),
            policies: policies.to_vec(),
            latency,
        }
    }

    pub(super) fn answer(&self) -> Answer {
        Answer::parse(self.answer.as_bytes()).unwrap_or(Answer::Pass)
    }
}

/// Bytes before the details of a decision.
const HEADER_BYTES: usize = 8 + 8 + 1 + 1 + 1 + 16 + 16;
const OCCURRED_IN_MILLIS: u8 = 1;
const RECORDED_IN_MILLIS: u8 = 2;

impl Event {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES);
        bytes.extend_from_slice(&encode_time(self.occurred_at));
        bytes.extend_from_slice(&encode_time(self.recorded_at));
        bytes.push(self.kind as u8);
        let mut precision = 0;
        precision |= if self.occurred_at.has_millis { OCCURRED_IN_MILLIS } else { 0 };
        precision |= if self.recorded_at.has_millis { RECORDED_IN_MILLIS } else { 0 };
        bytes.push(precision);
        bytes.push(u8::from(self.is_first_of_row));
        bytes.extend_from_slice(&self.row.to_be_bytes());
        bytes.extend_from_slice(&self.person.to_be_bytes());
        if let Some(decision) = &self.decision {
            bytes.extend(serde_json::to_vec(decision).expect("texts and numbers are JSON"));
        }
        bytes
    }

    /// Decodes an event; `None` if the bytes are damaged.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (occurred, rest) = bytes.split_first_chunk::<8>()?;
        let (recorded, rest) = rest.split_first_chunk::<8>()?;
        let ([kind, precision, is_first], rest) = rest.split_first_chunk::<3>()?;
        let (row, rest) = rest.split_first_chunk::<16>()?;
        let (person, details) = rest.split_first_chunk::<16>()?;
        let decision = if details.is_empty() { None } else { Some(serde_json::from_slice(details).ok()?) };
        Some(Self {
            kind: *EventKind::ALL.get(usize::from(*kind))?,
            occurred_at: decode_time(*occurred, precision & OCCURRED_IN_MILLIS != 0),
            recorded_at: decode_time(*recorded, precision & RECORDED_IN_MILLIS != 0),
            row: u128::from_be_bytes(*row),
            is_first_of_row: *is_first != 0,
            person: u128::from_be_bytes(*person),
            decision,
        })
    }
}

/// Flips the sign bit, so that earlier times have smaller bytes.
fn encode_time(at: Timestamp) -> [u8; 8] {
    (at.millis ^ i64::MIN).to_be_bytes()
}

fn decode_time(bytes: [u8; 8], has_millis: bool) -> Timestamp {
    Timestamp { millis: i64::from_be_bytes(bytes) ^ i64::MIN, has_millis }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn encoded_events_keep_their_content_and_order() {
        let at = |millis| Timestamp { millis, has_millis: millis % 2 == 0 };
        let decision = DecisionDetails::new(
            DecisionClass::Review,
            "act",
            Answer::Agree,
            &["hide".to_owned()],
            &["spam".to_owned()],
            Some(-5),
        );
        let event = |millis, kind, decision| Event {
            kind,
            occurred_at: at(millis),
            recorded_at: at(millis + 1),
            row: 7,
            is_first_of_row: millis > 0,
            person: u128::MAX,
            decision,
        };
        let events = [
            event(-1, EventKind::Appeal, None),
            event(0, EventKind::Report, None),
            event(1, EventKind::Decision, Some(decision)),
        ];
        for event in &events {
            assert_eq!(Event::decode(&event.encode()).unwrap(), *event);
        }
        assert!(events.windows(2).all(|pair| pair[0].encode() < pair[1].encode()));
        assert_eq!(Event::decode(&events[2].encode()[..40]), None);
    }
}

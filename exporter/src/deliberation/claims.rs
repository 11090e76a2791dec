//! Groups rows by claim and derives items, responses and decisions from them.

#![allow(clippy::cast_possible_truncation, reason = "a list of items in memory is shorter than 2^32")]

use std::{borrow::Cow, collections::BTreeSet, io, path::Path};

use serde_json::Map;
use tidegate_history::Dataset;

use super::{
    Line, Snapshot,
    event::{DecisionClass, DecisionDetails, Event, EventKind},
    rows::{ActionRow, AppealRow, DecisionRow, ReportRow, parse_line, parse_time, row_error},
};
use crate::{
    error::ConvertError,
    form::Answer,
    json::write::hex,
    meter::Meter,
    model::{Item, Origin, PublishedOutcome, Question},
    privacy::participants::{Domain, Key, Pseudonymizer},
    storage::{
        rows::{
            NO_OBJECT, Row,
            spool::{RowSpooler, SpooledRows},
        },
        spill::{Spill, SpillOptions},
    },
};

/// Phases of a claim with responses, in the order of the bundle.
pub(super) const REPORT: u16 = 0;
pub(super) const REVIEW: u16 = 1;
pub(super) const APPEAL: u16 = 2;
pub(super) const APPEAL_REVIEW: u16 = 3;
const RESPONSE_PHASES: u16 = 4;

/// Policy of claims without one.
const UNSPECIFIED: &str = "unspecified";

/// Outcome with a decision about the claim.
pub(super) const MODERATION_DECISION: &str = "moderation-decision";

/// Collects rows, sorted by claim on disk if necessary. Only pseudonyms are stored, never ids.
pub(super) struct ClaimCollector {
    snapshot: Snapshot,
    users: Pseudonymizer,
    moderators: Pseudonymizer,
    items: Pseudonymizer,
    rows: Pseudonymizer,
    /// Events by claim.
    events: Spill,
}

/// Claims in the order of the bundle.
pub(super) struct Claims {
    pub(super) items: Vec<Item>,
    /// Questions, with items numbered as in `items`.
    pub(super) questions: Vec<Question>,
    pub(super) rows: SpooledRows,
    /// Number of rows by kind of event.
    pub(super) row_counts: [u64; EventKind::ALL.len()],
}

impl ClaimCollector {
    pub(super) fn new(key: &Key, scope: &str, snapshot: Snapshot, memory: usize, folder: &Path) -> Self {
        let of = |domain| Pseudonymizer::new(key, domain, scope);
        Self {
            snapshot,
            users: of(Domain::Participant),
            moderators: of(Domain::Moderator),
            items: of(Domain::Item),
            rows: of(Domain::Row),
            events: Spill::new(SpillOptions { memory, folder: folder.to_owned() }),
        }
    }

    /// Adds a row. Rows about child safety and rows outside the period are dropped without a trace.
    pub(super) fn push(&mut self, dataset: Dataset, line: Line<'_>) -> Result<(), ConvertError> {
        match dataset {
            Dataset::Reports => self.push_report(line),
            Dataset::Decisions => self.push_decision(line),
            Dataset::Appeals => self.push_appeal(line),
            Dataset::Actions => self.push_action(line),
            _ => Err(ConvertError::Refused(format!(
                "the dataset {} is not part of a bundle",
                dataset.as_str()
            ))),
        }
    }

    fn push_report(&mut self, line: Line<'_>) -> Result<(), ConvertError> {
        let row: ReportRow<'_> = parse_line(Dataset::Reports, line)?;
        let recorded_at = parse_time(line, "recordedAt", &row.recorded_at)?;
        if row.child_safety || !self.snapshot.contains(recorded_at) {
            return Ok(());
        }
        let mut event = Event {
            kind: EventKind::Report,
            occurred_at: parse_time(line, "reportedAt", &row.reported_at)?,
            recorded_at,
            row: self.rows.pseudonym(row.report_id.as_bytes()),
            is_first_of_row: true,
            person: self.users.pseudonym(&join_id(&row.reporter_type_id, &row.reporter_id)),
            decision: None,
        };
        let item = self.claimed_item(&row.item_type_id, &row.item_id);
        self.push_event(&item, policies_or_unspecified(row.policy_id.as_slice()), &mut event)
    }

    fn push_action(&mut self, line: Line<'_>) -> Result<(), ConvertError> {
        let row: ActionRow<'_> = parse_line(Dataset::Actions, line)?;
        let recorded_at = parse_time(line, "recordedAt", &row.recorded_at)?;
        // Actions of moderators and of the platform are part of their decisions.
        if row.source != "rule" || row.child_safety || !self.snapshot.contains(recorded_at) {
            return Ok(());
        }
        let mut event = Event {
            kind: EventKind::RuleAction,
            occurred_at: parse_time(line, "actedAt", &row.acted_at)?,
            recorded_at,
            row: self.rows.pseudonym(row.event_id.as_bytes()),
            is_first_of_row: true,
            person: 0,
            decision: None,
        };
        let item = self.claimed_item(&row.item_type_id, &row.item_id);
        self.push_event(&item, policies_or_unspecified(&row.policies), &mut event)
    }

    fn push_appeal(&mut self, line: Line<'_>) -> Result<(), ConvertError> {
        let row: AppealRow<'_> = parse_line(Dataset::Appeals, line)?;
        let recorded_at = parse_time(line, "recordedAt", &row.recorded_at)?;
        if row.child_safety || !self.snapshot.contains(recorded_at) {
            return Ok(());
        }
        let mut event = Event {
            kind: EventKind::Appeal,
            occurred_at: parse_time(line, "appealedAt", &row.appealed_at)?,
            recorded_at,
            row: self.rows.pseudonym(row.appeal_id.as_bytes()),
            is_first_of_row: true,
            person: self.users.pseudonym(&join_id(&row.appealed_by_type_id, &row.appealed_by_id)),
            decision: None,
        };
        let item = self.claimed_item(&row.item_type_id, &row.item_id);
        self.push_event(&item, policies_or_unspecified(&row.policies), &mut event)
    }

    fn push_decision(&mut self, line: Line<'_>) -> Result<(), ConvertError> {
        let row: DecisionRow<'_> = parse_line(Dataset::Decisions, line)?;
        let recorded_at = parse_time(line, "recordedAt", &row.recorded_at)?;
        let class = match row.class.as_deref() {
            Some("review") => DecisionClass::Review,
            Some("appeal") => DecisionClass::Appeal,
            None => DecisionClass::Platform,
            // Left out even if the row is not marked.
            Some("child_safety") => return Ok(()),
            Some(_) => return Err(row_error(line, "class is none of review, child_safety and appeal")),
        };
        if row.child_safety || !self.snapshot.contains(recorded_at) {
            return Ok(());
        }
        let decided_at = parse_time(line, "decidedAt", &row.decided_at)?;
        let job_created_at = row.job_created_at.as_deref();
        let job_created_at = job_created_at.map(|text| parse_time(line, "jobCreatedAt", text)).transpose()?;
        let person = match class {
            DecisionClass::Platform => 0,
            DecisionClass::Review | DecisionClass::Appeal => {
                self.moderators.pseudonym(row.decided_by.as_bytes())
            }
        };
        let item = self.claimed_item(&row.item_type_id, &row.item_id);
        let latency = job_created_at.map(|created_at| decided_at.millis - created_at.millis);
        let mut event = Event {
            kind: EventKind::Decision,
            occurred_at: decided_at,
            recorded_at,
            row: self.rows.pseudonym(row.decision_id.as_bytes()),
            is_first_of_row: true,
            person,
            decision: None,
        };
        for (policies, answer) in answers_of_decision(class, &row)
            .ok_or_else(|| row_error(line, "verdict does not fit the class of the job"))?
        {
            let details =
                DecisionDetails::new(class, &row.verdict, answer, &row.actions, &row.policies, latency);
            event.decision = Some(details);
            self.push_event(&item, policies, &mut event)?;
        }
        Ok(())
    }

    /// Stores the event for each policy. Only the first one counts as the row.
    fn push_event(
        &mut self,
        item: &ClaimedItem<'_>,
        policies: BTreeSet<&str>,
        event: &mut Event,
    ) -> Result<(), ConvertError> {
        for policy in policies {
            let pushed = self.events.push(&item.claim_key(policy), &event.encode());
            pushed.map_err(|error| ConvertError::Io { action: "sorting rows".to_owned(), error })?;
            event.is_first_of_row = false;
        }
        Ok(())
    }

    fn claimed_item<'l>(&self, type_id: &'l str, id: &str) -> ClaimedItem<'l> {
        ClaimedItem { type_id, pseudonym: self.items.pseudonym(&join_id(type_id, id)) }
    }

    /// Derives the claims from all rows.
    pub(super) fn finish(self, folder: &Path, meter: &Meter) -> Result<Claims, ConvertError> {
        let mut builder = ClaimListBuilder {
            claims: Vec::new(),
            previous_event: Vec::new(),
            rows: RowSpooler::new(folder)?,
            row_counts: [0; EventKind::ALL.len()],
        };
        let visited = self.events.finish(|key, event, is_first| {
            meter.check_stop().map_err(ConvertError::into_io)?;
            builder.add(key, event, is_first)
        });
        visited.map_err(|error| ConvertError::from_io("the sorted rows", error))?;
        builder.finish()
    }
}

/// Item of a claim.
struct ClaimedItem<'l> {
    type_id: &'l str,
    pseudonym: u128,
}

impl ClaimedItem<'_> {
    /// Key of the claim in ids: `<type>:<pseudonym>:<policy>`.
    fn claim_key(&self, policy: &str) -> Vec<u8> {
        let mut key = escape_separators(self.type_id).into_owned().into_bytes();
        key.push(b':');
        key.extend_from_slice(&hex(self.pseudonym));
        key.push(b':');
        key.extend_from_slice(escape_separators(policy).as_bytes());
        key
    }
}

/// Escapes colons, which separate the parts of a key, and percent signs, so that different ids stay different.
fn escape_separators(id: &str) -> Cow<'_, str> {
    if id.contains([':', '%']) {
        Cow::Owned(id.replace('%', "%25").replace(':', "%3A"))
    } else {
        Cow::Borrowed(id)
    }
}

/// Id of an item or user within an organisation. The zero byte keeps different pairs apart.
fn join_id(type_id: &str, id: &str) -> Vec<u8> {
    [type_id.as_bytes(), &[0], id.as_bytes()].concat()
}

fn policies_or_unspecified(policies: &[String]) -> BTreeSet<&str> {
    let named_policies: BTreeSet<_> =
        policies.iter().map(String::as_str).filter(|policy| !policy.is_empty()).collect();
    if named_policies.is_empty() { BTreeSet::from([UNSPECIFIED]) } else { named_policies }
}

/// Answers of a decision, with the policies of the answered claims; `None` for a verdict that does not fit the class.
fn answers_of_decision<'r>(
    class: DecisionClass,
    row: &'r DecisionRow<'_>,
) -> Option<Vec<(BTreeSet<&'r str>, Answer)>> {
    let reviewed = policies_or_unspecified(&row.reviewed_policies);
    let answers = match (class, &*row.verdict) {
        (DecisionClass::Review, "ignore") => vec![(reviewed, Answer::Disagree)],
        (DecisionClass::Review, "act") if row.policies.is_empty() => vec![(reviewed, Answer::Agree)],
        (DecisionClass::Review, "act") => {
            let violated = policies_or_unspecified(&row.policies);
            // A decision that names policies leaves the other ones undecided.
            let passed = row.reviewed_policies.iter().map(String::as_str);
            let passed = passed.filter(|policy| !policy.is_empty() && !violated.contains(policy)).collect();
            vec![(violated, Answer::Agree), (passed, Answer::Pass)]
        }
        (DecisionClass::Appeal, "accept" | "reject") => {
            let appealed = if row.reviewed_policies.is_empty() {
                policies_or_unspecified(&row.policies)
            } else {
                reviewed
            };
            let answer = if row.verdict == "accept" { Answer::Disagree } else { Answer::Agree };
            vec![(appealed, answer)]
        }
        (DecisionClass::Platform, "act") => vec![(policies_or_unspecified(&row.policies), Answer::Agree)],
        (DecisionClass::Platform, "ignore") => {
            vec![(policies_or_unspecified(&row.policies), Answer::Disagree)]
        }
        _ => return None,
    };
    Some(answers)
}

/// Claim under construction.
struct Claim {
    item: Item,
    /// Time of record and kind of the earliest event.
    first_event: (i64, EventKind),
    /// Bit for each phase with responses.
    phases: u8,
}

/// Builder of the claims. Claims arrive one after the other, in any order, each with its events in order of time.
struct ClaimListBuilder {
    claims: Vec<Claim>,
    previous_event: Vec<u8>,
    rows: RowSpooler,
    row_counts: [u64; EventKind::ALL.len()],
}

impl ClaimListBuilder {
    fn add(&mut self, key: &[u8], encoded_event: &[u8], is_first: bool) -> io::Result<()> {
        // Overlapping files repeat rows.
        if !is_first && self.previous_event == encoded_event {
            return Ok(());
        }
        self.previous_event.clear();
        self.previous_event.extend_from_slice(encoded_event);
        let damaged = || io::Error::new(io::ErrorKind::InvalidData, "a temporary file is damaged");
        let event = Event::decode(encoded_event).ok_or_else(damaged)?;
        self.row_counts[event.kind as usize] += u64::from(event.is_first_of_row);
        if is_first {
            let key = std::str::from_utf8(key).map_err(|_| damaged())?;
            self.claims.push(Claim::new(key, &event));
        }
        let number = u32::try_from(self.claims.len() - 1).map_err(io::Error::other)?;
        let claim = self.claims.last_mut().ok_or_else(damaged)?;
        if let Some((phase, answer)) = claim.add(&event) {
            let subject = number
                .checked_mul(RESPONSE_PHASES.into())
                .and_then(|subject| subject.checked_add(phase.into()))
                .ok_or_else(|| io::Error::other("too many claims for one bundle: choose a shorter period"))?;
            self.rows.push(Row::new(event.person, subject, NO_OBJECT, answer, Some(event.occurred_at), 0))?;
        }
        Ok(())
    }

    fn finish(self) -> Result<Claims, ConvertError> {
        let mut order: Vec<u32> = (0..self.claims.len() as u32).collect();
        order.sort_unstable_by(|left, right| {
            let key_of = |number: u32| &self.claims[number as usize].item.key;
            key_of(*left).cmp(key_of(*right))
        });
        let (mut questions, mut subjects) =
            (Vec::new(), vec![0; self.claims.len() * usize::from(RESPONSE_PHASES)]);
        for phase in 0..RESPONSE_PHASES {
            for (item, number) in order.iter().enumerate() {
                if self.claims[*number as usize].phases & 1 << phase != 0 {
                    subjects[*number as usize * usize::from(RESPONSE_PHASES) + usize::from(phase)] =
                        questions.len() as u32;
                    questions.push(Question { phase, item: item as u32 });
                }
            }
        }
        let mut claims: Vec<_> = self.claims.into_iter().map(|claim| Some(claim.into_item())).collect();
        let items = order.iter().filter_map(|number| claims[*number as usize].take()).collect();
        Ok(Claims { items, questions, rows: self.rows.finish(subjects)?, row_counts: self.row_counts })
    }
}

impl Claim {
    fn new(key: &str, event: &Event) -> Self {
        let item = Item {
            key: key.to_owned(),
            row: 0,
            id: format!("claim:{key}"),
            text: String::new(),
            status: "open".to_owned(),
            origin: Origin::Organizer,
            phase: REVIEW,
            created: None,
            author: None,
            outcomes: Vec::new(),
        };
        let mut claim = Self { item, first_event: (0, event.kind), phases: 0 };
        claim.set_first_event(event);
        claim
    }

    fn set_first_event(&mut self, event: &Event) {
        self.first_event = (event.recorded_at.millis, event.kind);
        self.item.created = Some(event.occurred_at);
        self.item.origin = match event.kind {
            EventKind::Report => Origin::Participant,
            EventKind::RuleAction => Origin::Model,
            // An appeal contests a decision before the period.
            EventKind::Decision | EventKind::Appeal => Origin::Organizer,
        };
    }

    /// Adds an event, and returns the phase and answer of its response.
    fn add(&mut self, event: &Event) -> Option<(u16, Answer)> {
        // Events arrive in order of their own times, which for reports are those of the platform's clock.
        if (event.recorded_at.millis, event.kind) < self.first_event {
            self.set_first_event(event);
        }
        let response = match event.kind {
            EventKind::RuleAction => None,
            EventKind::Report => Some((REPORT, Answer::Agree)),
            EventKind::Appeal => Some((APPEAL, Answer::Disagree)),
            EventKind::Decision => self.add_decision(event),
        };
        if let Some((phase, _)) = response {
            self.phases |= 1 << phase;
        }
        response
    }

    fn add_decision(&mut self, event: &Event) -> Option<(u16, Answer)> {
        let decision = event.decision.as_ref()?;
        let answer = decision.answer();
        let status = match (decision.class, answer) {
            (DecisionClass::Appeal, Answer::Disagree) => Some("overturned"),
            (_, Answer::Agree) => Some("actioned"),
            (_, Answer::Disagree) => Some("dismissed"),
            _ => None,
        };
        if let Some(status) = status {
            status.clone_into(&mut self.item.status);
        }
        let phase = match decision.class {
            DecisionClass::Review | DecisionClass::Platform => REVIEW,
            DecisionClass::Appeal => APPEAL_REVIEW,
        };
        self.item.outcomes.push(decision_outcome(event, decision, phase));
        (decision.class != DecisionClass::Platform).then_some((phase, answer))
    }

    fn into_item(mut self) -> Item {
        // Claims without a response were decided by a rule or the platform.
        let first_phase = (0..RESPONSE_PHASES).find(|phase| self.phases & 1 << phase != 0);
        self.item.phase = first_phase.unwrap_or(REVIEW);
        self.item
    }
}

fn decision_outcome(event: &Event, decision: &DecisionDetails, phase: u16) -> PublishedOutcome {
    let mut members = Map::new();
    members.insert("verdict".to_owned(), decision.verdict.as_str().into());
    members.insert("response".to_owned(), decision.answer().as_str().into());
    members.insert("actionIds".to_owned(), decision.actions.as_slice().into());
    members.insert("policyIds".to_owned(), decision.policies.as_slice().into());
    members.insert("decidedAt".to_owned(), event.occurred_at.to_string().into());
    members.insert("latencyMs".to_owned(), decision.latency.into());
    PublishedOutcome {
        phase,
        // Half of the pseudonym: distinct within a claim, and shorter than a reference to a participant.
        number: Some(String::from_utf8_lossy(&hex(event.row)[..16]).into_owned()),
        other_members: members,
        ..PublishedOutcome::counts(MODERATION_DECISION, Map::new())
    }
}

//! The acknowledged-id oracle: compares the requests of clients with the observations at the end, and lists lost, doubled
//! and invented effects.
//!
//! Pure: without I/O. An acknowledged request must have its effects exactly once, a request without an answer at most
//! once, and no other effects may exist.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use anyhow::{Result, bail};

use crate::{
    fetched::{self, Key, SeenRequest},
    limits,
    outcomes::{self, Outcome},
    own_actions::{self, OWN_ACTION, SentAction},
};

/// Kind of an item, by its effects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Plain,
    /// One action with a callback, and one strike of the author.
    Scam,
    /// The same effects, after its picture is hashed.
    Picture,
    /// A review job.
    Threat,
}

impl Content {
    pub(crate) fn is_acted_on(self) -> bool {
        matches!(self, Self::Scam | Self::Picture)
    }
}

/// Answer to a request, as the client got it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Accepted,
    /// No answer arrived; the request may have been sent.
    Missing,
}

#[derive(Clone, Debug)]
pub(crate) struct SentItem {
    pub(crate) user: String,
    pub(crate) content: Content,
    pub(crate) reply: Reply,
    /// As the acknowledgement named it.
    pub(crate) submission: Option<String>,
    /// Reply of the console to a moderator's decision that removes the item.
    pub(crate) removal: Option<Reply>,
}

impl SentItem {
    pub(crate) fn new(user: &str, content: Content) -> Self {
        Self { user: user.to_owned(), content, reply: Reply::Missing, submission: None, removal: None }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct SentReport {
    pub(crate) item: String,
    pub(crate) user: String,
    pub(crate) content: Content,
    pub(crate) csam: bool,
    pub(crate) reply: Reply,
    /// As the acknowledgement named it.
    pub(crate) report: Option<String>,
    /// An item that the report names and that no client submits.
    pub(crate) named: Option<String>,
}

#[derive(Clone, Debug)]
pub(crate) struct SentAppeal {
    pub(crate) reply: Reply,
    /// True if the appeal is against the strike of a scam.
    pub(crate) of_scam: bool,
    /// A moderator's verdict, and the reply of the console.
    pub(crate) decision: Option<(String, Reply)>,
}

/// Requests of all clients, by the ids that the clients chose.
#[derive(Clone, Debug, Default)]
pub(crate) struct SentRequests {
    pub(crate) items: BTreeMap<String, SentItem>,
    pub(crate) reports: Vec<SentReport>,
    pub(crate) appeals: BTreeMap<String, SentAppeal>,
    /// Actions of the platform, by their notes.
    pub(crate) own_actions: BTreeMap<String, SentAction>,
    /// Outcomes that `/content` answered, by submission.
    pub(crate) outcomes: BTreeMap<String, Outcome>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct SeenItem {
    /// Submission ids, and whether each is evaluated.
    pub(crate) submissions: BTreeMap<String, bool>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SeenCallback {
    pub(crate) event: String,
    /// `type` of the body.
    pub(crate) kind: String,
    pub(crate) item: String,
    pub(crate) action: String,
    pub(crate) user: String,
    pub(crate) appeal: String,
    pub(crate) decision: String,
    /// Id and reason of the decision behind the event.
    pub(crate) decided: String,
    pub(crate) reason: String,
    /// Time of the event in the body.
    pub(crate) at: String,
    /// The full text, to compare deliveries of one event.
    pub(crate) body: String,
}

impl SeenCallback {
    /// `2026-01-02`
    pub(crate) fn day(&self) -> &str {
        self.at.get(..10).unwrap_or_default()
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct SeenJob {
    pub(crate) class: String,
    pub(crate) item: String,
    pub(crate) appeal: Option<String>,
    /// Kind and id of each report, appeal or rule's submission that opened or joined the job.
    pub(crate) causes: Vec<(String, String)>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct SeenStrike {
    pub(crate) user: String,
    pub(crate) item: String,
    pub(crate) points: i64,
    /// Points of each reversal of the strike.
    pub(crate) reversed: Vec<i64>,
}

/// State of the installation after it is drained.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observations {
    pub(crate) items: BTreeMap<String, SeenItem>,
    /// Stored outcomes of the submissions that `/content` answered.
    pub(crate) outcomes: BTreeMap<String, Outcome>,
    /// The log of requests for items.
    pub(crate) requests: Vec<SeenRequest>,
    /// Ids of the requests that reached the platform.
    pub(crate) asked: BTreeSet<String>,
    /// Submissions that are stored as fetched; `None` before the rows are read.
    pub(crate) fetched: Option<BTreeMap<Key, Vec<String>>>,
    /// Every delivery that the receiver could verify, repeated ones too.
    pub(crate) callbacks: Vec<SeenCallback>,
    pub(crate) jobs: Vec<SeenJob>,
    /// `None` before the rows are read: strikes and thresholds are not judged then.
    pub(crate) strikes: Option<Vec<SeenStrike>>,
    /// Deliveries that are not delivered, with their state.
    pub(crate) unsettled: Vec<String>,
    pub(crate) dead_letters: Vec<String>,
    /// Deliveries whose signature was missing or wrong.
    pub(crate) unsigned: usize,
}

/// The strikes at which a user's threshold is crossed, as the documents of these tests set it.
pub(crate) const THRESHOLD: i64 = 3;

pub(crate) const AUTOMATIC: &str = "action.automatic";
pub(crate) const DECISION: &str = "decision.moderator";
pub(crate) const APPEAL: &str = "appeal.decision";
pub(crate) const ACCEPTED: &str = "ACCEPT";
pub(crate) const CROSSED: &str = "user.threshold";
pub(crate) const SCAM_ACTION: &str = "limit_reach";
pub(crate) const THRESHOLD_ACTION: &str = "suspend";
pub(crate) const REVIEW_ACTION: &str = "remove";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) lost: Vec<String>,
    pub(crate) doubled: Vec<String>,
    pub(crate) invented: Vec<String>,
}

impl Verdict {
    pub(crate) fn is_clean(&self) -> bool {
        self.lost.is_empty() && self.doubled.is_empty() && self.invented.is_empty()
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 10;
        let all = [("lost", &self.lost), ("doubled", &self.doubled), ("invented", &self.invented)];
        write!(
            f,
            "the oracle found {} lost, {} doubled, {} invented",
            all[0].1.len(),
            all[1].1.len(),
            all[2].1.len()
        )?;
        for (name, list) in all {
            for entry in list.iter().take(SHOWN) {
                write!(f, "\n  {name}: {entry}")?;
            }
            if list.len() > SHOWN {
                write!(f, "\n  {name}: and {} more", list.len() - SHOWN)?;
            }
        }
        Ok(())
    }
}

impl Verdict {
    /// Adds a fault if `count` is outside of `least..=most`.
    pub(crate) fn count(&mut self, label: impl fmt::Display, count: usize, least: usize, most: usize) {
        if count < least {
            self.lost.push(format!("{label}: {count} instead of {least}"));
        } else if count > most && most == 0 {
            self.invented.push(format!("{label}: {count} where none belongs"));
        } else if count > most {
            self.doubled.push(format!("{label}: {count} instead of {most}"));
        }
    }
}

/// Minimum and maximum of an effect that follows once from each request.
pub(crate) fn bounds(answers: impl Iterator<Item = Reply>) -> (usize, usize) {
    answers.fold((0, 0), |(least, most), answer| (least + usize::from(answer == Reply::Accepted), most + 1))
}

pub(crate) fn judge(sent: &SentRequests, seen: &Observations) -> Verdict {
    let mut verdict = Verdict::default();
    items(sent, seen, &mut verdict);
    jobs(sent, seen, &mut verdict);
    actions(sent, seen, &mut verdict);
    thresholds(seen, &mut verdict);
    appeals(sent, seen, &mut verdict);
    reversals(sent, seen, &mut verdict);
    limits::judge(sent, seen, &mut verdict);
    removals(sent, seen, &mut verdict);
    outcomes::judge(sent, seen, &mut verdict);
    own_actions::judge(sent, seen, &mut verdict);
    fetched::judge(sent, seen, &mut verdict);
    bodies(seen, &mut verdict);
    verdict
        .lost
        .extend(seen.unsettled.iter().map(|delivery| format!("a delivery is not settled: {delivery}")));
    verdict.lost.extend(seen.dead_letters.iter().map(|letter| format!("a dead letter: {letter}")));
    verdict.count("deliveries without a valid signature", seen.unsigned, 0, 0);
    verdict
}

/// Each submission is stored and evaluated, under the id that was acknowledged, and no item has more of them.
fn items(sent: &SentRequests, seen: &Observations, verdict: &mut Verdict) {
    let missing_item = SeenItem::default();
    for (id, item) in &sent.items {
        let stored_item = seen.items.get(id).unwrap_or(&missing_item);
        let (least, most) = bounds([item.reply].into_iter());
        verdict.count(format_args!("submissions of item {id}"), stored_item.submissions.len(), least, most);
        if let Some(submission) = &item.submission {
            match stored_item.submissions.get(submission) {
                Some(true) => {}
                Some(false) => verdict.lost.push(format!("item {id} is not evaluated")),
                None => verdict.lost.push(format!("item {id}: submission {submission} is not stored")),
            }
        }
    }
    for (id, reports) in by_item(sent) {
        let stored_item = seen.items.get(id).unwrap_or(&missing_item);
        let (least, most) = bounds(reports.iter().map(|report| report.reply));
        verdict.count(
            format_args!("submissions of reported item {id}"),
            stored_item.submissions.len(),
            least,
            most,
        );
        if stored_item.submissions.values().any(|evaluated| !evaluated) {
            verdict.lost.push(format!("reported item {id} is not evaluated"));
        }
    }
    let reported = by_item(sent);
    for id in
        seen.items.keys().filter(|id| !sent.items.contains_key(*id) && !reported.contains_key(id.as_str()))
    {
        verdict.invented.push(format!("item {id}, which no client sent"));
    }
}

fn by_item(sent: &SentRequests) -> BTreeMap<&str, Vec<&SentReport>> {
    let mut by_item: BTreeMap<&str, Vec<&SentReport>> = BTreeMap::new();
    for report in &sent.reports {
        by_item.entry(&report.item).or_default().push(report);
    }
    by_item
}

const REVIEW: &str = "review";
const CHILD_SAFETY: &str = "child_safety";

/// A threat, a reported item and an appeal have one job each, and a job has each cause once.
fn jobs(sent: &SentRequests, seen: &Observations, verdict: &mut Verdict) {
    let mut seen_jobs: BTreeMap<(String, String), Vec<&SeenJob>> = BTreeMap::new();
    for job in &seen.jobs {
        let subject = job.appeal.as_ref().unwrap_or(&job.item);
        seen_jobs.entry((job.class.clone(), subject.clone())).or_default().push(job);
    }
    let mut take =
        |verdict: &mut Verdict, class: &'static str, subject: &str, (least, most): (usize, usize)| {
            let jobs = seen_jobs.remove(&(class.to_owned(), subject.to_owned())).unwrap_or_default();
            verdict.count(
                format_args!("jobs of class {class} about {subject}"),
                jobs.len(),
                least.min(1),
                most.min(1),
            );
            let causes: Vec<_> = jobs.iter().flat_map(|job| &job.causes).cloned().collect();
            verdict.count(format_args!("causes of the job about {subject}"), causes.len(), least, most);
            let distinct: BTreeSet<_> = causes.iter().collect();
            if distinct.len() < causes.len() {
                verdict.doubled.push(format!("a cause of the job about {subject}"));
            }
            causes
        };
    for (id, item) in sent.items.iter().filter(|(_, item)| item.content == Content::Threat) {
        take(verdict, REVIEW, id, bounds([item.reply].into_iter()));
    }
    for (id, reports) in by_item(sent) {
        for (class, csam) in [(REVIEW, false), (CHILD_SAFETY, true)] {
            let of_class = || reports.iter().filter(|report| report.csam == csam);
            if of_class().next().is_none() {
                continue;
            }
            let causes = take(verdict, class, id, bounds(of_class().map(|report| report.reply)));
            for report in of_class().filter_map(|report| report.report.as_ref()) {
                if !causes.iter().any(|(kind, cause)| kind == "report" && cause == report) {
                    verdict.lost.push(format!("report {report} is no cause of a job about {id}"));
                }
            }
        }
    }
    for (id, appeal) in &sent.appeals {
        take(verdict, "appeal", id, bounds([appeal.reply].into_iter()));
    }
    for ((class, subject), _) in seen_jobs {
        verdict.invented.push(format!("a job of class {class} about {subject}"));
    }
}

/// Each scam has one event and one strike; other items have none.
fn actions(sent: &SentRequests, seen: &Observations, verdict: &mut Verdict) {
    let mut events: BTreeMap<(&str, &str), BTreeSet<&str>> = BTreeMap::new();
    let elsewhere = |callback: &&SeenCallback| limits::ACTIONS.contains(&callback.action.as_str());
    let automatic = seen.callbacks.iter().filter(|callback| callback.kind == AUTOMATIC);
    for callback in automatic.filter(|callback| !elsewhere(callback)) {
        events.entry((&callback.item, &callback.action)).or_default().insert(&callback.event);
    }
    let mut strikes: BTreeMap<(&str, &str), Vec<i64>> = BTreeMap::new();
    let of_rules = |strike: &&SeenStrike| !own_actions::is_own(sent, &strike.item);
    for strike in seen.strikes.iter().flatten().filter(of_rules) {
        strikes.entry((&strike.item, &strike.user)).or_default().push(strike.points);
    }
    let scams = sent
        .items
        .iter()
        .filter(|(_, item)| item.content.is_acted_on())
        .map(|(id, item)| (id.as_str(), item.user.as_str(), bounds([item.reply].into_iter())));
    let reported: BTreeMap<_, _> = by_item(sent);
    let reported_scams = reported.iter().filter_map(|(id, reports)| {
        let scams: Vec<_> = reports.iter().filter(|report| report.content.is_acted_on()).collect();
        let user = scams.first()?.user.as_str();
        Some((*id, user, bounds(scams.iter().map(|report| report.reply))))
    });
    for (id, user, (least, most)) in scams.chain(reported_scams) {
        let item_events = events.remove(&(id, SCAM_ACTION)).unwrap_or_default();
        verdict.count(format_args!("events of {SCAM_ACTION} for item {id}"), item_events.len(), least, most);
        if seen.strikes.is_none() {
            continue;
        }
        let item_strikes = strikes.remove(&(id, user)).unwrap_or_default();
        verdict.count(format_args!("strikes of {user} for item {id}"), item_strikes.len(), least, most);
        if item_strikes.iter().any(|points| *points != 1) {
            verdict.invented.push(format!("a strike of {user} for item {id} has not one point"));
        }
    }
    for ((item, action), _) in events {
        verdict.invented.push(format!("an event of {action} for item {item}"));
    }
    for ((item, user), _) in strikes {
        verdict.invented.push(format!("a strike of {user} for item {item}"));
    }
}

/// Each user with strikes at or above the threshold has one event.
fn thresholds(seen: &Observations, verdict: &mut Verdict) {
    let Some(strikes) = &seen.strikes else { return };
    let mut events: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for callback in seen.callbacks.iter().filter(|callback| callback.kind == CROSSED) {
        events.entry(&callback.user).or_default().insert(&callback.event);
    }
    let mut points: BTreeMap<&str, i64> = BTreeMap::new();
    for strike in strikes {
        *points.entry(&strike.user).or_default() += strike.points;
    }
    for (user, points) in points {
        let expected_count = usize::from(points >= THRESHOLD);
        let event_count = events.remove(user).unwrap_or_default().len();
        verdict.count(
            format_args!("threshold events of {user} with {points} points"),
            event_count,
            expected_count,
            expected_count,
        );
    }
    for user in events.into_keys() {
        verdict.invented.push(format!("a threshold event of {user} without strikes"));
    }
}

/// Each decision on an appeal has one event with its verdict.
fn appeals(sent: &SentRequests, seen: &Observations, verdict: &mut Verdict) {
    let mut events: BTreeMap<&str, BTreeSet<(&str, &str)>> = BTreeMap::new();
    for callback in seen.callbacks.iter().filter(|callback| callback.kind == APPEAL) {
        events.entry(&callback.appeal).or_default().insert((&callback.event, &callback.decision));
    }
    for (id, appeal) in &sent.appeals {
        let decisions = events.remove(id.as_str()).unwrap_or_default();
        let (least, most) = bounds(appeal.decision.iter().map(|(_, answer)| *answer));
        verdict.count(format_args!("decision events of appeal {id}"), decisions.len(), least, most);
        if let Some((expected_decision, _)) = &appeal.decision
            && decisions.iter().any(|(_, decision)| decision != expected_decision)
        {
            verdict.invented.push(format!("appeal {id} was decided otherwise than {expected_decision}"));
        }
    }
    for id in events.into_keys() {
        verdict.invented.push(format!("a decision of appeal {id}"));
    }
}

/// The item that an appeal is against.
pub(crate) fn appealed(appeal: &str) -> String {
    format!("appealed-{appeal}")
}

/// An accepted appeal reverses all points of its strike once. Other strikes are not reversed.
fn reversals(sent: &SentRequests, seen: &Observations, verdict: &mut Verdict) {
    let accepted: BTreeMap<String, Reply> = sent
        .appeals
        .iter()
        .filter(|(_, appeal)| appeal.of_scam)
        .filter_map(|(id, appeal)| match &appeal.decision {
            Some((decision, answer)) if decision == ACCEPTED => Some((appealed(id), *answer)),
            _ => None,
        })
        .collect();
    for strike in seen.strikes.iter().flatten() {
        let (least, most) = bounds(accepted.get(&strike.item).copied().into_iter());
        let label = format_args!("reversals of the strike for item {}", strike.item);
        verdict.count(label, strike.reversed.len(), least, most);
        if strike.reversed.iter().any(|points| *points != strike.points) {
            verdict.invented.push(format!("a reversal for item {} has other points", strike.item));
        }
    }
}

/// Each decision on a review job has one event with its action.
fn removals(sent: &SentRequests, seen: &Observations, verdict: &mut Verdict) {
    let mut events: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let of_moderator = |callback: &&SeenCallback| callback.kind == DECISION && callback.action != OWN_ACTION;
    for callback in seen.callbacks.iter().filter(of_moderator) {
        if callback.action != REVIEW_ACTION {
            verdict.invented.push(format!("a decision to {} item {}", callback.action, callback.item));
        }
        events.entry(&callback.item).or_default().insert(&callback.event);
    }
    for (id, item) in &sent.items {
        let event_count = events.remove(id.as_str()).unwrap_or_default().len();
        let (least, most) = bounds(item.removal.into_iter());
        verdict.count(format_args!("decision events of item {id}"), event_count, least, most);
    }
    for id in events.into_keys() {
        verdict.invented.push(format!("a decision on item {id}"));
    }
}

/// Deliveries may repeat, with the same body for one event.
fn bodies(seen: &Observations, verdict: &mut Verdict) {
    let mut bodies: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for callback in &seen.callbacks {
        bodies.entry(&callback.event).or_default().insert(&callback.body);
        if ![AUTOMATIC, DECISION, CROSSED, APPEAL].contains(&callback.kind.as_str()) {
            verdict.invented.push(format!("an event of type {}", callback.kind));
        }
    }
    for (event, bodies) in bodies {
        verdict.count(format_args!("bodies of event {event}"), bodies.len(), 1, 1);
    }
}

/// Numbers of a run, for its report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) acknowledged: usize,
    pub(crate) unanswered: usize,
    pub(crate) deliveries: usize,
    pub(crate) events: usize,
    pub(crate) jobs: usize,
    pub(crate) strikes: usize,
    pub(crate) reversals: usize,
    /// Answers of `/content` that were compared with the stored outcome.
    pub(crate) outcomes: usize,
    /// Actions of the platform that were taken.
    pub(crate) own_actions: usize,
    /// Items that the platform was asked for and that are stored.
    pub(crate) fetched: usize,
}

/// True if the acknowledged requests are enough for a verdict about `kills` kills.
pub(crate) fn suffices(acknowledged: usize, kills: usize) -> bool {
    const ACKNOWLEDGED_A_KILL: usize = 5;
    acknowledged >= ACKNOWLEDGED_A_KILL * kills
}

impl Counts {
    /// # Errors
    /// Too few effects for a verdict about `kills` kills.
    pub(crate) fn suffice(&self, kills: usize) -> Result<()> {
        const KILLS_AN_EFFECT: usize = 3;
        // Clients that wait for outcomes send no other requests, and few reports name items.
        const KILLS_A_WAIT: usize = 6;
        let effects = [self.events, self.jobs, self.strikes, self.own_actions];
        let awaited_effects = [self.outcomes, self.fetched];
        if !suffices(self.acknowledged, kills)
            || effects.iter().any(|count| count * KILLS_AN_EFFECT < kills)
            || awaited_effects.iter().any(|count| count * KILLS_A_WAIT < kills)
        {
            bail!("too little happened for {kills} kills: {self}");
        }
        Ok(())
    }
}

fn answers(sent: &SentRequests) -> impl Iterator<Item = Reply> {
    let items = sent.items.values().map(|item| item.reply);
    let reports = sent.reports.iter().map(|report| report.reply);
    let appeals = sent.appeals.values().map(|appeal| appeal.reply);
    let decisions =
        sent.appeals.values().filter_map(|appeal| appeal.decision.as_ref()).map(|(_, answer)| *answer);
    let removals = sent.items.values().filter_map(|item| item.removal);
    let own_actions = sent.own_actions.values().map(|action| action.reply);
    items.chain(reports).chain(appeals).chain(decisions).chain(removals).chain(own_actions)
}

pub(crate) fn count_accepted(sent: &SentRequests) -> usize {
    answers(sent).filter(|answer| *answer == Reply::Accepted).count()
}

pub(crate) fn counts(sent: &SentRequests, seen: &Observations) -> Counts {
    let events: BTreeSet<_> = seen.callbacks.iter().map(|callback| &callback.event).collect();
    Counts {
        acknowledged: count_accepted(sent),
        unanswered: answers(sent).filter(|answer| *answer == Reply::Missing).count(),
        deliveries: seen.callbacks.len(),
        events: events.len(),
        jobs: seen.jobs.len(),
        strikes: seen.strikes.iter().flatten().count(),
        reversals: seen.strikes.iter().flatten().map(|strike| strike.reversed.len()).sum(),
        outcomes: sent.outcomes.len(),
        own_actions: sent.own_actions.values().filter(|action| action.reply == Reply::Accepted).count(),
        fetched: seen.fetched.iter().flatten().map(|(_, submissions)| submissions.len()).sum(),
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} acknowledged, {} without an answer; {} events in {} deliveries ({} repeated), {} jobs, {} strikes, \
             {} of them taken back; {} outcomes answered, {} own actions, {} items fetched",
            self.acknowledged,
            self.unanswered,
            self.events,
            self.deliveries,
            self.deliveries - self.events,
            self.jobs,
            self.strikes,
            self.reversals,
            self.outcomes,
            self.own_actions,
            self.fetched
        )
    }
}

#[cfg(test)]
#[path = "oracle_tests.rs"]
mod tests;

//! The acknowledged-id oracle: what clients sent against what is seen at the end, and what of it is lost, doubled or
//! invented.
//!
//! Pure: it sends and reads nothing. What was acknowledged must have its effects exactly once; what was sent without
//! an answer may have them at most once; nothing else may be there.

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

/// What an item leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Plain,
    /// One action with a callback, and one strike of the author.
    Scam,
    /// The same, once its picture was looked at.
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
    /// The request was sent, perhaps, and no answer arrived.
    Missing,
}

#[derive(Clone, Debug)]
pub(crate) struct SentItem {
    pub(crate) user: String,
    pub(crate) content: Content,
    pub(crate) reply: Reply,
    /// As the acknowledgement named it.
    pub(crate) submission: Option<String>,
    /// Whether a moderator's decision on its review job, which is to remove it, was taken by the console.
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
    /// An item that it names and that nobody ever submits.
    pub(crate) named: Option<String>,
}

#[derive(Clone, Debug)]
pub(crate) struct SentAppeal {
    pub(crate) reply: Reply,
    /// Whether it is against the strike of a scam that was acted on before.
    pub(crate) of_scam: bool,
    /// What a moderator said, and whether the console took it.
    pub(crate) decision: Option<(String, Reply)>,
}

/// Everything that clients sent, by the ids that they chose.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sent {
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
    /// Id and reason of the decision that it tells of.
    pub(crate) decided: String,
    pub(crate) reason: String,
    /// When it happened, as the body says.
    pub(crate) at: String,
    /// Whole, to compare deliveries of one event.
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
    /// The report, the appeal or the rule's submission that opened or joined it.
    pub(crate) causes: Vec<(String, String)>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct SeenStrike {
    pub(crate) user: String,
    pub(crate) item: String,
    pub(crate) points: i64,
    /// The points that were taken back, once for each time.
    pub(crate) reversed: Vec<i64>,
}

/// Everything that is there once all is drained.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) items: BTreeMap<String, SeenItem>,
    /// Stored outcomes of the submissions that `/content` answered.
    pub(crate) outcomes: BTreeMap<String, Outcome>,
    /// The log of requests for items.
    pub(crate) requests: Vec<SeenRequest>,
    /// Ids of the requests that reached the platform.
    pub(crate) asked: BTreeSet<String>,
    /// Submissions that are stored as fetched; `None`: not looked at yet.
    pub(crate) fetched: Option<BTreeMap<Key, Vec<String>>>,
    /// Every delivery that the receiver could verify, repeated ones too.
    pub(crate) callbacks: Vec<SeenCallback>,
    pub(crate) jobs: Vec<SeenJob>,
    /// `None`: not looked at yet, so nothing is said of strikes and thresholds.
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
    /// `least..=most` of something must be there.
    pub(crate) fn count(&mut self, what: impl fmt::Display, found: usize, least: usize, most: usize) {
        if found < least {
            self.lost.push(format!("{what}: {found} instead of {least}"));
        } else if found > most && most == 0 {
            self.invented.push(format!("{what}: {found} where none belongs"));
        } else if found > most {
            self.doubled.push(format!("{what}: {found} instead of {most}"));
        }
    }
}

/// How often something that follows from the requests may be there.
pub(crate) fn bounds(answers: impl Iterator<Item = Reply>) -> (usize, usize) {
    answers.fold((0, 0), |(least, most), answer| (least + usize::from(answer == Reply::Accepted), most + 1))
}

pub(crate) fn judge(sent: &Sent, seen: &Seen) -> Verdict {
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
fn items(sent: &Sent, seen: &Seen, verdict: &mut Verdict) {
    let nothing = SeenItem::default();
    for (id, item) in &sent.items {
        let found = seen.items.get(id).unwrap_or(&nothing);
        let (least, most) = bounds([item.reply].into_iter());
        verdict.count(format_args!("submissions of item {id}"), found.submissions.len(), least, most);
        if let Some(submission) = &item.submission {
            match found.submissions.get(submission) {
                Some(true) => {}
                Some(false) => verdict.lost.push(format!("item {id} is not evaluated")),
                None => verdict.lost.push(format!("item {id}: submission {submission} is not stored")),
            }
        }
    }
    for (id, reports) in by_item(sent) {
        let found = seen.items.get(id).unwrap_or(&nothing);
        let (least, most) = bounds(reports.iter().map(|report| report.reply));
        verdict.count(
            format_args!("submissions of reported item {id}"),
            found.submissions.len(),
            least,
            most,
        );
        if found.submissions.values().any(|evaluated| !evaluated) {
            verdict.lost.push(format!("reported item {id} is not evaluated"));
        }
    }
    let reported = by_item(sent);
    for id in
        seen.items.keys().filter(|id| !sent.items.contains_key(*id) && !reported.contains_key(id.as_str()))
    {
        verdict.invented.push(format!("item {id}, which nobody sent"));
    }
}

fn by_item(sent: &Sent) -> BTreeMap<&str, Vec<&SentReport>> {
    let mut by_item: BTreeMap<&str, Vec<&SentReport>> = BTreeMap::new();
    for report in &sent.reports {
        by_item.entry(&report.item).or_default().push(report);
    }
    by_item
}

const REVIEW: &str = "review";
const CHILD_SAFETY: &str = "child_safety";

/// One job for a threat, for a reported item and for an appeal; each cause in it once.
fn jobs(sent: &Sent, seen: &Seen, verdict: &mut Verdict) {
    let mut found: BTreeMap<(String, String), Vec<&SeenJob>> = BTreeMap::new();
    for job in &seen.jobs {
        let subject = job.appeal.as_ref().unwrap_or(&job.item);
        found.entry((job.class.clone(), subject.clone())).or_default().push(job);
    }
    let mut take =
        |verdict: &mut Verdict, class: &'static str, subject: &str, (least, most): (usize, usize)| {
            let jobs = found.remove(&(class.to_owned(), subject.to_owned())).unwrap_or_default();
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
    for ((class, subject), _) in found {
        verdict.invented.push(format!("a job of class {class} about {subject}"));
    }
}

/// One event and one strike for each scam, and none for anything else.
fn actions(sent: &Sent, seen: &Seen, verdict: &mut Verdict) {
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
        let found = events.remove(&(id, SCAM_ACTION)).unwrap_or_default();
        verdict.count(format_args!("events of {SCAM_ACTION} for item {id}"), found.len(), least, most);
        if seen.strikes.is_none() {
            continue;
        }
        let found = strikes.remove(&(id, user)).unwrap_or_default();
        verdict.count(format_args!("strikes of {user} for item {id}"), found.len(), least, most);
        if found.iter().any(|points| *points != 1) {
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

/// One event for each user whose strikes reach the threshold, whichever strike it was.
fn thresholds(seen: &Seen, verdict: &mut Verdict) {
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
        let wanted = usize::from(points >= THRESHOLD);
        let found = events.remove(user).unwrap_or_default().len();
        verdict.count(format_args!("threshold events of {user} with {points} points"), found, wanted, wanted);
    }
    for user in events.into_keys() {
        verdict.invented.push(format!("a threshold event of {user}, who has no strikes"));
    }
}

/// One event for each decision on an appeal, with what was decided.
fn appeals(sent: &Sent, seen: &Seen, verdict: &mut Verdict) {
    let mut events: BTreeMap<&str, BTreeSet<(&str, &str)>> = BTreeMap::new();
    for callback in seen.callbacks.iter().filter(|callback| callback.kind == APPEAL) {
        events.entry(&callback.appeal).or_default().insert((&callback.event, &callback.decision));
    }
    for (id, appeal) in &sent.appeals {
        let found = events.remove(id.as_str()).unwrap_or_default();
        let (least, most) = bounds(appeal.decision.iter().map(|(_, answer)| *answer));
        verdict.count(format_args!("decision events of appeal {id}"), found.len(), least, most);
        if let Some((wanted, _)) = &appeal.decision
            && found.iter().any(|(_, decision)| decision != wanted)
        {
            verdict.invented.push(format!("appeal {id} was decided otherwise than {wanted}"));
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

/// A strike is taken back once for an appeal that was accepted, whole, and never else.
fn reversals(sent: &Sent, seen: &Seen, verdict: &mut Verdict) {
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
        let what = format_args!("reversals of the strike for item {}", strike.item);
        verdict.count(what, strike.reversed.len(), least, most);
        if strike.reversed.iter().any(|points| *points != strike.points) {
            verdict.invented.push(format!("a reversal for item {} has other points", strike.item));
        }
    }
}

/// One event for each decision on a review job, with its action.
fn removals(sent: &Sent, seen: &Seen, verdict: &mut Verdict) {
    let mut events: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let of_moderator = |callback: &&SeenCallback| callback.kind == DECISION && callback.action != OWN_ACTION;
    for callback in seen.callbacks.iter().filter(of_moderator) {
        if callback.action != REVIEW_ACTION {
            verdict.invented.push(format!("a decision to {} item {}", callback.action, callback.item));
        }
        events.entry(&callback.item).or_default().insert(&callback.event);
    }
    for (id, item) in &sent.items {
        let found = events.remove(id.as_str()).unwrap_or_default().len();
        let (least, most) = bounds(item.removal.into_iter());
        verdict.count(format_args!("decision events of item {id}"), found, least, most);
    }
    for id in events.into_keys() {
        verdict.invented.push(format!("a decision on item {id}"));
    }
}

/// Deliveries may repeat; what one event says may not change.
fn bodies(seen: &Seen, verdict: &mut Verdict) {
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
    /// Answers of `/content` that were compared with what is stored.
    pub(crate) outcomes: usize,
    /// Actions of the platform that were taken.
    pub(crate) own_actions: usize,
    /// Items that the platform was asked for and that are stored.
    pub(crate) fetched: usize,
}

/// True if as much was acknowledged as the oracle needs to say something about so many kills.
pub(crate) fn suffices(acknowledged: usize, kills: usize) -> bool {
    const ACKNOWLEDGED_A_KILL: usize = 5;
    acknowledged >= ACKNOWLEDGED_A_KILL * kills
}

impl Counts {
    /// # Errors
    /// So few effects that their being right says little of so many kills.
    pub(crate) fn suffice(&self, kills: usize) -> Result<()> {
        const KILLS_AN_EFFECT: usize = 3;
        // Clients that wait for outcomes send nothing meanwhile, and few reports name items.
        const KILLS_A_WAIT: usize = 6;
        let effects = [self.events, self.jobs, self.strikes, self.own_actions];
        let waits = [self.outcomes, self.fetched];
        if !suffices(self.acknowledged, kills)
            || effects.iter().any(|count| count * KILLS_AN_EFFECT < kills)
            || waits.iter().any(|count| count * KILLS_A_WAIT < kills)
        {
            bail!("too little happened for {kills} kills: {self}");
        }
        Ok(())
    }
}

fn answers(sent: &Sent) -> impl Iterator<Item = Reply> {
    let items = sent.items.values().map(|item| item.reply);
    let reports = sent.reports.iter().map(|report| report.reply);
    let appeals = sent.appeals.values().map(|appeal| appeal.reply);
    let decisions =
        sent.appeals.values().filter_map(|appeal| appeal.decision.as_ref()).map(|(_, answer)| *answer);
    let removals = sent.items.values().filter_map(|item| item.removal);
    let own = sent.own_actions.values().map(|action| action.reply);
    items.chain(reports).chain(appeals).chain(decisions).chain(removals).chain(own)
}

pub(crate) fn taken(sent: &Sent) -> usize {
    answers(sent).filter(|answer| *answer == Reply::Accepted).count()
}

pub(crate) fn counts(sent: &Sent, seen: &Seen) -> Counts {
    let events: BTreeSet<_> = seen.callbacks.iter().map(|callback| &callback.event).collect();
    Counts {
        acknowledged: taken(sent),
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

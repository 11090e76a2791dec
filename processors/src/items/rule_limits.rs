//! Asks the limits of rules whether they may act: askers for one rule's day are served together, with one write.
//!
//! It neither knows the rules that ask (`tidegate-moderation` does) nor keeps what is taken: the rows do.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use futures::{
    FutureExt as _,
    future::{BoxFuture, Shared},
};
use parking_lot::Mutex;
use tidegate_moderation::{
    self as moderation,
    effects::{Claim, Refused, Watch},
    rules::{
        limits::{self, CooldownRequest, CounterState, LimitPeriod, PeriodUnit, RuleVersion},
        stats::Suppressed,
    },
};
use tidegate_schemas::ids::{ItemKey, Millis, OrgId, SubmissionId};
use tidegate_store::Store;
use tokio::time::Instant;

use crate::{items::alarm_thresholds::Expectations, metrics};

/// Spans and rules that are remembered. What is forgotten is read again.
const REMEMBERED: usize = 10_000;

/// Time for which another process's alarm may go unnoticed.
const NO_ALARM_FOR: Duration = Duration::from_secs(1);

/// Request of one submission: its org and user, and when the log took it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LimitRequest<'a> {
    pub(crate) org: &'a OrgId,
    pub(crate) submission: SubmissionId,
    pub(crate) at: Millis,
}

#[derive(Clone)]
pub(crate) struct RuleLimits {
    store: Store,
    expected: Expectations,
    days: Arc<Mutex<Days>>,
    /// Rules with and without an alarm, and when that was read. An alarm stays.
    alarms: Arc<Mutex<HashMap<RuleVersion, (bool, Instant)>>>,
}

#[derive(Default)]
struct Days {
    /// The batch that still takes askers.
    open: HashMap<(LimitPeriod, i64), Batch>,
    last: HashMap<LimitPeriod, Last>,
}

/// Counter of a day: its row is written by one batch of this process at a time.
#[derive(Clone, Default)]
struct Last(Arc<tokio::sync::Mutex<Option<CounterState>>>);

#[derive(Clone)]
struct Batch {
    askers: Arc<AtomicI64>,
    /// Number of requests of the batch, the first ones, that are granted. An error of the store cannot be shared.
    granted: Shared<BoxFuture<'static, Option<i64>>>,
}

impl RuleLimits {
    pub(crate) fn new(store: Store, expected: Expectations) -> Self {
        Self { store, expected, days: Arc::default(), alarms: Arc::default() }
    }

    /// Requests the claims and returns the rules that may not act.
    pub(crate) async fn request(
        &self,
        applicant: LimitRequest<'_>,
        claims: &[Claim],
    ) -> Result<Refused, moderation::Error> {
        let mut refused = Refused::new();
        for claim in claims {
            if let Some(why) = self.settle(applicant, claim).await? {
                refused.insert(claim.rule.clone(), why);
            }
        }
        Ok(refused)
    }

    /// A user who is to be left alone must not use up the day, and a day that is over must not hold the user. So the
    /// user is looked at first and held last; only who is overtaken in between wastes a place.
    async fn settle(
        &self,
        applicant: LimitRequest<'_>,
        claim: &Claim,
    ) -> Result<Option<Suppressed>, moderation::Error> {
        if let Some(watch) = &claim.alarm
            && self.is_alarmed(applicant, claim, watch).await?
        {
            return Ok(Some(Suppressed::Alarm));
        }
        let cooldown_request = |user| cooldown_request(applicant, claim, user);
        if let (Some((user, _)), Some(_)) = (&claim.cooldown, claim.per_day)
            && !limits::is_cooldown_free(&self.store, &cooldown_request(user)).await?
        {
            return Ok(Some(Suppressed::Cooldown));
        }
        if let Some(limit) = claim.per_day {
            let day = LimitPeriod::of(applicant.org, &claim.rule, PeriodUnit::Day, applicant.at);
            if !self.one_of(day, limit).await? {
                return Ok(Some(Suppressed::Limit));
            }
        }
        if let Some((user, span)) = &claim.cooldown
            && !limits::take_cooldown(&self.store, &cooldown_request(user), applicant.at.plus(*span)).await?
        {
            return Ok(Some(Suppressed::Cooldown));
        }
        Ok(None)
    }

    async fn is_alarmed(
        &self,
        applicant: LimitRequest<'_>,
        claim: &Claim,
        watch: &Watch,
    ) -> Result<bool, moderation::Error> {
        let (org, rule) = (applicant.org, &claim.rule);
        let rule_version =
            RuleVersion { org: org.clone(), rule: rule.clone(), version: watch.version.clone() };
        let Some(most) = self.expected.most(&rule_version, watch.expected).await? else { return Ok(false) };
        if self.has_alarm(&rule_version).await? {
            return Ok(true);
        }
        let hour = LimitPeriod::of(org, rule, PeriodUnit::HourOfVersion(watch.version.clone()), applicant.at);
        if !watch.counts || self.one_of(hour, most).await? {
            return Ok(false);
        }
        if limits::raise_alarm(&self.store, &rule_version, applicant.submission, applicant.at).await? {
            metrics::rule_alarm();
            tracing::error!(%org, %rule, version = rule_version.version, most,
                "a rule matched more often in an hour than was expected: it acts no more until its document changes");
        }
        self.remember(rule_version, true);
        Ok(true)
    }

    async fn has_alarm(&self, rule_version: &RuleVersion) -> Result<bool, moderation::Error> {
        if let Some((alarmed, asked)) = self.alarms.lock().get(rule_version)
            && (*alarmed || asked.elapsed() < NO_ALARM_FOR)
        {
            return Ok(*alarmed);
        }
        let alarmed = limits::is_alarmed(&self.store, rule_version).await?;
        self.remember(rule_version.clone(), alarmed);
        Ok(alarmed)
    }

    fn remember(&self, rule_version: RuleVersion, alarmed: bool) {
        let mut alarms = self.alarms.lock();
        if alarms.len() >= REMEMBERED {
            alarms.clear();
        }
        alarms.insert(rule_version, (alarmed, Instant::now()));
    }

    async fn one_of(&self, span: LimitPeriod, limit: i64) -> Result<bool, moderation::Error> {
        let (batch, place) = self.join(&span, limit);
        match batch.granted.await {
            Some(granted) => Ok(place < granted),
            // Whoever meets an outage asks again, alone: it is the store that says which one.
            None => Ok(limits::take(&self.store, &span, limit, 1, None).await?.0 == 1),
        }
    }

    /// A batch takes askers until it is its turn to write.
    fn join(&self, span: &LimitPeriod, limit: i64) -> (Batch, i64) {
        let mut days = self.days.lock();
        let key = (span.clone(), limit);
        if let Some(batch) = days.open.get(&key) {
            let place = batch.askers.fetch_add(1, Ordering::Relaxed);
            return (batch.clone(), place);
        }
        if days.last.len() >= REMEMBERED {
            days.last.retain(|_, last| Arc::strong_count(&last.0) > 1);
        }
        let last = days.last.entry(span.clone()).or_default().clone();
        let askers = Arc::new(AtomicI64::new(1));
        let (store, all, own, asked) =
            (self.store.clone(), Arc::clone(&self.days), Arc::clone(&askers), key.clone());
        let granted = async move {
            let mut last = last.0.lock().await;
            // From here on others make a batch of their own.
            let wanted = {
                all.lock().open.remove(&asked);
                own.load(Ordering::Relaxed)
            };
            let (span, limit) = asked;
            // What is taken never grows less, so a span that was full is full, whoever has written since.
            if last.is_some_and(|known| known.taken >= limit) {
                return Some(0);
            }
            let (granted, known) = limits::take(&store, &span, limit, wanted, last.take()).await.ok()?;
            *last = Some(known);
            Some(granted)
        };
        let batch = Batch { askers, granted: granted.boxed().shared() };
        days.open.insert(key, batch.clone());
        (batch, 0)
    }
}

fn cooldown_request<'a>(
    applicant: LimitRequest<'a>,
    claim: &'a Claim,
    user: &'a ItemKey,
) -> CooldownRequest<'a> {
    CooldownRequest {
        org: applicant.org,
        rule: &claim.rule,
        user,
        holder: applicant.submission,
        at: applicant.at,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use tidegate_moderation::{
        effects::Expected,
        rules::baselines::{self, Measured, Measurement},
    };
    use tidegate_store::tables::items::limits::RuleDay;

    use super::*;
    use crate::items::alarm_thresholds::Measure;

    const AT: Millis = Millis(1_700_000_000_000);

    fn store() -> (tempfile::TempDir, Store) {
        let folder = tempfile::tempdir().unwrap();
        let db = fjall::Database::builder(folder.path()).open().unwrap();
        let store = Store::open_embedded(&db, tidegate_store::embedded::Settings::default()).unwrap();
        (folder, store)
    }

    fn claim(per_day: Option<i64>, user: Option<&str>) -> Claim {
        let cooldown = user.map(|user| (ItemKey::new("user", user), Duration::from_secs(3_600)));
        Claim { rule: "r".into(), per_day, cooldown, alarm: None }
    }

    /// Asks for that many items at once, spread over processes, and says what became of each.
    async fn request(processes: &[RuleLimits], claims: Vec<Claim>) -> Vec<Option<Suppressed>> {
        let tasks = claims.into_iter().enumerate().map(|(nth, claim)| {
            let allowances = processes[nth % processes.len()].clone();
            tokio::spawn(async move {
                let applicant =
                    LimitRequest { org: &OrgId::new("acme"), submission: SubmissionId::random(), at: AT };
                allowances.request(applicant, &[claim]).await.unwrap().remove("r")
            })
        });
        let mut all = Vec::new();
        for task in tasks.collect::<Vec<_>>() {
            all.push(task.await.unwrap());
        }
        all
    }

    async fn row(store: &Store) -> RuleDay {
        let day = LimitPeriod::of(&OrgId::new("acme"), &"r".into(), PeriodUnit::Day, AT);
        store.get::<RuleDay>(&(day.org, day.rule, day.number)).await.unwrap().unwrap()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn many_processes_together_never_pass_the_day() {
        let (_folder, store) = store();
        let processes: Vec<_> = (0..3).map(|_| process(&store)).collect();
        for round in 0..4 {
            let refused = request(&processes, (0..90).map(|_| claim(Some(200), None)).collect()).await;
            let granted = refused.iter().filter(|why| why.is_none()).count();
            assert_eq!(granted, [90, 90, 20, 0][round], "round {round}");
        }
        assert_eq!(row(&store).await.taken, 200);
        // A limit that was raised is asked again.
        let refused = request(&processes, vec![claim(Some(201), None); 5]).await;
        assert_eq!(refused.iter().filter(|why| why.is_none()).count(), 1);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn askers_that_come_together_are_served_with_few_writes() {
        let (_folder, store) = store();
        let processes = [process(&store)];
        request(&processes, vec![claim(Some(1_000_000), None); 2_000]).await;
        let row = row(&store).await;
        assert_eq!(row.taken, 2_000);
        assert!(row.version < 1_000, "{} writes", row.version);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn of_one_users_items_at_once_one_is_acted_on() {
        let (_folder, store) = store();
        let processes: Vec<_> = (0..3).map(|_| process(&store)).collect();
        let refused = request(&processes, vec![claim(None, Some("u")); 30]).await;
        assert_eq!(refused.iter().filter(|why| why.is_none()).count(), 1);
        let rest = refused.iter().flatten();
        assert!(rest.clone().count() == 29 && rest.clone().all(|why| *why == Suppressed::Cooldown));
    }

    #[tokio::test]
    async fn the_holder_asks_again_and_others_wait_for_the_end() {
        let (_folder, store) = store();
        let allowances = process(&store);
        let (org, one, other) = (OrgId::new("acme"), SubmissionId::random(), SubmissionId::random());
        let claims = [claim(None, Some("u"))];
        for (submission, at, allowed) in [
            (one, AT, true),
            (other, AT, false),
            (one, AT, true),
            (other, Millis(AT.0 + 3_599_999), false),
            (other, Millis(AT.0 + 3_600_000), true),
            // What it held before is not given twice.
            (one, AT, false),
        ] {
            let applicant = LimitRequest { org: &org, submission, at };
            assert_eq!(allowances.request(applicant, &claims).await.unwrap().is_empty(), allowed, "{at:?}");
        }
    }

    fn process(store: &Store) -> RuleLimits {
        let expected = Expectations::new(store.clone(), Measure { times: 2, least: 5 });
        RuleLimits::new(store.clone(), expected)
    }

    fn watched_claim(version: &str, expected: Expected) -> Claim {
        let watch = Watch { version: version.to_owned(), expected, counts: true };
        Claim { alarm: Some(watch), ..claim(None, None) }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_recorded_backtest_says_how_many_matches_are_too_many_for_its_version_alone() {
        let (_folder, store) = store();
        let measurement = Measurement {
            since: Millis(AT.0 - 172_800_000),
            until: AT,
            items: 1_000,
            percent: 100.0,
            by: "test".to_owned(),
        };
        let measured = Measured { rule: "r".into(), version: "one".to_owned(), hits: 30, busiest_hour: 8 };
        baselines::record(&store, &OrgId::new("acme"), &measurement, &[measured], AT).await.unwrap();
        let processes = [process(&store), process(&store)];
        for (version, granted) in [("one", 16), ("two", 40)] {
            let refused = request(&processes, vec![watched_claim(version, Expected::Measured); 40]).await;
            assert_eq!(refused.iter().filter(|why| why.is_none()).count(), granted, "{version}");
        }
        // One that is sent again is refused with the rest, and does not count by itself.
        let mut again = watched_claim("one", Expected::Measured);
        again.alarm.as_mut().unwrap().counts = false;
        assert_eq!(request(&processes, vec![again]).await, [Some(Suppressed::Alarm)]);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_rule_that_matches_too_often_acts_no_more_anywhere_until_its_document_changes() {
        let (_folder, store) = store();
        let processes: Vec<_> = (0..3).map(|_| process(&store)).collect();
        let watched_claim = |version: &str| watched_claim(version, Expected::Said(20));
        let refused = request(&processes, vec![watched_claim("one"); 50]).await;
        assert_eq!(refused.iter().filter(|why| why.is_none()).count(), 20);
        assert!(refused.iter().flatten().all(|why| *why == Suppressed::Alarm));
        // At once, and an hour later, and in a process that has just begun, too.
        let (org, later) = (OrgId::new("acme"), Millis(AT.0 + 7_200_000));
        let fresh = process(&store);
        for (version, at, refused) in
            [("two", AT, false), ("one", AT, true), ("one", later, true), ("two", later, false)]
        {
            let applicant = LimitRequest { org: &org, submission: SubmissionId::random(), at };
            assert_eq!(
                !fresh.request(applicant, &[watched_claim(version)]).await.unwrap().is_empty(),
                refused
            );
        }
    }
}

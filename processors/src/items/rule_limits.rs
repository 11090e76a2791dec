//! Checks the limits of rules before they act. Concurrent requests for one rule and period share one write.
//!
//! The rules are in `tidegate-moderation`, the counters in rows of the store.

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
    effects::{AlarmCheck, LimitRefusals, RuleLimitRequest},
    rules::{
        limits::{self, CooldownRequest, CounterState, LimitPeriod, PeriodUnit, RuleVersion},
        stats::Suppression,
    },
};
use tidegate_schemas::ids::{ItemKey, Millis, OrgId, SubmissionId};
use tidegate_store::Store;
use tokio::time::Instant;

use crate::{items::alarm_thresholds::AlarmThresholds, metrics};

/// Number of periods and rules in each cache. Removed entries are read again.
const CACHE_CAPACITY: usize = 10_000;

/// Time for which the absence of an alarm is cached. An alarm of another process is noticed after this time.
const NO_ALARM_TTL: Duration = Duration::from_secs(1);

/// Submission that requests limits, with its append time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LimitRequest<'a> {
    pub(crate) org: &'a OrgId,
    pub(crate) submission: SubmissionId,
    pub(crate) appended_at: Millis,
}

#[derive(Clone)]
pub(crate) struct RuleLimits {
    store: Store,
    thresholds: AlarmThresholds,
    counters: Arc<Mutex<LimitCounters>>,
    /// Alarm state of each rule version, with the time of the read. A raised alarm is permanent, so it needs no second
    /// read.
    alarms: Arc<Mutex<HashMap<RuleVersion, (bool, Instant)>>>,
}

#[derive(Default)]
struct LimitCounters {
    /// Batches that still accept requests.
    open_batches: HashMap<(LimitPeriod, i64), Batch>,
    counter_locks: HashMap<LimitPeriod, CounterLock>,
}

/// Lock on the counter of one period, with its last known state. One batch of this process writes the row at a time.
#[derive(Clone, Default)]
struct CounterLock(Arc<tokio::sync::Mutex<Option<CounterState>>>);

#[derive(Clone)]
struct Batch {
    request_count: Arc<AtomicI64>,
    /// Number of granted requests: the first ones of the batch. `None` if the store failed, because its errors cannot
    /// be cloned.
    granted_count: Shared<BoxFuture<'static, Option<i64>>>,
}

impl RuleLimits {
    pub(crate) fn new(store: Store, thresholds: AlarmThresholds) -> Self {
        Self { store, thresholds, counters: Arc::default(), alarms: Arc::default() }
    }

    /// Requests all claims of a submission. Returns the refused rules with their reasons.
    pub(crate) async fn request_claims(
        &self,
        request: LimitRequest<'_>,
        claims: &[RuleLimitRequest],
    ) -> Result<LimitRefusals, moderation::Error> {
        let mut refused_rules = LimitRefusals::new();
        for claim in claims {
            if let Some(reason) = self.check_claim(request, claim).await? {
                refused_rules.insert(claim.rule.clone(), reason);
            }
        }
        Ok(refused_rules)
    }

    /// Checks one claim. Returns the reason of a refusal.
    ///
    /// A user in cooldown must not use up the daily limit, and an exhausted daily limit must not start a cooldown.
    /// Therefore the cooldown is read first and taken last. Only a concurrent request in between wastes a place of the
    /// day.
    async fn check_claim(
        &self,
        request: LimitRequest<'_>,
        claim: &RuleLimitRequest,
    ) -> Result<Option<Suppression>, moderation::Error> {
        if let Some(watch) = &claim.alarm
            && self.check_alarm(request, claim, watch).await?
        {
            return Ok(Some(Suppression::Alarm));
        }
        let cooldown_request = |user| cooldown_request(request, claim, user);
        if let (Some((user, _)), Some(_)) = (&claim.cooldown, claim.per_day)
            && !limits::is_cooldown_free(&self.store, &cooldown_request(user)).await?
        {
            return Ok(Some(Suppression::Cooldown));
        }
        if let Some(limit) = claim.per_day {
            let day = LimitPeriod::of(request.org, &claim.rule, PeriodUnit::Day, request.appended_at);
            if !self.take_one(day, limit).await? {
                return Ok(Some(Suppression::Limit));
            }
        }
        if let Some((user, span)) = &claim.cooldown
            && !limits::take_cooldown(&self.store, &cooldown_request(user), request.appended_at.plus(*span))
                .await?
        {
            return Ok(Some(Suppression::Cooldown));
        }
        Ok(None)
    }

    async fn check_alarm(
        &self,
        request: LimitRequest<'_>,
        claim: &RuleLimitRequest,
        watch: &AlarmCheck,
    ) -> Result<bool, moderation::Error> {
        let (org, rule) = (request.org, &claim.rule);
        let rule_version =
            RuleVersion { org: org.clone(), rule: rule.clone(), version: watch.version.clone() };
        let Some(max_matches) = self.thresholds.max_matches(&rule_version, watch.threshold).await? else {
            return Ok(false);
        };
        if self.has_alarm(&rule_version).await? {
            return Ok(true);
        }
        let hour =
            LimitPeriod::of(org, rule, PeriodUnit::HourOfVersion(watch.version.clone()), request.appended_at);
        // A resent item is refused during an alarm but does not count toward one.
        if !watch.counts || self.take_one(hour, max_matches).await? {
            return Ok(false);
        }
        if limits::raise_alarm(&self.store, &rule_version, request.submission, request.appended_at).await? {
            metrics::record_rule_alarm();
            tracing::error!(%org, %rule, version = rule_version.version, most = max_matches,
                "a rule matched more often in an hour than expected: it stops acting until its document changes");
        }
        self.cache_alarm(rule_version, true);
        Ok(true)
    }

    async fn has_alarm(&self, rule_version: &RuleVersion) -> Result<bool, moderation::Error> {
        if let Some((is_alarmed, read_at)) = self.alarms.lock().get(rule_version)
            && (*is_alarmed || read_at.elapsed() < NO_ALARM_TTL)
        {
            return Ok(*is_alarmed);
        }
        let is_alarmed = limits::is_alarm_raised(&self.store, rule_version).await?;
        self.cache_alarm(rule_version.clone(), is_alarmed);
        Ok(is_alarmed)
    }

    fn cache_alarm(&self, rule_version: RuleVersion, is_alarmed: bool) {
        let mut alarms = self.alarms.lock();
        if alarms.len() >= CACHE_CAPACITY {
            alarms.clear();
        }
        alarms.insert(rule_version, (is_alarmed, Instant::now()));
    }

    async fn take_one(&self, period: LimitPeriod, limit: i64) -> Result<bool, moderation::Error> {
        let (batch, position) = self.join_batch(&period, limit);
        match batch.granted_count.await {
            Some(granted_count) => Ok(position < granted_count),
            // The shared write failed. Each request repeats it alone to receive an error of its own.
            None => Ok(limits::take_places(&self.store, &period, limit, 1, None).await?.0 == 1),
        }
    }

    /// Joins the open batch of the period, or opens one. Returns the batch and the position in it. A batch accepts
    /// requests until it starts its write.
    fn join_batch(&self, period: &LimitPeriod, limit: i64) -> (Batch, i64) {
        let mut counters = self.counters.lock();
        let key = (period.clone(), limit);
        if let Some(batch) = counters.open_batches.get(&key) {
            let position = batch.request_count.fetch_add(1, Ordering::Relaxed);
            return (batch.clone(), position);
        }
        if counters.counter_locks.len() >= CACHE_CAPACITY {
            // Locks in use stay: a second lock would allow two writers of one row.
            counters.counter_locks.retain(|_, lock| Arc::strong_count(&lock.0) > 1);
        }
        let counter_lock = counters.counter_locks.entry(period.clone()).or_default().clone();
        let request_count = Arc::new(AtomicI64::new(1));
        let (store, all_counters, batch_requests, batch_key) =
            (self.store.clone(), Arc::clone(&self.counters), Arc::clone(&request_count), key.clone());
        let take_batch = async move {
            let mut counter_state = counter_lock.0.lock().await;
            // Removed before the count is read, so a later request opens a new batch instead of being missed.
            let requested = {
                all_counters.lock().open_batches.remove(&batch_key);
                batch_requests.load(Ordering::Relaxed)
            };
            let (period, limit) = batch_key;
            // Counts only grow, so a period that was full is still full, and no read is needed.
            if counter_state.is_some_and(|state| state.count >= limit) {
                return Some(0);
            }
            let (granted_count, state) =
                limits::take_places(&store, &period, limit, requested, counter_state.take()).await.ok()?;
            *counter_state = Some(state);
            Some(granted_count)
        };
        let batch = Batch { request_count, granted_count: take_batch.boxed().shared() };
        counters.open_batches.insert(key, batch.clone());
        (batch, 0)
    }
}

fn cooldown_request<'a>(
    request: LimitRequest<'a>,
    claim: &'a RuleLimitRequest,
    user: &'a ItemKey,
) -> CooldownRequest<'a> {
    CooldownRequest {
        org: request.org,
        rule: &claim.rule,
        user,
        holder: request.submission,
        at: request.appended_at,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use tidegate_moderation::{
        effects::AlarmThreshold,
        rules::baselines::{self, Measurement, RuleMeasurement},
    };
    use tidegate_store::tables::items::limits::RuleDay;

    use super::*;
    use crate::items::alarm_thresholds::ThresholdFactors;

    const AT: Millis = Millis(1_700_000_000_000);

    fn store() -> (tempfile::TempDir, Store) {
        let folder = tempfile::tempdir().unwrap();
        let db = fjall::Database::builder(folder.path()).open().unwrap();
        let store = Store::open_embedded(&db, tidegate_store::embedded::Settings::default()).unwrap();
        (folder, store)
    }

    fn claim(per_day: Option<i64>, user: Option<&str>) -> RuleLimitRequest {
        let cooldown = user.map(|user| (ItemKey::new("user", user), Duration::from_secs(3_600)));
        RuleLimitRequest { rule: "r".into(), per_day, cooldown, alarm: None }
    }

    /// Requests one claim per item, concurrently and spread over processes. Returns the reason of each refusal.
    async fn request(processes: &[RuleLimits], claims: Vec<RuleLimitRequest>) -> Vec<Option<Suppression>> {
        let tasks = claims.into_iter().enumerate().map(|(nth, claim)| {
            let rule_limits = processes[nth % processes.len()].clone();
            tokio::spawn(async move {
                let limit_request = LimitRequest {
                    org: &OrgId::new("acme"),
                    submission: SubmissionId::random(),
                    appended_at: AT,
                };
                rule_limits.request_claims(limit_request, &[claim]).await.unwrap().remove("r")
            })
        });
        let mut results = Vec::new();
        for task in tasks.collect::<Vec<_>>() {
            results.push(task.await.unwrap());
        }
        results
    }

    async fn row(store: &Store) -> RuleDay {
        let day = LimitPeriod::of(&OrgId::new("acme"), &"r".into(), PeriodUnit::Day, AT);
        store.get::<RuleDay>(&(day.org, day.rule, day.number)).await.unwrap().unwrap()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn processes_together_respect_the_daily_limit() {
        let (_folder, store) = store();
        let processes: Vec<_> = (0..3).map(|_| process(&store)).collect();
        for round in 0..4 {
            let results = request(&processes, (0..90).map(|_| claim(Some(200), None)).collect()).await;
            let granted = results.iter().filter(|reason| reason.is_none()).count();
            assert_eq!(granted, [90, 90, 20, 0][round], "round {round}");
        }
        assert_eq!(row(&store).await.taken, 200);
        // A raised limit grants further requests.
        let results = request(&processes, vec![claim(Some(201), None); 5]).await;
        assert_eq!(results.iter().filter(|reason| reason.is_none()).count(), 1);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn concurrent_requests_share_writes() {
        let (_folder, store) = store();
        let processes = [process(&store)];
        request(&processes, vec![claim(Some(1_000_000), None); 2_000]).await;
        let row = row(&store).await;
        assert_eq!(row.taken, 2_000);
        assert!(row.version < 1_000, "{} writes", row.version);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn cooldown_grants_one_of_concurrent_items() {
        let (_folder, store) = store();
        let processes: Vec<_> = (0..3).map(|_| process(&store)).collect();
        let results = request(&processes, vec![claim(None, Some("u")); 30]).await;
        assert_eq!(results.iter().filter(|reason| reason.is_none()).count(), 1);
        let refusals = results.iter().flatten();
        assert!(
            refusals.clone().count() == 29 && refusals.clone().all(|reason| *reason == Suppression::Cooldown)
        );
    }

    #[tokio::test]
    async fn cooldown_holder_may_repeat_until_it_ends() {
        let (_folder, store) = store();
        let rule_limits = process(&store);
        let (org, one, other) = (OrgId::new("acme"), SubmissionId::random(), SubmissionId::random());
        let claims = [claim(None, Some("u"))];
        for (submission, at, allowed) in [
            (one, AT, true),
            (other, AT, false),
            (one, AT, true),
            (other, Millis(AT.0 + 3_599_999), false),
            (other, Millis(AT.0 + 3_600_000), true),
            // The cooldown belongs to the other submission now.
            (one, AT, false),
        ] {
            let limit_request = LimitRequest { org: &org, submission, appended_at: at };
            assert_eq!(
                rule_limits.request_claims(limit_request, &claims).await.unwrap().is_empty(),
                allowed,
                "{at:?}"
            );
        }
    }

    fn process(store: &Store) -> RuleLimits {
        let thresholds = AlarmThresholds::new(store.clone(), ThresholdFactors { factor: 2, min_matches: 5 });
        RuleLimits::new(store.clone(), thresholds)
    }

    fn watched_claim(version: &str, expected: AlarmThreshold) -> RuleLimitRequest {
        let watch = AlarmCheck { version: version.to_owned(), threshold: expected, counts: true };
        RuleLimitRequest { alarm: Some(watch), ..claim(None, None) }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn backtest_sets_the_alarm_threshold_of_its_version() {
        let (_folder, store) = store();
        let measurement = Measurement {
            since: Millis(AT.0 - 172_800_000),
            until: AT,
            items: 1_000,
            percent: 100.0,
            by: "test".to_owned(),
        };
        let backtest_result =
            RuleMeasurement { rule: "r".into(), version: "one".to_owned(), hits: 30, busiest_hour: 8 };
        baselines::store_baselines(&store, &OrgId::new("acme"), &measurement, &[backtest_result], AT)
            .await
            .unwrap();
        let processes = [process(&store), process(&store)];
        for (version, granted) in [("one", 16), ("two", 40)] {
            let results =
                request(&processes, vec![watched_claim(version, AlarmThreshold::Measured); 40]).await;
            assert_eq!(results.iter().filter(|reason| reason.is_none()).count(), granted, "{version}");
        }
        // A resent item is refused while the alarm is raised and does not count toward it.
        let mut resent_claim = watched_claim("one", AlarmThreshold::Measured);
        resent_claim.alarm.as_mut().unwrap().counts = false;
        assert_eq!(request(&processes, vec![resent_claim]).await, [Some(Suppression::Alarm)]);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn alarm_stops_a_rule_until_its_document_changes() {
        let (_folder, store) = store();
        let processes: Vec<_> = (0..3).map(|_| process(&store)).collect();
        let watched_claim = |version: &str| watched_claim(version, AlarmThreshold::Configured(20));
        let results = request(&processes, vec![watched_claim("one"); 50]).await;
        assert_eq!(results.iter().filter(|reason| reason.is_none()).count(), 20);
        assert!(results.iter().flatten().all(|reason| *reason == Suppression::Alarm));
        // The alarm also holds an hour later and in a new process.
        let (org, later) = (OrgId::new("acme"), Millis(AT.0 + 7_200_000));
        let new_process = process(&store);
        for (version, at, is_refused) in
            [("two", AT, false), ("one", AT, true), ("one", later, true), ("two", later, false)]
        {
            let limit_request =
                LimitRequest { org: &org, submission: SubmissionId::random(), appended_at: at };
            assert_eq!(
                !new_process
                    .request_claims(limit_request, &[watched_claim(version)])
                    .await
                    .unwrap()
                    .is_empty(),
                is_refused
            );
        }
    }
}

//! The role `process`: runs the consumers of all topics except `callbacks`, and the scanners of due rows.

use std::{sync::Arc, time::Duration};

use async_recursion::async_recursion as boxed;
use tidegate_moderation::{self as moderation, partial_items::fetcher::PartialItemsFetcher};
use tidegate_schemas::{
    ids::Millis,
    records::{Appeal, Decision, Report, Strike},
};
use tidegate_stream::{
    Topic,
    consumer::inbox::{CompletedTimes, DrainResult, Inbox},
    topics::{Group, Role},
};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{
    Deps, PartialItemsDeps,
    consumer::{consumer_loop::ConsumerLoop, error::RoleError, handler::Handler},
    due::{
        auto_close::AutoCloseTurns, decisions::DueDecisions, partial_items::DuePartialItems,
        scanner::DueScanner,
    },
    handled_times::HandledTimesWriter,
    handlers::RecordHandler,
    items::{
        alarm_thresholds::{AlarmThresholds, ThresholdFactors},
        compute_pool::ComputePool,
        fact_lookup::FactLookup,
        media_wait::MediaWait,
        pipeline::ItemPipeline,
        rule_counters::OutcomeCounters,
        rule_limits::RuleLimits,
        score_wait::ScoreWait,
    },
    settings::Settings,
};

/// Time for the last write of rule counts. Losing a few counts is better than a stop that waits for an unavailable store.
const FINAL_COUNT_TIMEOUT: Duration = Duration::from_secs(2);

/// Longest interval between two searches for turns to close old jobs.
const AUTO_CLOSE_POLL: Duration = Duration::from_secs(30);

const DECISIONS_DUE: Role = Role("decisions-due");

const AUTO_CLOSE: Role = Role("auto-close");

const PARTIAL_ITEMS_DUE: Role = Role("partial-items-due");

/// Runs the role until `stop` and drains it. The first failure of a consumer stops the others and is returned.
#[boxed]
pub async fn process(
    deps: Deps,
    settings: Settings,
    stop: CancellationToken,
) -> Result<DrainResult, RoleError> {
    settings.validate()?;
    let settings = Arc::new(settings);
    let pool = ComputePool::new(settings.threads, Arc::clone(deps.live.processing_load()))
        .map_err(|error| RoleError::Failure { role: Role("process"), detail: error.to_string() })?;
    // Effects of accepted records may use the reserved part of the disk, so they can be stored while requests are refused.
    let moderation_deps = moderation::Deps {
        log: deps.log.for_effects(),
        store: deps.store.clone(),
        live: Arc::clone(&deps.live),
        partial_items: Arc::clone(&deps.partial_items.endpoints),
    };
    let PartialItemsDeps { client, secrets, .. } = deps.partial_items.clone();
    let fetcher =
        PartialItemsFetcher::new(moderation_deps.clone(), client, secrets, |name| std::env::var(name).ok())
            .map_err(|error| RoleError::Failure { role: Role("process"), detail: error.to_string() })?;
    let mut roles = Roles {
        deps,
        settings: Arc::clone(&settings),
        stop: stop.child_token(),
        tasks: JoinSet::new(),
        completed_times: Vec::new(),
    };

    let facts = FactLookup::new(moderation_deps.store.clone(), &settings)
        .map_err(|error| RoleError::Failure { role: Role("process"), detail: error.to_string() })?;
    let thresholds = AlarmThresholds::new(
        moderation_deps.store.clone(),
        ThresholdFactors { factor: settings.alarm_times, min_matches: settings.alarm_least },
    );
    let rule_limits = RuleLimits::new(moderation_deps.store.clone(), thresholds);
    let counters = OutcomeCounters::new(
        moderation_deps.store.clone(),
        settings.rule_metrics,
        settings.frequent_rule_percent,
    );
    let counter_task = tokio::spawn(
        counters.clone().write_periodically(settings.rule_counts_interval(), roles.stop.clone()),
    );
    let build_pipeline = |media, scores| ItemPipeline {
        deps: moderation_deps.clone(),
        pool: pool.clone(),
        facts: facts.clone(),
        limits: rule_limits.clone(),
        counters: counters.clone(),
        media,
        scores,
    };
    let (short_wait, slow_wait) = {
        let (signals, settings) = (&roles.deps.signals, &settings.media);
        (MediaWait::short(signals.clone(), settings), MediaWait::slow(signals.clone(), settings))
    };
    let (scorer, media_settings) = (&roles.deps.scorer, &settings.media);
    let short_scores = ScoreWait::short(scorer.clone(), pool.clone(), media_settings);
    let slow_scores = ScoreWait::slow(scorer.clone(), pool.clone(), media_settings);
    roles.start_consumer(Group::ITEMS.0, Topic::Items, build_pipeline(short_wait, short_scores));
    roles.start_consumer("items-slow", Topic::ItemsSlow, build_pipeline(slow_wait, slow_scores));
    // The scanners of due rows follow the partitions of an inbox, so it is opened before its consumer starts.
    let reports_inbox = roles.open_inbox("reports", Topic::Reports);
    roles.scan_partial_items(&reports_inbox, fetcher);
    roles.run_consumer("reports", reports_inbox, RecordHandler::<Report>::new(moderation_deps.clone()));
    roles.start_consumer("appeals", Topic::Appeals, RecordHandler::<Appeal>::new(moderation_deps.clone()));
    roles.start_consumer("strikes", Topic::Strikes, RecordHandler::<Strike>::new(moderation_deps.clone()));
    let decisions_inbox = roles.open_inbox("decisions", Topic::Decisions);
    roles.scan_due_decisions(&decisions_inbox, moderation_deps.clone());
    roles.scan_old_jobs(&decisions_inbox, moderation_deps.clone());
    roles.run_consumer("decisions", decisions_inbox, RecordHandler::<Decision>::new(moderation_deps));
    roles.report_handled_times();
    let result = roles.join_all().await;
    // The counter task stops with the roles' token, so counts of items that ended during the drain are written here.
    let last_counts = async {
        let _exit = counter_task.await;
        counters.write_counts().await;
    };
    let _in_time = tokio::time::timeout(FINAL_COUNT_TIMEOUT, last_counts).await;
    result
}

struct Roles {
    deps: Deps,
    settings: Arc<Settings>,
    stop: CancellationToken,
    tasks: JoinSet<Result<DrainResult, RoleError>>,
    /// Progress of the consumers started so far.
    completed_times: Vec<CompletedTimes>,
}

impl Roles {
    /// Starts a consumer. Its group has the name of the role.
    fn start_consumer<H: Handler>(&mut self, name: &'static str, topic: Topic, handler: H) {
        let inbox = self.open_inbox(name, topic);
        self.run_consumer(name, inbox, handler);
    }

    fn open_inbox(&self, name: &'static str, topic: Topic) -> Inbox {
        let budget = self.settings.inbox_budget();
        self.deps.log.consume(Group(name), &[topic], budget, Role(name), self.stop.clone())
    }

    fn run_consumer<H: Handler>(&mut self, name: &'static str, inbox: Inbox, handler: H) {
        self.completed_times.push(inbox.completed_times());
        let consumer = ConsumerLoop::new(
            Role(name),
            inbox,
            handler,
            Arc::clone(&self.deps.live),
            Arc::clone(&self.settings),
            self.deps.health.clone(),
        );
        self.tasks.spawn(consumer.run());
    }

    fn scan_due_decisions(&mut self, inbox: &Inbox, deps: moderation::Deps) {
        let table = DueDecisions { deps, append_lease: self.settings.decision_lease() };
        let poll = Duration::from_millis(self.settings.decision_poll_ms);
        let sweep = Duration::from_millis(self.settings.decision_sweep_ms);
        let (settings, health) = (Arc::clone(&self.settings), self.deps.health.clone());
        let scanner = DueScanner::new(DECISIONS_DUE, Topic::Decisions, table, poll, sweep, settings, health);
        let (ownership, stop) = (inbox.ownership(), self.stop.clone());
        self.tasks.spawn(async move {
            scanner.run(ownership, stop).await;
            Ok(DrainResult::Clean)
        });
    }

    /// Closes old jobs of the orgs in this process's partitions of the topic `decisions`.
    fn scan_old_jobs(&mut self, inbox: &Inbox, deps: moderation::Deps) {
        let interval = Duration::from_millis(self.settings.auto_close_every_ms);
        let table = AutoCloseTurns::new(deps, interval, Millis::now());
        // Each pass reads full minutes including the next one, so a turn is indexed before it is due.
        let poll = interval.min(AUTO_CLOSE_POLL);
        let (settings, health) = (Arc::clone(&self.settings), self.deps.health.clone());
        let scanner = DueScanner::new(AUTO_CLOSE, Topic::Decisions, table, poll, poll, settings, health);
        let (ownership, stop) = (inbox.ownership(), self.stop.clone());
        self.tasks.spawn(async move {
            scanner.run(ownership, stop).await;
            Ok(DrainResult::Clean)
        });
    }

    /// Makes the due requests for items of this process's partitions of the topic `reports`.
    fn scan_partial_items(&mut self, inbox: &Inbox, fetcher: PartialItemsFetcher) {
        let stop = self.stop.clone();
        let table = DuePartialItems::new(fetcher, stop.clone());
        let request_tasks = table.tasks();
        let poll = Duration::from_millis(self.settings.partial_items_poll_ms);
        let sweep = Duration::from_millis(self.settings.partial_items_sweep_ms);
        let (settings, health) = (Arc::clone(&self.settings), self.deps.health.clone());
        let scanner =
            DueScanner::new(PARTIAL_ITEMS_DUE, Topic::Reports, table, poll, sweep, settings, health);
        let ownership = inbox.ownership();
        self.tasks.spawn(async move {
            scanner.run(ownership, stop.clone()).await;
            // The scanner may end earlier, with its consumer, while requests still run.
            stop.cancelled().await;
            request_tasks.close();
            request_tasks.wait().await;
            Ok(DrainResult::Clean)
        });
    }

    fn report_handled_times(&mut self) {
        let completed_times = std::mem::take(&mut self.completed_times);
        let writer = HandledTimesWriter::new(self.deps.log.clone(), self.deps.store.clone(), completed_times);
        let stop = self.stop.clone();
        self.tasks.spawn(async move {
            writer.run(stop).await;
            Ok(DrainResult::Clean)
        });
    }

    async fn join_all(mut self) -> Result<DrainResult, RoleError> {
        let mut result = Ok(DrainResult::Clean);
        while let Some(exit) = self.tasks.join_next().await {
            let exit = exit.unwrap_or_else(|error| {
                Err(RoleError::Failure { role: Role("process"), detail: error.to_string() })
            });
            match (exit, &mut result) {
                (Ok(drain_result), Ok(overall)) => *overall = overall.and(drain_result),
                (Ok(_), Err(_)) => {}
                (Err(error), result) => {
                    tracing::error!(tag = error.tag(), "{error}");
                    self.stop.cancel();
                    if result.is_ok() {
                        *result = Err(error);
                    }
                }
            }
        }
        result
    }
}

//! The role `process`: starts and ends the consumers of all topics but callbacks, and the scanner of due decisions.

use std::{sync::Arc, time::Duration};

use tidegate_moderation::{self as moderation, partial_items::fetcher::Fetcher};
use tidegate_schemas::{
    ids::Millis,
    records::{Appeal, Decision, Report, Strike},
};
use tidegate_stream::{
    Topic,
    consumer::inbox::{DrainResult, Inbox},
    topics::{Group, Role},
};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{
    Deps, PartialItems,
    consumer::{consumer_loop::ConsumerLoop, error::RoleError, handler::Handler},
    handlers::RecordHandler,
    items::{
        alarm_thresholds::{Expectations, Measure},
        compute_pool::ComputePool,
        fact_lookup::FactLookup,
        media_wait::MediaWait,
        pipeline::ItemPipeline,
        rule_counters::OutcomeCounters,
        rule_limits::RuleLimits,
        score_wait::ScoreWait,
    },
    scheduler::{
        auto_close_turns::AutoCloseTurns, decision_due::DueDecisions, due_scanner::DueScanner,
        partial_due::DuePartialItems,
    },
    settings::Settings,
};

/// Time for the last write of rule counts. While the store is unavailable, a stop does not wait for a few numbers.
const LAST_COUNTS: Duration = Duration::from_secs(2);

/// Longest interval between two searches for orgs whose old jobs are to be closed.
const AUTO_CLOSE_POLL: Duration = Duration::from_secs(30);

const DUE: Role = Role("decisions-due");

const AUTO_CLOSE: Role = Role("auto-close");

const PARTIAL_ITEMS_DUE: Role = Role("partial-items-due");

/// Runs the role until `stop` and its drain. The first consumer that fails ends the others, and its error is returned.
pub async fn process(
    deps: Deps,
    settings: Settings,
    stop: CancellationToken,
) -> Result<DrainResult, RoleError> {
    settings.validate()?;
    let settings = Arc::new(settings);
    let pool = ComputePool::new(settings.threads, Arc::clone(deps.live.processing_load()))
        .map_err(|error| RoleError::Broken { role: Role("process"), detail: error.to_string() })?;
    // Effects of accepted records may use the part of the disk that is reserved for them.
    let work = moderation::Deps {
        log: deps.log.reserved(),
        store: deps.store.clone(),
        live: Arc::clone(&deps.live),
        partial_items: Arc::clone(&deps.partial_items.endpoints),
    };
    let PartialItems { client, secrets, .. } = deps.partial_items.clone();
    let fetcher = Fetcher::new(work.clone(), client, secrets, |name| std::env::var(name).ok())
        .map_err(|error| RoleError::Broken { role: Role("process"), detail: error.to_string() })?;
    let mut roles =
        Roles { deps, settings: Arc::clone(&settings), stop: stop.child_token(), tasks: JoinSet::new() };

    let facts = FactLookup::new(work.store.clone(), &settings)
        .map_err(|error| RoleError::Broken { role: Role("process"), detail: error.to_string() })?;
    let expected = Expectations::new(
        work.store.clone(),
        Measure { times: settings.alarm_times, least: settings.alarm_least },
    );
    let allowances = RuleLimits::new(work.store.clone(), expected);
    let tally =
        OutcomeCounters::new(work.store.clone(), settings.rule_metrics, settings.frequent_rule_percent);
    let keeping = tokio::spawn(tally.clone().keep(settings.rule_counts_every(), roles.stop.clone()));
    let items = |media, scores| ItemPipeline {
        deps: work.clone(),
        pool: pool.clone(),
        facts: facts.clone(),
        limits: allowances.clone(),
        counters: tally.clone(),
        media,
        scores,
    };
    let (passing, slow) = {
        let (signals, settings) = (&roles.deps.signals, &settings.media);
        (MediaWait::passing(signals.clone(), settings), MediaWait::slow(signals.clone(), settings))
    };
    let (scorer, waits) = (&roles.deps.scorer, &settings.media);
    let passing_scores = ScoreWait::passing(scorer.clone(), pool.clone(), waits);
    let slow_scores = ScoreWait::slow(scorer.clone(), pool.clone(), waits);
    roles.start(Group::ITEMS.0, Topic::Items, items(passing, passing_scores));
    roles.start("items-slow", Topic::ItemsSlow, items(slow, slow_scores));
    let reports = roles.consume("reports", Topic::Reports);
    roles.scan_partial_items(&reports, fetcher);
    roles.work("reports", reports, RecordHandler::<Report>::new(work.clone()));
    roles.start("appeals", Topic::Appeals, RecordHandler::<Appeal>::new(work.clone()));
    roles.start("strikes", Topic::Strikes, RecordHandler::<Strike>::new(work.clone()));
    let inbox = roles.consume("decisions", Topic::Decisions);
    roles.scan_due(&inbox, work.clone());
    roles.close_old_jobs(&inbox, work.clone());
    roles.work("decisions", inbox, RecordHandler::<Decision>::new(work));
    let ended = roles.join().await;
    // The counts of the items that ended during the drain.
    let last_counts = async {
        let _ended = keeping.await;
        tally.write().await;
    };
    let _in_time = tokio::time::timeout(LAST_COUNTS, last_counts).await;
    ended
}

struct Roles {
    deps: Deps,
    settings: Arc<Settings>,
    stop: CancellationToken,
    tasks: JoinSet<Result<DrainResult, RoleError>>,
}

impl Roles {
    /// Starts a consumer whose group has the name of the role.
    fn start<H: Handler>(&mut self, name: &'static str, topic: Topic, handler: H) {
        let inbox = self.consume(name, topic);
        self.work(name, inbox, handler);
    }

    fn consume(&self, name: &'static str, topic: Topic) -> Inbox {
        let budget = self.settings.budget();
        self.deps.log.consume(Group(name), &[topic], budget, Role(name), self.stop.clone())
    }

    fn work<H: Handler>(&mut self, name: &'static str, inbox: Inbox, handler: H) {
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

    fn scan_due(&mut self, inbox: &Inbox, work: moderation::Deps) {
        let table = DueDecisions { deps: work, lease: self.settings.decision_lease() };
        let poll = Duration::from_millis(self.settings.decision_poll_ms);
        let sweep = Duration::from_millis(self.settings.decision_sweep_ms);
        let (settings, health) = (Arc::clone(&self.settings), self.deps.health.clone());
        let scanner = DueScanner::new(DUE, Topic::Decisions, table, poll, sweep, settings, health);
        let (ownership, stop) = (inbox.ownership(), self.stop.clone());
        self.tasks.spawn(async move {
            scanner.run(ownership, stop).await;
            Ok(DrainResult::Clean)
        });
    }

    /// Closes old jobs of the orgs whose shard is one of the partitions of decisions that this process owns.
    fn close_old_jobs(&mut self, inbox: &Inbox, work: moderation::Deps) {
        let every = Duration::from_millis(self.settings.auto_close_every_ms);
        let table = AutoCloseTurns::new(work, every, Millis::now());
        // Each pass reads whole minutes, the next one included, so a turn is known before it is due.
        let poll = every.min(AUTO_CLOSE_POLL);
        let (settings, health) = (Arc::clone(&self.settings), self.deps.health.clone());
        let scanner = DueScanner::new(AUTO_CLOSE, Topic::Decisions, table, poll, poll, settings, health);
        let (ownership, stop) = (inbox.ownership(), self.stop.clone());
        self.tasks.spawn(async move {
            scanner.run(ownership, stop).await;
            Ok(DrainResult::Clean)
        });
    }

    /// Works off the requests for items whose subjects lie in the partitions of reports that this process owns.
    fn scan_partial_items(&mut self, inbox: &Inbox, fetcher: Fetcher) {
        let stop = self.stop.clone();
        let table = DuePartialItems::new(fetcher, stop.clone());
        let asking = table.tasks();
        let poll = Duration::from_millis(self.settings.partial_items_poll_ms);
        let sweep = Duration::from_millis(self.settings.partial_items_sweep_ms);
        let (settings, health) = (Arc::clone(&self.settings), self.deps.health.clone());
        let scanner =
            DueScanner::new(PARTIAL_ITEMS_DUE, Topic::Reports, table, poll, sweep, settings, health);
        let ownership = inbox.ownership();
        self.tasks.spawn(async move {
            scanner.run(ownership, stop.clone()).await;
            stop.cancelled().await;
            asking.close();
            asking.wait().await;
            Ok(DrainResult::Clean)
        });
    }

    async fn join(mut self) -> Result<DrainResult, RoleError> {
        let mut all = Ok(DrainResult::Clean);
        while let Some(ended) = self.tasks.join_next().await {
            let ended = ended.unwrap_or_else(|error| {
                Err(RoleError::Broken { role: Role("process"), detail: error.to_string() })
            });
            match (ended, &mut all) {
                (Ok(drained), Ok(before)) => *before = before.and(drained),
                (Ok(_), Err(_)) => {}
                (Err(error), all) => {
                    tracing::error!(tag = error.tag(), "{error}");
                    self.stop.cancel();
                    if all.is_ok() {
                        *all = Err(error);
                    }
                }
            }
        }
        all
    }
}

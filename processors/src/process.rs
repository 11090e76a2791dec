//! The role `process`: the consumers of all topics but callbacks, and the scanner of due decisions.
//!
//! It only starts and ends them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64},
    },
    time::Duration,
};

use tidegate_moderation as moderation;
use tidegate_schemas::records::{Appeal, Decision, Report, Strike};
use tidegate_stream::{
    Topic,
    consumer::inbox::{DrainResult, Inbox},
    topics::{Group, Role},
};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{
    Deps, Health, RoleError, Settings, consumer::consumer_loop::Worker, consumer::handler::Handler,
    handlers::RecordHandler, items::alarm_thresholds::Expectations, items::compute_pool::Pool,
    items::fact_lookup::Desk, items::media_wait::Looking, items::pipeline::Items,
    items::rule_counters::Tally, items::rule_limits::Allowances, scheduler::decision_due::DueDecisions,
    scheduler::due_scanner::Scanner,
};

/// A store that is away holds nobody up for a few numbers.
const LAST_COUNTS: Duration = Duration::from_secs(2);

const DUE: Role = Role("decisions-due");

/// Runs until it is told to stop and has drained. The first consumer that fails ends the others, and is returned.
pub async fn process(
    deps: Deps,
    settings: Settings,
    stop: CancellationToken,
) -> Result<DrainResult, RoleError> {
    settings.validate()?;
    let settings = Arc::new(settings);
    let pool = Pool::new(settings.threads)
        .map_err(|error| RoleError::Broken { role: Role("process"), detail: error.to_string() })?;
    // What accepted records lead to may use the part of the disk that requests may not.
    let work = moderation::Deps {
        log: deps.log.reserved(),
        store: deps.store.clone(),
        live: Arc::clone(&deps.live),
    };
    let mut roles =
        Roles { deps, settings: Arc::clone(&settings), stop: stop.child_token(), tasks: JoinSet::new() };

    let facts = Desk::new(work.store.clone(), settings.window_rows);
    let expected = Expectations::new(work.store.clone(), settings.measure());
    let allowances = Allowances::new(work.store.clone(), expected);
    let tally = Tally::new(work.store.clone(), settings.rule_metrics);
    let keeping = tokio::spawn(tally.clone().keep(settings.rule_counts_every(), roles.stop.clone()));
    let items = |looking| {
        let work = work.clone();
        Items::new(work, pool.clone(), facts.clone(), allowances.clone(), tally.clone(), looking)
    };
    let (passing, slow) = {
        let (signals, settings) = (&roles.deps.signals, &settings.media);
        (Looking::passing(signals.clone(), settings), Looking::slow(signals.clone(), settings))
    };
    roles.start("items", Topic::Items, items(passing));
    roles.start("items-slow", Topic::ItemsSlow, items(slow));
    roles.start("reports", Topic::Reports, RecordHandler::<Report>::new(work.clone()));
    roles.start("appeals", Topic::Appeals, RecordHandler::<Appeal>::new(work.clone()));
    roles.start("strikes", Topic::Strikes, RecordHandler::<Strike>::new(work.clone()));
    let inbox = roles.consume("decisions", Topic::Decisions);
    roles.scan_due(&inbox, work.clone());
    roles.work("decisions", inbox, RecordHandler::<Decision>::new(work));
    let ended = roles.join().await;
    // What the last items came to, unless the store is away.
    let last = async {
        let _ended = keeping.await;
        tally.write().await;
    };
    let _in_time = tokio::time::timeout(LAST_COUNTS, last).await;
    ended
}

struct Roles {
    deps: Deps,
    settings: Arc<Settings>,
    stop: CancellationToken,
    tasks: JoinSet<Result<DrainResult, RoleError>>,
}

impl Roles {
    /// The group is called as the role.
    fn start<H: Handler>(&mut self, name: &'static str, topic: Topic, handler: H) {
        let inbox = self.consume(name, topic);
        self.work(name, inbox, handler);
    }

    fn consume(&self, name: &'static str, topic: Topic) -> Inbox {
        let budget = self.settings.budget();
        self.deps.log.consume(Group(name), &[topic], budget, Role(name), self.stop.clone())
    }

    fn work<H: Handler>(&mut self, name: &'static str, inbox: Inbox, handler: H) {
        let worker = Worker::new(Role(name), inbox, handler, Arc::clone(&self.settings), self.health());
        self.tasks.spawn(worker.run());
    }

    fn scan_due(&mut self, inbox: &Inbox, work: moderation::Deps) {
        let scanner = Scanner {
            role: DUE,
            topic: Topic::Decisions,
            table: DueDecisions { deps: work, lease: self.settings.decision_lease() },
            poll: Duration::from_millis(self.settings.decision_poll_ms),
            sweep: Duration::from_millis(self.settings.decision_sweep_ms),
            settings: Arc::clone(&self.settings),
            health: self.health(),
            latest: AtomicI64::default(),
            is_told: AtomicBool::default(),
        };
        let (ownership, stop) = (inbox.ownership(), self.stop.clone());
        self.tasks.spawn(async move {
            scanner.run(ownership, stop).await;
            Ok(DrainResult::Clean)
        });
    }

    fn health(&self) -> Health {
        self.deps.health.clone()
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

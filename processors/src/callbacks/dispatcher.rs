//! What accepting, scanning and attempting share: the lanes, one lock an event, and who owns what.
//!
//! It makes no attempt itself; it starts those whose turn it is, waits for them at the end, and leaves what was not begun
//! to the next owner.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    panic::AssertUnwindSafe,
    sync::Arc,
    time::Duration,
};

use futures::FutureExt as _;
use parking_lot::Mutex;
use tidegate_catalog::{Live, Secrets};
use tidegate_egress::Client;
use tidegate_schemas::ids::{EndpointId, EventId, Millis};
use tidegate_store::{Store, tables::callbacks::deliveries::Delivery};
use tidegate_stream::{
    Topic,
    consumer::inbox::{DrainResult, Ownership},
    topics::Partition,
};
use tokio::{
    sync::{MutexGuard, Notify, watch},
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    Settings, delivery_rows as rows,
    delivery_state::Schedule,
    endpoint_queues::{LaneKey, Lanes, Offered, Work},
};
use crate::{
    consumer::{backoff::Backoff, error::TaskError},
    health::Health,
    metrics,
    settings::Settings as ConsumerSettings,
};

const LOCKS: usize = 256;

/// Due rows that are written together when deliveries are let go.
const LET_GO_AT_ONCE: usize = 500;

pub(crate) struct Dispatcher {
    pub(crate) store: Store,
    pub(crate) live: Arc<Live>,
    pub(crate) secrets: Secrets,
    pub(crate) client: Client,
    pub(crate) health: Health,
    pub(crate) settings: Settings,
    pub(crate) schedule: Schedule,
    pub(crate) processing: Arc<ConsumerSettings>,
    ownership: watch::Receiver<Ownership>,
    /// Of the topic, whoever owns them.
    partitions: usize,
    /// Calls of a former owner may be under way for this long after a shard was taken over.
    grace: Duration,
    taken_over: Mutex<HashMap<u32, Millis>>,
    lanes: Mutex<Lanes>,
    wake: Notify,
    locks: Vec<tokio::sync::Mutex<()>>,
}

impl Dispatcher {
    pub(crate) fn new(
        deps: &super::Deps,
        settings: Settings,
        processing: Arc<ConsumerSettings>,
        ownership: watch::Receiver<Ownership>,
    ) -> Self {
        let mut dispatcher = Self {
            store: deps.store.clone(),
            live: Arc::clone(&deps.live),
            secrets: deps.secrets.clone(),
            client: deps.client.clone(),
            health: deps.health.clone(),
            schedule: settings.rules(),
            lanes: Mutex::new(Lanes::new(settings.bounds())),
            settings,
            processing,
            ownership,
            partitions: usize::try_from(deps.log.partitions()).unwrap_or(usize::MAX),
            grace: Duration::ZERO,
            taken_over: Mutex::default(),
            wake: Notify::new(),
            locks: (0..LOCKS).map(|_| tokio::sync::Mutex::default()).collect(),
        };
        // Embedded data has no other owner.
        if matches!(deps.log, tidegate_stream::Log::Kafka(_)) {
            dispatcher.grace = dispatcher.lease();
        }
        dispatcher
    }

    /// After this time a call that began is over, or its process is.
    pub(crate) fn lease(&self) -> Duration {
        Duration::from_millis(
            self.client.settings().total_timeout_ms.saturating_add(self.settings.lease_margin_ms),
        )
    }

    /// Held while a delivery's row is read, changed and written; never during a call.
    pub(crate) async fn lock(&self, event_id: EventId) -> MutexGuard<'_, ()> {
        let mut hasher = DefaultHasher::new();
        event_id.hash(&mut hasher);
        let nth = usize::try_from(hasher.finish() % LOCKS as u64).unwrap_or(0);
        self.locks[nth].lock().await
    }

    /// Asks for an attempt as soon as it is the delivery's turn.
    pub(crate) fn offer(&self, row: &Delivery, is_fresh: bool, now: Millis) -> Offered {
        let work = Work {
            lane: LaneKey { org: row.org.clone(), endpoint: self.endpoint_of(row) },
            event_id: row.event_id,
            shard: u32::try_from(row.shard).unwrap_or(u32::MAX),
            due_at: row.next_at.unwrap_or(now),
            is_fresh,
        };
        let offered = self.lanes.lock().offer(work, now);
        if offered == Offered::Taken {
            self.wake.notify_one();
        }
        offered
    }

    /// The endpoint whose lane it waits in. What is missing has a lane of its own, where nothing takes long.
    fn endpoint_of(&self, row: &Delivery) -> EndpointId {
        let known = self.configured(row).or_else(|| row.endpoint.clone());
        known.unwrap_or_else(|| EndpointId::new(""))
    }

    /// Divides the calls to each endpoint as the partitions are divided now, and lets go of what another owner has.
    fn divide(self: &Arc<Self>, tasks: &mut JoinSet<()>) {
        let owned = {
            let ownership = self.ownership.borrow();
            ownership.partitions.iter().filter(|(partition, _)| partition.topic == Topic::Callbacks).count()
        };
        let lost = {
            let mut lanes = self.lanes.lock();
            lanes.bound_lanes(self.settings.share(owned, self.partitions));
            lanes.retain(|work| self.owns(work.shard))
        };
        if !lost.is_empty() {
            let dispatcher = Arc::clone(self);
            tasks.spawn(async move { dispatcher.let_go(&lost).await });
        }
    }

    pub(crate) fn owns(&self, shard: u32) -> bool {
        self.ownership.borrow().epoch_of(Partition::new(Topic::Callbacks, shard)).is_some()
    }

    /// Whether a shard can have other owners before and after this process.
    pub(crate) const fn has_rivals(&self) -> bool {
        !self.grace.is_zero()
    }

    pub(crate) fn took_over(&self, shard: u32, now: Millis) {
        self.taken_over.lock().insert(shard, now);
    }

    /// Until when a row that was due before this process owned the shard may be in the hands of the former owner.
    pub(crate) fn leased_until(&self, shard: u32, due_at: Millis) -> Option<Millis> {
        let since = self.taken_over.lock().get(&shard).copied()?;
        (due_at < since && self.has_rivals()).then(|| since.plus(self.grace))
    }

    /// Leaves what was not begun to its next owner, to be sent at once. What cannot be written in time comes up when
    /// its lease is over.
    async fn let_go(&self, works: &[Work]) {
        let mut backoff = Backoff::new(&self.processing);
        let all = async {
            for some in works.chunks(LET_GO_AT_ONCE) {
                while let Err(error) = self.put_let_go(some).await {
                    if !error.is_outage() {
                        tracing::error!(tag = error.tag(), "callbacks that wait are sent later: {error}");
                        break;
                    }
                    sleep(backoff.next()).await;
                }
            }
        };
        let _in_time = timeout(self.lease(), all).await;
    }

    async fn put_let_go(&self, works: &[Work]) -> Result<(), TaskError> {
        let now = Millis::now();
        let due = |work: &Work| rows::let_go(&work.lane.org, work.event_id, i64::from(work.shard), now);
        let rows: Vec<_> = works.iter().map(due).collect();
        rows::put_let_go(&self.store, &rows, now).await
    }

    /// Makes attempts until it is told to stop, then waits for those under way and lets go of the others.
    pub(crate) async fn run(self: Arc<Self>, stop: CancellationToken) -> DrainResult {
        let mut calls = JoinSet::new();
        let mut ownership = self.ownership.clone();
        let mut driver_lives = true;
        self.divide(&mut calls);
        let mut tick = interval(Duration::from_secs(1));
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            while !stop.is_cancelled()
                && let Some(call) = self.start()
            {
                calls.spawn(call.make());
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(_) = calls.join_next() => {}
                changed = ownership.changed(), if driver_lives => {
                    driver_lives = changed.is_ok();
                    self.divide(&mut calls);
                }
                () = self.wake.notified() => {}
                _ = tick.tick() => self.tell(),
            }
        }
        let waiting = self.lanes.lock().close();
        let all = async { while calls.join_next().await.is_some() {} };
        let ended = async { tokio::join!(all, self.let_go(&waiting)) };
        let drained = timeout(self.settings.drain(), ended).await;
        calls.shutdown().await;
        self.tell();
        drained.map_or(DrainResult::Forced, |_| DrainResult::Clean)
    }

    fn start(self: &Arc<Self>) -> Option<Call> {
        let work = self.lanes.lock().start()?;
        Some(Call { dispatcher: Arc::clone(self), work, began: Instant::now() })
    }

    fn tell(&self) {
        let (under_way, waiting, oldest) = {
            let lanes = self.lanes.lock();
            (lanes.under_way(), lanes.waiting(), lanes.oldest_due())
        };
        let late = oldest.map_or(0, |due_at| Millis::now().0.saturating_sub(due_at.0).max(0));
        metrics::set_callback_queues(under_way, waiting, Duration::from_millis(late.unsigned_abs()));
    }
}

/// A delivery whose turn it is. Dropping it gives its place in the lane back.
struct Call {
    dispatcher: Arc<Dispatcher>,
    work: Work,
    began: Instant,
}

impl Call {
    async fn make(self) {
        let Self { dispatcher, work, .. } = &self;
        if !dispatcher.owns(work.shard) {
            return dispatcher.let_go(std::slice::from_ref(work)).await;
        }
        let made = AssertUnwindSafe(dispatcher.attempt(work)).catch_unwind().await;
        if made.is_err() {
            metrics::callback_failed("panicked");
            tracing::error!(org = %self.work.lane.org, event = %self.work.event_id, "an attempt panicked; it is due again later");
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.dispatcher.lanes.lock().finish(&self.work.lane, self.work.event_id, self.began.elapsed());
        self.dispatcher.wake.notify_one();
    }
}

#[cfg(test)]
#[path = "tests/dispatcher.rs"]
mod tests;

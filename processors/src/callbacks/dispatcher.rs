//! Dispatcher of callback attempts: starts them in the order of the endpoint queues, and drains them at a stop.
//!
//! It holds what intake, due scanner and attempts share: the queues, one lock for each event, and the ownership of shards.
//! Deliveries whose attempt was not begun are released to the next owner of their shard.

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
    delivery_state::RetrySchedule,
    endpoint_queues::{DueAttempt, EndpointKey, EndpointQueues, Offered},
};
use crate::{
    consumer::{backoff::Backoff, error::TaskError},
    health::Health,
    metrics,
    settings::Settings as ConsumerSettings,
};

/// Number of locks. Events that share one wait for each other, never during a call.
const LOCKS: usize = 256;

/// Number of due rows that are written together when deliveries are released.
const RELEASED_AT_ONCE: usize = 500;

pub(crate) struct Dispatcher {
    pub(crate) store: Store,
    pub(crate) live: Arc<Live>,
    pub(crate) secrets: Secrets,
    pub(crate) client: Client,
    pub(crate) health: Health,
    pub(crate) settings: Settings,
    pub(crate) schedule: RetrySchedule,
    pub(crate) processing: Arc<ConsumerSettings>,
    ownership: watch::Receiver<Ownership>,
    /// Number of partitions of the topic.
    partitions: usize,
    /// Time after a takeover of a shard for which calls of its former owner may still run.
    grace: Duration,
    taken_over: Mutex<HashMap<u32, Millis>>,
    queues: Mutex<EndpointQueues>,
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
            schedule: settings.retry_schedule(),
            queues: Mutex::new(EndpointQueues::new(settings.bounds())),
            settings,
            processing,
            ownership,
            partitions: usize::try_from(deps.log.partitions()).unwrap_or(usize::MAX),
            grace: Duration::ZERO,
            taken_over: Mutex::default(),
            wake: Notify::new(),
            locks: (0..LOCKS).map(|_| tokio::sync::Mutex::default()).collect(),
        };
        // Only on Kafka can another process own a shard. Embedded data has one owner.
        if matches!(deps.log, tidegate_stream::Log::Kafka(_)) {
            dispatcher.grace = dispatcher.lease();
        }
        dispatcher
    }

    /// Returns the time after which a call has ended, or its process has.
    pub(crate) fn lease(&self) -> Duration {
        Duration::from_millis(
            self.client.settings().total_timeout_ms.saturating_add(self.settings.lease_margin_ms),
        )
    }

    /// Returns the longest time by which a delivery that is due is postponed: by the lease of its call, or by a deferral.
    pub(crate) fn longest_postponement(&self) -> Duration {
        self.lease().max(Duration::from_millis(self.settings.longest_deferral_ms))
    }

    /// Locks an event. Held while a delivery's row is read, changed and written, never during a call.
    pub(crate) async fn lock(&self, event_id: EventId) -> MutexGuard<'_, ()> {
        let mut hasher = DefaultHasher::new();
        event_id.hash(&mut hasher);
        let nth = usize::try_from(hasher.finish() % LOCKS as u64).unwrap_or(0);
        self.locks[nth].lock().await
    }

    /// Queues an attempt at the delivery.
    pub(crate) fn offer(&self, row: &Delivery, is_fresh: bool, now: Millis) -> Offered {
        let work = DueAttempt {
            queue: EndpointKey { org: row.org.clone(), endpoint: self.endpoint_of(row) },
            event_id: row.event_id,
            shard: u32::try_from(row.shard).unwrap_or(u32::MAX),
            due_at: row.next_at.unwrap_or(now),
            is_fresh,
        };
        let offered = self.queues.lock().offer(work, now);
        if offered == Offered::Taken {
            self.wake.notify_one();
        }
        offered
    }

    /// Returns the endpoint whose queue the delivery waits in. Deliveries without one share a queue, where nothing takes long.
    fn endpoint_of(&self, row: &Delivery) -> EndpointId {
        let known = self.configured_endpoint(row).or_else(|| row.endpoint.clone());
        known.unwrap_or_else(|| EndpointId::new(""))
    }

    /// Adapts to a change of ownership: bounds the calls to each endpoint by the share of partitions that this process owns,
    /// and releases the deliveries of shards that it has lost.
    fn on_ownership_change(self: &Arc<Self>, tasks: &mut JoinSet<()>) {
        let owned = {
            let ownership = self.ownership.borrow();
            ownership.partitions.iter().filter(|(partition, _)| partition.topic == Topic::Callbacks).count()
        };
        let lost = {
            let mut queues = self.queues.lock();
            queues.limit_queues(self.settings.share(owned, self.partitions));
            queues.retain(|work| self.owns(work.shard))
        };
        if !lost.is_empty() {
            let dispatcher = Arc::clone(self);
            tasks.spawn(async move { dispatcher.release(&lost).await });
        }
    }

    pub(crate) fn owns(&self, shard: u32) -> bool {
        self.ownership.borrow().epoch_of(Partition::new(Topic::Callbacks, shard)).is_some()
    }

    /// True if another process can own a shard before or after this one.
    pub(crate) const fn has_other_owners(&self) -> bool {
        !self.grace.is_zero()
    }

    /// Notes that this process has taken the shard over.
    pub(crate) fn took_over(&self, shard: u32, now: Millis) {
        self.taken_over.lock().insert(shard, now);
    }

    /// Returns until when the former owner of the shard may be attempting a delivery that was due before the takeover.
    pub(crate) fn leased_until(&self, shard: u32, due_at: Millis) -> Option<Millis> {
        let since = self.taken_over.lock().get(&shard).copied()?;
        (due_at < since && self.has_other_owners()).then(|| since.plus(self.grace))
    }

    /// Releases deliveries to the next owner of their shard, who attempts them at once. Those that cannot be written in time
    /// are due when their lease ends.
    async fn release(&self, works: &[DueAttempt]) {
        let mut backoff = Backoff::new(&self.processing);
        let all = async {
            for some in works.chunks(RELEASED_AT_ONCE) {
                while let Err(error) = self.put_released(some).await {
                    if !error.is_outage() {
                        tracing::error!(
                            tag = error.tag(),
                            "queued callbacks cannot be released and are sent later: {error}"
                        );
                        break;
                    }
                    sleep(backoff.next()).await;
                }
            }
        };
        let _in_time = timeout(self.lease(), all).await;
    }

    async fn put_released(&self, works: &[DueAttempt]) -> Result<(), TaskError> {
        let now = Millis::now();
        let due =
            |work: &DueAttempt| rows::released(&work.queue.org, work.event_id, i64::from(work.shard), now);
        let rows: Vec<_> = works.iter().map(due).collect();
        rows::put_released(&self.store, &rows, now).await
    }

    /// Makes attempts until `stop`, then waits for the running ones and releases the others.
    pub(crate) async fn run(self: Arc<Self>, stop: CancellationToken) -> DrainResult {
        let mut calls = JoinSet::new();
        let mut ownership = self.ownership.clone();
        let mut driver_lives = true;
        self.on_ownership_change(&mut calls);
        let mut tick = interval(Duration::from_secs(1));
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            while !stop.is_cancelled()
                && let Some(call) = self.start()
            {
                calls.spawn(call.run());
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(_) = calls.join_next() => {}
                changed = ownership.changed(), if driver_lives => {
                    driver_lives = changed.is_ok();
                    self.on_ownership_change(&mut calls);
                }
                () = self.wake.notified() => {}
                _ = tick.tick() => self.record_metrics(),
            }
        }
        let waiting = self.queues.lock().close();
        let all = async { while calls.join_next().await.is_some() {} };
        let ended = async { tokio::join!(all, self.release(&waiting)) };
        let drained = timeout(self.settings.drain(), ended).await;
        calls.shutdown().await;
        self.record_metrics();
        drained.map_or(DrainResult::Forced, |_| DrainResult::Clean)
    }

    fn start(self: &Arc<Self>) -> Option<Call> {
        let work = self.queues.lock().start()?;
        Some(Call { dispatcher: Arc::clone(self), work, began: Instant::now() })
    }

    fn record_metrics(&self) {
        let (under_way, waiting, oldest) = {
            let queues = self.queues.lock();
            (queues.under_way(), queues.waiting(), queues.oldest_due())
        };
        let late = oldest.map_or(0, |due_at| Millis::now().0.saturating_sub(due_at.0).max(0));
        metrics::set_callback_queues(under_way, waiting, Duration::from_millis(late.unsigned_abs()));
    }
}

/// Attempt that was taken from its queue. Dropping it makes room for the next one.
struct Call {
    dispatcher: Arc<Dispatcher>,
    work: DueAttempt,
    began: Instant,
}

impl Call {
    async fn run(self) {
        let Self { dispatcher, work, .. } = &self;
        if !dispatcher.owns(work.shard) {
            return dispatcher.release(std::slice::from_ref(work)).await;
        }
        let result = AssertUnwindSafe(dispatcher.attempt(work)).catch_unwind().await;
        if result.is_err() {
            metrics::callback_failed("panicked");
            tracing::error!(org = %self.work.queue.org, event = %self.work.event_id, "an attempt panicked; it is due again later");
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.dispatcher.queues.lock().finish(&self.work.queue, self.work.event_id, self.began.elapsed());
        self.dispatcher.wake.notify_one();
    }
}

#[cfg(test)]
#[path = "tests/dispatcher.rs"]
mod tests;

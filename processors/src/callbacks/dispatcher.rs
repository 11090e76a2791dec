//! Dispatcher of callback attempts: starts them in the order of the endpoint queues, and drains them at a stop.
//!
//! Intake, due scanner and attempts share its queues, event locks and shard ownership. Deliveries whose attempt has not
//! started are released to the next owner of their shard.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    panic::AssertUnwindSafe,
    sync::Arc,
    time::Duration,
};

use futures::FutureExt as _;
use parking_lot::Mutex;
use tidegate_catalog::{LiveConfigs, Secrets};
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
    endpoint_queues::{DueAttempt, EndpointKey, EndpointQueues, OfferResult},
};
use crate::{
    consumer::{backoff::Backoff, error::TaskError},
    health::Health,
    metrics,
    settings::Settings as ConsumerSettings,
};

/// Number of locks. Events are assigned to locks by hash; a lock is never held during a call.
const EVENT_LOCKS: usize = 256;

/// Number of due rows in one write when deliveries are released.
const RELEASE_BATCH_ROWS: usize = 500;

pub(crate) struct Dispatcher {
    pub(crate) store: Store,
    pub(crate) live: Arc<LiveConfigs>,
    pub(crate) secrets: Secrets,
    pub(crate) client: Client,
    pub(crate) health: Health,
    pub(crate) settings: Settings,
    pub(crate) schedule: RetrySchedule,
    pub(crate) processing: Arc<ConsumerSettings>,
    ownership: watch::Receiver<Ownership>,
    /// Number of partitions of the topic.
    partition_count: usize,
    /// Time after the takeover of a shard during which calls of its former owner may still run.
    takeover_grace: Duration,
    takeover_times: Mutex<HashMap<u32, Millis>>,
    queues: Mutex<EndpointQueues>,
    queue_changed: Notify,
    event_locks: Vec<tokio::sync::Mutex<()>>,
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
            partition_count: usize::try_from(deps.log.partitions()).unwrap_or(usize::MAX),
            takeover_grace: Duration::ZERO,
            takeover_times: Mutex::default(),
            queue_changed: Notify::new(),
            event_locks: (0..EVENT_LOCKS).map(|_| tokio::sync::Mutex::default()).collect(),
        };
        // Only on Kafka can a former owner of a shard be alive. Embedded data has one owner, so no grace is needed.
        if matches!(deps.log, tidegate_stream::Log::Kafka(_)) {
            dispatcher.takeover_grace = dispatcher.call_lease();
        }
        dispatcher
    }

    /// Returns the time after which a call, or the process that made it, has certainly ended.
    pub(crate) fn call_lease(&self) -> Duration {
        Duration::from_millis(
            self.client.settings().total_timeout_ms.saturating_add(self.settings.lease_margin_ms),
        )
    }

    /// Returns the longest postponement of a due delivery: the lease of its call, or the longest deferral.
    pub(crate) fn longest_postponement(&self) -> Duration {
        self.call_lease().max(Duration::from_millis(self.settings.longest_deferral_ms))
    }

    /// Locks an event while its delivery row is read, changed and written. Never held during a call.
    pub(crate) async fn lock_event(&self, event_id: EventId) -> MutexGuard<'_, ()> {
        // A fixed set of locks needs no cleanup. Two events with the same lock only wait for each other's writes.
        let mut hasher = DefaultHasher::new();
        event_id.hash(&mut hasher);
        let index = usize::try_from(hasher.finish() % EVENT_LOCKS as u64).unwrap_or(0);
        self.event_locks[index].lock().await
    }

    /// Queues an attempt at the delivery.
    pub(crate) fn offer(&self, row: &Delivery, is_fresh: bool, now: Millis) -> OfferResult {
        let due_attempt = DueAttempt {
            queue: EndpointKey { org: row.org.clone(), endpoint: self.queue_endpoint(row) },
            event_id: row.event_id,
            shard: u32::try_from(row.shard).unwrap_or(u32::MAX),
            due_at: row.next_at.unwrap_or(now),
            is_fresh,
        };
        let result = self.queues.lock().offer(due_attempt, now);
        if result == OfferResult::Queued {
            self.queue_changed.notify_one();
        }
        result
    }

    /// Returns the endpoint of the delivery's queue. Deliveries without an endpoint share one queue. Their
    /// attempts make no call, so the queue stays fast.
    fn queue_endpoint(&self, row: &Delivery) -> EndpointId {
        let endpoint = self.configured_endpoint(row).or_else(|| row.endpoint.clone());
        endpoint.unwrap_or_else(|| EndpointId::new(""))
    }

    /// Adapts to a change of ownership: sets the calls to each endpoint by the owned share of partitions, and releases the
    /// deliveries of lost shards.
    fn on_ownership_change(self: &Arc<Self>, tasks: &mut JoinSet<()>) {
        let owned_partitions = {
            let ownership = self.ownership.borrow();
            ownership.partitions.iter().filter(|(partition, _)| partition.topic == Topic::Callbacks).count()
        };
        let lost_attempts = {
            let mut queues = self.queues.lock();
            queues.limit_queues(self.settings.calls_per_endpoint(owned_partitions, self.partition_count));
            queues.retain(|attempt| self.owns_shard(attempt.shard))
        };
        if !lost_attempts.is_empty() {
            let dispatcher = Arc::clone(self);
            tasks.spawn(async move { dispatcher.release_attempts(&lost_attempts).await });
        }
    }

    pub(crate) fn owns_shard(&self, shard: u32) -> bool {
        self.ownership.borrow().epoch_of(Partition::new(Topic::Callbacks, shard)).is_some()
    }

    /// True if a shard can have another owner before or after this process.
    pub(crate) const fn has_other_owners(&self) -> bool {
        !self.takeover_grace.is_zero()
    }

    /// Records the time at which this process took over the shard.
    pub(crate) fn record_takeover(&self, shard: u32, now: Millis) {
        self.takeover_times.lock().insert(shard, now);
    }

    /// Returns the end of the former owner's lease on a delivery that was due before the takeover.
    pub(crate) fn leased_until(&self, shard: u32, due_at: Millis) -> Option<Millis> {
        let taken_over_at = self.takeover_times.lock().get(&shard).copied()?;
        (due_at < taken_over_at && self.has_other_owners()).then(|| taken_over_at.plus(self.takeover_grace))
    }

    /// Releases deliveries to the next owner of their shard, which attempts them at once. Deliveries whose row cannot be
    /// written within one lease stay due at the end of their lease.
    async fn release_attempts(&self, attempts: &[DueAttempt]) {
        let mut backoff = Backoff::new(&self.processing);
        let release_all = async {
            for batch in attempts.chunks(RELEASE_BATCH_ROWS) {
                while let Err(error) = self.write_released(batch).await {
                    if !error.is_outage() {
                        tracing::error!(
                            tag = error.tag(),
                            "queued callbacks cannot be released to the next owner and are sent later: {error}"
                        );
                        break;
                    }
                    sleep(backoff.next()).await;
                }
            }
        };
        // After one lease the deliveries are due anyway, so further retries would gain no time.
        let _in_time = timeout(self.call_lease(), release_all).await;
    }

    async fn write_released(&self, attempts: &[DueAttempt]) -> Result<(), TaskError> {
        let now = Millis::now();
        let due_row = |attempt: &DueAttempt| {
            rows::released_due_row(&attempt.queue.org, attempt.event_id, i64::from(attempt.shard), now)
        };
        let rows: Vec<_> = attempts.iter().map(due_row).collect();
        rows::put_released(&self.store, &rows, now).await
    }

    /// Makes attempts until `stop`. Then waits for the running attempts and releases the queued ones.
    pub(crate) async fn run(self: Arc<Self>, stop: CancellationToken) -> DrainResult {
        // Calls, and releases of attempts whose shard was lost.
        let mut tasks = JoinSet::new();
        let mut ownership = self.ownership.clone();
        let mut has_ownership_updates = true;
        self.on_ownership_change(&mut tasks);
        let mut metrics_tick = interval(Duration::from_secs(1));
        // After a stall one tick is enough; a burst would only repeat the same values.
        metrics_tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            while !stop.is_cancelled()
                && let Some(call) = self.start_call()
            {
                tasks.spawn(call.run());
            }
            tokio::select! {
                // The stop first: a steady supply of finished calls must not delay it.
                biased;
                () = stop.cancelled() => break,
                Some(_) = tasks.join_next() => {}
                change = ownership.changed(), if has_ownership_updates => {
                    has_ownership_updates = change.is_ok();
                    self.on_ownership_change(&mut tasks);
                }
                () = self.queue_changed.notified() => {}
                _ = metrics_tick.tick() => self.record_metrics(),
            }
        }
        let queued_attempts = self.queues.lock().close();
        let join_tasks = async { while tasks.join_next().await.is_some() {} };
        // Concurrently, so the next owner gets the queued attempts before the running calls have ended.
        let wind_down = async { tokio::join!(join_tasks, self.release_attempts(&queued_attempts)) };
        let drain = timeout(self.settings.drain_timeout(), wind_down).await;
        // Aborts the remaining calls. Their due rows start new attempts at the end of the lease.
        tasks.shutdown().await;
        self.record_metrics();
        drain.map_or(DrainResult::Forced, |_| DrainResult::Clean)
    }

    fn start_call(self: &Arc<Self>) -> Option<Call> {
        let due_attempt = self.queues.lock().start_next()?;
        Some(Call { dispatcher: Arc::clone(self), due_attempt, started_at: Instant::now() })
    }

    fn record_metrics(&self) {
        let (under_way, queued, oldest_due_at) = {
            let queues = self.queues.lock();
            (queues.count_under_way(), queues.count_queued(), queues.oldest_due_at())
        };
        let lateness_ms = oldest_due_at.map_or(0, |due_at| Millis::now().0.saturating_sub(due_at.0).max(0));
        metrics::set_callback_queues(under_way, queued, Duration::from_millis(lateness_ms.unsigned_abs()));
    }
}

/// Attempt that occupies a place of its endpoint. Dropping it frees the place, also after a panic.
struct Call {
    dispatcher: Arc<Dispatcher>,
    due_attempt: DueAttempt,
    started_at: Instant,
}

impl Call {
    async fn run(self) {
        let Self { dispatcher, due_attempt, .. } = &self;
        // The shard may have been lost while the attempt was queued; its next owner makes the call.
        if !dispatcher.owns_shard(due_attempt.shard) {
            return dispatcher.release_attempts(std::slice::from_ref(due_attempt)).await;
        }
        // Caught here, so the panic is logged with its event. The due row at the end of the lease starts another attempt.
        let result = AssertUnwindSafe(dispatcher.attempt(due_attempt)).catch_unwind().await;
        if result.is_err() {
            metrics::record_callback_failure("panicked");
            tracing::error!(org = %self.due_attempt.queue.org, event = %self.due_attempt.event_id, "an attempt panicked; it is due again later");
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.dispatcher.queues.lock().finish(
            &self.due_attempt.queue,
            self.due_attempt.event_id,
            self.started_at.elapsed(),
        );
        self.dispatcher.queue_changed.notify_one();
    }
}

#[cfg(test)]
#[path = "tests/dispatcher.rs"]
mod tests;

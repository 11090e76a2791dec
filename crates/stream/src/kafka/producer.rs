//! Appends batches to Kafka: enqueues all records of a batch, then waits once for all acknowledgements.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use rdkafka::{
    ClientConfig, ClientContext, Message, Statistics,
    config::RDKafkaLogLevel,
    error::{KafkaError, KafkaResult, RDKafkaErrorCode},
    message::{DeliveryResult, Header, OwnedHeaders},
    producer::{BaseRecord, Producer as _, ProducerContext, ThreadedProducer},
};
use tokio::sync::{Notify, oneshot};
use tokio_util::task::AbortOnDropHandle;

use super::client_stats::{self, BrokerHealth};
use crate::{
    codec::{Codec, FRAMING},
    consumer::inbox::DrainResult,
    error::AppendError,
    metrics,
    record::{AddressedRecord, Record},
    topics::Topic,
};

const CLIENT: &str = "producer";

/// Queue of callers with finished appends. librdkafka reports in bursts on its own thread, where each wake-up is a system
/// call. That thread therefore wakes one task of the callers' runtime for a burst, and the task wakes the callers.
#[derive(Default)]
struct WakeQueue {
    callers: Mutex<Vec<oneshot::Sender<()>>>,
    changed: Notify,
}

impl WakeQueue {
    fn push(&self, caller: oneshot::Sender<()>) {
        let mut callers = self.callers.lock();
        callers.push(caller);
        let is_first = callers.len() == 1;
        drop(callers);
        // Only the first caller of a burst costs a wake-up.
        if is_first {
            self.changed.notify_one();
        }
    }

    async fn wake_callers(self: Arc<Self>) {
        let mut burst = Vec::new();
        loop {
            self.changed.notified().await;
            std::mem::swap(&mut burst, &mut *self.callers.lock());
            for caller in burst.drain(..) {
                // The caller may have been dropped; its records are settled nevertheless.
                caller.send(()).ok();
            }
        }
    }
}

/// Delivery reports of one append. librdkafka holds a reference for every record in flight. The last report wakes the
/// caller.
pub(super) struct DeliveryReports {
    remaining: AtomicUsize,
    first_error: Mutex<Option<AppendError>>,
    /// Wakes the caller. Taken by the last report.
    waker: Mutex<Option<oneshot::Sender<()>>>,
    wake_queue: Arc<WakeQueue>,
}

impl DeliveryReports {
    fn new(records: usize, wake_queue: &Arc<WakeQueue>) -> (Arc<Self>, oneshot::Receiver<()>) {
        let (waker, woken) = oneshot::channel();
        let reports = Self {
            remaining: AtomicUsize::new(records),
            first_error: Mutex::default(),
            waker: Mutex::new(Some(waker)),
            wake_queue: Arc::clone(wake_queue),
        };
        (Arc::new(reports), woken)
    }

    /// Records a failure. The first one becomes the append's error.
    fn fail(&self, error: AppendError) {
        self.first_error.lock().get_or_insert(error);
    }

    /// Counts records with a known outcome, and wakes the caller after the last one.
    fn settle(&self, records: usize) {
        if self.remaining.fetch_sub(records, Ordering::AcqRel) == records
            && let Some(waker) = self.waker.lock().take()
        {
            self.wake_queue.push(waker);
        }
    }
}

/// Callbacks of the producer: receives the reports of all appends.
struct DeliveryContext {
    health: Arc<BrokerHealth>,
    /// Number of records without a report. librdkafka's own count also includes queued log lines and statistics.
    in_flight: Arc<AtomicUsize>,
}

impl ClientContext for DeliveryContext {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, line: &str) {
        client_stats::log(CLIENT, level, facility, line);
    }

    fn stats(&self, statistics: Statistics) {
        self.health.set_connected(client_stats::record_brokers(CLIENT, &statistics));
        self.health.set_waiting(Instant::now(), self.in_flight.load(Ordering::Acquire));
        metrics::kafka_producer_queue(&statistics);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        client_stats::handle_error(CLIENT, &self.health, &error, reason);
    }
}

impl ProducerContext for DeliveryContext {
    type DeliveryOpaque = Arc<DeliveryReports>;

    fn delivery(&self, result: &DeliveryResult<'_>, reports: Arc<DeliveryReports>) {
        match result {
            Ok(_) => self.health.record_acknowledgement(),
            Err((error, message)) => {
                metrics::kafka_delivery_failed(client_stats::code(error));
                let error = to_append_error(error, message.topic());
                if matches!(error, AppendError::Unavailable { .. }) {
                    self.health.record_refusal(Instant::now(), error.to_string());
                }
                reports.fail(error);
            }
        }
        reports.settle(1);
        self.in_flight.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Converts the error of a record that librdkafka refused or did not deliver. `Full` and `TooLarge` are detected before
/// sending, so a failed delivery is an outage unless the client is closing.
fn to_append_error(error: &KafkaError, topic: &str) -> AppendError {
    match error.rdkafka_error_code() {
        Some(RDKafkaErrorCode::QueueFull) => {
            AppendError::Full { detail: "the queue to the kafka brokers is full".to_owned() }
        }
        Some(
            RDKafkaErrorCode::PurgeQueue | RDKafkaErrorCode::PurgeInflight | RDKafkaErrorCode::BrokerDestroy,
        ) => AppendError::ShuttingDown,
        Some(code) => AppendError::Unavailable { detail: format!("{topic}: {code}") },
        None => AppendError::Unavailable { detail: format!("{topic}: {error}") },
    }
}

/// The only producer of a process.
pub(super) struct Producer {
    /// Taken by `close`, so that it can be dropped on a blocking thread.
    client: Mutex<Option<Arc<ThreadedProducer<DeliveryContext>>>>,
    topics: Vec<String>,
    in_flight: Arc<AtomicUsize>,
    closing: AtomicBool,
    append_timeout: Duration,
    wake_queue: Arc<WakeQueue>,
    _wake_task: AbortOnDropHandle<()>,
}

impl Producer {
    /// Creates the producer. Call it inside the runtime of the appending tasks.
    pub(super) fn new(
        config: &ClientConfig,
        prefix: &str,
        append_timeout: Duration,
        health: Arc<BrokerHealth>,
    ) -> KafkaResult<Self> {
        let in_flight = Arc::<AtomicUsize>::default();
        let client =
            config.create_with_context(DeliveryContext { health, in_flight: Arc::clone(&in_flight) })?;
        let wake_queue = Arc::<WakeQueue>::default();
        Ok(Self {
            _wake_task: AbortOnDropHandle::new(tokio::spawn(Arc::clone(&wake_queue).wake_callers())),
            wake_queue,
            client: Mutex::new(Some(Arc::new(client))),
            topics: Topic::ALL.into_iter().map(|topic| topic.name(prefix)).collect(),
            in_flight,
            closing: AtomicBool::new(false),
            append_timeout,
        })
    }

    /// Appends all records; after an error some may be durable. Dropping the future does not cancel the append.
    pub(super) async fn append(
        &self,
        codec: &Codec,
        records: &[AddressedRecord<'_>],
    ) -> Result<(), AppendError> {
        if records.is_empty() {
            return Ok(());
        }
        for (partition, record) in records {
            let (bytes, limit) = (framed_size(record), partition.topic.max_record_bytes());
            // Checked for all records before any is sent, so that a refused append sends none.
            if bytes > limit {
                return Err(AppendError::TooLarge { topic: partition.topic, bytes, limit });
            }
        }
        let (reports, woken) = self.enqueue(codec, records)?;
        // librdkafka reports every record within message.timeout.ms; this limit only guards against a missing report.
        match tokio::time::timeout(self.append_timeout, woken).await {
            // The sender leaves the reports only after the last report, so even a dropped one means that all are known.
            Ok(_) => reports.first_error.lock().take().map_or(Ok(()), Err),
            Err(_) => {
                Err(AppendError::Unavailable { detail: "the kafka client gave no report in time".to_owned() })
            }
        }
    }

    /// Enqueues records until the first refusal, which becomes the error of the append. The records before it are in flight then,
    /// so the caller waits for their reports before it returns the error.
    fn enqueue(
        &self,
        codec: &Codec,
        records: &[AddressedRecord<'_>],
    ) -> Result<(Arc<DeliveryReports>, oneshot::Receiver<()>), AppendError> {
        let client = self.client()?;
        let (reports, woken) = DeliveryReports::new(records.len(), &self.wake_queue);
        let longest = records.iter().map(|(_, record)| record.value.len()).max().unwrap_or(0);
        let mut framed = Vec::with_capacity(FRAMING + longest);
        for (index, (partition, record)) in records.iter().enumerate() {
            framed.clear();
            codec.frame(partition.topic, &record.value, &mut framed);
            let topic = &self.topics[partition.topic as usize];
            // Counted before `send`, because the report may arrive at once.
            self.in_flight.fetch_add(1, Ordering::AcqRel);
            let send = client.send(BaseRecord {
                topic,
                partition: Some(i32::try_from(partition.index).unwrap_or(i32::MAX)),
                payload: Some(framed.as_slice()),
                key: Some(record.key),
                // The broker sets the append time.
                timestamp: None,
                headers: to_kafka_headers(record),
                delivery_opaque: Arc::clone(&reports),
            });
            if let Err((error, _)) = send {
                self.in_flight.fetch_sub(1, Ordering::AcqRel);
                reports.fail(to_append_error(&error, topic));
                // This record and the unsent ones get no report.
                reports.settle(records.len() - index);
                break;
            }
        }
        Ok((reports, woken))
    }

    fn client(&self) -> Result<Arc<ThreadedProducer<DeliveryContext>>, AppendError> {
        if self.closing.load(Ordering::Acquire) {
            return Err(AppendError::ShuttingDown);
        }
        self.client.lock().clone().ok_or(AppendError::ShuttingDown)
    }

    /// Refuses new appends, then waits for records in flight until the deadline. Dropping the client before that would
    /// purge them.
    pub(super) async fn close(&self, deadline: Instant) -> DrainResult {
        self.closing.store(true, Ordering::Release);
        let Some(client) = self.client.lock().take() else { return DrainResult::Clean };
        let in_flight = Arc::clone(&self.in_flight);
        let flush_task = tokio::task::spawn_blocking(move || {
            let remaining = deadline.saturating_duration_since(Instant::now());
            let result = client.flush(remaining);
            let in_flight = in_flight.load(Ordering::Acquire);
            if let Err(why) = &result {
                tracing::error!(in_flight, "the kafka producer did not finish in time: {why}");
            }
            drop(client);
            result.is_ok() && in_flight == 0
        });
        match flush_task.await {
            Ok(true) => DrainResult::Clean,
            _ => DrainResult::Forced,
        }
    }
}

/// Size for the topic's limit: the framed record with its key and headers.
fn framed_size(record: &Record<'_>) -> usize {
    FRAMING + record.bytes()
}

fn to_kafka_headers(record: &Record<'_>) -> Option<OwnedHeaders> {
    if record.headers.is_empty() {
        return None;
    }
    let empty_headers = OwnedHeaders::new_with_capacity(record.headers.len());
    let headers = record.headers.iter();
    Some(headers.fold(empty_headers, |all, (key, value)| all.insert(Header { key, value: Some(*value) })))
}

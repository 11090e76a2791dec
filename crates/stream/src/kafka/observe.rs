//! What a librdkafka client tells of itself: log lines, statistics and faults become tracing, metrics and readiness.
//!
//! It takes no action on any of it.

use std::{
    collections::HashMap,
    sync::OnceLock,
    time::{Duration, Instant},
};

use metrics::gauge;
use parking_lot::Mutex;
use rdkafka::{
    config::RDKafkaLogLevel,
    error::{KafkaError, RDKafkaErrorCode},
    statistics::{Broker, Statistics},
};

use crate::log::Readiness;

/// What librdkafka calls lines about links that broke, or did not come to be.
pub(super) const BROKEN_LINK: &str = "FAIL";

/// How long records may wait although none is acknowledged.
const STALL: Duration = Duration::from_secs(5);

/// Whether brokers answer and take records. Every client of a log writes it, the probe only reads.
#[derive(Debug)]
pub(super) struct BrokerHealth {
    /// How long one refused append keeps the log from being ready: longer than it takes until the next is refused, or
    /// readiness would come and go. It ends by itself: who is not ready gets no requests, and so no append that could
    /// succeed.
    refusal_counts_for: Duration,
    state: Mutex<State>,
    fatal: OnceLock<String>,
}

#[derive(Debug, Default)]
struct State {
    /// Unknown until the first statistics or acknowledgement.
    up: Option<bool>,
    refused: Option<(Instant, String)>,
    acknowledged: u64,
    /// When records waited, and how many had been acknowledged by then.
    waiting: Option<(Instant, u64)>,
}

impl BrokerHealth {
    pub(super) fn new(refusal_counts_for: Duration) -> Self {
        Self { refusal_counts_for, state: Mutex::default(), fatal: OnceLock::new() }
    }

    /// Some broker is connected, or none.
    pub(super) fn brokers(&self, up: bool) {
        self.state.lock().up = Some(up);
    }

    pub(super) fn acknowledged(&self) {
        let mut state = self.state.lock();
        state.up = Some(true);
        state.refused = None;
        state.acknowledged += 1;
    }

    /// So many records wait to be acknowledged.
    pub(super) fn waiting(&self, now: Instant, records: usize) {
        let mut state = self.state.lock();
        let acknowledged = state.acknowledged;
        match state.waiting {
            _ if records == 0 => state.waiting = None,
            Some((_, before)) if before == acknowledged => {}
            _ => state.waiting = Some((now, acknowledged)),
        }
    }

    pub(super) fn refused(&self, now: Instant, why: String) {
        self.state.lock().refused = Some((now, why));
    }

    /// The client can never be used again in this process. The first reason stays.
    pub(super) fn fatal(&self, why: String) {
        // A later reason is a consequence of the first.
        drop(self.fatal.set(why));
    }

    pub(super) fn fatal_reason(&self) -> Option<&str> {
        self.fatal.get().map(String::as_str)
    }

    pub(super) fn readiness(&self, now: Instant) -> Readiness {
        let not = |why: &str| Readiness::NotReady { why: why.to_owned() };
        if let Some(why) = self.fatal.get() {
            return not(why);
        }
        let state = self.state.lock();
        match (state.up, &state.refused) {
            (None, _) => not("no kafka broker has answered yet"),
            (Some(false), _) => not("no kafka broker is reachable"),
            (Some(true), Some((at, why))) if now.saturating_duration_since(*at) < self.refusal_counts_for => {
                not(why)
            }
            (Some(true), _) if state.is_stalled(now) => not("kafka acknowledges no record"),
            (Some(true), _) => Readiness::Ready,
        }
    }
}

impl State {
    fn is_stalled(&self, now: Instant) -> bool {
        self.waiting.is_some_and(|(since, acknowledged)| {
            acknowledged == self.acknowledged && now.saturating_duration_since(since) >= STALL
        })
    }
}

/// Passes a line of librdkafka on. A failed connection is a warning, whatever level librdkafka gives it.
pub(super) fn log(client: &str, level: RDKafkaLogLevel, facility: &str, line: &str) {
    match level {
        RDKafkaLogLevel::Emerg
        | RDKafkaLogLevel::Alert
        | RDKafkaLogLevel::Critical
        | RDKafkaLogLevel::Error => {
            tracing::error!(target: "librdkafka", client, facility, "{line}");
        }
        RDKafkaLogLevel::Warning => tracing::warn!(target: "librdkafka", client, facility, "{line}"),
        _ if facility == BROKEN_LINK => tracing::warn!(target: "librdkafka", client, facility, "{line}"),
        RDKafkaLogLevel::Notice | RDKafkaLogLevel::Info => {
            tracing::info!(target: "librdkafka", client, facility, "{line}");
        }
        RDKafkaLogLevel::Debug => tracing::debug!(target: "librdkafka", client, facility, "{line}"),
    }
}

/// What every client's statistics say of the brokers: the metrics, and whether any is connected.
pub(super) fn brokers(client: &'static str, statistics: &Statistics) -> bool {
    for broker in statistics.brokers.values().filter(|broker| is_broker(broker)) {
        let Some(rtt) = &broker.rtt else { continue };
        for (quantile, micros) in [("0.5", rtt.p50), ("0.99", rtt.p99)] {
            gauge!(
                "tidegate_kafka_broker_rtt_seconds",
                "client" => client, "broker" => broker.nodeid.to_string(), "quantile" => quantile
            )
            .set(seconds(micros));
        }
    }
    any_up(&statistics.brokers)
}

fn is_broker(broker: &Broker) -> bool {
    broker.nodeid >= 0
}

fn any_up(brokers: &HashMap<String, Broker>) -> bool {
    // `UPDATE` is a connected broker whose address is being changed.
    brokers
        .values()
        .any(|broker| broker.source != "internal" && matches!(broker.state.as_str(), "UP" | "UPDATE"))
}

#[allow(clippy::cast_precision_loss, reason = "a round trip has few digits")]
fn seconds(micros: i64) -> f64 {
    micros.max(0) as f64 / 1e6
}

pub(super) fn producer_queue(statistics: &Statistics) {
    #[allow(clippy::cast_precision_loss, reason = "a queue is far below 2^52")]
    for (name, value) in [
        ("tidegate_kafka_producer_queue_messages", statistics.msg_cnt),
        ("tidegate_kafka_producer_queue_messages_limit", statistics.msg_max),
        ("tidegate_kafka_producer_queue_bytes", statistics.msg_size),
        ("tidegate_kafka_producer_queue_bytes_limit", statistics.msg_size_max),
    ] {
        gauge!(name).set(value as f64);
    }
}

/// The code of a fault, as a label.
pub(super) fn code(error: &KafkaError) -> String {
    match error.rdkafka_error_code() {
        Some(code) => format!("{code:?}"),
        None => "Unknown".to_owned(),
    }
}

/// Passes on what librdkafka reports beside any single record.
pub(super) fn fault(client: &str, health: &BrokerHealth, error: &KafkaError, reason: &str) {
    match error.rdkafka_error_code() {
        Some(RDKafkaErrorCode::AllBrokersDown) => health.brokers(false),
        Some(RDKafkaErrorCode::Fatal) => {
            health.fatal(format!("the kafka {client} can no longer be used: {reason}"));
        }
        _ => {}
    }
    tracing::warn!(target: "librdkafka", client, code = code(error), "{reason}");
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(30);

    #[test]
    fn a_log_is_ready_once_a_broker_answered_and_not_while_all_are_down() {
        let (health, now) = (BrokerHealth::new(LONG), Instant::now());
        assert!(!health.readiness(now).is_ready());
        health.brokers(true);
        assert!(health.readiness(now).is_ready());
        health.brokers(false);
        assert!(!health.readiness(now).is_ready());
    }

    #[test]
    fn a_refused_append_counts_until_the_next_success_or_for_a_while() {
        let (health, now) = (BrokerHealth::new(LONG), Instant::now());
        health.brokers(true);
        health.refused(now, "not enough replicas".to_owned());
        assert_eq!(health.readiness(now), Readiness::NotReady { why: "not enough replicas".to_owned() });
        assert!(health.readiness(now + LONG).is_ready());
        health.acknowledged();
        assert!(health.readiness(now).is_ready());
    }

    #[test]
    fn records_that_wait_while_none_is_acknowledged_count_until_one_is() {
        let (health, now) = (BrokerHealth::new(LONG), Instant::now());
        let is_ready = |seconds| health.readiness(now + Duration::from_secs(seconds)).is_ready();
        let wait = |seconds, records| health.waiting(now + Duration::from_secs(seconds), records);
        health.acknowledged();
        wait(0, 3);
        wait(4, 9);
        assert!(is_ready(4) && !is_ready(5), "since the first");
        health.acknowledged();
        assert!(is_ready(9), "one came back");
        wait(10, 8);
        assert!(is_ready(14) && !is_ready(15));
        wait(16, 0);
        assert!(is_ready(99), "nothing waits");
    }

    #[test]
    fn a_fatal_fault_is_never_forgotten() {
        let (health, now) = (BrokerHealth::new(LONG), Instant::now());
        health.fatal("fenced".to_owned());
        health.fatal("later".to_owned());
        health.acknowledged();
        assert_eq!(health.readiness(now), Readiness::NotReady { why: "fenced".to_owned() });
    }
}

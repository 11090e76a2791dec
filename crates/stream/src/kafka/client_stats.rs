//! Reports of a librdkafka client about itself: log lines, statistics and errors become tracing, metrics and readiness.

use std::{
    collections::HashMap,
    sync::OnceLock,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use rdkafka::{
    config::RDKafkaLogLevel,
    error::{KafkaError, RDKafkaErrorCode},
    statistics::{Broker, Statistics},
};

use crate::{health::Readiness, metrics};

/// Facility of librdkafka's log lines about connections that broke, or were not established.
pub(super) const BROKEN_LINK: &str = "FAIL";

/// Time for which records may wait although none is acknowledged.
const STALL: Duration = Duration::from_secs(5);

/// Health of the brokers: whether they answer and take records. Every client of a log writes it, the probe reads it.
#[derive(Debug)]
pub(super) struct BrokerHealth {
    /// Time for which one refused append keeps the log from being ready: longer than it takes until the next is refused,
    /// or readiness would come and go. It ends by itself: a process that is not ready gets no requests, and so no append
    /// that could succeed.
    refusal_counts_for: Duration,
    state: Mutex<State>,
    fatal: OnceLock<String>,
}

#[derive(Debug, Default)]
struct State {
    /// `None` until the first statistics or acknowledgement.
    up: Option<bool>,
    refused: Option<(Instant, String)>,
    acknowledged: u64,
    /// Time at which records were seen to wait, and the number acknowledged by then.
    waiting: Option<(Instant, u64)>,
}

impl BrokerHealth {
    pub(super) fn new(refusal_counts_for: Duration) -> Self {
        Self { refusal_counts_for, state: Mutex::default(), fatal: OnceLock::new() }
    }

    /// Records whether any broker is connected.
    pub(super) fn set_connected(&self, up: bool) {
        self.state.lock().up = Some(up);
    }

    pub(super) fn acknowledged(&self) {
        let mut state = self.state.lock();
        state.up = Some(true);
        state.refused = None;
        state.acknowledged += 1;
    }

    /// Records how many records wait to be acknowledged.
    pub(super) fn set_waiting(&self, now: Instant, records: usize) {
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

    /// Records that the client can never be used again in this process. The first reason stays.
    pub(super) fn set_fatal(&self, why: String) {
        // A later reason is a consequence of the first.
        drop(self.fatal.set(why));
    }

    pub(super) fn fatal_error(&self) -> Option<&str> {
        self.fatal.get().map(String::as_str)
    }

    pub(super) fn readiness(&self, now: Instant) -> Readiness {
        let not_ready = |why: &str| Readiness::NotReady { why: why.to_owned() };
        if let Some(why) = self.fatal.get() {
            return not_ready(why);
        }
        let state = self.state.lock();
        match (state.up, &state.refused) {
            (None, _) => not_ready("no kafka broker has answered yet"),
            (Some(false), _) => not_ready("no kafka broker is reachable"),
            (Some(true), Some((at, why))) if now.saturating_duration_since(*at) < self.refusal_counts_for => {
                not_ready(why)
            }
            (Some(true), _) if state.is_stalled(now) => not_ready("kafka acknowledges no record"),
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

/// Logs a line of librdkafka. A failed connection is a warning, whatever level librdkafka gives it.
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

/// Records the statistics of the brokers, and returns true if any broker is connected.
pub(super) fn record_brokers(client: &'static str, statistics: &Statistics) -> bool {
    for broker in statistics.brokers.values().filter(|broker| is_broker(broker)) {
        let Some(rtt) = &broker.rtt else { continue };
        for (quantile, micros) in [("0.5", rtt.p50), ("0.99", rtt.p99)] {
            metrics::kafka_broker_rtt(client, broker.nodeid, quantile, micros);
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

/// Code of an error, as a label.
pub(super) fn code(error: &KafkaError) -> String {
    match error.rdkafka_error_code() {
        Some(code) => format!("{code:?}"),
        None => "Unknown".to_owned(),
    }
}

/// Handles an error that librdkafka reports outside of any single record.
pub(super) fn handle_error(client: &str, health: &BrokerHealth, error: &KafkaError, reason: &str) {
    match error.rdkafka_error_code() {
        Some(RDKafkaErrorCode::AllBrokersDown) => health.set_connected(false),
        Some(RDKafkaErrorCode::Fatal) => {
            health.set_fatal(format!("the kafka {client} can no longer be used: {reason}"));
        }
        _ => {}
    }
    tracing::warn!(target: "librdkafka", client, code = code(error), "{reason}");
}

/// Message about a client that was not made. librdkafka's text names the key; ours never shows a value, which may be a
/// secret.
pub(super) fn creation_error(why: &KafkaError) -> String {
    match why {
        KafkaError::ClientConfig(_, detail, key, _) => format!("stream.kafka: {key}: {detail}"),
        other => format!("stream.kafka: {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(30);

    #[test]
    fn a_log_is_ready_once_a_broker_answered_and_not_while_all_are_down() {
        let (health, now) = (BrokerHealth::new(LONG), Instant::now());
        assert!(!health.readiness(now).is_ready());
        health.set_connected(true);
        assert!(health.readiness(now).is_ready());
        health.set_connected(false);
        assert!(!health.readiness(now).is_ready());
    }

    #[test]
    fn a_refused_append_counts_until_the_next_success_or_for_a_while() {
        let (health, now) = (BrokerHealth::new(LONG), Instant::now());
        health.set_connected(true);
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
        let wait = |seconds, records| health.set_waiting(now + Duration::from_secs(seconds), records);
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
    fn a_fatal_error_is_never_forgotten() {
        let (health, now) = (BrokerHealth::new(LONG), Instant::now());
        health.set_fatal("fenced".to_owned());
        health.set_fatal("later".to_owned());
        health.acknowledged();
        assert_eq!(health.readiness(now), Readiness::NotReady { why: "fenced".to_owned() });
    }
}

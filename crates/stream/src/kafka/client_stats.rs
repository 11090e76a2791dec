//! Turns a librdkafka client's log lines, statistics and errors into tracing, metrics and readiness.

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

/// Facility of librdkafka's log lines about broken or refused connections.
pub(super) const BROKEN_LINK: &str = "FAIL";

/// Time after which waiting records without any acknowledgement count as a stall.
const STALL: Duration = Duration::from_secs(5);

/// Health of the brokers. Every client of a log writes it, and the readiness probe reads it.
#[derive(Debug)]
pub(super) struct BrokerHealth {
    /// Time for which the log is not ready after a refused append. Longer than the time until the next refusal, so that
    /// readiness does not flap. Limited, because a process that is not ready gets no requests and so no successful append.
    refusal_counts_for: Duration,
    state: Mutex<State>,
    fatal: OnceLock<String>,
}

#[derive(Debug, Default)]
struct State {
    /// `None` until the first statistics or acknowledgement.
    is_connected: Option<bool>,
    last_refusal: Option<(Instant, String)>,
    acknowledged_count: u64,
    /// Time since which records wait, and the number of acknowledgements at that time.
    waiting_since: Option<(Instant, u64)>,
}

impl BrokerHealth {
    pub(super) fn new(refusal_counts_for: Duration) -> Self {
        Self { refusal_counts_for, state: Mutex::default(), fatal: OnceLock::new() }
    }

    /// Records whether any broker is connected.
    pub(super) fn set_connected(&self, is_connected: bool) {
        self.state.lock().is_connected = Some(is_connected);
    }

    pub(super) fn record_acknowledgement(&self) {
        let mut state = self.state.lock();
        state.is_connected = Some(true);
        state.last_refusal = None;
        state.acknowledged_count += 1;
    }

    /// Records the number of records without an acknowledgement.
    pub(super) fn set_waiting(&self, now: Instant, records: usize) {
        let mut state = self.state.lock();
        let acknowledged = state.acknowledged_count;
        match state.waiting_since {
            _ if records == 0 => state.waiting_since = None,
            // No acknowledgement since then, so the start of the wait stays.
            Some((_, before)) if before == acknowledged => {}
            _ => state.waiting_since = Some((now, acknowledged)),
        }
    }

    pub(super) fn record_refusal(&self, now: Instant, why: String) {
        self.state.lock().last_refusal = Some((now, why));
    }

    /// Records that the client can never be used again in this process. Keeps the first reason.
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
        match (state.is_connected, &state.last_refusal) {
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
        self.waiting_since.is_some_and(|(since, acknowledged)| {
            acknowledged == self.acknowledged_count && now.saturating_duration_since(since) >= STALL
        })
    }
}

/// Logs a line of librdkafka. A failed connection is always a warning, because librdkafka logs it at lower levels.
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
    // Bootstrap connections have negative ids.
    broker.nodeid >= 0
}

fn any_up(brokers: &HashMap<String, Broker>) -> bool {
    // `UPDATE` is a connected broker during a change of its address.
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

/// Error message for a client that cannot be created. Names the key, and never shows its value, which may be a secret.
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
    fn log_is_ready_while_a_broker_is_connected() {
        let (health, now) = (BrokerHealth::new(LONG), Instant::now());
        assert!(!health.readiness(now).is_ready());
        health.set_connected(true);
        assert!(health.readiness(now).is_ready());
        health.set_connected(false);
        assert!(!health.readiness(now).is_ready());
    }

    #[test]
    fn refusal_counts_until_the_next_success_or_timeout() {
        let (health, now) = (BrokerHealth::new(LONG), Instant::now());
        health.set_connected(true);
        health.record_refusal(now, "not enough replicas".to_owned());
        assert_eq!(health.readiness(now), Readiness::NotReady { why: "not enough replicas".to_owned() });
        assert!(health.readiness(now + LONG).is_ready());
        health.record_acknowledgement();
        assert!(health.readiness(now).is_ready());
    }

    #[test]
    fn waiting_records_stall_until_an_acknowledgement() {
        let (health, now) = (BrokerHealth::new(LONG), Instant::now());
        let is_ready = |seconds| health.readiness(now + Duration::from_secs(seconds)).is_ready();
        let wait = |seconds, records| health.set_waiting(now + Duration::from_secs(seconds), records);
        health.record_acknowledgement();
        wait(0, 3);
        wait(4, 9);
        assert!(is_ready(4) && !is_ready(5), "since the first");
        health.record_acknowledgement();
        assert!(is_ready(9), "one came back");
        wait(10, 8);
        assert!(is_ready(14) && !is_ready(15));
        wait(16, 0);
        assert!(is_ready(99), "nothing waits");
    }

    #[test]
    fn fatal_error_is_permanent() {
        let (health, now) = (BrokerHealth::new(LONG), Instant::now());
        health.set_fatal("fenced".to_owned());
        health.set_fatal("later".to_owned());
        health.record_acknowledgement();
        assert_eq!(health.readiness(now), Readiness::NotReady { why: "fenced".to_owned() });
    }
}

//! Metrics of the crate: names, descriptions for `/metrics`, and recording functions.

use std::time::Duration;

use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};
use tidegate_scheduler::fair_queue::{QueueFull, Totals};
use tidegate_store::tables::callbacks::deliveries::DeliveryState;
use tidegate_stream::topics::Role;

const PROCESSED: &str = "tidegate_processed_total";
const PROCESSING_SECONDS: &str = "tidegate_processing_seconds";
const PROCESSING_HELD: &str = "tidegate_processing_held_total";
const PROCESSING_WAITS: &str = "tidegate_processing_waits";
const DIVERTED_ORGS: &str = "tidegate_diverted_orgs";
const MISSING_CONFIGURATIONS: &str = "tidegate_missing_configurations";
const CLOCK_SET_BACK: &str = "tidegate_clock_set_back_minutes";
const DUE_FAULTS: &str = "tidegate_due_faults_total";
const CALLBACKS: &str = "tidegate_callbacks_total";
const CALLBACKS_REPEATED: &str = "tidegate_callbacks_repeated_total";
const CALLBACKS_IN_FLIGHT: &str = "tidegate_callbacks_in_flight";
const CALLBACKS_WAITING: &str = "tidegate_callbacks_waiting";
const CALLBACKS_OLDEST_DUE: &str = "tidegate_callbacks_oldest_due_seconds";
const CALLBACK_ATTEMPTS: &str = "tidegate_callback_attempts_total";
const CALLBACK_ATTEMPT_SECONDS: &str = "tidegate_callback_attempt_seconds";
const CALLBACK_FAULTS: &str = "tidegate_callback_faults_total";
const RULE_OUTCOMES: &str = "tidegate_rule_outcomes_total";
const FREQUENT_RULES: &str = "tidegate_frequent_rules_total";
const RULE_ALARMS: &str = "tidegate_rule_alarms_total";
const MEDIA_ITEMS_SLOW: &str = "tidegate_media_items_slow_total";
const MEDIA_SLOW_REFUSED: &str = "tidegate_media_slow_refused_total";
const MEDIA_SLOW_SEATED: &str = "tidegate_media_slow_seated";
const MEDIA_SLOW_LINE: &str = "tidegate_media_slow_line";
const MEDIA_SLOW_BYTES: &str = "tidegate_media_slow_bytes";

/// Describes every metric of the crate to the process's recorder.
pub fn describe() {
    describe_counter!(PROCESSED, "Parts of records that ended, by outcome.");
    describe_histogram!(
        PROCESSING_SECONDS,
        Unit::Seconds,
        "Time from a record's append to the log until it was completed."
    );
    describe_counter!(PROCESSING_HELD, "Waits of parts for one org's configuration or an unreadable row.");
    describe_gauge!(PROCESSING_WAITS, "1 while work of the role waits for an outage with this tag to end.");
    describe_gauge!(DIVERTED_ORGS, "Orgs with content diverted to the dead letters.");
    describe_gauge!(MISSING_CONFIGURATIONS, "Orgs with a recently missing configuration.");
    describe_gauge!(
        CLOCK_SET_BACK,
        "Minutes by which the clock is behind the latest time that it has shown."
    );
    describe_counter!(DUE_FAULTS, "Due rows that failed for another reason than an outage and are retried.");
    describe_counter!(CALLBACKS, "Callbacks that entered a state.");
    describe_counter!(CALLBACKS_REPEATED, "Repeated records of events with an existing delivery.");
    describe_gauge!(CALLBACKS_IN_FLIGHT, "Callback attempts that are being made.");
    describe_gauge!(CALLBACKS_WAITING, "Callbacks that wait in memory for an attempt.");
    describe_gauge!(CALLBACKS_OLDEST_DUE, Unit::Seconds, "Time that the oldest due callback has waited.");
    describe_counter!(CALLBACK_ATTEMPTS, "Callback attempts, by outcome.");
    describe_histogram!(CALLBACK_ATTEMPT_SECONDS, Unit::Seconds, "Time that a callback attempt took.");
    describe_counter!(CALLBACK_FAULTS, "Callback attempts that could not be made or written down, by tag.");
    describe_counter!(FREQUENT_RULES, "Rule versions reported for matching most items of an organisation.");
    describe_counter!(RULE_OUTCOMES, "Outcomes of rules, by org, rule and outcome.");
    describe_counter!(RULE_ALARMS, "Rules that were stopped because they matched more often than expected.");
    describe_counter!(MEDIA_ITEMS_SLOW, "Items handed over to the topic items-slow, by reason.");
    describe_counter!(
        MEDIA_SLOW_REFUSED,
        "Items of items-slow refused by a full queue of their org, by bound."
    );
    describe_gauge!(MEDIA_SLOW_SEATED, "Items of items-slow with running media fetches or model calls.");
    describe_gauge!(MEDIA_SLOW_LINE, "Items of items-slow that are queued.");
    describe_gauge!(MEDIA_SLOW_BYTES, Unit::Bytes, "Size of the items of items-slow in memory.");
}

pub(crate) fn record_ended_parts(role: Role, outcome: &'static str, parts: usize) {
    counter!(PROCESSED, "role" => role.0, "outcome" => outcome).increment(parts as u64);
}

pub(crate) fn record_completion(role: Role, elapsed: Duration) {
    histogram!(PROCESSING_SECONDS, "role" => role.0).record(elapsed.as_secs_f64());
}

pub(crate) fn record_held_part(role: Role, tag: &'static str) {
    counter!(PROCESSING_HELD, "role" => role.0, "tag" => tag).increment(1);
}

pub(crate) fn set_waiting(role: Role, tag: &'static str, is_waiting: bool) {
    gauge!(PROCESSING_WAITS, "role" => role.0, "tag" => tag).set(u8::from(is_waiting));
}

pub(crate) fn set_diverted_orgs(role: Role, orgs: usize) {
    gauge!(DIVERTED_ORGS, "role" => role.0).set(as_gauge(orgs));
}

pub(crate) fn set_missing_configurations(role: Role, orgs: usize) {
    gauge!(MISSING_CONFIGURATIONS, "role" => role.0).set(as_gauge(orgs));
}

pub(crate) fn set_clock_set_back(role: Role, minutes: i64) {
    gauge!(CLOCK_SET_BACK, "role" => role.0).set(minutes as f64);
}

pub(crate) fn record_due_row_failure(role: Role, tag: &'static str) {
    counter!(DUE_FAULTS, "role" => role.0, "tag" => tag).increment(1);
}

pub(crate) fn record_callback_state(state: DeliveryState) {
    counter!(CALLBACKS, "state" => state.as_str()).increment(1);
}

pub(crate) fn record_repeated_callback() {
    counter!(CALLBACKS_REPEATED).increment(1);
}

pub(crate) fn set_callback_queues(in_flight: usize, queued: usize, oldest_due: Duration) {
    gauge!(CALLBACKS_IN_FLIGHT).set(as_gauge(in_flight));
    gauge!(CALLBACKS_WAITING).set(as_gauge(queued));
    gauge!(CALLBACKS_OLDEST_DUE).set(oldest_due.as_secs_f64());
}

pub(crate) fn record_callback_attempt(outcome: &'static str, elapsed: Duration) {
    counter!(CALLBACK_ATTEMPTS, "outcome" => outcome).increment(1);
    histogram!(CALLBACK_ATTEMPT_SECONDS).record(elapsed.as_secs_f64());
}

pub(crate) fn record_callback_failure(tag: &'static str) {
    counter!(CALLBACK_FAULTS, "tag" => tag).increment(1);
}

pub(crate) fn record_rule_outcome(org: String, rule: String, outcome: &'static str) {
    counter!(RULE_OUTCOMES, "org" => org, "rule" => rule, "outcome" => outcome).increment(1);
}

pub(crate) fn record_frequent_rule() {
    counter!(FREQUENT_RULES).increment(1);
}

pub(crate) fn record_rule_alarm() {
    counter!(RULE_ALARMS).increment(1);
}

/// Counts an item handed over to the topic `items-slow`.
pub(crate) fn record_handover(reason: &'static str) {
    counter!(MEDIA_ITEMS_SLOW, "why" => reason).increment(1);
}

pub(crate) fn record_refused_slow_item(queue_full: QueueFull) {
    let bound = match queue_full {
        QueueFull::Entries => "items",
        QueueFull::Weight => "bytes",
    };
    counter!(MEDIA_SLOW_REFUSED, "why" => bound).increment(1);
}

/// Adds the change of one queue of slow items to the gauges. The queues for media and models share them, so a plain `set`
/// would overwrite the other queue's value.
pub(crate) fn adjust_slow_queue_gauges(old: Totals, new: Totals) {
    for (name, before, after) in [
        (MEDIA_SLOW_SEATED, old.running, new.running),
        (MEDIA_SLOW_LINE, old.waiting, new.waiting),
        (MEDIA_SLOW_BYTES, old.weight, new.weight),
    ] {
        gauge!(name).increment(after as f64 - before as f64);
    }
}

fn as_gauge(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

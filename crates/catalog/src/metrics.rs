//! Metrics of the catalog: one function for each of them.

use std::time::Duration;

use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};

const QUARANTINED: &str = "tidegate_media_quarantined_total";
const LOOKUPS: &str = "tidegate_media_lookups_total";
const LOOKUPS_TRUNCATED: &str = "tidegate_media_lookups_truncated_total";
const INDEX_CHECKS: &str = "tidegate_media_index_checks_total";
const INDEX_DIFFERENCES: &str = "tidegate_media_index_differences_total";
const POLL_FAILURES: &str = "tidegate_config_poll_failures_total";
const AGE_SECONDS: &str = "tidegate_config_age_seconds";
const COMPILE_SECONDS: &str = "tidegate_config_compile_seconds";
const BANK_ENTRIES: &str = "tidegate_media_bank_entries";
const BANK_KIBIBYTES: &str = "tidegate_media_bank_kibibytes";
const RULES_OVERLOADED: &str = "tidegate_rules_overloaded";
const RELOADS: &str = "tidegate_config_reloads_total";
const FAILING_ORGS: &str = "tidegate_config_failing_orgs";

/// Registers unit and help of every metric of this crate.
pub fn describe() {
    describe_counter!(
        QUARANTINED,
        "Entries of hash banks that were switched off because they matched too much."
    );
    describe_counter!(LOOKUPS, "Look-ups of hashes in banks.");
    describe_counter!(LOOKUPS_TRUNCATED, "Look-ups that found more entries than are listed.");
    describe_counter!(INDEX_CHECKS, "Look-ups that were repeated by comparing all entries.");
    describe_counter!(INDEX_DIFFERENCES, "Repeated look-ups with another result than the index: a defect.");
    describe_counter!(POLL_FAILURES, "Failed polls for changed configurations.");
    describe_gauge!(
        AGE_SECONDS,
        Unit::Seconds,
        "Time since every stored configuration and bank ran in this process."
    );
    describe_histogram!(COMPILE_SECONDS, Unit::Seconds, "Time to load and compile a configuration.");
    describe_gauge!(BANK_ENTRIES, "Hashes in the running banks, by kind.");
    describe_gauge!(BANK_KIBIBYTES, Unit::Kibibytes, "Memory of the running hash banks, by kind.");
    describe_gauge!(RULES_OVERLOADED, "Running rules with patterns that can exhaust their step budget.");
    describe_counter!(RELOADS, "Configurations that became live in this process.");
    describe_gauge!(
        FAILING_ORGS,
        "Organisations with a newest configuration that does not run in this process."
    );
}

pub(crate) fn count_quarantined(number: usize) {
    counter!(QUARANTINED).increment(number as u64);
}

/// Adds the lookups since the last call.
pub(crate) fn count_lookups(lookups: u64, truncated: u64, checks: u64, differences: u64) {
    counter!(LOOKUPS).increment(lookups);
    counter!(LOOKUPS_TRUNCATED).increment(truncated);
    counter!(INDEX_CHECKS).increment(checks);
    counter!(INDEX_DIFFERENCES).increment(differences);
}

pub(crate) fn count_poll_failure() {
    counter!(POLL_FAILURES).increment(1);
}

pub(crate) fn set_age(age: Duration) {
    gauge!(AGE_SECONDS).set(age.as_secs_f64());
}

pub(crate) fn record_compile_time(duration: Duration) {
    histogram!(COMPILE_SECONDS).record(duration.as_secs_f64());
}

pub(crate) fn set_bank_size(kind: &'static str, entries: usize, bytes: usize) {
    gauge!(BANK_ENTRIES, "kind" => kind).set(gauge_value(entries));
    gauge!(BANK_KIBIBYTES, "kind" => kind).set(gauge_value(bytes >> 10));
}

pub(crate) fn set_overloaded_rules(number: usize) {
    gauge!(RULES_OVERLOADED).set(gauge_value(number));
}

pub(crate) fn count_reload() {
    counter!(RELOADS).increment(1);
}

pub(crate) fn set_failing_orgs(number: usize) {
    gauge!(FAILING_ORGS).set(gauge_value(number));
}

fn gauge_value(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}

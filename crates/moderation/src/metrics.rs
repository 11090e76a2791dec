//! Metrics of moderation: one function per measurement.

use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};

const MEDIA_LOOKS: &str = "tidegate_media_looks_total";
const MEDIA_JOINED: &str = "tidegate_media_joined_total";
const MEDIA_URLS: &str = "tidegate_media_urls_total";
const MEDIA_CONTENTS: &str = "tidegate_media_contents_total";
const MEDIA_FETCHES: &str = "tidegate_media_fetches_total";
const MEDIA_FETCH_SECONDS: &str = "tidegate_media_fetch_seconds";
const MEDIA_FETCHES_RUNNING: &str = "tidegate_media_fetches_running";
const MEDIA_BYTES: &str = "tidegate_media_bytes_total";
const MEDIA_DECODE_SECONDS: &str = "tidegate_media_decode_seconds";
const MEDIA_HOSTS_RESTING: &str = "tidegate_media_hosts_resting";
const MEDIA_LEFT_RUNNING: &str = "tidegate_media_left_running";
const MEDIA_LEFT_RUNNING_DROPPED: &str = "tidegate_media_left_running_dropped_total";
const JOBS_OPENED: &str = "tidegate_jobs_opened_total";
const JOBS_CLAIMED: &str = "tidegate_jobs_claimed_total";
const JOBS_AUTO_CLOSED: &str = "tidegate_jobs_auto_closed_total";
const JOBS_MOVED: &str = "tidegate_jobs_moved_total";
const JOBS_REROUTED: &str = "tidegate_jobs_rerouted_total";
const JOBS_SKIPPED: &str = "tidegate_jobs_skipped_total";
const JOBS_ROUTED: &str = "tidegate_jobs_routed_total";
const SCORE_LOOKUPS: &str = "tidegate_score_lookups_total";
const SCORE_CALLS: &str = "tidegate_score_calls_total";
const SCORE_CALL_SECONDS: &str = "tidegate_score_call_seconds";
const SCORE_BATCH_INPUTS: &str = "tidegate_score_batch_inputs";
const EVALUATIONS_LEFT_OUT: &str = "tidegate_evaluations_left_out_total";
const EVALUATIONS_UNPUBLISHED: &str = "tidegate_evaluations_unpublished_total";
const PARTIAL_ITEMS_REQUESTS: &str = "tidegate_partial_items_requests_total";
const PARTIAL_ITEMS_SECONDS: &str = "tidegate_partial_items_seconds";
const PARTIAL_ITEMS_ENTRIES: &str = "tidegate_partial_items_entries_total";
const PARTIAL_ITEMS_JOINED: &str = "tidegate_partial_items_joined_total";

/// Registers the help text of every metric of this crate.
pub fn describe() {
    describe_counter!(MEDIA_LOOKS, "Media with a completed fetch, by state.");
    describe_counter!(MEDIA_JOINED, "Fetches that joined a running fetch of the same medium.");
    describe_counter!(MEDIA_URLS, "Media answered from the URL cache, by kind of cache hit.");
    describe_counter!(MEDIA_CONTENTS, "Look-ups of fingerprints by content, by place of the result.");
    describe_counter!(MEDIA_FETCHES, "HTTP requests for media, by outcome and reason.");
    describe_histogram!(MEDIA_FETCH_SECONDS, Unit::Seconds, "Duration of an HTTP request for a medium.");
    describe_gauge!(MEDIA_FETCHES_RUNNING, "HTTP requests for media in progress.");
    describe_counter!(MEDIA_BYTES, Unit::Bytes, "Bytes of media received.");
    describe_histogram!(
        MEDIA_DECODE_SECONDS,
        Unit::Seconds,
        "Time to decode and hash a medium, including the wait for a decoder."
    );
    describe_gauge!(MEDIA_HOSTS_RESTING, "Hosts that are not called because of repeated failures.");
    describe_gauge!(MEDIA_LEFT_RUNNING, "Fetches that continue without a waiting item.");
    describe_counter!(
        MEDIA_LEFT_RUNNING_DROPPED,
        "Fetches that were dropped because too many continue without a waiting item."
    );
    describe_counter!(JOBS_MOVED, "Review jobs that moderators moved to another queue, by class.");
    describe_counter!(
        JOBS_REROUTED,
        "Waiting review jobs that the routing list for reports moved to another queue."
    );
    describe_counter!(JOBS_SKIPPED, "Claims of review jobs that reviewers skipped.");
    describe_counter!(JOBS_OPENED, "Review jobs that were opened, by class.");
    describe_counter!(JOBS_CLAIMED, "Jobs assigned by claim-next, by reason of the choice.");
    describe_counter!(
        JOBS_AUTO_CLOSED,
        "Review jobs closed without a decision at the maximum age of their queue."
    );
    describe_counter!(JOBS_ROUTED, "Queues chosen by routing lists, by list and by kind of match.");
    describe_counter!(SCORE_LOOKUPS, "Scores requested by rules, by place of the result.");
    describe_counter!(SCORE_CALLS, "Calls to models, by outcome; `resting` ones were not sent.");
    describe_histogram!(SCORE_CALL_SECONDS, Unit::Seconds, "Duration of a call to a model.");
    describe_histogram!(SCORE_BATCH_INPUTS, Unit::Count, "Inputs per call to a model that accepts batches.");
    describe_counter!(
        EVALUATIONS_LEFT_OUT,
        "Evaluations with omissions, by kind; `cpu_time` ended with rules in `deadline`."
    );
    describe_counter!(EVALUATIONS_UNPUBLISHED, "Evaluations that were too large for the evaluations topic.");
    describe_counter!(PARTIAL_ITEMS_REQUESTS, "Requests for items to platforms, by outcome.");
    describe_histogram!(
        PARTIAL_ITEMS_SECONDS,
        Unit::Seconds,
        "Duration of a request for items to a platform."
    );
    describe_counter!(
        PARTIAL_ITEMS_ENTRIES,
        "Requested items and entries in the answers of platforms, by outcome."
    );
    describe_counter!(PARTIAL_ITEMS_JOINED, "Requests for items that joined an equal running request.");
}

pub(crate) fn job_opened(class: &'static str) {
    counter!(JOBS_OPENED, "class" => class).increment(1);
}

pub(crate) fn job_moved(class: &'static str) {
    counter!(JOBS_MOVED, "class" => class).increment(1);
}

pub(crate) fn job_rerouted() {
    counter!(JOBS_REROUTED).increment(1);
}

pub(crate) fn job_skipped() {
    counter!(JOBS_SKIPPED).increment(1);
}

/// `reason` is `overdue`, `priority` or `skipped`.
pub(crate) fn job_claimed(reason: &'static str) {
    counter!(JOBS_CLAIMED, "reason" => reason).increment(1);
}

pub(crate) fn job_auto_closed() {
    counter!(JOBS_AUTO_CLOSED).increment(1);
}

/// `chosen_by` is `entry` or `default`.
pub(crate) fn job_routed(list: &'static str, chosen_by: &'static str) {
    counter!(JOBS_ROUTED, "list" => list, "chosen_by" => chosen_by).increment(1);
}

pub(crate) fn media_inspection_ended(state: &'static str) {
    counter!(MEDIA_LOOKS, "state" => state).increment(1);
}

pub(crate) fn media_inspection_joined() {
    counter!(MEDIA_JOINED).increment(1);
}

/// `found` is `fresh` or `unchanged`.
pub(crate) fn media_url_cached(found: &'static str) {
    counter!(MEDIA_URLS, "found" => found).increment(1);
}

/// `found` is `memory`, `store` or `miss`.
pub(crate) fn fingerprint_lookup(found: &'static str) {
    counter!(MEDIA_CONTENTS, "found" => found).increment(1);
}

pub(crate) fn media_request_ended(outcome: &'static str, reason: &'static str, seconds: f64) {
    counter!(MEDIA_FETCHES, "outcome" => outcome, "reason" => reason).increment(1);
    histogram!(MEDIA_FETCH_SECONDS).record(seconds);
}

pub(crate) fn media_requests_running(number: usize) {
    gauge!(MEDIA_FETCHES_RUNNING).set(gauge_value(number));
}

pub(crate) fn media_received(bytes: u64) {
    counter!(MEDIA_BYTES).increment(bytes);
}

pub(crate) fn media_decoded(seconds: f64) {
    histogram!(MEDIA_DECODE_SECONDS).record(seconds);
}

pub(crate) fn media_hosts_resting(number: usize) {
    gauge!(MEDIA_HOSTS_RESTING).set(gauge_value(number));
}

pub(crate) fn background_fetches(number: usize) {
    gauge!(MEDIA_LEFT_RUNNING).set(gauge_value(number));
}

pub(crate) fn background_fetch_dropped() {
    counter!(MEDIA_LEFT_RUNNING_DROPPED).increment(1);
}

/// `found` is `store`, `joined` or `miss`.
pub(crate) fn score_lookup(found: &'static str) {
    counter!(SCORE_LOOKUPS, "found" => found).increment(1);
}

pub(crate) fn score_call_ended(outcome: &'static str, seconds: f64) {
    counter!(SCORE_CALLS, "outcome" => outcome).increment(1);
    if outcome != "resting" {
        histogram!(SCORE_CALL_SECONDS).record(seconds);
    }
}

pub(crate) fn score_batch(inputs: usize) {
    histogram!(SCORE_BATCH_INPUTS).record(gauge_value(inputs));
}

/// `part` is `matched`, `errored`, `uncounted`, `truncated` or `cpu_time`.
pub(crate) fn evaluation_left_out(part: &'static str) {
    counter!(EVALUATIONS_LEFT_OUT, "what" => part).increment(1);
}

pub(crate) fn evaluation_unpublished() {
    counter!(EVALUATIONS_UNPUBLISHED).increment(1);
}

/// `outcome` is `ok`, `endpoint_response`, `invalid_response` or `endpoint_unreachable`.
pub(crate) fn partial_items_asked(outcome: &'static str, seconds: f64) {
    counter!(PARTIAL_ITEMS_REQUESTS, "outcome" => outcome).increment(1);
    histogram!(PARTIAL_ITEMS_SECONDS).record(seconds);
}

/// `outcome` is `found`, `missing`, `dropped` or `invalid`.
pub(crate) fn partial_items_entries(outcome: &'static str, number: usize) {
    counter!(PARTIAL_ITEMS_ENTRIES, "what" => outcome).increment(number as u64);
}

pub(crate) fn partial_items_joined() {
    counter!(PARTIAL_ITEMS_JOINED).increment(1);
}

fn gauge_value(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

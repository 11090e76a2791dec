//! Metrics of hashing. Those of decoders are in `tidegate-image-decode`.

use metrics::{counter, describe_counter};

use crate::fingerprint::State;

const FINGERPRINTS: &str = "tidegate_media_fingerprints_total";
const LOST_RESULTS: &str = "tidegate_media_lost_results_total";

/// Describes every metric of this crate to the recorder.
pub fn describe() {
    describe_counter!(FINGERPRINTS, "Files hashed, by final state.");
    describe_counter!(LOST_RESULTS, "Fingerprints lost because their receiver panicked.");
}

pub(crate) fn count_fingerprint(state: State) {
    counter!(FINGERPRINTS, "state" => state.as_str()).increment(1);
}

pub(crate) fn count_lost_result() {
    counter!(LOST_RESULTS).increment(1);
}

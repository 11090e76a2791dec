//! Metrics of decoding and hashing.

use metrics::{counter, describe_counter};

use crate::fingerprint::{Format, State};

const FINGERPRINTS: &str = "tidegate_media_fingerprints_total";
const LOST_RESULTS: &str = "tidegate_media_lost_results_total";
const DECODER_PANICS: &str = "tidegate_media_decoder_panics_total";
const SECOND_DECODER: &str = "tidegate_media_second_decoder_total";

/// Describes every metric of this crate to the recorder.
pub fn describe() {
    describe_counter!(FINGERPRINTS, "Files hashed, by final state.");
    describe_counter!(LOST_RESULTS, "Fingerprints lost because their receiver panicked.");
    describe_counter!(DECODER_PANICS, "Decoder panics, by format. A panic affects one file only.");
    describe_counter!(
        SECOND_DECODER,
        "Files passed to the second decoder after the first one failed, by format and outcome."
    );
}

pub(crate) fn count_fingerprint(state: State) {
    counter!(FINGERPRINTS, "state" => state.as_str()).increment(1);
}

pub(crate) fn count_lost_result() {
    counter!(LOST_RESULTS).increment(1);
}

pub(crate) fn count_decoder_panic(format: Format) {
    counter!(DECODER_PANICS, "format" => format.as_str()).increment(1);
}

pub(crate) fn count_second_decoder(format: Format, is_decoded: bool) {
    let outcome = if is_decoded { "decoded" } else { "refused" };
    counter!(SECOND_DECODER, "format" => format.as_str(), "outcome" => outcome).increment(1);
}

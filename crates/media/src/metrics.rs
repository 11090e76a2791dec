//! Metrics of decoding and hashing.

use metrics::{counter, describe_counter};

use crate::fingerprint::{Format, State};

const FINGERPRINTS: &str = "tidegate_media_fingerprints_total";
const LOST_RESULTS: &str = "tidegate_media_lost_results_total";
const DECODER_PANICS: &str = "tidegate_media_decoder_panics_total";
const SECOND_DECODER: &str = "tidegate_media_second_decoder_total";

/// Describes every metric of this crate to the recorder.
pub fn describe() {
    describe_counter!(FINGERPRINTS, "Files that were hashed, by the state that they ended in.");
    describe_counter!(LOST_RESULTS, "Fingerprints that were lost because passing them on panicked.");
    describe_counter!(DECODER_PANICS, "Panics of decoders, by format. Each costs only its file.");
    describe_counter!(
        SECOND_DECODER,
        "Files that the first decoder could not read, by format and whether the second one could."
    );
}

pub(crate) fn fingerprint_made(state: State) {
    counter!(FINGERPRINTS, "state" => state.as_str()).increment(1);
}

pub(crate) fn result_lost() {
    counter!(LOST_RESULTS).increment(1);
}

pub(crate) fn decoder_panicked(format: Format) {
    counter!(DECODER_PANICS, "format" => format.as_str()).increment(1);
}

pub(crate) fn second_decoder_ran(format: Format, is_decoded: bool) {
    let outcome = if is_decoded { "decoded" } else { "refused" };
    counter!(SECOND_DECODER, "format" => format.as_str(), "outcome" => outcome).increment(1);
}

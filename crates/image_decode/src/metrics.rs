//! Metrics of decoding.

use metrics::{counter, describe_counter};

use crate::Format;

const DECODER_PANICS: &str = "tidegate_media_decoder_panics_total";
const SECOND_DECODER: &str = "tidegate_media_second_decoder_total";

/// Describes every metric of this crate to the recorder.
pub fn describe() {
    describe_counter!(DECODER_PANICS, "Decoder panics, by format. A panic affects one file only.");
    describe_counter!(
        SECOND_DECODER,
        "Files passed to the second decoder after the first one failed, by format and outcome."
    );
}

pub(crate) fn count_decoder_panic(format: Format) {
    counter!(DECODER_PANICS, "format" => format.as_str()).increment(1);
}

pub(crate) fn count_second_decoder(format: Format, is_decoded: bool) {
    let outcome = if is_decoded { "decoded" } else { "refused" };
    counter!(SECOND_DECODER, "format" => format.as_str(), "outcome" => outcome).increment(1);
}

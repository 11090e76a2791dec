//! The hashes of media contents, so that bytes that come again need not be decoded again.
//!
//! It knows neither who sent them nor what they match: equal bytes have equal hashes, whoever asks.

use crate::table;

table! {
    /// Hashes of the bytes with this SHA-256.
    Fact MediaPrint in "media_prints" ttl Some(30 days);
    partition { sha256: String }
    cluster {}
    values { print: String }
}

//! Cache of the hashes of media, so that known bytes need not be decoded again.
//!
//! Rows name no organisation, because equal bytes have equal hashes for all of them.

use crate::table;

table! {
    /// Hashes of the bytes with this SHA-256.
    Fact MediaPrint in "media_prints" ttl Some(30 days);
    partition { sha256: String }
    cluster {}
    values { print: String }
}

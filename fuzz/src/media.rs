//! What must hold for every file that a host may send: no panic, a state that says what it is, hashes only of pictures.
//!
//! How much memory it may take is held by the tests of the crate, which count what is allocated.
#![allow(clippy::unwrap_used, reason = "a panic is a finding")]

use std::sync::OnceLock;

use tidegate_image_decode::Reason;
use tidegate_media::{Decoders, Digests, Limits, State};

/// Small, so that what is refused for its size is met often.
fn decoders() -> &'static Decoders {
    static DECODERS: OnceLock<Decoders> = OnceLock::new();
    DECODERS.get_or_init(|| {
        let limits = Limits {
            threads: 1,
            pixels: 250_000,
            animation_pixels: 1_000_000,
            decode_bytes: 24 << 20,
            ..Limits::default()
        };
        Decoders::new(limits).unwrap()
    })
}

/// A file.
pub fn file(bytes: &[u8]) {
    let print = decoders().fingerprint(bytes, Digests::of(bytes));
    let is_seen = matches!(print.state, State::Ok | State::LowQuality);
    assert_eq!(print.frames.is_empty(), !is_seen, "{:?}", print.state);
    assert_eq!(print.gradient8.is_some(), is_seen);
    let has_reason = matches!(print.state, State::TooLarge | State::Undecodable);
    assert_eq!(print.reason.is_some(), has_reason, "{:?}", print.state);
    // A decoder's own fault is caught where it is served; here it is a finding.
    assert_ne!(print.reason, Some(Reason::DecoderFault), "a decoder panics");
    assert!(u64::from(print.width) * u64::from(print.height) <= 250_000 || !is_seen, "larger than allowed");
    assert_eq!(print, decoders().fingerprint(bytes, Digests::of(bytes)), "the same twice");
}

//! Fingerprints of files under given limits.

#![allow(dead_code, clippy::unwrap_used)]

use tidegate_media::{Decoders, Digests, Fingerprint, Limits};

pub(crate) fn decoders(limits: &Limits) -> Decoders {
    Decoders::new(Limits { threads: 1, ..limits.clone() }).unwrap()
}

pub(crate) fn print(bytes: &[u8]) -> Fingerprint {
    print_within(&Limits::default(), bytes)
}

pub(crate) fn print_within(limits: &Limits, bytes: &[u8]) -> Fingerprint {
    decoders(limits).fingerprint(bytes, Digests::of(bytes))
}

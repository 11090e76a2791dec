//! Turns bytes into hashes, and hashes into matches with banks.
//!
//! It fetches nothing and stores nothing.

pub mod fingerprint;
pub mod hashes;
mod limits;

pub use self::{
    fingerprint::{Fingerprint, Format, Frame, PIPELINE, State},
    hashes::{
        digests::{Digesting, Digests},
        pdq::{PdqHash, Turn},
    },
    limits::{Limits, LimitsError},
};

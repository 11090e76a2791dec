//! Turns bytes into hashes, and hashes into matches with banks.
//!
//! It fetches nothing and stores nothing.

pub mod banks;
mod compare;
mod decode;
mod decoders;
pub mod fingerprint;
pub mod hashes;
mod index;
mod limits;

pub use self::{
    compare::{Comparison, PdqDistance},
    decode::Gray,
    decoders::{Decoders, DecodersError, Done},
    fingerprint::{Fingerprint, Format, Frame, PIPELINE, State},
    hashes::{
        digests::{Digesting, Digests},
        pdq::{PdqHash, Turn},
    },
    limits::{Limits, LimitsError},
};

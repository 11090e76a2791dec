//! Computes hashes of media files and matches them against hash banks.

pub mod banks;
mod compare;
mod decode;
mod decoders;
pub mod fingerprint;
pub mod hashes;
mod index;
mod limits;
pub mod metrics;

pub use self::{
    compare::{Comparison, PdqDistance},
    decode::LumaImage,
    decoders::{Decoders, DecodersError, FingerprintReceiver},
    fingerprint::{Fingerprint, Format, Frame, PIPELINE, State},
    hashes::{
        digests::{DigestHasher, Digests},
        pdq::{Orientation, PdqHash},
    },
    limits::{Limits, LimitsError},
};

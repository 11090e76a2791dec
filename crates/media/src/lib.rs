//! Computes hashes of media files and matches them against hash banks. Pictures are decoded by `tidegate-image-decode`.

pub mod banks;
mod compare;
mod decoders;
pub mod fingerprint;
pub mod hashes;
mod index;
mod limits;
pub mod metrics;

pub use self::{
    compare::{Comparison, PdqDistance},
    decoders::{Decoders, DecodersError, FingerprintReceiver},
    fingerprint::{Fingerprint, Frame, PIPELINE, State},
    hashes::{
        digests::{DigestHasher, Digests},
        pdq::{Orientation, PdqHash},
    },
    limits::{Limits, LimitsError},
};

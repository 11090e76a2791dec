//! The kinds of hashes, each computed from bytes or from luma.

pub mod digests;
pub mod pdq;
pub mod perceptual;

//! The kinds of hashes, each from bytes or from luma.
//!
//! Nothing here decodes a picture.

pub mod digests;
pub mod hex;
pub mod pdq;
pub mod perceptual;

//! Hash algorithms: digests of bytes, and perceptual hashes of luma.

pub mod digests;
pub mod pdq;
pub mod perceptual;

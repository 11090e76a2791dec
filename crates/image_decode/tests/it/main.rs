//! Decoding of whole files through the crate's interface. Tests of `tidegate-media` hash the pictures of all formats.

mod lossless;
mod support;

//! The bodies of the fuzz targets, by the part of the service that reads the bytes.
//!
//! It makes up nothing: the bytes come from a fuzzer. Tests of those parts run the same bodies from seeds.

pub mod banks;
pub mod media;
pub mod rules;

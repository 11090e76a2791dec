//! Decoding and hashing of whole files. `tests/memory.rs` counts allocations, so it runs in a separate process.

mod animations;
mod beside;
mod formats;
mod fuzzed;
mod pdq;
mod perceptual;
mod png_chunks;
mod support;

//! Data bundles, in and out.
//!
//! It reads the store and nothing else of the running service. Nothing is here yet.

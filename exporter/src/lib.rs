//! Data bundles, in and out.
//!
//! It knows nothing of the running service; what it reads are files.

pub mod coverage;
pub mod form;
pub mod schema;

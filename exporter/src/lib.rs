//! Data bundles, in and out.
//!
//! It knows nothing of the running service; what it reads are files.

pub mod aoi;
pub mod convert;
pub mod coverage;
pub mod diff;
pub mod digest;
pub mod export;
pub mod fault;
pub mod form;
mod hash;
mod input;
pub mod inspect;
mod json;
pub mod meter;
mod model;
pub mod moment;
mod pocket_polis;
pub mod polis;
pub mod privacy;
mod rows;
pub mod schema;
mod sensemaking;
pub mod spill;
mod tally;
pub mod unfit;
pub mod unpack;
pub mod validate;
pub mod words;
mod write;

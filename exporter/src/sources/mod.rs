//! Adapters: one for each tool whose exports can be converted.

pub mod aoi;
pub(crate) mod pocket_polis;
pub mod polis;
pub(crate) mod sensemaking;

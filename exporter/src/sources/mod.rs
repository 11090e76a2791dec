//! Adapters for the exports of supported tools, one module per tool.

pub mod aoi;
pub(crate) mod pocket_polis;
pub mod polis;
pub(crate) mod sensemaking;

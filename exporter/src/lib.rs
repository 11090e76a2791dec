//! Converts exports of deliberation tools to data bundles, checks bundles, and turns them into tables.
//!
//! A library of the command line. It works on files alone and needs no running service.

pub mod bundle;
pub mod convert;
pub mod error;
pub mod form;
mod input;
mod json;
pub mod meter;
mod model;
pub mod plural;
pub mod privacy;
pub mod report_page;
pub mod sources;
pub mod storage;
pub mod tables;
mod tally;
pub mod timestamp;
pub mod unpack;

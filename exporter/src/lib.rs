//! Converts exports of deliberation tools to data bundles, checks bundles, and turns them into tables. Writes the service's
//! own history as tables.
//!
//! `deliberation` makes bundles of the service's own moderation. A library of the command line: it works on files and
//! lines, and needs no running service.
//! A library of the command line, which works on files alone. `schedule` exports the service's own history regularly.

pub mod bundle;
pub mod convert;
pub mod deliberation;
pub mod destination;
pub mod error;
pub mod flat;
pub mod form;
mod input;
mod json;
pub mod meter;
mod model;
pub mod plural;
pub mod privacy;
pub mod report_page;
pub mod schedule;
pub mod sources;
pub mod storage;
pub mod tables;
mod tally;
pub mod timestamp;
pub mod unpack;

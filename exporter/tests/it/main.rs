//! Integration tests of conversions, tables and validation, in one binary.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

mod archives;
mod cells;
mod cut;
mod deliberation;
mod destination;
mod exports;
mod flat;
mod formats;
mod hostile;
mod inputs;
mod polis;
mod privacy;
mod report_page;
mod schedule;
mod schema;
mod shared;
mod stopped;
mod streams;
mod support;
mod tables;
mod together;
mod validate;

//! Integration tests of the crate, one binary.

mod appeals;
mod auto_close;
mod batch;
mod claims;
mod jobs;
mod media;
mod replays;
mod rule_gates;
mod scores;
mod support;

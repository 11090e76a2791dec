//! Reports, appeals, their jobs and what was decided.

pub mod appeals;
pub mod decisions;
pub mod jobs;
pub mod reports;

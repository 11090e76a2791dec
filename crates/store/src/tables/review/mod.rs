//! Reports, appeals, review jobs and decisions.

pub mod appeals;
pub mod comments;
pub mod context_media;
pub mod decisions;
pub mod jobs;
pub mod partial_requests;
pub mod queue_counts;
pub mod reports;

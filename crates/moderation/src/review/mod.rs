//! Human review: queues, decisions, and the reports and appeals that open jobs.

pub mod appeals;
pub mod comments;
mod decision_events;
pub mod decisions;
pub mod escalation;
pub mod job_view;
pub mod queues;
pub mod reports;
mod thread;

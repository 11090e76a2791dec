//! Human review: queues, decisions, and the reports and appeals that open jobs.

pub mod appeals;
pub mod auto_close;
pub mod comments;
mod decision_events;
pub mod decisions;
pub mod escalation;
pub mod job_list;
pub mod job_search;
pub mod job_view;
pub mod moves;
pub mod queues;
pub mod report_routing;
pub mod reports;
pub mod rerouting;
mod sent_item;
pub mod skips;
mod thread;
pub mod withheld;

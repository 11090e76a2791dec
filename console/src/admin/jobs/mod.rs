//! Review of jobs: lists and shows them, and carries out the work of reviewers. Queues are listed here as well.

mod authorization;
pub(crate) mod claims;
mod decision_body;
pub(crate) mod decisions;
pub(crate) mod job_list;
pub(crate) mod moves;
pub(crate) mod notes;
pub(crate) mod queues;
mod refusals;
mod reviewers;
pub(crate) mod views;

//! Fault tests: acknowledged requests have their effects exactly once although processes are killed.
//!
//! The tests of the oracle and of the schedule of kills run with all others; the long ones are ignored by name and
//! run by `tests/faults/run`. See `README.md` beside this file.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod cluster;
mod documents;
mod embedded;
mod endpoints;
mod fetched;
mod installation;
mod killer;
mod limits;
mod load;
mod load_requests;
mod observe;
mod oracle;
mod outcomes;
mod own_actions;
mod pictures;
mod platform;
mod receiver;
mod retroact;
mod rules_change;
mod seeded;
mod trace;

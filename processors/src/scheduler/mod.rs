//! Scheduled work: the scanner of due rows, the due rows of decisions and requests for items, and the orgs' turns to
//! close old jobs.

pub(crate) mod auto_close_turns;
pub(crate) mod decision_due;
pub(crate) mod due_index;
pub(crate) mod due_scanner;
pub(crate) mod partial_due;
pub(crate) mod stored_due;

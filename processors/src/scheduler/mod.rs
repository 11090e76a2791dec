//! Work that is due at a time: the scanner of due rows, the due rows of decisions and of requests for items, and the turns of
//! orgs at closing old jobs.

pub(crate) mod auto_close_turns;
pub(crate) mod decision_due;
pub(crate) mod due_index;
pub(crate) mod due_scanner;
pub(crate) mod partial_due;
pub(crate) mod stored_due;

//! Work that is due at a time: the scanner of due rows, and the due rows of decisions and of requests for items.

pub(crate) mod decision_due;
pub(crate) mod due_index;
pub(crate) mod due_scanner;
pub(crate) mod partial_due;
pub(crate) mod stored_due;

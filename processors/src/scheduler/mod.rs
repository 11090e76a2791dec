//! Work that is due at a time: the scanner of due rows, and the decisions whose time to undo is over.

pub(crate) mod decision_due;
pub(crate) mod due_scanner;

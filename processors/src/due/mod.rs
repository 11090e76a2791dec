//! Due rows: pointers to work with a time. The scanner reads the rows of decisions, requests for items and callbacks, and
//! computes the orgs' turns to close old jobs.

pub(crate) mod auto_close;
pub(crate) mod decisions;
pub(crate) mod index;
pub(crate) mod partial_items;
pub(crate) mod scanner;
pub(crate) mod stored_rows;

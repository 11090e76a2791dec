//! Asks platforms for items: those that reports and appeals name and nobody submitted, and newer data of items in review.
//!
//! A request is a row that waits for its turn (`requests`), so that nothing waits for a platform and a crash loses none.
//! The role `process` works the rows off (`fetcher`). What comes back is appended to the topic `items`.

pub mod claims;
mod expiry;
pub mod fetcher;
mod related;
pub mod requests;
pub mod views;

pub(crate) use related::{ask_for_appeal, ask_for_report, named_items};

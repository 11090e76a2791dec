//! Requests items from platforms: items named in reports and appeals but never submitted, and newer data of items in
//! review.
//!
//! A request is a stored row (`requests`), so a slow platform blocks no other work and a crash loses no request. The
//! role `process` executes the rows (`fetcher`) and appends the received items to the topic `items`.

pub mod claims;
mod expiry;
pub mod fetcher;
mod related;
pub mod requests;
pub mod views;

pub(crate) use related::{ask_for_appeal, ask_for_report, named_items};

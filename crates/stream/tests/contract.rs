//! What every engine of the log promises: the same tests for each.
//!
//! It does not reach inside: what only the inside shows is tested there.

#![allow(clippy::unwrap_used)]

#[path = "contract/fixture.rs"]
mod fixture;
#[path = "contract/hand.rs"]
mod hand;

#[path = "contract/appending.rs"]
mod appending;
#[path = "contract/consuming.rs"]
mod consuming;

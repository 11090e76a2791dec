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
#[path = "contract/budget.rs"]
mod budget;
#[path = "contract/consuming.rs"]
mod consuming;
#[path = "contract/crash.rs"]
mod crash;
#[path = "contract/dead_letters.rs"]
mod dead_letters;
#[path = "contract/embedded.rs"]
mod embedded;
#[path = "contract/ending.rs"]
mod ending;
#[path = "contract/opening.rs"]
mod opening;
#[path = "contract/replay.rs"]
mod replay;
#[path = "contract/tail.rs"]
mod tail;

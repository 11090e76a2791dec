//! Consumer of a group on either engine: its driver, the records that it hands out, and the tickets that return to it.

pub(crate) mod assignments;
pub(crate) mod budget;
pub(crate) mod drain;
pub(crate) mod driver;
pub(crate) mod engine;
pub mod inbox;
pub(crate) mod ledger;
pub(crate) mod threads;
pub mod ticket;

#[cfg(test)]
mod driver_tests;

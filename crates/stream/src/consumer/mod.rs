//! One consumer of a group on either engine: the driver, what it hands out, and what it must hear back.

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

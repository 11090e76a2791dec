//! Configuration of organisations, and the credentials that speak for them.

pub mod audit;
pub mod banks;
pub mod configs;
pub mod keys;
pub mod members;
pub mod orgs;
pub mod secrets;
pub mod sessions;

//! What an organisation configured, and who may speak for it.

pub mod banks;
pub mod configs;
pub mod keys;
pub mod members;
pub mod orgs;
pub mod secrets;

//! What an organisation configured, and who may speak for it.

pub mod keys;

//! Operation of the service: callbacks under delivery, and records that could not be processed.

pub(crate) mod dead_letters;
pub(crate) mod deliveries;
mod delivery_rows;

//! Callbacks until they are settled.

pub mod deliveries;
pub mod due;

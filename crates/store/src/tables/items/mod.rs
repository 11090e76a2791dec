//! What the platform sent and what it led to.

pub mod items;
pub mod plans;
pub mod strikes;

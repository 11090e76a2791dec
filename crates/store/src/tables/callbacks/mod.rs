//! Tables of callback deliveries.

pub mod deliveries;
pub mod due;

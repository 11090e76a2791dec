//! Fair scheduler for media fetches: limits concurrency globally, per org and per host.

mod gate;
mod shares;
mod turns;

pub use self::shares::{Shares, Taken};
pub(super) use self::{
    gate::{Gate, Inside},
    turns::Bounds,
};

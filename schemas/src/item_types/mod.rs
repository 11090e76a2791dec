//! Item types, compiled: which fields an item's `data` may hold, and what the values mean to a rule.
//!
//! It does not read documents (see `documents::item_type`) and knows nothing of requests around the data.

mod check;
mod coerce;
pub mod datetime;
mod fields;
pub mod geohash;
mod kinds;
mod output;
mod roles;
mod values;

pub use check::Mode;
pub use fields::{Field, ItemType};
pub(crate) use fields::{IMAGES, Shape};
pub use kinds::{Container, Kind, Scalar};
pub use roles::Role;
pub use values::{Media, Number, Value, Values};

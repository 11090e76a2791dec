//! Compiled item types: fields of an item's `data`, their validation, and typed values for rules. Documents of item
//! types are read in `documents::item_type`.

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

//! Tables and their operations, on ScyllaDB or Cassandra, or embedded in one fjall database.
//!
//! It does not know what rows mean to moderation; it decides how they are declared, written once, read and expired.
//!
//! A table is declared with [`table!`], one file a table under `tables/`. It is either of facts, put whole with a
//! write time ([`Fact`]), or of versioned rows, written under a condition only ([`Versioned`]).

mod batch;
mod cell;
mod columns;
pub mod cql;
pub mod embedded;
mod error;
pub mod metrics;
mod migration;
mod pages;
mod range;
mod split;
mod store;
mod table;
pub mod tables;
mod time;

#[doc(hidden)]
pub use self::table::take;
pub use self::{
    batch::Batch,
    cell::{Cell, Column, KeyColumn, Kind, Mismatch},
    error::{Corrupt, Error},
    migration::{Difference, Migration},
    pages::Pages,
    range::{At, Before, Cells, Cursor, PrefixOf},
    split::Split,
    store::Store,
    table::{ColumnDef, Fact, Inserted, Mode, Order, Replaced, Row, Table, Version, Versioned},
    time::{Clock, WriteTime, system_clock},
};

//! Tables and their operations, on ScyllaDB or Cassandra, or embedded in one fjall database.
//!
//! A table is declared with [`table!`], one file a table under `tables/`. It holds either facts, written whole with a write
//! time ([`Fact`]), or versioned rows, written only under a condition ([`Versioned`]). The meaning of the rows lives in
//! `tidegate-moderation` and `tidegate-catalog`.

mod batch;
mod cell;
mod columns;
pub mod cql;
pub mod embedded;
mod error;
pub mod metrics;
mod migration;
mod open_enum;
mod pages;
mod partition_cursor;
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
    error::{CorruptCell, Error},
    migration::{Difference, Migration},
    open_enum::OpenEnum,
    pages::Pages,
    partition_cursor::{CursorPartition, DayCursor, PartitionCursor},
    range::{Cells, Cursor, PrefixOf, ProperPrefixOf, RowRange},
    split::Split,
    store::Store,
    table::{ColumnDef, Fact, InsertOutcome, Mode, Order, ReplaceOutcome, Row, Table, Version, Versioned},
    time::{Clock, WriteTime, system_clock},
};

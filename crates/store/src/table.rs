//! Tables, the traits of their rows, and the `table!` macro that declares both.
//!
//! Engines derive their table definitions, statements and key bytes from a [`Table`].

use std::{fmt::Debug, time::Duration};

use crate::{Cell, Column, CorruptCell, Kind, range::Cells};

/// Way in which the rows of a table are written. Facts and versioned rows never share a table: a row put with a client's
/// write time could hide a later conditional write, which has the server's write time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Put whole with a write time; the latest write time wins.
    Fact,
    /// Written only if the row is absent, or at an expected version.
    Versioned,
    /// The key and some columns of a table that is declared elsewhere under the same name. Read only.
    View,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Asc,
    Desc,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnDef {
    pub name: &'static str,
    pub kind: Kind,
    pub nullable: bool,
    /// Order of a clustering column; the other columns are ascending.
    pub order: Order,
}

/// Declared table. Columns stand in the order partition, cluster, values; a versioned table's last is `version`.
#[derive(Debug, PartialEq, Eq)]
pub struct Table {
    pub name: &'static str,
    /// Name of the row's type. It distinguishes a table from its views.
    pub row: &'static str,
    pub mode: Mode,
    pub ttl: Option<Duration>,
    /// Length of the compaction windows, for rows that are only added and expire together.
    pub time_window: Option<Duration>,
    pub columns: &'static [ColumnDef],
    /// Number of `columns` that form the partition key.
    pub partition: usize,
    /// Number of `columns` that follow as clustering columns.
    pub cluster: usize,
}

impl Table {
    pub fn key_columns(&self) -> &'static [ColumnDef] {
        &self.columns[..self.partition + self.cluster]
    }

    pub fn partition_columns(&self) -> &'static [ColumnDef] {
        &self.columns[..self.partition]
    }

    pub fn cluster_columns(&self) -> &'static [ColumnDef] {
        &self.columns[self.partition..self.partition + self.cluster]
    }

    pub fn value_columns(&self) -> &'static [ColumnDef] {
        &self.columns[self.partition + self.cluster..]
    }

    pub(crate) fn ttl_millis(&self) -> Option<i64> {
        self.ttl.map(|ttl| i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX))
    }
}

/// A row of a declared table.
pub trait Row: Clone + Debug + Send + Sync + 'static {
    /// A tuple of the partition's columns.
    type Partition: Cells;
    /// A tuple of the clustering columns; `()` where there are none.
    type Cluster: Cells;
    /// A tuple of all key columns, so that a partial key does not compile.
    type Key: Cells;

    const TABLE: &'static Table;

    /// All cells, in the order of `TABLE.columns`.
    fn cells<'a>(&'a self, out: &mut Vec<Cell<'a>>);
    fn from_cells(cells: Vec<Cell<'_>>) -> Result<Self, CorruptCell>;
    fn to_key(&self) -> Self::Key;
    fn to_partition(&self) -> Self::Partition;
    fn to_cluster(&self) -> Self::Cluster;
}

/// Rows that are put whole, with the write time of their cause. Two different rows of one key need different write times:
/// at equal ones the replicas choose the same winner, but the caller cannot choose it.
pub trait Fact: Row {}

/// Counts the writes of one row: 1 when inserted, one more with each replacement.
pub type Version = i64;

/// Rows that are written only under a condition. The store counts the versions and ignores the `version` of a row that is
/// passed in.
pub trait Versioned: Row {
    fn version(&self) -> Version;
}

/// Result of [`crate::Store::insert_new`].
#[derive(Clone, Debug, PartialEq)]
pub enum InsertOutcome<R> {
    New,
    Existing(R),
}

/// Result of [`crate::Store::replace`].
#[derive(Clone, Debug, PartialEq)]
pub enum ReplaceOutcome<R> {
    Done,
    /// The row is at another version. Holds the stored row.
    Conflict(R),
    /// The row does not exist, or no longer exists.
    Missing,
}

impl<R> InsertOutcome<R> {
    pub fn is_new(&self) -> bool {
        matches!(self, Self::New)
    }
}

impl<R> ReplaceOutcome<R> {
    pub fn is_done(&self) -> bool {
        matches!(self, Self::Done)
    }
}

/// Decodes the next cell as the named column, for the macro.
#[doc(hidden)]
pub fn take<'a, C: Column>(
    cells: &mut std::vec::IntoIter<Cell<'a>>,
    table: &'static Table,
    column: &'static str,
) -> Result<C, CorruptCell> {
    // Engines pass one cell a column. A missing one is read as null, so a required column reports a corrupt row.
    let cell = cells.next().unwrap_or(Cell::Null);
    C::from_cell(cell).map_err(|mismatch| CorruptCell { table: table.name, column, reason: mismatch.0 })
}

/// Declares a table and its row.
///
/// ```
/// use tidegate_schemas::ids::{ActionId, CauseId, ItemKey, Millis, OrgId};
/// tidegate_store::table! { /// A strike; the sum inside the expiry is the user's standing.
///     Fact Strike in "strikes" ttl Some(365 days);
///     partition { org: OrgId, user: ItemKey }
///     cluster { at: Millis [Desc], cause: CauseId [Asc] }
///     values { points: i64, action: ActionId } }
/// ```
///
/// - `Fact` or `Versioned`; a versioned row has one more field, `version`. A `View` repeats the name and the key of a
///   table of facts and names the columns that a reader needs of it, so that the others are neither sent nor copied.
/// - `ttl None`, or `ttl Some(n seconds|minutes|hours|days)`: counted from the write time of a fact, from the moment
///   of writing of a versioned row. `ttl Some(30 days), window 1 days` adds compaction by time windows, for rows
///   that are only added.
/// - `cluster { }` may be left out.
/// - A column added later is an `Option`: rows written before have none. Types and keys never change.
///
/// Generated functions: `Strike::key(org, user, at, cause)`, `Strike::partition(org, user)`, and from a row
/// `to_key`, `to_partition`, `to_cluster`.
#[macro_export]
macro_rules! table {
    (
        $(#[$doc:meta])*
        $mode:ident $name:ident in $table:literal ttl $ttl:ident $(($n:literal $unit:ident))? $(, window $w:literal $wunit:ident)?;
        partition { $($(#[$pdoc:meta])* $p:ident : $pty:ty),+ $(,)? }
        $(cluster { $($(#[$cdoc:meta])* $c:ident : $cty:ty [$order:ident]),* $(,)? })?
        values { $($(#[$vdoc:meta])* $v:ident : $vty:ty),* $(,)? }
    ) => {
        $crate::table! { @struct $mode
            [$(#[$doc])*] $name
            [$($(#[$pdoc])* $p: $pty,)+ $($($(#[$cdoc])* $c: $cty,)*)? $($(#[$vdoc])* $v: $vty,)*]
        }

        impl $name {
            /// All key columns, in their order.
            #[allow(dead_code, unreachable_pub, clippy::too_many_arguments)]
            pub fn key($($p: impl Into<$pty>,)+ $($($c: impl Into<$cty>,)*)?) -> <Self as $crate::Row>::Key {
                ($($p.into(),)+ $($($c.into(),)*)?)
            }

            /// The columns of the partition, in their order.
            #[allow(dead_code, unreachable_pub)]
            pub fn partition($($p: impl Into<$pty>,)+) -> <Self as $crate::Row>::Partition {
                ($($p.into(),)+)
            }
        }

        const _: () = {
            // Fails to compile for a key column that is no `KeyColumn`.
            const fn key_column<T: $crate::KeyColumn>() {}
            $(key_column::<$pty>();)+
            $($(key_column::<$cty>();)*)?
        };

        impl $crate::Row for $name {
            type Partition = ($($pty,)+);
            type Cluster = ($($($cty,)*)?);
            type Key = ($($pty,)+ $($($cty,)*)?);

            const TABLE: &'static $crate::Table = &$crate::Table {
                name: $table,
                row: stringify!($name),
                mode: $crate::Mode::$mode,
                ttl: $crate::table!(@ttl $ttl $($n $unit)?),
                time_window: $crate::table!(@window $($w $wunit)?),
                columns: $crate::table! { @columns $mode
                    $($crate::table!(@column $p, $pty, Asc),)+
                    $($($crate::table!(@column $c, $cty, $order),)*)?
                    $($crate::table!(@column $v, $vty, Asc),)*
                },
                partition: [$(stringify!($p)),+].len(),
                // The list may be empty, so its element type has to be named.
                cluster: { const CLUSTER: &[&str] = &[$($(stringify!($c)),*)?]; CLUSTER.len() },
            };

            fn cells<'a>(&'a self, out: &mut Vec<$crate::Cell<'a>>) {
                $(out.push($crate::Column::cell(&self.$p));)+
                $($(out.push($crate::Column::cell(&self.$c));)*)?
                $(out.push($crate::Column::cell(&self.$v));)*
                $crate::table!(@version_cell $mode self out);
            }

            fn from_cells(
                cells: ::std::vec::Vec<$crate::Cell<'_>>,
            ) -> ::std::result::Result<Self, $crate::CorruptCell> {
                let mut cells = cells.into_iter();
                $(let $p = $crate::take(&mut cells, Self::TABLE, stringify!($p))?;)+
                $($(let $c = $crate::take(&mut cells, Self::TABLE, stringify!($c))?;)*)?
                $(let $v = $crate::take(&mut cells, Self::TABLE, stringify!($v))?;)*
                $crate::table!(@build $mode cells { $($p,)+ $($($c,)*)? $($v,)* })
            }

            fn to_key(&self) -> Self::Key {
                ($(self.$p.clone(),)+ $($(self.$c.clone(),)*)?)
            }

            fn to_partition(&self) -> Self::Partition {
                ($(self.$p.clone(),)+)
            }

            #[allow(clippy::unused_unit, reason = "the tuple of a table without clustering columns")]
            fn to_cluster(&self) -> Self::Cluster {
                ($($(self.$c.clone(),)*)?)
            }
        }

        $crate::table!(@mode $mode $name);
    };

    // Rules that begin with `@` are steps of the rule above, chosen by the mode of the table.
    (@struct Fact [$(#[$doc:meta])*] $name:ident [$($(#[$fdoc:meta])* $field:ident : $ty:ty,)*]) => {
        $(#[$doc])*
        #[allow(unreachable_pub)]
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name { $($(#[$fdoc])* pub $field: $ty,)* }
    };
    (@struct View $($rest:tt)*) => { $crate::table! { @struct Fact $($rest)* } };
    (@struct Versioned [$(#[$doc:meta])*] $name:ident [$($(#[$fdoc:meta])* $field:ident : $ty:ty,)*]) => {
        $(#[$doc])*
        #[allow(unreachable_pub)]
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name {
            $($(#[$fdoc])* pub $field: $ty,)*
            /// Counted by the store.
            pub version: $crate::Version,
        }
    };

    (@ttl None) => { None };
    (@ttl Some $n:literal $unit:ident) => { Some($crate::table!(@duration $n $unit)) };
    (@window) => { None };
    (@window $n:literal $unit:ident) => { Some($crate::table!(@duration $n $unit)) };
    (@duration $n:literal seconds) => { ::std::time::Duration::from_secs($n) };
    (@duration $n:literal minutes) => { ::std::time::Duration::from_secs($n * 60) };
    (@duration $n:literal hours) => { ::std::time::Duration::from_secs($n * 3_600) };
    (@duration $n:literal days) => { ::std::time::Duration::from_secs($n * 86_400) };

    (@column $column:ident, $ty:ty, $order:ident) => {
        $crate::ColumnDef {
            name: stringify!($column),
            kind: <$ty as $crate::Column>::KIND,
            nullable: <$ty as $crate::Column>::NULLABLE,
            order: $crate::Order::$order,
        }
    };
    (@columns Fact $($column:expr,)*) => { &[$($column,)*] };
    (@columns View $($column:expr,)*) => { &[$($column,)*] };
    (@columns Versioned $($column:expr,)*) => {
        &[$($column,)* $crate::table!(@column version, $crate::Version, Asc)]
    };

    (@version_cell Fact $this:ident $out:ident) => {};
    (@version_cell View $this:ident $out:ident) => {};
    (@version_cell Versioned $this:ident $out:ident) => {
        $out.push($crate::Column::cell(&$this.version));
    };

    (@build Fact $cells:ident { $($field:ident,)* }) => { Ok(Self { $($field,)* }) };
    (@build View $cells:ident { $($field:ident,)* }) => { Ok(Self { $($field,)* }) };
    (@build Versioned $cells:ident { $($field:ident,)* }) => {
        // The other cells were taken before, so the next one is the last column.
        Ok(Self { version: $crate::take(&mut $cells, Self::TABLE, "version")?, $($field,)* })
    };

    (@mode View $name:ident) => {};
    (@mode Fact $name:ident) => { impl $crate::Fact for $name {} };
    (@mode Versioned $name:ident) => {
        impl $crate::Versioned for $name {
            fn version(&self) -> $crate::Version {
                self.version
            }
        }
    };
}

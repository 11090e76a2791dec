//! Cells on the wire: how they are bound to statements and read from results.
//!
//! It does not know tables; columns are told apart by the types that the server names.

use std::{borrow::Cow, collections::HashMap};

use bytes::Bytes;
use scylla::{
    cluster::metadata::{CollectionType, ColumnType, NativeType},
    deserialize::{
        DeserializationError, FrameSlice, TypeCheckError,
        row::{ColumnIterator, DeserializeRow},
        value::DeserializeValue,
    },
    frame::response::result::ColumnSpec,
    serialize::{
        SerializationError,
        value::SerializeValue,
        writers::{CellWriter, WrittenCellProof},
    },
};
use uuid::Uuid;

use crate::{Cell, Kind, Mismatch};

use super::statements::OPS;

/// Operation that wrote each version, by slot.
pub(super) type Ops = HashMap<i32, Uuid>;

/// A bound value: a cell, or the first entry of `ops`.
#[derive(Clone)]
pub(super) enum Bind<'a> {
    Cell(Cell<'a>),
    Ops(i32, Uuid),
}

impl<'a> From<Cell<'a>> for Bind<'a> {
    fn from(cell: Cell<'a>) -> Self {
        Self::Cell(cell)
    }
}

impl SerializeValue for Bind<'_> {
    fn serialize<'b>(
        &self,
        typ: &ColumnType<'_>,
        writer: CellWriter<'b>,
    ) -> Result<WrittenCellProof<'b>, SerializationError> {
        match self {
            Self::Cell(cell) => cell.serialize(typ, writer),
            Self::Ops(slot, op) => Ops::from([(*slot, *op)]).serialize(typ, writer),
        }
    }
}

impl SerializeValue for Cell<'_> {
    fn serialize<'b>(
        &self,
        typ: &ColumnType<'_>,
        writer: CellWriter<'b>,
    ) -> Result<WrittenCellProof<'b>, SerializationError> {
        if let (Some(ours), Some(theirs)) = (self.kind(), kind_of(typ))
            && ours != theirs
        {
            return Err(SerializationError::new(Mismatch::KIND));
        }
        let written = match self {
            Self::Null => return Ok(writer.set_null()),
            Self::Text(text) => writer.set_value(text.as_bytes()),
            Self::BigInt(number) | Self::Timestamp(number) => writer.set_value(&number.to_be_bytes()),
            Self::Int(number) => writer.set_value(&number.to_be_bytes()),
            Self::Bool(yes) => writer.set_value(&[u8::from(*yes)]),
            Self::Double(number) => writer.set_value(&number.to_be_bytes()),
            Self::Uuid(id) => writer.set_value(id.as_bytes()),
            Self::Blob(bytes) => writer.set_value(bytes),
        };
        written.map_err(|_| SerializationError::new(Mismatch("a value over 2 GiB")))
    }
}

/// One row of a result: cells by their position, and `ops` where it was asked for.
pub(super) struct Cells<'frame> {
    pub(super) cells: Vec<Cell<'frame>>,
    pub(super) ops: Ops,
}

impl<'frame, 'metadata> DeserializeRow<'frame, 'metadata> for Cells<'frame> {
    fn type_check(_: &[ColumnSpec<'_>]) -> Result<(), TypeCheckError> {
        // Each column is checked as it is read: the driver's row types want to know their columns beforehand.
        Ok(())
    }

    fn deserialize(row: ColumnIterator<'frame, 'metadata>) -> Result<Self, DeserializationError> {
        let mut found = Self { cells: Vec::with_capacity(row.columns_remaining()), ops: Ops::new() };
        for column in row {
            let column = column?;
            if let ColumnType::Collection { typ: CollectionType::Map(..), .. } = column.spec.typ() {
                if column.spec.name() == OPS && column.slice.is_some() {
                    found.ops = Ops::deserialize(column.spec.typ(), column.slice)?;
                }
                // A place is kept, so that positions stay those of the result's columns.
                found.cells.push(Cell::Null);
                continue;
            }
            found.cells.push(match (column.slice, kind_of(column.spec.typ())) {
                (Some(slice), Some(kind)) => cell(slice, kind).map_err(DeserializationError::new)?,
                // Null, or a column of a newer version in the whole row of a refused insert.
                _ => Cell::Null,
            });
        }
        Ok(found)
    }
}

fn kind_of(typ: &ColumnType<'_>) -> Option<Kind> {
    let ColumnType::Native(native) = typ else { return None };
    Some(match native {
        NativeType::Ascii | NativeType::Text => Kind::Text,
        NativeType::BigInt => Kind::BigInt,
        NativeType::Int => Kind::Int,
        NativeType::Boolean => Kind::Bool,
        NativeType::Double => Kind::Double,
        NativeType::Uuid | NativeType::Timeuuid => Kind::Uuid,
        NativeType::Timestamp => Kind::Timestamp,
        NativeType::Blob => Kind::Blob,
        _ => return None,
    })
}

fn cell(slice: FrameSlice<'_>, kind: Kind) -> Result<Cell<'_>, Mismatch> {
    fn array<const N: usize>(bytes: &[u8]) -> Result<[u8; N], Mismatch> {
        bytes.try_into().map_err(|_| Mismatch("a value of the wrong length"))
    }
    let bytes = slice.as_slice();
    Ok(match kind {
        Kind::Text => Cell::Text(Cow::Borrowed(
            std::str::from_utf8(bytes).map_err(|_| Mismatch("text that is not UTF-8"))?,
        )),
        Kind::Blob => Cell::Blob(blob(slice)),
        Kind::BigInt => Cell::BigInt(i64::from_be_bytes(array(bytes)?)),
        Kind::Timestamp => Cell::Timestamp(i64::from_be_bytes(array(bytes)?)),
        Kind::Int => Cell::Int(i32::from_be_bytes(array(bytes)?)),
        Kind::Bool => Cell::Bool(array::<1>(bytes)? != [0]),
        Kind::Double => Cell::Double(f64::from_be_bytes(array(bytes)?)),
        Kind::Uuid => Cell::Uuid(Uuid::from_bytes(array(bytes)?)),
    })
}

/// A slice of the answer where it is a good part of it; a copy where it would keep a much larger answer alive.
fn blob(slice: FrameSlice<'_>) -> Bytes {
    if slice.as_slice().len() >= slice.as_original_frame_bytes().len() / 4 {
        slice.to_bytes()
    } else {
        Bytes::copy_from_slice(slice.as_slice())
    }
}

//! Encodes cells as bound values and decodes them from results, by the column types that the server reports.

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

/// Id of the operation that wrote each version, by version slot.
pub(super) type Ops = HashMap<i32, Uuid>;

/// Value bound to a statement: a cell, or `ops` with its first entry.
#[derive(Clone)]
pub(super) enum BoundValue<'a> {
    Cell(Cell<'a>),
    Ops(i32, Uuid),
}

impl<'a> From<Cell<'a>> for BoundValue<'a> {
    fn from(cell: Cell<'a>) -> Self {
        Self::Cell(cell)
    }
}

impl SerializeValue for BoundValue<'_> {
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
        // Null has no kind, and columns of unknown types are left to the server.
        if let (Some(ours), Some(theirs)) = (self.kind(), kind_of(typ))
            // A bound value carries no type: the server would read these bytes as another kind of value.
            && ours != theirs
        {
            return Err(SerializationError::new(Mismatch::KIND));
        }
        let proof = match self {
            Self::Null => return Ok(writer.set_null()),
            Self::Text(text) => writer.set_value(text.as_bytes()),
            Self::BigInt(number) | Self::Timestamp(number) => writer.set_value(&number.to_be_bytes()),
            Self::Int(number) => writer.set_value(&number.to_be_bytes()),
            Self::Bool(value) => writer.set_value(&[u8::from(*value)]),
            Self::Double(number) => writer.set_value(&number.to_be_bytes()),
            Self::Uuid(id) => writer.set_value(id.as_bytes()),
            Self::Blob(bytes) => writer.set_value(bytes),
        };
        proof.map_err(|_| SerializationError::new(Mismatch("a value over 2 GiB")))
    }
}

/// One row of a result: cells by position, and `ops` if it was selected.
pub(super) struct RawRow<'frame> {
    pub(super) cells: Vec<Cell<'frame>>,
    pub(super) ops: Ops,
}

impl<'frame, 'metadata> DeserializeRow<'frame, 'metadata> for RawRow<'frame> {
    fn type_check(_: &[ColumnSpec<'_>]) -> Result<(), TypeCheckError> {
        // Columns are checked as they are read, because the driver's own check needs a static list of columns.
        Ok(())
    }

    fn deserialize(columns: ColumnIterator<'frame, 'metadata>) -> Result<Self, DeserializationError> {
        let mut result_row = Self { cells: Vec::with_capacity(columns.columns_remaining()), ops: Ops::new() };
        for column in columns {
            let column = column?;
            if let ColumnType::Collection { typ: CollectionType::Map(..), .. } = column.spec.typ() {
                if column.spec.name() == OPS && column.slice.is_some() {
                    result_row.ops = Ops::deserialize(column.spec.typ(), column.slice)?;
                }
                // A placeholder keeps the positions equal to those of the result's columns.
                result_row.cells.push(Cell::Null);
                continue;
            }
            result_row.cells.push(match (column.slice, kind_of(column.spec.typ())) {
                (Some(slice), Some(kind)) => decode_cell(slice, kind).map_err(DeserializationError::new)?,
                // Null, or a column of a newer version: a refused insert returns the whole row.
                _ => Cell::Null,
            });
        }
        Ok(result_row)
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

fn decode_cell(slice: FrameSlice<'_>, kind: Kind) -> Result<Cell<'_>, Mismatch> {
    fn to_array<const N: usize>(bytes: &[u8]) -> Result<[u8; N], Mismatch> {
        bytes.try_into().map_err(|_| Mismatch("a value of the wrong length"))
    }
    let bytes = slice.as_slice();
    Ok(match kind {
        Kind::Text => Cell::Text(Cow::Borrowed(
            std::str::from_utf8(bytes).map_err(|_| Mismatch("text that is not UTF-8"))?,
        )),
        Kind::Blob => Cell::Blob(decode_blob(slice)),
        Kind::BigInt => Cell::BigInt(i64::from_be_bytes(to_array(bytes)?)),
        Kind::Timestamp => Cell::Timestamp(i64::from_be_bytes(to_array(bytes)?)),
        Kind::Int => Cell::Int(i32::from_be_bytes(to_array(bytes)?)),
        // In CQL every byte but zero is true.
        Kind::Bool => Cell::Bool(to_array::<1>(bytes)? != [0]),
        Kind::Double => Cell::Double(f64::from_be_bytes(to_array(bytes)?)),
        Kind::Uuid => Cell::Uuid(Uuid::from_bytes(to_array(bytes)?)),
    })
}

/// Returns a slice of the answer if it is at least a quarter of it, or else a copy: a small slice would keep the whole
/// answer in memory.
fn decode_blob(slice: FrameSlice<'_>) -> Bytes {
    if slice.as_slice().len() >= slice.as_original_frame_bytes().len() / 4 {
        slice.to_bytes()
    } else {
        Bytes::copy_from_slice(slice.as_slice())
    }
}

//! Converts data between schema versions, and checks that a new schema version is compatible. Schemas are listed in
//! `SCHEMAS`.

use apache_avro::{
    AvroResult, Schema,
    error::Details,
    reader::datum::GenericDatumReader,
    schema::{
        DecimalSchema, InnerDecimalSchema, Name, NamesRef, NamespaceRef, RecordField, ResolvedSchema,
        UuidSchema,
    },
    types::Value,
    writer::datum::GenericDatumWriter,
};
use bytes::Bytes;

use super::avro::{AvroError, Reader, RecordDecodeError};

/// Maximum nesting depth. A writer's schema can be recursive, and deep data must not overflow the stack. Records of
/// this crate are less deep.
const MAX_DEPTH: usize = 32;

/// Smallest size of an array or map entry that is accepted. A count of entries without bytes could claim endless work.
const MIN_ENTRY_BYTES: usize = 1;

/// Converts a datum from the writer's schema to the reader's. Slow, because it copies all values: it is used only for
/// records of another schema version.
pub fn resolve(writer: &Schema, reader: &Schema, datum: &[u8]) -> Result<Vec<u8>, RecordDecodeError> {
    let resolve_datum = || {
        // apache-avro trusts lengths and counts, and reads a truncated datum as nulls.
        check_datum(writer, datum)?;
        let value = read_value(writer, &mut &*datum, Some(reader)).map_err(to_decode_error)?;
        write_value(reader, value).map_err(to_decode_error)
    };
    // The name of the record is added last, so that all errors have it.
    resolve_datum().map_err(|malformed| match reader.name() {
        Some(name) => malformed.of(name.name().to_owned()),
        None => malformed,
    })
}

/// Reads a value from the front of `datum`, and converts it to the reader's schema if given.
pub fn read_value(writer: &Schema, datum: &mut &[u8], reader: Option<&Schema>) -> AvroResult<Value> {
    GenericDatumReader::builder(writer).maybe_reader_schema(reader).build()?.read_value(datum)
}

/// Encodes a value.
pub fn write_value(schema: &Schema, value: Value) -> AvroResult<Vec<u8>> {
    let mut datum = Vec::new();
    GenericDatumWriter::builder(schema).build()?.write_value(&mut datum, value)?;
    Ok(datum)
}

/// Converts an error of apache-avro without its text, which can contain the value.
fn to_decode_error(error: apache_avro::Error) -> RecordDecodeError {
    let reason = match error.into_details() {
        Details::GetField(field) => format!("it lacks `{field}`, which has no default"),
        Details::GetEnumDefault { .. } => "it has a symbol that the reader does not know".into(),
        _ => "a type differs".into(),
    };
    RecordDecodeError::new(AvroError::Unresolvable(reason))
}

fn check_datum(schema: &Schema, datum: &[u8]) -> Result<(), RecordDecodeError> {
    let datum = Bytes::copy_from_slice(datum);
    let mut reader = Reader::new(&datum);
    let names = ResolvedSchema::try_from(schema).map_err(to_decode_error)?;
    DatumChecker { names: names.get_names() }.skip_value(schema, None, &mut reader, 0)?;
    reader.end()
}

struct DatumChecker<'a> {
    names: &'a NamesRef<'a>,
}

impl DatumChecker<'_> {
    /// Reads and discards one value, checking all lengths and counts.
    fn skip_value(
        &self,
        schema: &Schema,
        namespace: NamespaceRef<'_>,
        reader: &mut Reader<'_>,
        depth: usize,
    ) -> Result<(), RecordDecodeError> {
        // Also bounds schemas that refer to themselves without reading bytes.
        if depth > MAX_DEPTH {
            return Err(RecordDecodeError::new(AvroError::Depth));
        }
        match schema {
            Schema::Null => Ok(()),
            Schema::Boolean => reader.boolean().map(drop),
            Schema::Int | Schema::Date | Schema::TimeMillis => reader.int().map(drop),
            Schema::Long
            | Schema::TimeMicros
            | Schema::TimestampMillis
            | Schema::TimestampMicros
            | Schema::TimestampNanos
            | Schema::LocalTimestampMillis
            | Schema::LocalTimestampMicros
            | Schema::LocalTimestampNanos => reader.long().map(drop),
            Schema::Float => reader.take(4).map(drop),
            Schema::Double => reader.take(8).map(drop),
            Schema::Duration(_) => reader.take(12).map(drop),
            Schema::Fixed(fixed)
            | Schema::Uuid(UuidSchema::Fixed(fixed))
            | Schema::Decimal(DecimalSchema { inner: InnerDecimalSchema::Fixed(fixed), .. }) => {
                reader.take(fixed.size).map(drop)
            }
            Schema::Bytes
            | Schema::BigDecimal
            | Schema::Uuid(UuidSchema::Bytes)
            | Schema::Decimal(DecimalSchema { inner: InnerDecimalSchema::Bytes, .. }) => {
                reader.slice().map(drop)
            }
            Schema::String | Schema::Uuid(UuidSchema::String) => reader.text().map(drop),
            Schema::Enum(symbols) => reader.index(symbols.symbols.len(), AvroError::Symbol).map(drop),
            // The index of the branch precedes the value.
            Schema::Union(union) => {
                let branch = reader.index(union.variants().len(), AvroError::Branch)?;
                self.skip_value(&union.variants()[branch], namespace, reader, depth + 1)
            }
            Schema::Array(array) => reader.entries(MIN_ENTRY_BYTES, |reader, _| {
                self.skip_value(&array.items, namespace, reader, depth + 1)
            }),
            Schema::Map(map) => reader.entries(MIN_ENTRY_BYTES, |reader, _| {
                reader.text()?;
                self.skip_value(&map.types, namespace, reader, depth + 1)
            }),
            Schema::Record(record) => {
                let name = record.name.fully_qualified_name(namespace);
                let namespace = name.namespace();
                record.fields.iter().try_for_each(|field| {
                    self.skip_value(&field.schema, namespace, reader, depth + 1)
                        .map_err(|malformed| malformed.at_field(field.name.clone()))
                })
            }
            Schema::Ref { name } => {
                let name = name.fully_qualified_name(namespace);
                match self.names.get(&*name) {
                    Some(named_schema) => self.skip_value(named_schema, name.namespace(), reader, depth + 1),
                    None => Err(RecordDecodeError::new(AvroError::Unresolvable(
                        "it names a type that it lacks".into(),
                    ))),
                }
            }
        }
    }
}

/// Checks that readers of `old` and `new` can each read data of the other: new fields must have defaults, new symbols
/// require a default in `old`, and no other difference is allowed. The error states the first violation.
pub fn compatible(old: &Schema, new: &Schema) -> Result<(), String> {
    let resolve_names =
        |schema| ResolvedSchema::try_from(schema).map_err(|error| format!("not a schema: {error}"));
    let (old_names, new_names) = (resolve_names(old)?, resolve_names(new)?);
    let mut comparison =
        Comparison { old: old_names.get_names(), new: new_names.get_names(), compared: Vec::new() };
    comparison.compare((old, None), (new, None), "")
}

/// Schema with its enclosing namespace.
type Located<'a> = (&'a Schema, NamespaceRef<'a>);

struct Comparison<'a> {
    old: &'a NamesRef<'a>,
    new: &'a NamesRef<'a>,
    /// Named types with a started comparison, as pairs of old and new name.
    compared: Vec<(Name, Name)>,
}

impl Comparison<'_> {
    fn compare(&mut self, old: Located<'_>, new: Located<'_>, path: &str) -> Result<(), String> {
        let ((old, old_space), (new, new_space)) = (old, new);
        match (old, new) {
            (Schema::Ref { name }, _) => {
                let name = name.fully_qualified_name(old_space);
                let named_schema = *self.old.get(&*name).ok_or_else(|| format!("{path}: no type {name}"))?;
                self.compare((named_schema, name.namespace()), (new, new_space), path)
            }
            (_, Schema::Ref { name }) => {
                let name = name.fully_qualified_name(new_space);
                let named_schema = *self.new.get(&*name).ok_or_else(|| format!("{path}: no type {name}"))?;
                self.compare((old, old_space), (named_schema, name.namespace()), path)
            }
            (Schema::Record(old_record), Schema::Record(new_record)) => {
                let (old_name, new_name) = (
                    old_record.name.fully_qualified_name(old_space),
                    new_record.name.fully_qualified_name(new_space),
                );
                // A record that contains itself is compared once, or the comparison would never end.
                if self.mark_compared(&old_name, &new_name, path)? {
                    return Ok(());
                }
                self.compare_fields(
                    (&old_record.fields, old_name.namespace()),
                    (&new_record.fields, new_name.namespace()),
                    path,
                )
            }
            (Schema::Enum(old_enum), Schema::Enum(new_enum)) => {
                // Only the names matter here: an enum contains no type, so repeating its comparison costs little.
                self.mark_compared(
                    &old_enum.name.fully_qualified_name(old_space),
                    &new_enum.name.fully_qualified_name(new_space),
                    path,
                )?;
                if let Some(removed_symbol) =
                    old_enum.symbols.iter().find(|symbol| !new_enum.symbols.contains(symbol))
                {
                    return Err(format!("{path}: the symbol `{removed_symbol}` is removed"));
                }
                match new_enum.symbols.iter().find(|symbol| !old_enum.symbols.contains(symbol)) {
                    // A reader with the old schema reads an unknown symbol as the default.
                    Some(added) if old_enum.default.is_none() => Err(format!(
                        "{path}: `{added}` is added, but the older enum has no default to read it as"
                    )),
                    _ => Ok(()),
                }
            }
            (Schema::Fixed(old_fixed), Schema::Fixed(new_fixed)) => {
                self.mark_compared(
                    &old_fixed.name.fully_qualified_name(old_space),
                    &new_fixed.name.fully_qualified_name(new_space),
                    path,
                )?;
                if old_fixed.size == new_fixed.size {
                    Ok(())
                } else {
                    Err(format!("{path}: the size differs"))
                }
            }
            (Schema::Array(old_array), Schema::Array(new_array)) => self.compare(
                (&old_array.items, old_space),
                (&new_array.items, new_space),
                &format!("{path}[]"),
            ),
            (Schema::Map(old_map), Schema::Map(new_map)) => {
                self.compare((&old_map.types, old_space), (&new_map.types, new_space), &format!("{path}{{}}"))
            }
            (Schema::Union(old_union), Schema::Union(new_union)) => {
                let (old_branches, new_branches) = (old_union.variants(), new_union.variants());
                if old_branches.len() != new_branches.len() {
                    return Err(format!("{path}: the branches of a union differ"));
                }
                // Stored data contains the index of a branch, so the order must not change.
                old_branches.iter().zip(new_branches).try_for_each(|(old_branch, new_branch)| {
                    self.compare((old_branch, old_space), (new_branch, new_space), path)
                })
            }
            // The remaining types differ only by kind, and decimals by their parameters, which `==` compares.
            _ if old == new => Ok(()),
            _ => Err(format!("{path}: the type differs")),
        }
    }

    fn compare_fields(
        &mut self,
        (old_fields, old_space): (&[RecordField], NamespaceRef<'_>),
        (new_fields, new_space): (&[RecordField], NamespaceRef<'_>),
        path: &str,
    ) -> Result<(), String> {
        for old_field in old_fields {
            let path =
                if path.is_empty() { old_field.name.clone() } else { format!("{path}.{}", old_field.name) };
            let new_field = new_fields
                .iter()
                .find(|new| new.name == old_field.name)
                .ok_or_else(|| format!("{path}: the field is removed"))?;
            self.compare((&old_field.schema, old_space), (&new_field.schema, new_space), &path)?;
        }
        match new_fields
            .iter()
            .find(|new| new.default.is_none() && old_fields.iter().all(|old| old.name != new.name))
        {
            Some(new_field) if path.is_empty() => {
                Err(format!("{}: the field is new and has no default", new_field.name))
            }
            Some(new_field) => Err(format!("{path}.{}: the field is new and has no default", new_field.name)),
            None => Ok(()),
        }
    }

    /// Notes that the comparison of two named types has started. True if it had started before; an error if the names differ.
    fn mark_compared(&mut self, old_name: &Name, new_name: &Name, path: &str) -> Result<bool, String> {
        if old_name != new_name {
            return Err(format!("{path}: the type was called {old_name}, and is called {new_name}"));
        }
        let pair = (old_name.clone(), new_name.clone());
        let is_compared = self.compared.contains(&pair);
        if !is_compared {
            self.compared.push(pair);
        }
        Ok(is_compared)
    }
}

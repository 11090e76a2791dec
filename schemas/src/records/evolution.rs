//! Reads what another version of a schema wrote, and says what a new version may change. It holds no schema.

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

use super::avro::{AvroError, Malformed, Reader};

/// Deeper than any record of ours, and far from the end of the stack: a writer's schema may be recursive.
const MAX_DEPTH: usize = 32;

/// Rewrites a datum of the writer's schema as one of the reader's. For the cold path: it copies everything.
pub fn resolve(writer: &Schema, reader: &Schema, datum: &[u8]) -> Result<Vec<u8>, Malformed> {
    let resolved = || {
        // apache-avro trusts lengths and counts, and takes a datum that ends early for one full of nulls.
        fits(writer, datum)?;
        let value = read_value(writer, &mut &*datum, Some(reader)).map_err(unresolvable)?;
        write_value(reader, value).map_err(unresolvable)
    };
    resolved().map_err(|malformed| match reader.name() {
        Some(name) => malformed.of(name.name().to_owned()),
        None => malformed,
    })
}

/// Reads one value from the front of `datum`, as the reader's schema has it if one is given.
pub fn read_value(writer: &Schema, datum: &mut &[u8], reader: Option<&Schema>) -> AvroResult<Value> {
    GenericDatumReader::builder(writer).maybe_reader_schema(reader).build()?.read_value(datum)
}

/// Returns the datum of a value.
pub fn write_value(schema: &Schema, value: Value) -> AvroResult<Vec<u8>> {
    let mut datum = Vec::new();
    GenericDatumWriter::builder(schema).build()?.write_value(&mut datum, value)?;
    Ok(datum)
}

/// Its own words would show the value that it could not resolve.
fn unresolvable(error: apache_avro::Error) -> Malformed {
    let why = match error.into_details() {
        Details::GetField(field) => format!("it lacks `{field}`, which has no default"),
        Details::GetEnumDefault { .. } => "it has a symbol that the reader does not know".into(),
        _ => "a type differs".into(),
    };
    Malformed::new(AvroError::Unresolvable(why))
}

fn fits(schema: &Schema, datum: &[u8]) -> Result<(), Malformed> {
    let datum = Bytes::copy_from_slice(datum);
    let mut reader = Reader::new(&datum);
    let names = ResolvedSchema::try_from(schema).map_err(unresolvable)?;
    Shape { names: names.get_names() }.pass(schema, None, &mut reader, 0)?;
    reader.end()
}

struct Shape<'a> {
    names: &'a NamesRef<'a>,
}

impl Shape<'_> {
    /// Reads one value and keeps nothing of it.
    fn pass(
        &self,
        schema: &Schema,
        space: NamespaceRef<'_>,
        from: &mut Reader<'_>,
        depth: usize,
    ) -> Result<(), Malformed> {
        if depth > MAX_DEPTH {
            return Err(Malformed::new(AvroError::Depth));
        }
        match schema {
            Schema::Null => Ok(()),
            Schema::Boolean => from.boolean().map(drop),
            Schema::Int | Schema::Date | Schema::TimeMillis => from.int().map(drop),
            Schema::Long
            | Schema::TimeMicros
            | Schema::TimestampMillis
            | Schema::TimestampMicros
            | Schema::TimestampNanos
            | Schema::LocalTimestampMillis
            | Schema::LocalTimestampMicros
            | Schema::LocalTimestampNanos => from.long().map(drop),
            Schema::Float => from.take(4).map(drop),
            Schema::Double => from.take(8).map(drop),
            Schema::Duration(_) => from.take(12).map(drop),
            Schema::Fixed(fixed)
            | Schema::Uuid(UuidSchema::Fixed(fixed))
            | Schema::Decimal(DecimalSchema { inner: InnerDecimalSchema::Fixed(fixed), .. }) => {
                from.take(fixed.size).map(drop)
            }
            Schema::Bytes
            | Schema::BigDecimal
            | Schema::Uuid(UuidSchema::Bytes)
            | Schema::Decimal(DecimalSchema { inner: InnerDecimalSchema::Bytes, .. }) => {
                from.slice().map(drop)
            }
            Schema::String | Schema::Uuid(UuidSchema::String) => from.text().map(drop),
            Schema::Enum(symbols) => from.index(symbols.symbols.len(), AvroError::Symbol).map(drop),
            Schema::Union(union) => {
                let branch = from.index(union.variants().len(), AvroError::Branch)?;
                self.pass(&union.variants()[branch], space, from, depth + 1)
            }
            Schema::Array(array) => {
                from.entries(1, |from, _| self.pass(&array.items, space, from, depth + 1))
            }
            Schema::Map(map) => from.entries(1, |from, _| {
                from.text()?;
                self.pass(&map.types, space, from, depth + 1)
            }),
            Schema::Record(record) => {
                let name = record.name.fully_qualified_name(space);
                let space = name.namespace();
                record.fields.iter().try_for_each(|field| {
                    self.pass(&field.schema, space, from, depth + 1)
                        .map_err(|malformed| malformed.within(field.name.clone()))
                })
            }
            Schema::Ref { name } => {
                let name = name.fully_qualified_name(space);
                match self.names.get(&*name) {
                    Some(named) => self.pass(named, name.namespace(), from, depth + 1),
                    None => {
                        Err(Malformed::new(AvroError::Unresolvable("it names a type that it lacks".into())))
                    }
                }
            }
        }
    }
}

/// Checks that `new` may follow `old`, so that the reader of either understands the writer of the other: new fields
/// have defaults, new symbols meet a default in `old`, nothing else differs. The error names what breaks the rule.
pub fn compatible(old: &Schema, new: &Schema) -> Result<(), String> {
    let names = |schema| ResolvedSchema::try_from(schema).map_err(|error| format!("not a schema: {error}"));
    let (old_names, new_names) = (names(old)?, names(new)?);
    let mut rule = Rule { old: old_names.get_names(), new: new_names.get_names(), seen: Vec::new() };
    rule.follows((old, None), (new, None), "")
}

/// A schema and the namespace that encloses it.
type Located<'a> = (&'a Schema, NamespaceRef<'a>);

struct Rule<'a> {
    old: &'a NamesRef<'a>,
    new: &'a NamesRef<'a>,
    /// The named types that were already compared, or are just being: types may be recursive.
    seen: Vec<(Name, Name)>,
}

impl Rule<'_> {
    fn follows(&mut self, old: Located<'_>, new: Located<'_>, path: &str) -> Result<(), String> {
        let ((old, old_space), (new, new_space)) = (old, new);
        match (old, new) {
            (Schema::Ref { name }, _) => {
                let name = name.fully_qualified_name(old_space);
                let named = *self.old.get(&*name).ok_or_else(|| format!("{path}: no type {name}"))?;
                self.follows((named, name.namespace()), (new, new_space), path)
            }
            (_, Schema::Ref { name }) => {
                let name = name.fully_qualified_name(new_space);
                let named = *self.new.get(&*name).ok_or_else(|| format!("{path}: no type {name}"))?;
                self.follows((old, old_space), (named, name.namespace()), path)
            }
            (Schema::Record(was), Schema::Record(is)) => {
                let (was_name, is_name) =
                    (was.name.fully_qualified_name(old_space), is.name.fully_qualified_name(new_space));
                if self.seen_names(&was_name, &is_name, path)? {
                    return Ok(());
                }
                self.fields((&was.fields, was_name.namespace()), (&is.fields, is_name.namespace()), path)
            }
            (Schema::Enum(was), Schema::Enum(is)) => {
                self.seen_names(
                    &was.name.fully_qualified_name(old_space),
                    &is.name.fully_qualified_name(new_space),
                    path,
                )?;
                if let Some(gone) = was.symbols.iter().find(|symbol| !is.symbols.contains(symbol)) {
                    return Err(format!("{path}: the symbol `{gone}` is gone"));
                }
                match is.symbols.iter().find(|symbol| !was.symbols.contains(symbol)) {
                    Some(added) if was.default.is_none() => Err(format!(
                        "{path}: `{added}` is added, but the older enum has no default to read it as"
                    )),
                    _ => Ok(()),
                }
            }
            (Schema::Fixed(was), Schema::Fixed(is)) => {
                self.seen_names(
                    &was.name.fully_qualified_name(old_space),
                    &is.name.fully_qualified_name(new_space),
                    path,
                )?;
                if was.size == is.size { Ok(()) } else { Err(format!("{path}: the size differs")) }
            }
            (Schema::Array(was), Schema::Array(is)) => {
                self.follows((&was.items, old_space), (&is.items, new_space), &format!("{path}[]"))
            }
            (Schema::Map(was), Schema::Map(is)) => {
                self.follows((&was.types, old_space), (&is.types, new_space), &format!("{path}{{}}"))
            }
            (Schema::Union(was), Schema::Union(is)) => {
                let (was, is) = (was.variants(), is.variants());
                if was.len() != is.len() {
                    return Err(format!("{path}: the branches of a union differ"));
                }
                was.iter()
                    .zip(is)
                    .try_for_each(|(was, is)| self.follows((was, old_space), (is, new_space), path))
            }
            // All others are told apart by their kind, and a decimal by its parameters.
            _ if old == new => Ok(()),
            _ => Err(format!("{path}: the type differs")),
        }
    }

    fn fields(
        &mut self,
        (was, old_space): (&[RecordField], NamespaceRef<'_>),
        (is, new_space): (&[RecordField], NamespaceRef<'_>),
        path: &str,
    ) -> Result<(), String> {
        for old in was {
            let path = if path.is_empty() { old.name.clone() } else { format!("{path}.{}", old.name) };
            let new = is.iter().find(|new| new.name == old.name).ok_or_else(|| format!("{path}: is gone"))?;
            self.follows((&old.schema, old_space), (&new.schema, new_space), &path)?;
        }
        match is.iter().find(|new| new.default.is_none() && was.iter().all(|old| old.name != new.name)) {
            Some(new) if path.is_empty() => Err(format!("{}: is new and has no default", new.name)),
            Some(new) => Err(format!("{path}.{}: is new and has no default", new.name)),
            None => Ok(()),
        }
    }

    fn seen_names(&mut self, was: &Name, is: &Name, path: &str) -> Result<bool, String> {
        if was != is {
            return Err(format!("{path}: the type was called {was}, and is called {is}"));
        }
        let pair = (was.clone(), is.clone());
        let seen = self.seen.contains(&pair);
        if !seen {
            self.seen.push(pair);
        }
        Ok(seen)
    }
}

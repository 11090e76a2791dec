//! Reads pages of JSON record by record, so that a page need not fit into memory.
//!
//! The modules of the exchanges interpret the records.

use std::{
    fmt,
    io::{self, BufRead},
    sync::mpsc::{SyncSender, sync_channel},
    thread,
};

use serde::{
    Deserialize as _,
    de::{
        DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor,
        value::MapAccessDeserializer,
    },
};
use serde_json::{Map, Value, value::RawValue};

use crate::{
    error::FileError,
    length_limit::{LengthLimit, limit_length},
    unique_keys::parse_unique,
};

/// Line in which a record begins, and the record or the reason why it is refused.
type Record = (u64, Result<Value, String>);

/// Keys under which exchanges list the records of a page.
const LISTS: [&str; 4] = ["hashRecords", "data", "results", "items"];

/// Number of records that are read ahead.
const READ_AHEAD: usize = 64;

/// Reads the records of pages, lists or single records, one after the other. The parser runs on its own thread, because it
/// pushes records and the iterator pulls them.
pub(crate) fn read_records(
    file: impl BufRead + Send + 'static,
) -> impl Iterator<Item = Result<Record, FileError>> + 'static {
    let (sender, records) = sync_channel(READ_AHEAD);
    thread::spawn(move || {
        let (mut file, limit) = limit_length(file);
        if let Err(error) = skip_byte_order_mark(&mut file) {
            drop(sender.send(Err(FileError::new(format!("line 1: {error}")))));
            return;
        }
        let mut values = serde_json::Deserializer::from_reader(file);
        // An empty file is probably a failed download, not a page without records. The loop below then reads no value.
        if values.end().is_ok() {
            drop(sender.send(Err(FileError::new("it is empty, and an exchange hands out pages"))));
        }
        while values.end().is_err() {
            let page = Page { sender: &sender, limit: &limit, line: limit.line() };
            if let Err(error) = page.deserialize(&mut values) {
                // If sending fails, the receiver was dropped. Otherwise this is the last message.
                let fault = if error.is_io() {
                    FileError::new(format!("line {}: {error}", limit.line()))
                } else {
                    FileError::new(format!("it is no JSON: {error}"))
                };
                drop(sender.send(Err(fault)));
                break;
            }
        }
    });
    records.into_iter()
}

/// Skips a byte order mark. Its bytes may arrive one by one.
fn skip_byte_order_mark(file: &mut impl BufRead) -> io::Result<()> {
    for byte in *b"\xef\xbb\xbf" {
        if file.fill_buf()?.first() != Some(&byte) {
            break;
        }
        file.consume(1);
    }
    Ok(())
}

/// Value at the top level: a page, a list, or a record.
#[derive(Clone, Copy)]
struct Page<'s> {
    sender: &'s SyncSender<Result<Record, FileError>>,
    limit: &'s LengthLimit,
    /// Line in which the value begins.
    line: u64,
}

impl Page<'_> {
    fn send<E: Error>(&self, record: Record) -> Result<(), E> {
        // The length limit applies to each record.
        self.limit.renew();
        self.sender.send(Ok(record)).map_err(|_| E::custom("the receiver was dropped"))
    }

    fn send_self<E: Error>(&self, record: impl Into<Value>) -> Result<(), E> {
        self.send((self.line, Ok(record.into())))
    }

    fn send_records<'de, A: SeqAccess<'de>>(&self, mut list: A) -> Result<(), A::Error> {
        while let Some(record) = list.next_element_seed(RecordSeed(self.limit))? {
            self.send(record)?;
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Page<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Page<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a page of records")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<(), A::Error> {
        self.send_records(list)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let (mut record, mut is_page) = (Ok(Map::new()), false);
        while let Some(key) = members.next_key::<String>()? {
            let value = if LISTS.contains(&key.as_str()) {
                let Some(value) = members.next_value_seed(ListSeed(self))? else {
                    is_page = true;
                    continue;
                };
                Ok(value)
            } else if is_page {
                // The records were sent already, so the other members of the page are not needed.
                members.next_value::<IgnoredAny>()?;
                continue;
            } else {
                parse_unique(members.next_value::<Box<RawValue>>()?.get())
            };
            // A faulty record is refused alone: the parser reads its other members to reach the next record.
            record = record.and_then(|record| insert_unique(record, key, value?));
        }
        if is_page { Ok(()) } else { self.send((self.line, record.map(Value::Object))) }
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        self.send_self(text)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.send_self(value)
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.send_self(Value::Null)
    }
}

fn insert_unique(
    mut record: Map<String, Value>,
    key: String,
    value: Value,
) -> Result<Map<String, Value>, String> {
    if record.contains_key(&key) {
        return Err(format!("The key `{key}` occurs more than once in one object."));
    }
    record.insert(key, value);
    Ok(record)
}

/// Reads one record of a list with its line.
struct RecordSeed<'s>(&'s LengthLimit);

impl<'de> DeserializeSeed<'de> for RecordSeed<'_> {
    type Value = Record;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Record, D::Error> {
        let line = self.0.line();
        Ok((line, parse_unique(Box::<RawValue>::deserialize(from)?.get())))
    }
}

/// Value of a list key: a list is sent record by record, any other value is returned.
struct ListSeed<'s>(Page<'s>);

impl<'de> DeserializeSeed<'de> for ListSeed<'_> {
    type Value = Option<Value>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Option<Value>, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ListSeed<'_> {
    type Value = Option<Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of records")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Option<Value>, A::Error> {
        self.0.send_records(list).map(|()| None)
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<Option<Value>, A::Error> {
        Value::deserialize(MapAccessDeserializer::new(members)).map(Some)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Option<Value>, E> {
        Ok(Some(text.into()))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Option<Value>, E> {
        Ok(Some(value.into()))
    }

    fn visit_unit<E: Error>(self) -> Result<Option<Value>, E> {
        Ok(Some(Value::Null))
    }
}

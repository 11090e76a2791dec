//! Reads pages of JSON record by record, so that a page need not fit into the memory.
//!
//! What a record says is not its matter.

use std::{
    fmt,
    io::{self, BufRead},
    sync::mpsc::{SyncSender, sync_channel},
    thread,
};

use anyhow::anyhow;
use serde::{
    Deserialize as _,
    de::{
        DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor,
        value::MapAccessDeserializer,
    },
};
use serde_json::{Map, Value, value::RawValue};

use super::{
    bounded::{Bound, bounded},
    keys::said_once,
};

/// A record, or why it cannot be one; where it begins.
type Record = (u64, Result<Value, String>);

/// Where exchanges have the records of a page.
const LISTS: [&str; 4] = ["hashRecords", "data", "results", "items"];

/// Read ahead of whoever takes them.
const AHEAD: usize = 64;

/// Pages, lists or single records, one after the other, each with the line that it begins in. The parser calls, and an
/// iterator is called: so it has a thread.
pub(super) fn records(
    file: impl BufRead + Send + 'static,
) -> impl Iterator<Item = anyhow::Result<Record>> + 'static {
    let (sender, records) = sync_channel(AHEAD);
    thread::spawn(move || {
        let (mut file, bound) = bounded(file);
        if let Err(error) = pass_mark(&mut file) {
            drop(sender.send(Err(anyhow!("line 1: {error}"))));
            return;
        }
        let mut values = serde_json::Deserializer::from_reader(file);
        if values.end().is_ok() {
            drop(sender.send(Err(anyhow!("it is empty, and an exchange hands out pages"))));
        }
        while values.end().is_err() {
            let page = Page { sender: &sender, bound: &bound, line: bound.line() };
            if let Err(error) = page.deserialize(&mut values) {
                // Nobody listens any more, or this is the last that is said.
                let fault = if error.is_io() {
                    anyhow!("line {}: {error}", bound.line())
                } else {
                    anyhow!("it is no JSON: {error}")
                };
                drop(sender.send(Err(fault)));
                break;
            }
        }
    });
    records.into_iter()
}

/// The mark that some programs put before a text, by its bytes: they may come one by one.
fn pass_mark(file: &mut impl BufRead) -> io::Result<()> {
    for byte in *b"\xef\xbb\xbf" {
        if file.fill_buf()?.first() != Some(&byte) {
            break;
        }
        file.consume(1);
    }
    Ok(())
}

/// A value at the top: a page, a list, or a record.
#[derive(Clone, Copy)]
struct Page<'s> {
    sender: &'s SyncSender<anyhow::Result<Record>>,
    bound: &'s Bound,
    /// Where it begins.
    line: u64,
}

impl Page<'_> {
    fn tell<E: Error>(&self, record: Record) -> Result<(), E> {
        self.bound.renew();
        self.sender.send(Ok(record)).map_err(|_| E::custom("nobody reads on"))
    }

    fn tell_this<E: Error>(&self, record: impl Into<Value>) -> Result<(), E> {
        self.tell((self.line, Ok(record.into())))
    }

    fn each<'de, A: SeqAccess<'de>>(&self, mut list: A) -> Result<(), A::Error> {
        while let Some(record) = list.next_element_seed(Placed(self.bound))? {
            self.tell(record)?;
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
        self.each(list)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let (mut record, mut is_page) = (Ok(Map::new()), false);
        while let Some(key) = members.next_key::<String>()? {
            let value = if LISTS.contains(&key.as_str()) {
                let Some(value) = members.next_value_seed(Listed(self))? else {
                    is_page = true;
                    continue;
                };
                Ok(value)
            } else if is_page {
                members.next_value::<IgnoredAny>()?;
                continue;
            } else {
                said_once(members.next_value::<Box<RawValue>>()?.get())
            };
            record = record.and_then(|record| with(record, key, value?));
        }
        if is_page { Ok(()) } else { self.tell((self.line, record.map(Value::Object))) }
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        self.tell_this(text)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.tell_this(value)
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.tell_this(Value::Null)
    }
}

fn with(mut record: Map<String, Value>, key: String, value: Value) -> Result<Map<String, Value>, String> {
    if record.contains_key(&key) {
        return Err(format!("The key `{key}` stands more than once in one object."));
    }
    record.insert(key, value);
    Ok(record)
}

/// A record of a list.
struct Placed<'s>(&'s Bound);

impl<'de> DeserializeSeed<'de> for Placed<'_> {
    type Value = Record;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Record, D::Error> {
        let line = self.0.line();
        Ok((line, said_once(Box::<RawValue>::deserialize(from)?.get())))
    }
}

/// What stands where a page has its list: told record by record if it is one, else what it is.
struct Listed<'s>(Page<'s>);

impl<'de> DeserializeSeed<'de> for Listed<'_> {
    type Value = Option<Value>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Option<Value>, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Listed<'_> {
    type Value = Option<Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of records")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Option<Value>, A::Error> {
        self.0.each(list).map(|()| None)
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

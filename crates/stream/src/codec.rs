//! Puts records into Confluent framing and takes them out again: a zero byte, the schema's id, the datum.
//!
//! It does not decide what happens to a record it cannot read; it says whether that can change (an unknown schema is an
//! upgrade in progress) or cannot (bytes that nobody of ours wrote).

use std::{collections::HashMap, fmt, sync::Arc};

use apache_avro::Schema;
use arc_swap::ArcSwap;
use bytes::Bytes;
use thiserror::Error;
use tidegate_schemas::records::{self, CheckedIn, Record, SCHEMAS};

use crate::{
    registry::{Registry, RegistryError, Writer},
    topics::Topic,
};

/// What framing adds to a datum.
pub(crate) const FRAMING: usize = 5;
const MAGIC: u8 = 0;

/// Why a framed record is not readable.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum Unreadable {
    /// Nobody has told us yet what stands behind the id. It can be known at the next attempt.
    #[error("schema {0} is not known here")]
    UnknownSchema(u32),
    /// It never becomes readable.
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

/// Bytes that are no record of the topic. The messages show no content.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum Malformed {
    #[error("{0} bytes are too few for a framed record")]
    TooShort(usize),
    #[error("it begins with {0:#04x}, a framed record with a zero byte")]
    Magic(u8),
    #[error("schema {id} is not one of topic {topic}: {detail}")]
    Foreign { id: u32, topic: Topic, detail: String },
    #[error("written with schema {id}: {detail}")]
    Datum { id: u32, detail: String },
}

/// Frames what is written to each topic, and unframes what any version of us wrote to it.
pub(crate) struct Codec {
    slots: Vec<Slot>,
    source: Source,
    /// How to read a foreign id, worked out once an id and topic.
    plans: ArcSwap<HashMap<(Topic, u32), Plan>>,
}

/// One topic's schema.
struct Slot {
    header: [u8; FRAMING],
    id: u32,
    reader: Arc<Reader>,
}

/// A schema that we read with.
struct Reader {
    schema: Schema,
    /// Two schemas of one canonical form have the same datum.
    canonical: String,
}

enum Source {
    CheckedIn(HashMap<u32, Arc<Writer>>),
    Registry(Registry),
}

#[derive(Clone)]
enum Plan {
    AsItIs,
    Resolve(Arc<Writer>),
    Foreign(Arc<str>),
}

impl fmt::Debug for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Codec").finish_non_exhaustive()
    }
}

impl Codec {
    /// The ids are the checked-in ones, and no other ids are known.
    pub(crate) fn checked_in() -> Self {
        Self::of_schemas(SCHEMAS)
    }

    fn of_schemas(schemas: &[CheckedIn]) -> Self {
        let writers =
            schemas.iter().map(|schema| (schema.id, Arc::new(Writer::Avro(Box::new(parse(schema))))));
        let slots = Topic::ALL.into_iter().map(|topic| Slot::new(topic, current(topic).id)).collect();
        Self { slots, source: Source::CheckedIn(writers.collect()), plans: ArcSwap::default() }
    }

    /// Registers the schema of every topic under `<prefix>.<topic>-value`, and takes all ids from the registry.
    pub(crate) async fn registered(registry: Registry, prefix: &str) -> Result<Self, RegistryError> {
        let mut slots = Vec::with_capacity(Topic::ALL.len());
        for topic in Topic::ALL {
            let subject = format!("{}-value", topic.name(prefix));
            let id = registry.register(&subject, current(topic).text).await?;
            slots.push(Slot::new(topic, id));
        }
        Ok(Self { slots, source: Source::Registry(registry), plans: ArcSwap::default() })
    }

    /// Appends the framed datum.
    pub(crate) fn frame(&self, topic: Topic, datum: &[u8], out: &mut Vec<u8>) {
        out.reserve(FRAMING + datum.len());
        out.extend_from_slice(&self.slot(topic).header);
        out.extend_from_slice(datum);
    }

    /// The datum in the schema that this program reads with: a slice of `framed` unless another version wrote it.
    /// Does no I/O: a look-up of an unknown schema goes on behind it, so ask again.
    pub(crate) fn open(&self, topic: Topic, framed: &Bytes) -> Result<Bytes, Unreadable> {
        let Some((&[magic, a, b, c, d], _)) = framed.split_first_chunk::<FRAMING>() else {
            return Err(Malformed::TooShort(framed.len()).into());
        };
        if magic != MAGIC {
            return Err(Malformed::Magic(magic).into());
        }
        let id = u32::from_be_bytes([a, b, c, d]);
        let datum = framed.slice(FRAMING..);
        let slot = self.slot(topic);
        if id == slot.id {
            return Ok(datum);
        }
        match self.plan(topic, id).ok_or(Unreadable::UnknownSchema(id))? {
            Plan::AsItIs => Ok(datum),
            Plan::Resolve(writer) => match &*writer {
                Writer::Avro(writer) => records::resolve(writer, &slot.reader.schema, &datum)
                    .map(Bytes::from)
                    .map_err(|why| Malformed::Datum { id, detail: why.to_string() }.into()),
                Writer::Foreign(detail) => Err(foreign(id, topic, detail)),
            },
            Plan::Foreign(detail) => Err(foreign(id, topic, &detail)),
        }
    }

    /// The fault while the source of unknown schemas does not answer.
    pub(crate) fn outage(&self) -> Option<RegistryError> {
        match &self.source {
            Source::CheckedIn(_) => None,
            Source::Registry(registry) => registry.outage(),
        }
    }

    fn slot(&self, topic: Topic) -> &Slot {
        &self.slots[topic as usize]
    }

    fn plan(&self, topic: Topic, id: u32) -> Option<Plan> {
        if let Some(plan) = self.plans.load().get(&(topic, id)) {
            return Some(plan.clone());
        }
        let writer = match &self.source {
            Source::CheckedIn(writers) => Arc::clone(writers.get(&id)?),
            Source::Registry(registry) => registry.get(id)?,
        };
        let plan = self.slot(topic).reader.plan(writer);
        self.plans.rcu(|plans| {
            let mut plans = HashMap::clone(plans);
            plans.insert((topic, id), plan.clone());
            plans
        });
        Some(plan)
    }
}

fn foreign(id: u32, topic: Topic, detail: &str) -> Unreadable {
    Malformed::Foreign { id, topic, detail: detail.to_owned() }.into()
}

impl Slot {
    fn new(topic: Topic, id: u32) -> Self {
        let mut header = [MAGIC; FRAMING];
        header[1..].copy_from_slice(&id.to_be_bytes());
        let schema = parse(&current(topic));
        let canonical = schema.canonical_form();
        Self { header, id, reader: Arc::new(Reader { schema, canonical }) }
    }
}

impl Reader {
    fn plan(&self, writer: Arc<Writer>) -> Plan {
        match &*writer {
            Writer::Foreign(detail) => Plan::Foreign(detail.as_str().into()),
            Writer::Avro(schema) if schema.name() != self.schema.name() => {
                let name = |schema: &Schema| {
                    schema.name().map_or_else(|| "no record".to_owned(), ToString::to_string)
                };
                Plan::Foreign(format!("it is {}, not {}", name(schema), name(&self.schema)).into())
            }
            Writer::Avro(schema) if schema.canonical_form() == self.canonical => Plan::AsItIs,
            Writer::Avro(_) => Plan::Resolve(writer),
        }
    }
}

fn parse(schema: &CheckedIn) -> Schema {
    Schema::parse_str(schema.text).expect("a test of tidegate-schemas parses every checked-in schema")
}

/// The record that a topic carries.
const fn current(topic: Topic) -> CheckedIn {
    const fn of<R: Record>() -> CheckedIn {
        CheckedIn { id: R::SCHEMA_ID, name: R::NAME, text: R::SCHEMA }
    }
    match topic {
        Topic::Items | Topic::ItemsSlow => of::<records::Items>(),
        Topic::Reports => of::<records::Report>(),
        Topic::Appeals => of::<records::Appeal>(),
        Topic::Decisions => of::<records::Decision>(),
        Topic::Strikes => of::<records::Strike>(),
        Topic::Callbacks => of::<records::Callback>(),
        Topic::Evaluations => of::<records::Evaluation>(),
        Topic::DeadLetters => of::<records::DeadLetter>(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

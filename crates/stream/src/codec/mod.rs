//! Confluent framing of records: a zero byte, the schema's id, the datum.
//!
//! Two errors differ for the caller: an unknown schema can become known during an upgrade, while malformed bytes stay unreadable.

use std::{collections::HashMap, fmt, sync::Arc};

use apache_avro::Schema;
use arc_swap::ArcSwap;
use bytes::Bytes;
use thiserror::Error;
use tidegate_schemas::records::{self, Record, ReleasedSchema, SCHEMAS};

use crate::{
    schema_registry::{RegistryError, SchemaRegistry, WriterSchema},
    topics::Topic,
};

/// Number of bytes that framing adds to a datum.
pub(crate) const FRAMING: usize = 5;
const MAGIC: u8 = 0;

/// Reason why a framed record cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum UnframeError {
    /// The schema of the id is not known yet. A later attempt may succeed.
    #[error("schema {0} is not known to this process")]
    UnknownSchema(u32),
    /// The record never becomes readable.
    #[error(transparent)]
    Malformed(#[from] MalformedRecord),
}

/// Reason why bytes are no record of the topic. The messages show no content.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum MalformedRecord {
    #[error("{0} bytes are too few for a framed record")]
    TooShort(usize),
    #[error("it begins with {0:#04x}, a framed record with a zero byte")]
    Magic(u8),
    #[error("schema {id} is not one of topic {topic}: {detail}")]
    Foreign { id: u32, topic: Topic, detail: String },
    #[error("written with schema {id}: {detail}")]
    Datum { id: u32, detail: String },
}

/// Frames the data of each topic, and unframes records of any version of Tidegate.
pub(crate) struct Codec {
    schemas: Vec<TopicSchema>,
    source: SchemaSource,
    /// Decode plan by topic and id, for ids that differ from the topic's own.
    plans: ArcSwap<HashMap<(Topic, u32), DecodePlan>>,
}

/// Schema of one topic, and the header of its records.
struct TopicSchema {
    header: [u8; FRAMING],
    id: u32,
    reader: Arc<ReaderSchema>,
}

/// Schema with which this program reads.
struct ReaderSchema {
    schema: Schema,
    /// Canonical form: two schemas of one form have the same datum.
    canonical: String,
}

enum SchemaSource {
    CheckedIn(HashMap<u32, Arc<WriterSchema>>),
    Registry(SchemaRegistry),
}

#[derive(Clone)]
enum DecodePlan {
    SameForm,
    Resolve(Arc<WriterSchema>),
    Foreign(Arc<str>),
}

impl fmt::Debug for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Codec").finish_non_exhaustive()
    }
}

impl Codec {
    /// Makes a codec for the checked-in ids only.
    pub(crate) fn checked_in() -> Self {
        Self::of_schemas(SCHEMAS)
    }

    fn of_schemas(schemas: &[ReleasedSchema]) -> Self {
        let writers =
            schemas.iter().map(|schema| (schema.id, Arc::new(WriterSchema::Avro(Box::new(parse(schema))))));
        let schemas =
            Topic::ALL.into_iter().map(|topic| TopicSchema::new(topic, current(topic).id)).collect();
        Self { schemas, source: SchemaSource::CheckedIn(writers.collect()), plans: ArcSwap::default() }
    }

    /// Registers the schema of every topic under `<prefix>.<topic>-value`, and takes all ids from the registry.
    pub(crate) async fn registered(registry: SchemaRegistry, prefix: &str) -> Result<Self, RegistryError> {
        let mut schemas = Vec::with_capacity(Topic::ALL.len());
        for topic in Topic::ALL {
            let subject = format!("{}-value", topic.name(prefix));
            let id = registry.register(&subject, current(topic).text).await?;
            schemas.push(TopicSchema::new(topic, id));
        }
        Ok(Self { schemas, source: SchemaSource::Registry(registry), plans: ArcSwap::default() })
    }

    /// Appends the framed datum.
    pub(crate) fn frame(&self, topic: Topic, datum: &[u8], out: &mut Vec<u8>) {
        out.reserve(FRAMING + datum.len());
        out.extend_from_slice(&self.schema(topic).header);
        out.extend_from_slice(datum);
    }

    /// Returns the datum in the reader's schema: a slice of `framed` unless another version wrote it. Does no I/O: an unknown
    /// schema is looked up in the background, so callers retry later.
    pub(crate) fn unframe(&self, topic: Topic, framed: &Bytes) -> Result<Bytes, UnframeError> {
        let Some((&[magic, a, b, c, d], _)) = framed.split_first_chunk::<FRAMING>() else {
            return Err(MalformedRecord::TooShort(framed.len()).into());
        };
        if magic != MAGIC {
            return Err(MalformedRecord::Magic(magic).into());
        }
        let id = u32::from_be_bytes([a, b, c, d]);
        let datum = framed.slice(FRAMING..);
        let schema = self.schema(topic);
        // Written with the current schema, as almost all records are: no conversion and no copy.
        if id == schema.id {
            return Ok(datum);
        }
        match self.plan(topic, id).ok_or(UnframeError::UnknownSchema(id))? {
            DecodePlan::SameForm => Ok(datum),
            DecodePlan::Resolve(writer) => match &*writer {
                WriterSchema::Avro(writer) => records::resolve(writer, &schema.reader.schema, &datum)
                    .map(Bytes::from)
                    .map_err(|error| MalformedRecord::Datum { id, detail: error.to_string() }.into()),
                WriterSchema::Foreign(detail) => Err(foreign(id, topic, detail)),
            },
            DecodePlan::Foreign(detail) => Err(foreign(id, topic, &detail)),
        }
    }

    /// Returns the error of the registry while its look-ups fail.
    pub(crate) fn outage(&self) -> Option<RegistryError> {
        match &self.source {
            SchemaSource::CheckedIn(_) => None,
            SchemaSource::Registry(registry) => registry.outage(),
        }
    }

    fn schema(&self, topic: Topic) -> &TopicSchema {
        &self.schemas[topic as usize]
    }

    fn plan(&self, topic: Topic, id: u32) -> Option<DecodePlan> {
        if let Some(plan) = self.plans.load().get(&(topic, id)) {
            return Some(plan.clone());
        }
        let writer = match &self.source {
            SchemaSource::CheckedIn(writers) => Arc::clone(writers.get(&id)?),
            SchemaSource::Registry(registry) => registry.get(id)?,
        };
        // Comparing schemas is costly, so the plan is kept for all further records of the id.
        let plan = self.schema(topic).reader.plan(writer);
        self.plans.rcu(|plans| {
            let mut plans = HashMap::clone(plans);
            plans.insert((topic, id), plan.clone());
            plans
        });
        Some(plan)
    }
}

fn foreign(id: u32, topic: Topic, detail: &str) -> UnframeError {
    MalformedRecord::Foreign { id, topic, detail: detail.to_owned() }.into()
}

impl TopicSchema {
    fn new(topic: Topic, id: u32) -> Self {
        let mut header = [MAGIC; FRAMING];
        // Built once, because every record of the topic begins with it.
        header[1..].copy_from_slice(&id.to_be_bytes());
        let schema = parse(&current(topic));
        let canonical = schema.canonical_form();
        Self { header, id, reader: Arc::new(ReaderSchema { schema, canonical }) }
    }
}

impl ReaderSchema {
    fn plan(&self, writer: Arc<WriterSchema>) -> DecodePlan {
        match &*writer {
            WriterSchema::Foreign(detail) => DecodePlan::Foreign(detail.as_str().into()),
            WriterSchema::Avro(schema) if schema.name() != self.schema.name() => {
                let name = |schema: &Schema| {
                    schema.name().map_or_else(|| "no record".to_owned(), ToString::to_string)
                };
                DecodePlan::Foreign(format!("it is {}, not {}", name(schema), name(&self.schema)).into())
            }
            WriterSchema::Avro(schema) if schema.canonical_form() == self.canonical => DecodePlan::SameForm,
            WriterSchema::Avro(_) => DecodePlan::Resolve(writer),
        }
    }
}

fn parse(schema: &ReleasedSchema) -> Schema {
    Schema::parse_str(schema.text).expect("a test of tidegate-schemas parses every checked-in schema")
}

/// Returns the schema of a topic's records.
const fn current(topic: Topic) -> ReleasedSchema {
    const fn of<R: Record>() -> ReleasedSchema {
        ReleasedSchema { id: R::SCHEMA_ID, name: R::NAME, text: R::SCHEMA }
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

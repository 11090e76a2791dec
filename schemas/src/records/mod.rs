//! Records of the topics, one type per topic, and their Avro encoding.
//!
//! Framing, schema registries and topics belong to `tidegate-stream`.
//!
//! A released `.avsc` never changes. To change a record, keep the old text as `<name>.v<n>.avsc` with its id, and give
//! the new text the next free id. `compatible` checks the change.

mod avro;
#[macro_use]
mod declare;
mod evolution;

mod appeal;
mod callback;
mod dead_letter;
mod decision;
mod evaluation;
mod items;
mod parts;
mod report;
mod strike;

#[cfg(test)]
mod tests;

use bytes::Bytes;

pub use self::{
    appeal::Appeal,
    avro::{AvroError, RecordDecodeError},
    callback::Callback,
    dead_letter::DeadLetter,
    decision::{Decision, RelatedActions},
    evaluation::Evaluation,
    evolution::{compatible, read_value, resolve, write_value},
    items::Items,
    parts::{
        Command, ContextItem, Coordinates, Header, ItemEntry, JobClass, Mention, Source, Variant, Verdict,
    },
    report::Report,
    strike::Strike,
};

/// Record type of a topic.
pub trait Record: Sized {
    const NAME: &str;
    /// Text of the `.avsc`.
    const SCHEMA: &str;
    /// Id of `SCHEMA` if no registry assigns one.
    const SCHEMA_ID: u32;

    /// Returns the number of bytes that `encode` appends.
    fn size(&self) -> usize;

    /// Appends the datum without framing.
    fn encode(&self, out: &mut Vec<u8>);

    /// Returns the datum without framing.
    fn to_datum(&self) -> Vec<u8> {
        let mut datum = Vec::with_capacity(self.size());
        self.encode(&mut datum);
        datum
    }

    /// Decodes a datum written with `SCHEMA`. `Bytes` fields are slices of `datum` and keep it in memory.
    fn decode(datum: &Bytes) -> Result<Self, RecordDecodeError>;
}

/// Released schema of this repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReleasedSchema {
    pub id: u32,
    pub name: &'static str,
    pub text: &'static str,
}

/// All released schemas, by id.
pub const SCHEMAS: &[ReleasedSchema] = &[
    current_version::<Items>(),
    earlier_version::<Report>(2, include_str!("../../avro/report.v2.avsc")),
    earlier_version::<Appeal>(3, include_str!("../../avro/appeal.v3.avsc")),
    earlier_version::<Decision>(4, include_str!("../../avro/decision.v4.avsc")),
    current_version::<Strike>(),
    current_version::<Callback>(),
    earlier_version::<Evaluation>(7, include_str!("../../avro/evaluation.v7.avsc")),
    current_version::<DeadLetter>(),
    current_version::<Report>(),
    current_version::<Appeal>(),
    current_version::<Evaluation>(),
    earlier_version::<Decision>(12, include_str!("../../avro/decision.v12.avsc")),
    current_version::<Decision>(),
];

const fn current_version<R: Record>() -> ReleasedSchema {
    ReleasedSchema { id: R::SCHEMA_ID, name: R::NAME, text: R::SCHEMA }
}

const fn earlier_version<R: Record>(id: u32, text: &'static str) -> ReleasedSchema {
    ReleasedSchema { id, name: R::NAME, text }
}

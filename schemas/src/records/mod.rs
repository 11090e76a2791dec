//! Records of the topics, one type a topic, and their Avro form.
//!
//! Framing, schema registries and topics belong to `tidegate-stream`.
//!
//! An `.avsc` never changes once it is released. To evolve a record, keep its text as `<name>.v<n>.avsc`
//! under its id, and give the new text the next free id; `compatible` says what a new text may change.

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
    avro::{AvroError, Malformed},
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

/// A type that a topic carries.
pub trait Record: Sized {
    const NAME: &str;
    /// The text of its `.avsc`.
    const SCHEMA: &str;
    /// The id of `SCHEMA` where no registry gives one.
    const SCHEMA_ID: u32;

    /// Number of bytes that `encode` appends.
    fn size(&self) -> usize;

    /// Appends the bare datum: no framing.
    fn encode(&self, out: &mut Vec<u8>);

    /// The bare datum by itself.
    fn to_datum(&self) -> Vec<u8> {
        let mut datum = Vec::with_capacity(self.size());
        self.encode(&mut datum);
        datum
    }

    /// Reads a datum written with `SCHEMA`. Its `Bytes` are slices of `datum`, and so keep it in memory.
    fn decode(datum: &Bytes) -> Result<Self, Malformed>;
}

/// A schema of this repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckedIn {
    pub id: u32,
    pub name: &'static str,
    pub text: &'static str,
}

/// Every schema that was ever released, by id.
pub const SCHEMAS: &[CheckedIn] = &[
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

const fn current_version<R: Record>() -> CheckedIn {
    CheckedIn { id: R::SCHEMA_ID, name: R::NAME, text: R::SCHEMA }
}

const fn earlier_version<R: Record>(id: u32, text: &'static str) -> CheckedIn {
    CheckedIn { id, name: R::NAME, text }
}

//! Topics of the log, partitions, offsets, and the names of groups and roles.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Topic of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Topic {
    Items,
    ItemsSlow,
    Reports,
    Appeals,
    Decisions,
    Strikes,
    Callbacks,
    Evaluations,
    DeadLetters,
}

impl Topic {
    pub const ALL: [Self; 9] = [
        Self::Items,
        Self::ItemsSlow,
        Self::Reports,
        Self::Appeals,
        Self::Decisions,
        Self::Strikes,
        Self::Callbacks,
        Self::Evaluations,
        Self::DeadLetters,
    ];

    /// Returns the name without the installation's prefix, which is also the label in metrics and logs.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Items => "items",
            Self::ItemsSlow => "items-slow",
            Self::Reports => "reports",
            Self::Appeals => "appeals",
            Self::Decisions => "decisions",
            Self::Strikes => "strikes",
            Self::Callbacks => "callbacks",
            Self::Evaluations => "evaluations",
            Self::DeadLetters => "dead-letters",
        }
    }

    /// Returns the name in Kafka: `<prefix>.<label>`.
    pub fn name(self, prefix: &str) -> String {
        format!("{prefix}.{}", self.label())
    }

    pub fn from_label(label: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|topic| topic.label() == label)
    }

    /// Size limit of a record: key, framed value and headers together. Dead letters wrap a record of another topic, so
    /// their limit is higher.
    pub const fn max_record_bytes(self) -> usize {
        match self {
            Self::DeadLetters => 12 << 20,
            _ => 10 << 20,
        }
    }
}

impl fmt::Display for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

/// One partition of one topic: the unit of order and of ownership.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Partition {
    pub topic: Topic,
    pub index: u32,
}

impl Partition {
    pub const fn new(topic: Topic, index: u32) -> Self {
        Self { topic, index }
    }
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.topic, self.index)
    }
}

/// Offset of a record in its partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Offset(pub i64);

impl Offset {
    pub const fn next(self) -> NextOffset {
        NextOffset(self.0.saturating_add(1))
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Offset of the next record to read: one past a record. Commits use only this type, so that no code can commit the offset
/// of the record itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NextOffset(pub i64);

impl fmt::Display for NextOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Partition and offset of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Position {
    pub partition: Partition,
    pub offset: Offset,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.partition, self.offset)
    }
}

/// A consumer group inside the installation. In Kafka its id is `<prefix>.<name>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Group(pub &'static str);

impl Group {
    /// Group that evaluates items.
    pub const ITEMS: Self = Self("items");

    pub fn id(self, prefix: &str) -> String {
        format!("{prefix}.{}", self.0)
    }
}

/// Name of a consumer in errors and logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Role(pub &'static str);

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// Returns the partition of a key by murmur2, as Kafka's own clients compute it, so that other tools agree.
pub(crate) fn partition_of(topic: Topic, key: &[u8], partitions: u32) -> Partition {
    // Kafka clears the sign bit in the same way.
    let positive = murmur2(key) & 0x7fff_ffff;
    Partition::new(topic, positive % partitions.max(1))
}

fn murmur2(data: &[u8]) -> u32 {
    const M: u32 = 0x5bd1_e995;
    let mix = |k: u32| {
        let k = k.wrapping_mul(M);
        (k ^ (k >> 24)).wrapping_mul(M)
    };
    // Kafka hashes the length as a 32-bit number; longer keys than that do not exist.
    let mut h = 0x9747_b28c_u32 ^ u32::try_from(data.len()).unwrap_or(u32::MAX);
    let (words, tail) = data.as_chunks::<4>();
    for word in words {
        h = h.wrapping_mul(M) ^ mix(u32::from_le_bytes(*word));
    }
    for (at, byte) in tail.iter().enumerate().rev() {
        h ^= u32::from(*byte) << (8 * at);
    }
    if !tail.is_empty() {
        h = h.wrapping_mul(M);
    }
    h = (h ^ (h >> 13)).wrapping_mul(M);
    h ^ (h >> 15)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::cast_sign_loss)]

    use super::*;

    #[test]
    fn murmur2_equals_that_of_kafka_clients() {
        // The table of Kafka's own `UtilsTest.testMurmur2`.
        for (key, expected) in [
            ("21", -973_932_308_i32),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            ("abc", 479_470_107),
        ] {
            assert_eq!(murmur2(key.as_bytes()), expected as u32, "{key}");
        }
    }

    #[test]
    fn every_label_names_its_topic_and_labels_differ() {
        for topic in Topic::ALL {
            assert_eq!(Topic::from_label(topic.label()), Some(topic));
            assert_eq!(serde_json::to_value(topic).ok(), Some(topic.label().into()));
        }
        assert_eq!(Topic::Items.name("tidegate"), "tidegate.items");
    }

    #[test]
    fn a_key_stays_inside_the_configured_partitions() {
        for key in [&b""[..], b"a", b"abcdefgh"] {
            assert!(partition_of(Topic::Items, key, 3).index < 3);
        }
    }
}

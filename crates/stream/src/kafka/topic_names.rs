//! Kafka's names and numbers for topics and partitions.

use std::collections::HashMap;

use rdkafka::TopicPartitionList;

use crate::topics::{Partition, Topic};

/// Maps topics to their names in Kafka and back.
pub(super) struct TopicNames {
    topics: HashMap<String, Topic>,
    names: Vec<String>,
}

impl TopicNames {
    pub(super) fn new(prefix: &str) -> Self {
        let names: Vec<String> = Topic::ALL.into_iter().map(|topic| topic.name(prefix)).collect();
        Self { topics: names.iter().cloned().zip(Topic::ALL).collect(), names }
    }

    pub(super) fn name(&self, topic: Topic) -> &str {
        &self.names[topic as usize]
    }

    /// Returns the partition, or `None` if the topic is not ours.
    pub(super) fn partition(&self, topic: &str, index: i32) -> Option<Partition> {
        Some(Partition::new(*self.topics.get(topic)?, u32::try_from(index).ok()?))
    }

    pub(super) fn partitions(&self, list: &TopicPartitionList) -> Vec<Partition> {
        list.elements()
            .iter()
            .filter_map(|element| self.partition(element.topic(), element.partition()))
            .collect()
    }
}

/// Returns the partition number as Kafka's signed type. Partition counts stay far below its maximum.
pub(super) fn index_of(partition: Partition) -> i32 {
    i32::try_from(partition.index).unwrap_or(i32::MAX)
}

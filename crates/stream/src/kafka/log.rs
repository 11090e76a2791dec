//! The log on Kafka, opened once and shared by the roles of a process.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use ::metrics::Counter;
use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::{
    client_stats::{self, BrokerHealth},
    engine::KafkaEngine,
    page_reader,
    producer::Producer,
    topic_names::TopicNames,
    topics::Admin,
};
use crate::{
    codec::Codec,
    consumer::{
        inbox::{DrainResult, Inbox},
        threads::{ConsumerStart, ConsumerThreads},
        ticket::DeadLetterSink,
    },
    error::{AppendError, OpenError, PageError},
    health::{Health, Readiness},
    metrics,
    page_reader::{Cursor, Page, Query},
    record::{AddressedRecord, Record},
    schema_registry::{RegistryError, SchemaRegistry},
    settings::{Budget, Settings},
    topics::{Group, Role, Topic, partition_of},
};

/// Pause between two attempts to reach the registry while opening.
const REGISTRY_RETRY_PAUSE: Duration = Duration::from_millis(500);

/// Handle to the log on Kafka. Clones share it.
#[derive(Clone)]
pub struct KafkaLog(Arc<Inner>);

struct Inner {
    settings: Settings,
    names: Arc<TopicNames>,
    codec: Arc<Codec>,
    producer: Producer,
    brokers: Arc<BrokerHealth>,
    health: Arc<Health>,
    consumers: ConsumerThreads,
    /// Counter of appended records of each topic.
    append_counters: [Counter; Topic::ALL.len()],
}

impl std::fmt::Debug for KafkaLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KafkaLog").field("prefix", &self.0.settings.prefix).finish_non_exhaustive()
    }
}

/// Time between one refused append and the next, beyond the time that each takes.
const REFUSAL_GAP: Duration = Duration::from_secs(10);

impl KafkaLog {
    /// Compares the topics with the settings, registers the schemas, and creates the producer. Waits up to
    /// `kafka.open_timeout_ms` for brokers and registry.
    pub(crate) async fn open(settings: Settings) -> Result<Self, OpenError> {
        settings.validate()?;
        let deadline = Instant::now() + Duration::from_millis(settings.kafka.open_timeout_ms);
        for warning in Admin::new(&settings)?.verify().await? {
            tracing::warn!("{warning}");
        }
        let codec = Arc::new(build_codec(&settings, deadline).await?);
        let append_timeout = Duration::from_millis(settings.kafka.producer.append_timeout_ms);
        let brokers = Arc::new(BrokerHealth::new(append_timeout + REFUSAL_GAP));
        // The brokers have just answered the query for the topics.
        brokers.set_connected(true);
        let producer = Producer::new(
            &settings.kafka.producer().map_err(OpenError::Settings)?,
            &settings.prefix,
            append_timeout,
            Arc::clone(&brokers),
        )
        .map_err(|why| OpenError::Settings(client_stats::creation_error(&why)))?;
        Ok(Self(Arc::new(Inner {
            names: Arc::new(TopicNames::new(&settings.prefix)),
            settings,
            codec,
            producer,
            brokers,
            health: Arc::default(),
            consumers: ConsumerThreads::default(),
            append_counters: Topic::ALL.map(metrics::appended),
        })))
    }

    pub(crate) fn partitions(&self) -> u32 {
        self.0.settings.partition_count()
    }

    pub(crate) fn codec(&self) -> &Codec {
        &self.0.codec
    }

    pub(crate) async fn append(&self, records: &[AddressedRecord<'_>]) -> Result<(), AppendError> {
        let partitions = self.partitions();
        let result = match records.iter().find(|(partition, _)| partition.index >= partitions) {
            Some((partition, _)) => Err(AppendError::NoSuchPartition { partition: *partition, partitions }),
            None => self.0.producer.append(&self.0.codec, records).await,
        };
        if result.is_ok() {
            for (partition, _) in records {
                self.0.append_counters[partition.topic as usize].increment(1);
            }
        }
        result
    }

    pub(crate) fn consume(
        &self,
        group: Group,
        topics: &[Topic],
        budget: Budget,
        role: Role,
        stop: CancellationToken,
    ) -> Inbox {
        let Inner { settings, names, codec, brokers, health, consumers, .. } = &*self.0;
        let start = ConsumerStart {
            group,
            role,
            budget,
            stop,
            settings: settings.consume.clone(),
            codec: Arc::clone(codec),
            dead_letters: Arc::new(self.clone()),
            health: Arc::clone(health),
        };
        let (kafka, group_id, topics) = (settings.kafka.clone(), group.id(&settings.prefix), topics.to_vec());
        let (names, brokers) = (Arc::clone(names), Arc::clone(brokers));
        consumers
            .start(start, move |wakeup| KafkaEngine::open(&kafka, &group_id, &topics, names, brokers, wakeup))
    }

    pub(crate) async fn read_page(&self, query: Query) -> Result<Page, PageError> {
        let log = self.clone();
        let read = tokio::task::spawn_blocking(move || {
            let Inner { settings, names, codec, .. } = &*log.0;
            page_reader::read(settings, names, codec, &query)
        });
        read.await.unwrap_or_else(|error| Err(PageError::Unavailable { detail: error.to_string() }))
    }

    /// Returns the committed position of a group in a topic, as stored by the brokers.
    pub(crate) async fn committed(&self, group: Group, topic: Topic) -> Result<Cursor, PageError> {
        let log = self.clone();
        let read = tokio::task::spawn_blocking(move || {
            let Inner { settings, names, .. } = &*log.0;
            page_reader::committed(settings, names.name(topic), &group.id(&settings.prefix))
        });
        read.await.unwrap_or_else(|error| Err(PageError::Unavailable { detail: error.to_string() }))
    }

    /// Returns the error after which no client of this process can be used again, if any.
    pub(crate) fn fatal_error(&self) -> Option<&str> {
        self.0.brokers.fatal_error()
    }

    /// Returns the cached readiness.
    pub(crate) fn ready(&self) -> Readiness {
        if self.0.consumers.is_closing() {
            return Readiness::NotReady { why: "the log is shutting down".to_owned() };
        }
        let brokers = self.0.brokers.readiness(Instant::now());
        if !brokers.is_ready() {
            return brokers;
        }
        match self.0.codec.outage() {
            Some(why) => Readiness::NotReady { why: why.to_string() },
            None => self.0.health.readiness(),
        }
    }

    /// Stops the consumers first, so that their last dead letters are still appended.
    pub(crate) async fn close(&self, deadline: tokio::time::Instant) -> DrainResult {
        let consumers = self.0.consumers.close(deadline).await;
        consumers.and(self.0.producer.close(deadline.into_std()).await)
    }
}

impl DeadLetterSink for KafkaLog {
    fn append<'a>(&'a self, letter: Record<'a>) -> BoxFuture<'a, Result<(), AppendError>> {
        Box::pin(async move {
            let partition = partition_of(Topic::DeadLetters, letter.key, self.partitions());
            KafkaLog::append(self, &[(partition, letter)]).await
        })
    }
}

async fn build_codec(settings: &Settings, deadline: Instant) -> Result<Codec, OpenError> {
    let Some(registry) = &settings.schema_registry else { return Ok(Codec::checked_in()) };
    loop {
        let registry = SchemaRegistry::new(registry).map_err(|why| OpenError::Settings(why.to_string()))?;
        match Codec::registered(registry, &settings.prefix).await {
            Ok(codec) => return Ok(codec),
            // The registry may be starting together with this process.
            Err(why @ RegistryError::Unreachable(_)) if Instant::now() < deadline => {
                tracing::warn!(tag = why.tag(), "{why}");
                tokio::time::sleep(REGISTRY_RETRY_PAUSE).await;
            }
            Err(why @ RegistryError::Unreachable(_)) => {
                return Err(OpenError::Unavailable { detail: why.to_string() });
            }
            Err(RegistryError::Settings(why)) => return Err(OpenError::Settings(why)),
            Err(why) => return Err(OpenError::Refused { detail: why.to_string() }),
        }
    }
}

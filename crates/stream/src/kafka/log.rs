//! The log on Kafka as one value: opened once a process, shared by its roles.
//!
//! It joins producer, consumers and codec, and decides nothing that they decide.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use ::metrics::Counter;
use tokio_util::sync::CancellationToken;

use super::{context::Names, engine::Engine, observe::BrokerHealth, producer::Producer, tail, topics::Admin};
use crate::{
    budget::Budget,
    codec::Codec,
    consumers::{Consumers, Start},
    error::{AppendError, OpenError, TailError},
    health::{Health, Readiness},
    inbox::{Drained, Inbox},
    metrics,
    record::Addressed,
    registry::{Registry, RegistryError},
    settings::Settings,
    tail::{Page, Query},
    ticket::Outlet,
    topics::{Group, Partition, Role, Topic, partition_of},
};

/// Between two attempts to reach the registry while opening.
const PAUSE: Duration = Duration::from_millis(500);

/// The log on Kafka. A clone is the same log.
#[derive(Clone)]
pub struct Log(Arc<Inner>);

struct Inner {
    settings: Settings,
    names: Arc<Names>,
    codec: Arc<Codec>,
    producer: Producer,
    brokers: Arc<BrokerHealth>,
    health: Arc<Health>,
    consumers: Consumers,
    /// By topic.
    appended: [Counter; Topic::ALL.len()],
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("kafka::Log").field("prefix", &self.0.settings.prefix).finish_non_exhaustive()
    }
}

/// Between one refused append and the next, beyond the time that each takes.
const STEADY: Duration = Duration::from_secs(10);

impl Log {
    /// Compares the topics with the settings, registers the schemas, and makes the producer. Waits at most
    /// `kafka.open_timeout_ms` for brokers and registry.
    pub async fn open(settings: Settings) -> Result<Self, OpenError> {
        settings.validate()?;
        let deadline = Instant::now() + Duration::from_millis(settings.kafka.open_timeout_ms);
        for warning in Admin::new(&settings)?.verify().await? {
            tracing::warn!("{warning}");
        }
        let codec = Arc::new(codec(&settings, deadline).await?);
        let append_timeout = Duration::from_millis(settings.kafka.producer.append_timeout_ms);
        let brokers = Arc::new(BrokerHealth::new(append_timeout + STEADY));
        // The topics were read from them just now.
        brokers.brokers(true);
        let producer = Producer::new(
            &settings.kafka.producer().map_err(OpenError::Settings)?,
            &settings.prefix,
            append_timeout,
            Arc::clone(&brokers),
        )
        .map_err(|why| OpenError::Settings(super::creation(&why)))?;
        Ok(Self(Arc::new(Inner {
            names: Arc::new(Names::new(&settings.prefix)),
            settings,
            codec,
            producer,
            brokers,
            health: Arc::default(),
            consumers: Consumers::default(),
            appended: Topic::ALL.map(metrics::appended),
        })))
    }

    pub fn partition(&self, topic: Topic, key: &[u8]) -> Partition {
        partition_of(topic, key, self.partitions())
    }

    pub fn partitions(&self) -> u32 {
        self.0.settings.partition_count()
    }

    pub(crate) fn codec(&self) -> &Codec {
        &self.0.codec
    }

    pub async fn append(&self, records: &[Addressed<'_>]) -> Result<(), AppendError> {
        let partitions = self.partitions();
        let result = match records.iter().find(|(partition, _)| partition.index >= partitions) {
            Some((partition, _)) => Err(AppendError::NoSuchPartition { partition: *partition, partitions }),
            None => self.0.producer.append(&self.0.codec, records).await,
        };
        if result.is_ok() {
            for (partition, _) in records {
                self.0.appended[partition.topic as usize].increment(1);
            }
        }
        result
    }

    pub fn consume(
        &self,
        group: Group,
        topics: &[Topic],
        budget: Budget,
        role: Role,
        stop: CancellationToken,
    ) -> Inbox {
        let Inner { settings, names, codec, brokers, health, consumers, .. } = &*self.0;
        let start = Start {
            group,
            role,
            budget,
            stop,
            settings: settings.consume.clone(),
            outlet: Outlet { log: crate::Log::Kafka(self.clone()), codec: Arc::clone(codec) },
            health: Arc::clone(health),
        };
        let (kafka, group_id, topics) = (settings.kafka.clone(), group.id(&settings.prefix), topics.to_vec());
        let (names, brokers) = (Arc::clone(names), Arc::clone(brokers));
        consumers.start(start, move |signal| Engine::open(&kafka, &group_id, &topics, names, brokers, signal))
    }

    pub async fn tail(&self, query: Query) -> Result<Page, TailError> {
        let log = self.clone();
        let read = tokio::task::spawn_blocking(move || {
            let Inner { settings, names, codec, .. } = &*log.0;
            tail::read(settings, names, codec, &query)
        });
        read.await.unwrap_or_else(|stopped| Err(TailError::Unavailable { detail: stopped.to_string() }))
    }

    /// Why no client of this process can ever be used again, if that is so.
    pub fn lost(&self) -> Option<&str> {
        self.0.brokers.fatal_reason()
    }

    /// From cached state.
    pub fn ready(&self) -> Readiness {
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

    /// Stops the consumers first: their last dead letters still pass.
    pub async fn close(&self, deadline: tokio::time::Instant) -> Drained {
        let consumers = self.0.consumers.close(deadline).await;
        consumers.and(self.0.producer.close(deadline.into_std()).await)
    }
}

async fn codec(settings: &Settings, deadline: Instant) -> Result<Codec, OpenError> {
    let Some(registry) = &settings.schema_registry else { return Ok(Codec::checked_in()) };
    loop {
        let registry = Registry::new(registry).map_err(|why| OpenError::Settings(why.to_string()))?;
        match Codec::registered(registry, &settings.prefix).await {
            Ok(codec) => return Ok(codec),
            Err(why @ RegistryError::Unreachable(_)) if Instant::now() < deadline => {
                tracing::warn!(tag = why.tag(), "{why}");
                tokio::time::sleep(PAUSE).await;
            }
            Err(why @ RegistryError::Unreachable(_)) => {
                return Err(OpenError::Unavailable { detail: why.to_string() });
            }
            Err(RegistryError::Settings(why)) => return Err(OpenError::Settings(why)),
            Err(why) => return Err(OpenError::Refused { detail: why.to_string() }),
        }
    }
}

//! An installation with separate topics on a shared Kafka, and functions for tests of its log.

use std::collections::BTreeMap;

use rdkafka::{
    ClientConfig,
    admin::{AdminClient, AdminOptions},
    client::DefaultClientContext,
};
use tidegate_schemas::ids::SubmissionId;
use tidegate_stream::{
    Log, Record, Topic,
    consumer::inbox::{DrainResult, Inbox, ReceivedRecord},
    kafka,
    settings::{Budget, EngineKind, Settings, kafka::TopicSettings},
    topics::{Group, Partition, Role},
};
use tidegate_test_support::PATIENCE;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

pub(crate) const GROUP: Group = Group("strikes");
pub(crate) const ROLE: Role = Role("test");
pub(crate) const BUDGET: Budget = Budget { records: 10_000, bytes: 64 << 20 };

/// Topics under a unique prefix, deleted with the installation.
pub(crate) struct Installation {
    pub(crate) settings: Settings,
    delete: bool,
}

/// Returns settings with short waits and one replica per topic.
pub(crate) fn settings(brokers: &str) -> Settings {
    let mut settings = Settings {
        engine: EngineKind::Kafka,
        prefix: format!("test-{}", SubmissionId::random()),
        partitions: Some(2),
        ..Settings::default()
    };
    settings.kafka.brokers = brokers.split(',').map(str::to_owned).collect();
    settings.kafka.statistics_interval_ms = 200;
    settings.kafka.topics =
        TopicSettings { replication: 1, min_insync_replicas: 1, ..TopicSettings::default() };
    settings.consume.commit_interval_ms = 100;
    settings.consume.drain_timeout_ms = 3_000;
    settings.consume.commit_timeout_ms = 1_000;
    settings.consume.schema_retry_ms = 50;
    settings.kafka.consumer.session_timeout_ms = 6_000;
    settings
}

impl Installation {
    pub(crate) async fn on(brokers: &str) -> Self {
        Self::with(settings(brokers)).await
    }

    pub(crate) async fn with(settings: Settings) -> Self {
        let this = Self { settings, delete: true };
        kafka::create_topics(&this.settings).await.unwrap();
        this
    }

    /// Keeps the topics, because they end with their brokers.
    pub(crate) fn passing(settings: Settings) -> Self {
        Self { settings, delete: false }
    }

    pub(crate) async fn open(&self) -> Log {
        Log::open_kafka(self.settings.clone()).await.unwrap()
    }

    pub(crate) fn admin(&self) -> AdminClient<DefaultClientContext> {
        ClientConfig::new().set("bootstrap.servers", self.settings.kafka.brokers.join(",")).create().unwrap()
    }
}

impl Drop for Installation {
    fn drop(&mut self) {
        if !self.delete {
            return;
        }
        let admin = self.admin();
        let names: Vec<String> = Topic::ALL.iter().map(|topic| topic.name(&self.settings.prefix)).collect();
        let deleting = std::thread::spawn(move || {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            futures::executor::block_on(admin.delete_topics(&names, &AdminOptions::new())).map(drop)
        });
        if !matches!(deleting.join(), Ok(Ok(()))) {
            eprintln!("the topics of {} were not deleted", self.settings.prefix);
        }
    }
}

pub(crate) fn consume(log: &Log, topic: Topic) -> Inbox {
    log.consume(GROUP, &[topic], BUDGET, ROLE, CancellationToken::new())
}

/// Appends `values` to one partition, in one call.
pub(crate) async fn append(log: &Log, partition: Partition, values: impl IntoIterator<Item = String>) {
    let values: Vec<String> = values.into_iter().collect();
    let records: Vec<_> =
        values.iter().map(|value| (partition, Record::new(b"key", value.as_bytes().to_vec()))).collect();
    log.append(&records).await.unwrap();
}

pub(crate) fn numbers(range: std::ops::Range<usize>) -> impl Iterator<Item = String> {
    range.map(|number| format!("{number:06}"))
}

pub(crate) async fn next(inbox: &mut Inbox) -> Vec<ReceivedRecord> {
    let batch = timeout(PATIENCE, inbox.next()).await;
    batch.expect("no batch arrived").unwrap().expect("the consumer stopped")
}

/// Waits until the consumer owns the given number of partitions.
pub(crate) async fn wait_for_ownership(inbox: &Inbox, count: usize) {
    let mut ownership = inbox.ownership();
    let outcome = timeout(PATIENCE, ownership.wait_for(|state| state.partitions.len() == count)).await;
    outcome.expect("the partitions were not assigned").unwrap();
}

pub(crate) async fn close(log: &Log) -> DrainResult {
    log.close(Instant::now() + PATIENCE).await
}

/// Counts the occurrences of each text.
pub(crate) fn tally<'a>(texts: impl IntoIterator<Item = &'a String>) -> BTreeMap<&'a str, usize> {
    texts.into_iter().fold(BTreeMap::new(), |mut tally, text| {
        *tally.entry(text.as_str()).or_default() += 1;
        tally
    })
}

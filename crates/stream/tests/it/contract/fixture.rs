//! Engines under test, each with separate storage for one test.

use std::{path::Path, sync::Arc, time::Duration};

use rdkafka::{
    ClientConfig, Offset, TopicPartitionList,
    admin::{AdminClient, AdminOptions},
    client::DefaultClientContext,
    mocking::MockCluster,
};
use tempfile::TempDir;
use tidegate_embedded_data::{DiskSpace, DurableMark};
use tidegate_schemas::ids::SubmissionId;
use tidegate_stream::{
    Log, Topic,
    consumer::inbox::DrainResult,
    error::OpenError,
    kafka,
    settings::{EngineKind, Settings, kafka::TopicSettings},
    topics::{NextOffset, Partition},
};
use tidegate_test_support::{PATIENCE, eventually_ok, servers};
use tokio::time::Instant;

/// Storage of a test's log. Opening it again is a restart with the durable data.
pub(crate) enum Fixture {
    Embedded {
        data: TempDir,
    },
    /// Separate topics on a shared Kafka, deleted with the fixture.
    Kafka {
        brokers: String,
        prefix: String,
    },
    /// Mock cluster of librdkafka inside this process. Its clients end with the process.
    Mock {
        brokers: String,
        prefix: String,
    },
}

/// Mark of the durable state, stored with the data. Every restart of a test compares it.
pub(crate) fn mark(data: &Path) -> Arc<DurableMark> {
    Arc::new(DurableMark::open(data, false).unwrap())
}

impl Fixture {
    pub(crate) fn embedded() -> Self {
        Self::Embedded { data: tempfile::tempdir().unwrap() }
    }

    /// Returns `None`, and reports the suite as skipped, if no Kafka is named.
    pub(crate) async fn kafka(contract: &str) -> Option<Self> {
        let brokers = servers::kafka(&format!("the log's contract on Kafka: {contract}"))?;
        let fixture = Self::Kafka { brokers, prefix: format!("contract-{}", SubmissionId::random()) };
        kafka::create_topics(&fixture.settings()).await.unwrap();
        Some(fixture)
    }

    /// Returns `None` for a contract that the mock cluster does not support.
    pub(crate) fn mock(contract: &str) -> Option<Self> {
        // The mock cluster deletes no records on demand.
        if contract == "an_offset_removed_by_retention_stops_the_partition_by_name" {
            return None;
        }
        let cluster = Box::leak(Box::new(MockCluster::new(1).unwrap()));
        let fixture = Self::Mock { brokers: cluster.bootstrap_servers(), prefix: "contract".to_owned() };
        let settings = fixture.settings();
        for topic in Topic::ALL {
            let partitions = i32::try_from(settings.partition_count()).unwrap();
            cluster.create_topic(&topic.name(&settings.prefix), partitions, 1).unwrap();
        }
        Some(fixture)
    }

    /// Four partitions, and quick commits, so that no test waits long.
    pub(crate) fn settings(&self) -> Settings {
        let mut settings = Settings { partitions: Some(4), ..Settings::default() };
        settings.consume.commit_interval_ms = 20;
        settings.consume.drain_timeout_ms = 30_000;
        match self {
            Self::Embedded { .. } => settings.embedded.min_free_bytes = Some(0),
            Self::Kafka { brokers, prefix } | Self::Mock { brokers, prefix } => {
                settings.engine = EngineKind::Kafka;
                settings.prefix.clone_from(prefix);
                settings.kafka.brokers = vec![brokers.clone()];
                settings.kafka.topics =
                    TopicSettings { replication: 1, min_insync_replicas: 1, ..TopicSettings::default() };
                if matches!(self, Self::Mock { .. }) {
                    forget_soon(&mut settings);
                }
            }
        }
        settings
    }

    pub(crate) async fn open(&self) -> Log {
        self.open_with(&self.settings()).await.unwrap()
    }

    pub(crate) async fn open_with(&self, settings: &Settings) -> Result<Log, OpenError> {
        match self {
            Self::Embedded { data } => {
                // The previous log may still be closing its files.
                let open = async || Ok(fjall::Database::builder(data.path()).open()?);
                let db = eventually_ok("the database to open", PATIENCE, open).await.unwrap();
                let disk = Arc::new(DiskSpace::of(data.path()));
                Log::open_embedded_marked(db, settings, mark(data.path()), disk)
            }
            Self::Kafka { .. } | Self::Mock { .. } => Log::open_kafka(settings.clone()).await,
        }
    }

    /// Removes records as retention does, without asking any group.
    pub(crate) async fn delete_records(&self, log: &Log, partition: Partition, before: NextOffset) {
        match (self, log) {
            (Self::Embedded { .. }, Log::Embedded(log)) => {
                assert_eq!(log.delete_records(partition, before).await, Ok(before));
            }
            (Self::Kafka { brokers, prefix }, _) => {
                let mut list = TopicPartitionList::new();
                let index = i32::try_from(partition.index).unwrap();
                list.add_partition_offset(&partition.topic.name(prefix), index, Offset::Offset(before.0))
                    .unwrap();
                let options = AdminOptions::new().operation_timeout(Some(PATIENCE));
                admin(brokers).delete_records(&list, &options).await.unwrap();
            }
            _ => unreachable!("this engine deletes no records on demand"),
        }
    }

    /// Closes the log. Remaining records or inboxes of it keep an embedded database open.
    pub(crate) async fn close(&self, log: Log) -> DrainResult {
        log.close(Instant::now() + Duration::from_secs(60)).await
    }
}

/// Shortens the session, because the group keeps a killed member until its session ends.
pub(crate) fn forget_soon(settings: &mut Settings) {
    settings.consume.drain_timeout_ms = 3_000;
    settings.consume.commit_timeout_ms = 1_000;
    settings.kafka.consumer.session_timeout_ms = 6_000;
}

fn admin(brokers: &str) -> AdminClient<DefaultClientContext> {
    ClientConfig::new().set("bootstrap.servers", brokers).create().unwrap()
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let Self::Kafka { brokers, prefix } = self else { return };
        let admin = admin(brokers);
        let names: Vec<String> = Topic::ALL.iter().map(|topic| topic.name(prefix)).collect();
        // The deletion blocks, so it needs a thread without a runtime.
        let deleting = std::thread::spawn(move || {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            futures::executor::block_on(admin.delete_topics(&names, &AdminOptions::new())).map(drop)
        });
        if !matches!(deleting.join(), Ok(Ok(()))) {
            eprintln!("the topics of {prefix} were not deleted");
        }
    }
}

/// Makes each contract a test of every engine.
macro_rules! contract {
    ($($name:ident)*) => {
        mod embedded_engine {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    super::$name(&crate::contract::fixture::Fixture::embedded()).await;
                }
            )*
        }

        mod mock_cluster {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    if let Some(fixture) = crate::contract::fixture::Fixture::mock(stringify!($name)) {
                        super::$name(&fixture).await;
                    }
                }
            )*
        }

        mod real_kafka {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    if let Some(fixture) = crate::contract::fixture::Fixture::kafka(stringify!($name)).await {
                        super::$name(&fixture).await;
                    }
                }
            )*
        }
    };
}
pub(crate) use contract;

//! The engines that the contract is shown on, each with a place of its own for one test.

use std::time::Duration;

use tempfile::TempDir;
use tidegate_stream::{Drained, Log, NextOffset, OpenError, Partition, Settings};
use tidegate_test_support::{PATIENCE, eventually_ok};
use tokio::time::Instant;

/// Where a test's log lives. Opening it again is a restart: what was durable is there.
pub enum Fixture {
    Embedded { data: TempDir },
}

impl Fixture {
    pub fn embedded() -> Self {
        Self::Embedded { data: tempfile::tempdir().unwrap() }
    }

    /// Four partitions, and quick commits, so that no test waits long.
    pub fn settings(&self) -> Settings {
        let mut settings = Settings { partitions: Some(4), ..Settings::default() };
        settings.consume.commit_interval_ms = 20;
        settings.consume.drain_timeout_ms = 30_000;
        match self {
            Self::Embedded { .. } => settings.embedded.min_free_bytes = 0,
        }
        settings
    }

    pub async fn open(&self) -> Log {
        self.open_with(&self.settings()).await.unwrap()
    }

    pub async fn open_with(&self, settings: &Settings) -> Result<Log, OpenError> {
        match self {
            Self::Embedded { data } => {
                // The log before may still be letting its files go.
                let open = async || Ok(fjall::Database::builder(data.path()).open()?);
                let db = eventually_ok("the database to open", PATIENCE, open).await.unwrap();
                Log::open_embedded(db, settings)
            }
        }
    }

    /// Removes records as retention does, without asking any group.
    pub async fn eat(&self, log: &Log, partition: Partition, before: NextOffset) {
        match (self, log) {
            (Self::Embedded { .. }, Log::Embedded(log)) => {
                assert_eq!(log.delete_records(partition, before).await, Ok(before));
            }
            #[allow(unreachable_patterns, reason = "another engine's log is another fixture's")]
            _ => unreachable!(),
        }
    }

    /// Closes the log; whoever still holds records or inboxes of it keeps an embedded database open.
    pub async fn close(&self, log: Log) -> Drained {
        log.close(Instant::now() + Duration::from_secs(60)).await
    }
}

/// Makes each contract a test of every engine.
macro_rules! contract {
    ($($name:ident)*) => {
        mod embedded_engine {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    super::$name(&crate::fixture::Fixture::embedded()).await;
                }
            )*
        }
    };
}
pub(crate) use contract;

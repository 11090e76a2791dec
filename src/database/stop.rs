//! Stop of the embedded database: flushes all tables and empties the journal, so the next start has nothing to replay.

use std::{
    fs::File,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use fjall::{AbstractTree as _, Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use super::{journal, tables};

/// Interval at which pending flushes are polled.
const PAUSE: Duration = Duration::from_millis(5);
/// Texts by which the engine says that bytes are not those that it wrote.
const DAMAGE: [&str; 4] = ["ChecksumMismatch", "InvalidTag", "InvalidTrailer", "Decompress"];

/// Handle of the open database, for its stop and for the diagnosis of damage.
#[derive(Clone)]
pub(crate) struct OpenDatabase {
    database: Database,
    folder: PathBuf,
}

impl OpenDatabase {
    pub(super) fn new(database: &Database, folder: &Path) -> Self {
        Self { database: database.clone(), folder: folder.to_owned() }
    }

    /// Names the damaged files of tables if the error comes from one.
    pub(crate) fn name_damage(&self, error: anyhow::Error) -> anyhow::Error {
        let text = format!("{error:#}");
        if !DAMAGE.iter().any(|sign| text.contains(sign)) {
            return error;
        }
        let damaged = tables::damaged_files(&self.database);
        if damaged.is_empty() {
            return error.context(format!(
                "{} is damaged: put back a backup of the data folder",
                self.folder.display()
            ));
        }
        anyhow::anyhow!("{}. Put back a backup of the data folder on a sound disk", damaged.join("; "))
    }

    /// Writes all rows to tables and empties the journal. Log and store must be closed: a row that is written meanwhile is
    /// lost. On failure the next start reads the journals.
    pub(crate) async fn close(self, within: Duration) {
        let began = Instant::now();
        let (done, closed) = tokio::sync::oneshot::channel();
        let folder = self.folder.clone();
        // A thread of its own: a flush that hangs with the disk must not hold up the end of the process.
        let spawned = std::thread::Builder::new()
            .name("database end".to_owned())
            .spawn(move || drop(done.send(self.flush(began + within))));
        let closed = match spawned {
            Ok(_) => tokio::time::timeout(within, closed).await,
            Err(_) => return,
        };
        match closed {
            Ok(Ok(Ok(()))) => {
                let took = began.elapsed().as_millis();
                tracing::info!(folder = %folder.display(), took_ms = took, "the database is closed, its journal is empty");
            }
            Ok(Ok(Err(error))) => {
                tracing::warn!(folder = %folder.display(), error = format!("{error:#}"),
                    "the database is closed, and the next start reads its journals");
            }
            _ => tracing::warn!(folder = %folder.display(), within_ms = within.as_millis(),
                "the database could not be written to tables in time, and the next start reads its journals"),
        }
    }

    #[expect(clippy::disallowed_methods, reason = "it runs on a thread of its own")]
    fn flush(&self, deadline: Instant) -> anyhow::Result<()> {
        let keyspaces = self.keyspaces()?;
        for keyspace in &keyspaces {
            keyspace.rotate_memtable()?;
        }
        while keyspaces.iter().any(has_unwritten_rows) {
            if Instant::now() >= deadline {
                bail!("time is over");
            }
            std::thread::sleep(PAUSE);
        }
        // Fails after a failed write: memory may lack rows of the journal then.
        self.database.persist(PersistMode::SyncAll)?;
        let journals = journal::journals(&self.folder)?;
        let (_, active) = journals.numbered.last().context("there is no journal")?;
        let file = File::options().write(true).open(active)?;
        file.set_len(0)?;
        Ok(file.sync_all()?)
    }

    fn keyspaces(&self) -> fjall::Result<Vec<Keyspace>> {
        let names = self.database.list_keyspace_names();
        names.iter().map(|name| self.database.keyspace(name, KeyspaceCreateOptions::default)).collect()
    }
}

fn has_unwritten_rows(keyspace: &Keyspace) -> bool {
    keyspace.tree.sealed_memtable_count() > 0 || keyspace.tree.active_memtable().size() > 0
}

//! Stop of the embedded database: flushes all tables and empties the journal, so that the next start replays no rows.

use std::{
    fs::File,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use fjall::{AbstractTree as _, Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use crate::{journals, tables};

/// Interval between two checks for pending flushes.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Error texts by which the engine reports bytes that differ from those that it wrote.
const DAMAGE_MARKERS: [&str; 4] = ["ChecksumMismatch", "InvalidTag", "InvalidTrailer", "Decompress"];

/// Handle of the open database, for its stop and for the diagnosis of damage.
#[derive(Clone)]
pub struct OpenDatabase {
    database: Database,
    folder: PathBuf,
}

impl OpenDatabase {
    pub(super) fn new(database: &Database, folder: &Path) -> Self {
        Self { database: database.clone(), folder: folder.to_owned() }
    }

    /// Adds the damaged files of tables to an error that was caused by them.
    pub fn name_damage(&self, error: anyhow::Error) -> anyhow::Error {
        let text = format!("{error:#}");
        if !DAMAGE_MARKERS.iter().any(|marker| text.contains(marker)) {
            return error;
        }
        let damaged_files = tables::describe_damaged_files(&self.database);
        if damaged_files.is_empty() {
            return error.context(format!(
                "{} is damaged: put back a backup of the data folder",
                self.folder.display()
            ));
        }
        anyhow::anyhow!("{}. Put back a backup of the data folder on a sound disk", damaged_files.join("; "))
    }

    /// Writes all rows to tables and empties the journal. Log and store must be closed, since a row that is written meanwhile would be
    /// lost. After a failure the next start reads the journals.
    pub async fn close(self, timeout: Duration) {
        let started_at = Instant::now();
        let (result_sender, result_receiver) = tokio::sync::oneshot::channel();
        let folder = self.folder.clone();
        // A thread of its own: a flush that blocks on the disk must not delay the end of the process.
        let thread = std::thread::Builder::new()
            .name("database end".to_owned())
            .spawn(move || drop(result_sender.send(self.flush(started_at + timeout))));
        let result = match thread {
            Ok(_) => tokio::time::timeout(timeout, result_receiver).await,
            // Without a thread the journals stay, and the next start reads them.
            Err(_) => return,
        };
        match result {
            Ok(Ok(Ok(()))) => {
                let elapsed_ms = started_at.elapsed().as_millis();
                tracing::info!(folder = %folder.display(), took_ms = elapsed_ms, "the database is closed, its journal is empty");
            }
            Ok(Ok(Err(error))) => {
                tracing::warn!(folder = %folder.display(), error = format!("{error:#}"),
                    "the database is closed, and the next start reads its journals");
            }
            _ => tracing::warn!(folder = %folder.display(), within_ms = timeout.as_millis(),
                "the database could not be written to tables in time, and the next start reads its journals"),
        }
    }

    #[expect(clippy::disallowed_methods, reason = "it runs on a thread of its own")]
    fn flush(&self, deadline: Instant) -> anyhow::Result<()> {
        let keyspaces = self.keyspaces()?;
        for keyspace in &keyspaces {
            // All flushes start before the wait, so that they do not follow one another.
            keyspace.rotate_memtable()?;
        }
        while keyspaces.iter().any(has_unwritten_rows) {
            if Instant::now() >= deadline {
                bail!("the flush did not finish in time");
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        // Fails if an earlier write failed: the tables may then lack rows of the journal, which must be kept.
        self.database.persist(PersistMode::SyncAll)?;
        // All rows are in table files now. An emptied journal spares the next start from replaying it.
        let journals = journals::list_journals(&self.folder)?;
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

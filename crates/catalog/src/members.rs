//! Table of members: running processes with the configuration epoch that each has reached, so that a client
//! can wait until all run a new version. `live` writes the row of this process.

use std::time::Duration;

use async_recursion::async_recursion as boxed;
use serde::{Deserialize, Serialize};
use tidegate_schemas::ids::{ConfigVersion, Millis, OrgId};
use tidegate_store::{
    Batch, RowRange, Store, WriteTime,
    tables::catalog::members::{ALL, Member as Row},
};
use tokio::time::Instant;
use uuid::Uuid;

use crate::{Error, LoadReport};

/// Current version that does not compile in a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompileFailure {
    pub org: OrgId,
    pub version: ConfigVersion,
    /// Version that the process runs instead.
    pub running: Option<ConfigVersion>,
    pub reason: String,
}

/// Process with a heartbeat in the last 30 seconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Member {
    pub id: Uuid,
    pub label: String,
    pub started_at: Millis,
    pub seen_at: Millis,
    /// Epoch up to which the process runs all changes, except the failing ones.
    pub epoch: i64,
    pub failing: Vec<CompileFailure>,
}

/// Returns the loads of all other processes.
pub(crate) async fn loads_of_others(store: &Store, own_id: Uuid) -> Result<LoadReport, Error> {
    let rows = store.scan::<Row>(&Row::partition(ALL), RowRange::all()).all().await?;
    let other_rows = rows.into_iter().filter(|row| row.member_id != own_id);
    // A process of another release may write another format, or leave the column empty.
    let loads = other_rows.filter_map(|row| serde_json::from_str::<LoadReport>(row.load.as_deref()?).ok());
    Ok(loads.fold(LoadReport::default(), LoadReport::merge))
}

#[boxed]
pub async fn list(store: &Store) -> Result<Vec<Member>, Error> {
    let rows = store.scan::<Row>(&Row::partition(ALL), RowRange::all()).all().await?;
    let member = |row: Row| Member {
        id: row.member_id,
        label: row.label,
        started_at: row.started_at,
        seen_at: row.seen_at,
        epoch: row.epoch,
        // A process of another release may write a list that cannot be parsed here.
        failing: serde_json::from_str(&row.failing).unwrap_or_default(),
    };
    Ok(rows.into_iter().map(member).collect())
}

/// Row of this process, with the time of its last renewal.
pub(crate) struct Heartbeat {
    id: Uuid,
    label: String,
    started_at: Millis,
    interval: Duration,
    last_beat: Option<Beat>,
}

struct Beat {
    sent_at: Instant,
    write_time: WriteTime,
    epoch: i64,
}

impl Heartbeat {
    pub(crate) fn new(id: Uuid, label: String, every: Duration, now: Millis) -> Self {
        Self { id, label, started_at: now, interval: every, last_beat: None }
    }

    /// Writes the row after progress or when the interval is over.
    pub(crate) async fn beat(
        &mut self,
        store: &Store,
        epoch: i64,
        failing: impl FnOnce() -> Vec<CompileFailure>,
        load: impl FnOnce() -> Option<String>,
        now: Millis,
    ) -> Result<(), Error> {
        // A client may be waiting for this epoch, so progress is reported at once.
        let is_due = |last: &Beat| last.epoch != epoch || last.sent_at.elapsed() >= self.interval;
        if !self.last_beat.as_ref().is_none_or(is_due) {
            return Ok(());
        }
        let write_time = self.next_write_time(now);
        let row = Row {
            name: ALL.to_owned(),
            member_id: self.id,
            label: self.label.clone(),
            started_at: self.started_at,
            seen_at: now,
            epoch,
            failing: serde_json::to_string(&failing()).expect("a list of texts and numbers"),
            load: load(),
        };
        let mut batch = Batch::new();
        batch.put_owned(write_time, row);
        store.write(batch).await?;
        self.last_beat = Some(Beat { sent_at: Instant::now(), write_time, epoch });
        Ok(())
    }

    /// Removes this process from the members, so that no client waits for it. The row of a crashed process
    /// expires.
    pub(crate) async fn remove_member(&mut self, store: &Store, now: Millis) {
        if self.last_beat.is_none() {
            return;
        }
        let key = Row::key(ALL, self.id);
        if let Err(error) = store.delete::<Row>(self.next_write_time(now), &key).await {
            tracing::debug!(tag = error.tag(), "cannot end the membership; it expires");
        }
    }

    fn next_write_time(&self, now: Millis) -> WriteTime {
        WriteTime::after(self.last_beat.as_ref().map(|last| last.write_time), now)
    }
}

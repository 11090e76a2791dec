//! Members: processes that run configurations, and the version each runs, so that a client can wait until all run a new
//! one.
//!
//! It loads nothing; `live` does and tells here.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_schemas::ids::{ConfigVersion, Millis, OrgId};
use tidegate_store::{
    At, Batch, Store, WriteTime,
    tables::catalog::members::{ALL, Member as Row},
};
use tokio::time::Instant;
use uuid::Uuid;

use crate::{Error, LoadReport};

/// A current version that does not compile in a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failing {
    pub org: OrgId,
    pub version: ConfigVersion,
    /// Version that it runs instead.
    pub running: Option<ConfigVersion>,
    pub reason: String,
}

/// A process that is alive, or was less than 30 seconds ago.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Member {
    pub id: Uuid,
    pub label: String,
    pub started_at: Millis,
    pub seen_at: Millis,
    /// It runs every change up to this epoch, but for those that are failing.
    pub epoch: i64,
    pub failing: Vec<Failing>,
}

/// Returns the loads of all processes but one.
pub(crate) async fn loads_of_others(store: &Store, own: Uuid) -> Result<LoadReport, Error> {
    let rows = store.scan::<Row>(&Row::partition(ALL), At::all()).all().await?;
    let others = rows.into_iter().filter(|row| row.member_id != own);
    // A process of another version may write another form, or leave the column empty.
    let loads = others.filter_map(|row| serde_json::from_str::<LoadReport>(row.load.as_deref()?).ok());
    Ok(loads.fold(LoadReport::default(), LoadReport::joined))
}

pub async fn list(store: &Store) -> Result<Vec<Member>, Error> {
    let rows = store.scan::<Row>(&Row::partition(ALL), At::all()).all().await?;
    let member = |row: Row| Member {
        id: row.member_id,
        label: row.label,
        started_at: row.started_at,
        seen_at: row.seen_at,
        epoch: row.epoch,
        // Of a process of another version: it lists what it likes.
        failing: serde_json::from_str(&row.failing).unwrap_or_default(),
    };
    Ok(rows.into_iter().map(member).collect())
}

/// The own row, and when it must be renewed.
pub(crate) struct Heartbeat {
    id: Uuid,
    label: String,
    started_at: Millis,
    every: Duration,
    last: Option<Beat>,
}

struct Beat {
    at: Instant,
    written: WriteTime,
    epoch: i64,
}

impl Heartbeat {
    pub(crate) fn new(id: Uuid, label: String, every: Duration, now: Millis) -> Self {
        Self { id, label, started_at: now, every, last: None }
    }

    /// Writes the row if the process got further or it is time.
    pub(crate) async fn beat(
        &mut self,
        store: &Store,
        epoch: i64,
        failing: impl FnOnce() -> Vec<Failing>,
        load: impl FnOnce() -> Option<String>,
        now: Millis,
    ) -> Result<(), Error> {
        let due = |last: &Beat| last.epoch != epoch || last.at.elapsed() >= self.every;
        if !self.last.as_ref().is_none_or(due) {
            return Ok(());
        }
        let written = self.next(now);
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
        batch.put_owned(written, row);
        store.write(batch).await?;
        self.last = Some(Beat { at: Instant::now(), written, epoch });
        Ok(())
    }

    /// Removes this process from the members. Nobody has to wait for a process that ended in order; the row of a
    /// crashed one expires.
    pub(crate) async fn leave(&mut self, store: &Store, now: Millis) {
        if self.last.is_none() {
            return;
        }
        let key = Row::key(ALL, self.id);
        if let Err(error) = store.delete::<Row>(self.next(now), &key).await {
            tracing::debug!(tag = error.tag(), "cannot end the membership; it expires");
        }
    }

    fn next(&self, now: Millis) -> WriteTime {
        WriteTime::after(self.last.as_ref().map(|last| last.written), now)
    }
}

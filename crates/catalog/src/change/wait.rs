//! Waits until every process that lives runs a version.
//!
//! It loads nothing anywhere; the processes follow by themselves.

use std::time::Duration;

use tidegate_schemas::ids::{ConfigVersion, Millis, OrgId};
use tidegate_store::Store;
use tokio::time::Instant;

use crate::{
    Error,
    members::{self, Failing, Member},
    snapshots,
};

/// Result of waiting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Waited {
    /// Number of processes that live, all of which run it.
    Running(usize),
    /// Processes, by label, that cannot run it, and why.
    Failing(Vec<(String, Failing)>),
    /// Processes, by label, that were not there yet when the time was over.
    Behind(Vec<String>),
}

pub(super) async fn wait(
    store: &Store,
    org: &OrgId,
    version: ConfigVersion,
    within: Duration,
    now: Millis,
) -> Result<Waited, Error> {
    const PAUSE: Duration = Duration::from_millis(50);
    let give_up = Instant::now() + within;
    let head = snapshots::head(store, org).await?.ok_or_else(|| Error::NoSuchOrg(org.clone()))?;
    if head.config_version < version {
        return Err(Error::NoSuchVersion { org: org.clone(), wanted: version, head: head.config_version });
    }
    // Whoever runs all up to this epoch has read the head after it moved, even if its own bump was lost.
    let epoch = snapshots::bump(store, now).await?;
    loop {
        let members = members::list(store).await?;
        let behind: Vec<_> = members.iter().filter(|it| it.epoch < epoch).collect();
        if behind.is_empty() {
            let failing: Vec<_> = members.iter().filter_map(|it| failure(it, org, version)).collect();
            let all_run = failing.is_empty();
            return Ok(if all_run { Waited::Running(members.len()) } else { Waited::Failing(failing) });
        }
        if Instant::now() + PAUSE > give_up {
            return Ok(Waited::Behind(behind.iter().map(|it| it.label.clone()).collect()));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn failure(member: &Member, org: &OrgId, version: ConfigVersion) -> Option<(String, Failing)> {
    let concerns = |it: &&Failing| it.org == *org && it.running.is_none_or(|running| running < version);
    member.failing.iter().find(concerns).map(|it| (member.label.clone(), it.clone()))
}

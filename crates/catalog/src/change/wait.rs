//! Waits until every live process runs a version.

use std::time::Duration;

use tidegate_schemas::ids::{ConfigVersion, Millis, OrgId};
use tidegate_store::Store;
use tokio::time::Instant;

use crate::{
    Error,
    members::{self, CompileFailure, Member},
    snapshots,
};

/// Result of the wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitOutcome {
    /// All live processes run the version; their number.
    Running(usize),
    /// Processes that cannot run the version, by label, with the reason.
    Failing(Vec<(String, CompileFailure)>),
    /// Labels of the processes that had not reached the version at the deadline.
    Behind(Vec<String>),
}

pub(super) async fn wait_until_live(
    store: &Store,
    org: &OrgId,
    version: ConfigVersion,
    within: Duration,
    now: Millis,
) -> Result<WaitOutcome, Error> {
    const POLL_INTERVAL: Duration = Duration::from_millis(50);
    let deadline = Instant::now() + within;
    let head = snapshots::load_head(store, org).await?.ok_or_else(|| Error::NoSuchOrg(org.clone()))?;
    if head.config_version < version {
        return Err(Error::NoSuchVersion { org: org.clone(), wanted: version, head: head.config_version });
    }
    // A process that runs all changes up to this epoch has read the head after it changed, even if the bump
    // of the change itself was lost.
    let epoch = snapshots::bump_epoch(store, now).await?;
    loop {
        let members = members::list(store).await?;
        let lagging_members: Vec<_> = members.iter().filter(|it| it.epoch < epoch).collect();
        // Failures are complete only when every process has reached the epoch.
        if lagging_members.is_empty() {
            let failures: Vec<_> = members.iter().filter_map(|it| find_failure(it, org, version)).collect();
            let all_run = failures.is_empty();
            return Ok(if all_run {
                WaitOutcome::Running(members.len())
            } else {
                WaitOutcome::Failing(failures)
            });
        }
        // Another poll would end after the deadline.
        if Instant::now() + POLL_INTERVAL > deadline {
            return Ok(WaitOutcome::Behind(lagging_members.iter().map(|it| it.label.clone()).collect()));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

fn find_failure(member: &Member, org: &OrgId, version: ConfigVersion) -> Option<(String, CompileFailure)> {
    let blocks_version =
        |it: &&CompileFailure| it.org == *org && it.running.is_none_or(|running| running < version);
    member.failing.iter().find(blocks_version).map(|it| (member.label.clone(), it.clone()))
}

//! The role `deliver`: callbacks from their record on the log until they are delivered or given up.
//!
//! Events are planned in `tidegate-moderation`; calls are made and signed in `tidegate-egress`.
//!
//! `intake` turns records into deliveries and carries commands out on them, `endpoint_queues` says which delivery is
//! attempted next, `attempt` makes the call and `route` finds what it needs, `delivery_state` says what follows, and `due`
//! brings deliveries up when they are due. The owner of a partition of the topic is the only writer of its deliveries.

mod attempt;
mod body;
mod delivery_rows;
mod delivery_state;
mod dispatcher;
mod due;
mod endpoint_queues;
mod intake;
mod route;
mod settings;

use std::{sync::Arc, time::Duration};

use tidegate_catalog::{Live, Secrets};
use tidegate_egress::Client;
use tidegate_store::Store;
use tidegate_stream::{
    Log, Topic,
    consumer::inbox::DrainResult,
    topics::{Group, Role},
};
use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;

pub use self::settings::{Pause, Settings};
use self::{dispatcher::Dispatcher, due::DueDeliveries, intake::Intake};
use crate::{
    consumer::{consumer_loop::ConsumerLoop, error::RoleError},
    health::Health,
    scheduler::due_scanner::DueScanner,
    settings::Settings as ConsumerSettings,
};

pub(crate) const ROLE: Role = Role("callbacks");

/// Handles of the process that the role `deliver` works with.
#[derive(Clone)]
pub struct Deps {
    pub log: Log,
    pub store: Store,
    pub live: Arc<Live>,
    pub secrets: Secrets,
    pub client: Client,
    /// Shared by all roles of the process.
    pub health: Health,
}

/// Runs the role until `stop`, until the running calls have ended, and until the records that were read are accepted.
///
/// `processing` holds the settings by which every topic is consumed.
pub async fn deliver(
    deps: Deps,
    processing: ConsumerSettings,
    settings: Settings,
    stop: CancellationToken,
) -> Result<DrainResult, RoleError> {
    settings.validate()?;
    processing.validate()?;
    let processing = Arc::new(processing);
    // The partitions are kept until the running calls have ended, so that no other process makes the calls again.
    let release_partitions = CancellationToken::new();
    let _on_drop = release_partitions.clone().drop_guard();
    let inbox = deps.log.consume(
        Group("callbacks"),
        &[Topic::Callbacks],
        processing.budget(),
        ROLE,
        release_partitions.clone(),
    );
    let ownership = inbox.ownership();
    let dispatcher =
        Arc::new(Dispatcher::new(&deps, settings.clone(), Arc::clone(&processing), ownership.clone()));
    let calls_stop = stop.child_token();
    let _calls_on_drop = calls_stop.clone().drop_guard();
    let scanner = DueScanner::new(
        ROLE,
        Topic::Callbacks,
        DueDeliveries(Arc::clone(&dispatcher)),
        Duration::from_millis(settings.poll_ms),
        Duration::from_millis(settings.sweep_ms),
        Arc::clone(&processing),
        deps.health.clone(),
    );
    let intake = Intake(Arc::clone(&dispatcher));
    let consumer = ConsumerLoop::new(ROLE, inbox, intake, deps.live, processing, deps.health);
    let mut accepting = tokio::spawn(consumer.run());
    let mut calling = tokio::spawn({
        let stop = calls_stop.clone();
        async move { tokio::join!(dispatcher.run(stop.clone()), scanner.run(ownership, stop)).0 }
    });

    let accepted = tokio::select! {
        biased;
        ended = &mut accepting => Some(ended),
        () = stop.cancelled() => None,
        // Before it is told to stop, it can only end by a panic.
        ended = &mut calling => return Err(broken(ended.err())),
    };
    calls_stop.cancel();
    let called = calling.await.map_err(|error| broken(Some(error)))?;
    release_partitions.cancel();
    let accepted = match accepted {
        Some(ended) => ended,
        None => accepting.await,
    };
    let accepted = accepted.map_err(|error| broken(Some(error)))??;
    Ok(accepted.and(called))
}

fn broken(error: Option<JoinError>) -> RoleError {
    let detail = error.map_or_else(|| "it ended by itself".to_owned(), |error| error.to_string());
    RoleError::Broken { role: ROLE, detail }
}

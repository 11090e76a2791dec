//! The role `deliver`: attempts callbacks until they are delivered, held or exhausted.
//!
//! Events are planned in `tidegate-moderation`; calls are made and signed in `tidegate-egress`.
//!
//! `intake` turns records into deliveries and applies commands to them. `endpoint_queues` orders the attempts, `route`
//! looks up endpoint, headers and secret, `attempt` makes the call, and `delivery_state` decides the next state. `due`
//! queues a delivery again when its due row is due. The owner of a partition of the topic is the only writer of its
//! deliveries.

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

use async_recursion::async_recursion as boxed;
use tidegate_catalog::{LiveConfigs, Secrets};
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
    due::scanner::DueScanner,
    health::Health,
    settings::Settings as ConsumerSettings,
};

pub(crate) const ROLE: Role = Role("callbacks");

/// Shared handles of the process for the role `deliver`.
#[derive(Clone)]
pub struct Deps {
    pub log: Log,
    pub store: Store,
    pub live: Arc<LiveConfigs>,
    pub secrets: Secrets,
    pub client: Client,
    /// Shared by all roles of the process.
    pub health: Health,
}

/// Runs the role until `stop`. Returns after the running calls have ended and the records that were read are accepted.
///
/// `processing` holds the settings that all consumers share.
#[boxed]
pub async fn deliver(
    deps: Deps,
    processing: ConsumerSettings,
    settings: Settings,
    stop: CancellationToken,
) -> Result<DrainResult, RoleError> {
    settings.validate()?;
    processing.validate()?;
    let processing = Arc::new(processing);
    // The inbox keeps the partitions until the running calls have ended. Released earlier, another process would repeat
    // the calls.
    let release_partitions = CancellationToken::new();
    let _on_drop = release_partitions.clone().drop_guard();
    let inbox = deps.log.consume(
        Group("callbacks"),
        &[Topic::Callbacks],
        processing.inbox_budget(),
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
    let mut intake_task = tokio::spawn(consumer.run());
    let mut calls_task = tokio::spawn({
        let stop = calls_stop.clone();
        async move { tokio::join!(dispatcher.run(stop.clone()), scanner.run(ownership, stop)).0 }
    });

    let early_exit = tokio::select! {
        biased;
        exit = &mut intake_task => Some(exit),
        () = stop.cancelled() => None,
        // Before `calls_stop` is cancelled, this task can end only by a panic.
        exit = &mut calls_task => return Err(unexpected_exit_error(exit.err())),
    };
    calls_stop.cancel();
    let calls_result = calls_task.await.map_err(|error| unexpected_exit_error(Some(error)))?;
    release_partitions.cancel();
    let intake_exit = match early_exit {
        Some(exit) => exit,
        None => intake_task.await,
    };
    let intake_result = intake_exit.map_err(|error| unexpected_exit_error(Some(error)))??;
    Ok(intake_result.and(calls_result))
}

fn unexpected_exit_error(error: Option<JoinError>) -> RoleError {
    let detail = error.map_or_else(|| "the task ended without a stop".to_owned(), |error| error.to_string());
    RoleError::Failure { role: ROLE, detail }
}

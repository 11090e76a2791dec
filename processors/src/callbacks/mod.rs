//! Callbacks until they are settled: the role `deliver`.
//!
//! It does not decide what a platform is told (`tidegate-moderation` plans events) nor how a call is made and signed
//! (`tidegate-egress`).
//!
//! `intake` turns records into deliveries, `endpoint_queues` says whose turn it is, `attempt` makes the calls, `delivery_state` says what
//! follows, and `due` brings up what is due. The owner of a partition of the topic is the only writer of its
//! deliveries.

mod attempt;
mod body;
mod delivery_rows;
mod delivery_state;
mod dispatcher;
mod due;
mod endpoint_queues;
mod intake;
mod settings;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64},
    },
    time::Duration,
};

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
use self::{dispatcher::Courier, due::DueDeliveries, intake::Accept};
use crate::{Health, RoleError, consumer::consumer_loop::Worker, scheduler::due_scanner::Scanner};

pub(crate) const ROLE: Role = Role("callbacks");

/// What the role works on.
#[derive(Clone)]
pub struct Deps {
    pub log: Log,
    pub store: Store,
    pub live: Arc<Live>,
    pub secrets: Secrets,
    pub client: Client,
    /// Shared by the roles of the process, and asked by readiness.
    pub health: Health,
}

/// Delivers callbacks until it is told to stop, calls under way have ended and records under way are accepted.
///
/// `processing` says how the topic is consumed, as for every other one.
pub async fn deliver(
    deps: Deps,
    processing: crate::Settings,
    settings: Settings,
    stop: CancellationToken,
) -> Result<DrainResult, RoleError> {
    settings.validate()?;
    processing.validate()?;
    let processing = Arc::new(processing);
    // Partitions are kept until the calls under way have ended, so that nobody else makes them again.
    let let_go = CancellationToken::new();
    let _on_drop = let_go.clone().drop_guard();
    let inbox =
        deps.log.consume(Group("callbacks"), &[Topic::Callbacks], processing.budget(), ROLE, let_go.clone());
    let ownership = inbox.ownership();
    let courier = Arc::new(Courier::new(&deps, settings.clone(), Arc::clone(&processing), ownership.clone()));
    let calls_stop = stop.child_token();
    let _calls_on_drop = calls_stop.clone().drop_guard();
    let scanner = Scanner {
        role: ROLE,
        topic: Topic::Callbacks,
        table: DueDeliveries(Arc::clone(&courier)),
        poll: Duration::from_millis(settings.poll_ms),
        sweep: Duration::from_millis(settings.sweep_ms),
        settings: Arc::clone(&processing),
        health: deps.health.clone(),
        latest: AtomicI64::default(),
        is_told: AtomicBool::default(),
    };
    let worker = Worker::new(ROLE, inbox, Accept(Arc::clone(&courier)), processing, deps.health.clone());
    let mut accepting = tokio::spawn(worker.run());
    let mut calling = tokio::spawn({
        let stop = calls_stop.clone();
        async move { tokio::join!(courier.run(stop.clone()), scanner.run(ownership, stop)).0 }
    });

    let accepted = tokio::select! {
        biased;
        ended = &mut accepting => Some(ended),
        () = stop.cancelled() => None,
        // It is told to end; before that it only panics.
        ended = &mut calling => return Err(broken(ended.err())),
    };
    calls_stop.cancel();
    let called = calling.await.map_err(|error| broken(Some(error)))?;
    let_go.cancel();
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

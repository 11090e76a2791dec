//! Life of a process that runs scheduled exports only. It opens the store, and neither log, keys nor configurations.
//!
//! `serve` runs the other roles.

use std::{process::ExitCode, time::Duration};

use tokio::net::TcpListener;

use crate::{
    exports,
    health::{self, Health},
    open, open_files, operations,
    retry_open::OpenRetry,
    roles::{self, End, Timing},
    runtime::WorkerRuntime,
    serve::{self, Background},
    server_file::Addresses,
    settings::{LoadedSettings, Settings},
    telemetry,
};

/// Runs until a signal or a failure of the role.
pub(crate) async fn run(loaded: LoadedSettings) -> anyhow::Result<ExitCode> {
    let settings = loaded.settings;
    telemetry::init_logging(&settings.telemetry)?;
    open_files::raise_limit();
    let metrics = crate::metrics::install()?;
    let (signal, force) = serve::listen_for_signals()?;
    let listener = serve::bind("ops.listen", settings.ops.listen).await?;
    let addresses = operations_address(&listener)?;

    let health = Health::default();
    health.set_role(exports::ROLE_NAME, health::Role::Starting);
    let background = Background::default();
    background.run(crate::metrics::upkeep(metrics.clone(), background.stop_token()));
    let operations = operations::Server::start(listener, operations::router(health.clone(), metrics))?;

    let process = async {
        let retry = OpenRetry::new(health.clone());
        let opening = signal.run_until_cancelled(open::open_shared_store(&settings, &retry)).await;
        // A signal ends the start at once, because no work has begun.
        let Some(store) = opening else { return Ok(End::Clean) };
        let store = store?;
        background.run(health.clone().watch_store(store.clone(), background.stop_token()));
        let workers = WorkerRuntime::start(settings.runtime)?;
        let role = exports::create_role(&settings, &store)?;
        health.set_open();
        serve::print_addresses(&addresses);
        let timing = timing_of(&settings);
        let end = roles::run(vec![role], workers.handle(), &health, &timing, signal.clone(), force).await;
        if let Err(error) = store.close().await {
            tracing::warn!(%error, "the store was not closed in order");
        }
        workers.end().await;
        anyhow::Ok(end)
    };
    let end = process.await;
    background.end().await;
    // Stopped last, so that probes see the whole drain.
    operations.stop();
    end.map(|end| serve::report_end(&end))
}

fn operations_address(listener: &TcpListener) -> anyhow::Result<Addresses> {
    Ok(Addresses { api: None, console: None, receiver: None, ops: listener.local_addr()? })
}

fn timing_of(settings: &Settings) -> Timing {
    // The linger time is for clients of servers.
    Timing { linger: Duration::ZERO, drain: settings.ops.drain() }
}

//! Life of one process: binds listeners, opens the shared parts, runs the roles, and closes all parts in order.
//!
//! It decides which roles exist; `roles` runs and stops them.

use std::{future::Future, net::SocketAddr, process::ExitCode, sync::Arc, time::Duration};

use anyhow::Context as _;
use tidegate_catalog::{Keys, Secrets, change::Changes, first_start};
use tidegate_console::LocalToken;
use tidegate_egress::Client;
use tidegate_media::Decoders;
use tidegate_moderation::{history_backfill, media::MediaInspector, scores::Scorer};
use tidegate_schemas::ids::SubmissionId;
use tidegate_store::{Store, system_clock};
use tidegate_stream::consumer::inbox::DrainResult;
use tidegate_web::HttpServer;
use tokio::{net::TcpListener, time::Instant};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    demo::{self, Demo},
    exports, first_key,
    health::{self, Health, HttpServers, Parts},
    open::{self, SharedParts},
    open_files, operations,
    output::print_line,
    retry_open::{OpenError, OpenRetry, PlaceholderServers},
    roles::{self, End, Phase, Role, Timing},
    runtime::WorkerRuntime,
    server_file::{self, Addresses},
    settings::{LoadedSettings, Settings},
    telemetry,
};

/// Role that a process can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RoleKind {
    Ingest,
    Process,
    Deliver,
    Console,
    Export,
}

impl RoleKind {
    /// Roles of a process that runs all of them. It runs `export` as well if there are schedules.
    pub(crate) const ALWAYS: [Self; 4] = [Self::Ingest, Self::Process, Self::Deliver, Self::Console];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ingest => "ingest",
            Self::Process => "process",
            Self::Deliver => "deliver",
            Self::Console => "console",
            Self::Export => exports::ROLE_NAME,
        }
    }
}

/// Time limit for closing each of the last parts, granted even if draining took all of its time.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) async fn run(
    loaded: LoadedSettings,
    kinds: &[RoleKind],
    demo: Option<Demo>,
) -> anyhow::Result<ExitCode> {
    let settings = loaded.settings;
    telemetry::init_logging(&settings.telemetry)?;
    let files = open_files::raise_limit();
    // Checked before listeners and data use up files of the limit.
    open_files::check(&settings, files)?;
    let metrics = crate::metrics::install()?;
    let (signal, force) = listen_for_signals()?;
    let listeners = Listeners::bind(&settings, kinds, demo.as_ref()).await?;

    let health = Health::default();
    for role in kinds {
        health.set_role(role.name(), health::Role::Starting);
    }
    let background = Background::default();
    background.run(crate::metrics::upkeep(metrics.clone(), background.stop_token()));
    let ops = operations::router(health.clone(), metrics);
    let Listeners { ops: port, servers } = listeners;
    // Started before the parts are opened, so that probes are answered during a long start.
    let operations = operations::Server::start(port, ops)?;

    // The demo creates the organisation itself, because it needs the key.
    let makes_first_org = kinds.contains(&RoleKind::Console) && demo.is_none();
    let open_result =
        signal.run_until_cancelled(open_parts(&settings, &health, &servers, makes_first_org)).await;
    // A signal ends the start at once, because no work has begun.
    let Some(opened) = open_result else {
        background.end().await;
        operations.stop();
        return Ok(End::Clean.exit_code());
    };
    let end = match opened {
        Ok(opened) => {
            let process = RoleProcess {
                settings: &settings,
                kinds,
                health: &health,
                background: &background,
                file_limit: files,
            };
            process.run(opened, servers, demo, (signal, force)).await
        }
        Err(error) => Err(error),
    };
    background.end().await;
    // Stopped last, so that probes see the whole drain.
    operations.stop();
    end.map(|end| report_end(&end))
}

/// Prints the error of a failed role, and returns the exit code.
pub(crate) fn report_end(end: &End) -> ExitCode {
    if let End::Failed { role, error } = end {
        crate::output::print_error(format!("error: role {role} failed: {error:#}"));
    }
    end.exit_code()
}

/// Opens the shared parts, and meanwhile answers 503 on the ports of the servers.
async fn open_parts(
    settings: &Settings,
    health: &Health,
    servers: &Servers,
    makes_first_org: bool,
) -> anyhow::Result<SharedParts> {
    let (retry, placeholders) = (OpenRetry::new(health.clone()), PlaceholderServers::default());
    for listener in [&servers.api, &servers.console].into_iter().flatten() {
        retry.answer_unavailable(listener, &placeholders)?;
    }
    let parts = open::open(settings, &retry).await?;
    if makes_first_org {
        retry.open("first start", async || make_first_org(settings, &parts).await).await?;
    }
    // They share the sockets with the real servers, so they must stop accepting first.
    placeholders.close().await;
    Ok(parts)
}

/// Context of the roles of this process.
struct RoleProcess<'a> {
    settings: &'a Settings,
    kinds: &'a [RoleKind],
    health: &'a Health,
    background: &'a Background,
    /// Limit of open files.
    file_limit: usize,
}

impl RoleProcess<'_> {
    async fn run(
        self,
        parts: SharedParts,
        mut servers: Servers,
        demo: Option<Demo>,
        (signal, force): (CancellationToken, CancellationToken),
    ) -> anyhow::Result<End> {
        let SharedParts { log, store, live, keys, secrets, database } = parts;
        let workers = WorkerRuntime::start(self.settings.runtime)?;
        let changes = Changes::new(store.clone(), secrets.clone(), &self.settings.catalog);
        let banks = changes.banks();
        // A new token for each process, so that it ends with the process.
        let token = Arc::new(LocalToken::new(random_local_token()));
        let processing = tidegate_processors::Health::default();
        let (api, admin) = open_files::create_servers(self.settings, self.file_limit)?;
        let http = HttpServers { api, admin };
        let parts = Parts {
            log: log.clone(),
            store: store.clone(),
            live: Arc::clone(&live),
            processing: processing.clone(),
            http: http.clone(),
        };
        let (followed_configs, stop_following) = (Arc::clone(&live), CancellationToken::new());
        let stop_signal = stop_following.clone();
        let follow_task = tokio::spawn(async move { followed_configs.run(stop_signal).await });
        self.background.run(self.health.clone().watch(parts, self.background.stop_token()));

        // On a cluster an operator runs it as a command; here no other process can open the store.
        if matches!(store, Store::Embedded(_)) {
            self.background.run(back_fill(store.clone(), signal.clone()));
        }

        let addresses = servers.addresses;
        let demo = match (demo, servers.receiver) {
            (Some(demo), Some(listener)) => {
                let wiring = demo::DemoDeps {
                    store: &store,
                    live: &live,
                    keys: &keys,
                    secrets: &secrets,
                    changes: &changes,
                };
                Some(demo.prepare(&self.settings.data.folder, wiring, &addresses, listener).await?)
            }
            _ => None,
        };
        let server_json = match addresses.console {
            Some(console) => {
                // The folder does not exist yet if neither log nor store is embedded.
                open::create_folder(&self.settings.data.folder)?;
                Some(server_file::write(&self.settings.data.folder, console, token.reveal())?)
            }
            None => None,
        };

        let moderation = tidegate_moderation::Deps {
            log: log.clone(),
            store: store.clone(),
            live: Arc::clone(&live),
            partial_items: Arc::new(self.settings.partial_items.clone()),
        };
        let mut roles = Vec::new();
        for role in self.kinds {
            let settings = self.settings;
            let (api, admin) = (&http.api, &http.admin);
            roles.extend(match role {
                RoleKind::Ingest => {
                    servers.api.take().map(|listener| ingest(settings, &moderation, &keys, api, listener))
                }
                RoleKind::Console => servers.console.take().map(|listener| {
                    let deps = tidegate_console::Deps {
                        moderation: moderation.clone(),
                        keys: keys.clone(),
                        secrets: secrets.clone(),
                        changes: changes.clone(),
                        banks: banks.clone(),
                        local_token: Arc::clone(&token),
                        window_rows: settings.processors.window_rows,
                    };
                    console(settings, deps, admin, listener)
                }),
                RoleKind::Process => Some(process(settings, &moderation, &secrets, &processing)?),
                RoleKind::Deliver => Some(deliver(settings, &moderation, &secrets, &processing)?),
                RoleKind::Export => Some(exports::create_role(settings, &store)?),
            });
        }
        if let Some(demo) = demo {
            roles.push(demo.role());
        }
        self.health.set_open();
        // Announced last: scripts that wait for this line may call the servers right away.
        print_addresses(&addresses);

        let timing = Timing { linger: self.settings.ops.linger(), drain: self.settings.ops.drain() };
        let end = roles::run(roles, workers.handle(), self.health, &timing, signal, force.clone()).await;
        // Removed before the parts close, so that commands do not find a process that cannot answer.
        drop(server_json);
        let log_drain = log.close(Instant::now() + CLOSE_TIMEOUT).await;
        stop_following.cancel();
        let _followed = tokio::time::timeout(CLOSE_TIMEOUT, follow_task).await;
        let store_close = store.close().await;
        if let Err(error) = &store_close {
            tracing::warn!(%error, "the store was not closed in order");
        }
        workers.end().await;
        let end = match end {
            End::Clean if log_drain == DrainResult::Forced => End::Forced,
            end => end,
        };
        Ok(match (end, database) {
            // The flush requires a closed store: rows written meanwhile would be lost.
            (End::Clean, Some(database)) if store_close.is_ok() => {
                // A second signal cuts this short; the next start then has more to replay.
                force.run_until_cancelled(database.close(self.settings.ops.drain())).await;
                End::Clean
            }
            (End::Failed { role, error }, Some(database)) => {
                let error = tokio::task::spawn_blocking(move || database.name_damage(error)).await?;
                End::Failed { role, error }
            }
            (end, _) => end,
        })
    }
}

/// Writes history events for rows of earlier versions.
async fn back_fill(store: Store, stop: CancellationToken) {
    let mut rows = 0;
    let run = history_backfill::run(&store, |progress| rows += progress.rows);
    match stop.run_until_cancelled(run).await {
        Some(Ok(())) if rows > 0 => tracing::info!(rows, "history events of earlier rows are written"),
        // The next start continues.
        Some(Ok(())) | None => {}
        Some(Err(error)) => {
            tracing::error!(%error, "history events of earlier rows are incomplete; the next start continues");
        }
    }
}

fn ingest(
    settings: &Settings,
    moderation: &tidegate_moderation::Deps,
    keys: &Keys,
    http: &HttpServer,
    listener: TcpListener,
) -> Role {
    let deps = tidegate_ingest::Deps {
        log: moderation.log.clone(),
        store: moderation.store.clone(),
        live: Arc::clone(&moderation.live),
        keys: keys.clone(),
    };
    let (ingest_settings, http) = (settings.ingest.clone(), http.clone());
    Role::new(RoleKind::Ingest.name(), Phase::Server, move |stop| async move {
        Ok(drain_result_of(tidegate_ingest::run(deps, ingest_settings, http, listener, stop).await?))
    })
}

fn console(
    settings: &Settings,
    deps: tidegate_console::Deps,
    http: &HttpServer,
    listener: TcpListener,
) -> Role {
    let (review_settings, http) = (settings.review.clone(), http.clone());
    Role::new(RoleKind::Console.name(), Phase::Server, move |stop| async move {
        Ok(drain_result_of(tidegate_console::run(deps, review_settings, http, listener, stop).await))
    })
}

fn process(
    settings: &Settings,
    moderation: &tidegate_moderation::Deps,
    secrets: &Secrets,
    health: &tidegate_processors::Health,
) -> anyhow::Result<Role> {
    let client = Client::new(settings.egress.clone())?;
    let decoders = Decoders::new(settings.media.clone())?;
    let deps = tidegate_processors::Deps {
        log: moderation.log.clone(),
        store: moderation.store.clone(),
        live: Arc::clone(&moderation.live),
        scorer: Scorer::new(client.clone(), moderation.store.clone(), secrets.clone(), &settings.scores),
        partial_items: tidegate_processors::PartialItemsDeps {
            endpoints: Arc::clone(&moderation.partial_items),
            client: client.clone(),
            secrets: secrets.clone(),
        },
        signals: MediaInspector::new(client, decoders, moderation.store.clone(), &settings.signals),
        health: health.clone(),
    };
    let processor_settings = settings.processors.clone();
    Ok(Role::new(RoleKind::Process.name(), Phase::Worker, move |stop| async move {
        Ok(tidegate_processors::process(deps, processor_settings, stop).await?)
    }))
}

fn deliver(
    settings: &Settings,
    moderation: &tidegate_moderation::Deps,
    secrets: &Secrets,
    health: &tidegate_processors::Health,
) -> anyhow::Result<Role> {
    let deps = tidegate_processors::callbacks::Deps {
        log: moderation.log.for_effects(),
        store: moderation.store.clone(),
        live: Arc::clone(&moderation.live),
        secrets: secrets.clone(),
        client: Client::new(settings.egress.clone())?,
        health: health.clone(),
    };
    let (processor_settings, callback_settings) = (settings.processors.clone(), settings.callbacks.clone());
    Ok(Role::new(RoleKind::Deliver.name(), Phase::Worker, move |stop| async move {
        Ok(tidegate_processors::callbacks::deliver(deps, processor_settings, callback_settings, stop).await?)
    }))
}

fn drain_result_of(drained: tidegate_web::DrainOutcome) -> DrainResult {
    match drained {
        tidegate_web::DrainOutcome::Clean => DrainResult::Clean,
        tidegate_web::DrainOutcome::Forced => DrainResult::Forced,
    }
}

/// Returns a token of two random ids: 244 random bits.
fn random_local_token() -> String {
    let random = || SubmissionId::random().0.simple().to_string();
    format!("{}{}", random(), random())
}

/// Creates the first organisation in an empty store, and hands over its key once.
async fn make_first_org(settings: &Settings, opened: &SharedParts) -> Result<(), OpenError> {
    let first = first_start(&opened.store, &opened.keys, &system_clock()).await;
    let first = first.map_err(|error| {
        let is_outage = error.is_outage();
        OpenError::new(error, is_outage)
    });
    if let Some(first) = first? {
        first_key::hand_over(settings, &first);
    }
    Ok(())
}

pub(crate) fn print_addresses(addresses: &Addresses) {
    let servers = [("api", addresses.api), ("admin", addresses.console), ("operations", Some(addresses.ops))];
    let descriptions: Vec<_> = servers
        .into_iter()
        .filter_map(|(name, address)| {
            Some(format!("{name} http://{}", server_file::reachable_address(address?)))
        })
        .collect();
    print_line(format!("tidegate {} is ready: {}", telemetry::BUILD.version, descriptions.join(", ")));
}

/// Listeners, bound before any data is opened, so that an address in use is reported at once.
struct Listeners {
    ops: TcpListener,
    servers: Servers,
}

struct Servers {
    api: Option<TcpListener>,
    console: Option<TcpListener>,
    receiver: Option<TcpListener>,
    addresses: Addresses,
}

impl Listeners {
    async fn bind(settings: &Settings, kinds: &[RoleKind], demo: Option<&Demo>) -> anyhow::Result<Self> {
        let api = kinds.contains(&RoleKind::Ingest).then_some(("api.listen", settings.api.listen));
        let console =
            kinds.contains(&RoleKind::Console).then_some(("console.listen", settings.console.listen));
        let receiver = demo.map(|demo| ("--receiver-listen", demo.receiver));
        let ops = bind("ops.listen", settings.ops.listen).await?;
        let (api, console, receiver) =
            (bind_optional(api).await?, bind_optional(console).await?, bind_optional(receiver).await?);
        let address =
            |listener: &Option<TcpListener>| listener.as_ref().map(TcpListener::local_addr).transpose();
        let addresses = Addresses {
            api: address(&api)?,
            console: address(&console)?,
            receiver: address(&receiver)?,
            ops: ops.local_addr()?,
        };
        Ok(Self { ops, servers: Servers { api, console, receiver, addresses } })
    }
}

async fn bind_optional(target: Option<(&str, SocketAddr)>) -> anyhow::Result<Option<TcpListener>> {
    match target {
        Some((name, address)) => bind(name, address).await.map(Some),
        None => Ok(None),
    }
}

pub(crate) async fn bind(name: &str, address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| format!("{name} = {address} cannot be listened on"))
}

/// Time within which a second signal is ignored: some supervisors signal the process and its group.
const ONE_SIGNAL: Duration = Duration::from_secs(1);

/// Listens for signals: the first one starts the drain, a later one ends it.
pub(crate) fn listen_for_signals() -> anyhow::Result<(CancellationToken, CancellationToken)> {
    let (first, second) = (CancellationToken::new(), CancellationToken::new());
    let (signal, force) = (first.clone(), second.clone());
    let mut terminate = Signal::listen()?;
    tokio::spawn(async move {
        terminate.next().await;
        first.cancel();
        let first_at = Instant::now();
        loop {
            terminate.next().await;
            if first_at.elapsed() > ONE_SIGNAL {
                break second.cancel();
            }
        }
    });
    Ok((signal, force))
}

#[cfg(unix)]
struct Signal(tokio::signal::unix::Signal, tokio::signal::unix::Signal);

#[cfg(unix)]
impl Signal {
    fn listen() -> anyhow::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self(signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?))
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.0.recv() => {}
            _ = self.1.recv() => {}
        }
    }
}

#[cfg(not(unix))]
struct Signal;

#[cfg(not(unix))]
impl Signal {
    fn listen() -> anyhow::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Background tasks of the process, stopped at its end.
#[derive(Default)]
pub(crate) struct Background {
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Background {
    pub(crate) fn stop_token(&self) -> CancellationToken {
        self.stop.child_token()
    }

    pub(crate) fn run(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(task);
    }

    pub(crate) async fn end(&self) {
        self.stop.cancel();
        self.tasks.close();
        let _ended = tokio::time::timeout(CLOSE_TIMEOUT, self.tasks.wait()).await;
    }
}

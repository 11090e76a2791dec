//! A TCP link between a test and a server that can be made faulty while it carries traffic.
//! Independent of the protocol: faults are described in bytes, directions and connections.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep};

use crate::eventually::PATIENCE;

const CHUNK: usize = 64 * 1024;

/// A direction of the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    ToServer,
    ToClient,
}

/// Current fault of one direction.
#[derive(Clone, Copy, Debug, Default)]
struct Fault {
    stalled: bool,
    delay: Duration,
    bytes_per_second: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    faults: [Fault; 2],
    refusing: bool,
    /// Connections of an older generation are cut.
    generation: u64,
}

#[derive(Default)]
struct Triggers {
    cut_after: [Option<u64>; 2],
    cut_answer_to: Option<Vec<u8>>,
}

#[derive(Default)]
struct Counters {
    accepted: AtomicU64,
    cut: AtomicU64,
    bytes: [AtomicU64; 2],
}

#[derive(Default)]
struct Shared {
    triggers: Mutex<Triggers>,
    counters: Counters,
}

impl Shared {
    fn triggers(&self) -> MutexGuard<'_, Triggers> {
        self.triggers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A listening proxy in front of one server; dropping it closes all its connections.
pub struct Proxy {
    address: SocketAddr,
    state: watch::Sender<State>,
    listening: watch::Receiver<bool>,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// A proxy on a free port of 127.0.0.1 that forwards to `server` (`host:port`).
    ///
    /// # Errors
    /// No port can be bound.
    pub async fn to(server: impl Into<String>) -> Result<Self> {
        Self::at("127.0.0.1", server).await
    }

    /// The same at another address of this machine.
    ///
    /// # Errors
    /// No port can be bound.
    pub async fn at(address: &str, server: impl Into<String>) -> Result<Self> {
        let listener = TcpListener::bind((address, 0)).await.context("a proxy found no free port")?;
        let address = listener.local_addr()?;
        let state = watch::Sender::new(State::default());
        let (is_listening, listening) = watch::channel(true);
        let shared = Arc::new(Shared::default());
        let task =
            tokio::spawn(serve(listener, server.into(), state.subscribe(), is_listening, shared.clone()));
        Ok(Self { address, state, listening, shared, task })
    }

    /// Address for clients.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends every fault and disarms every trigger; connections stay open.
    ///
    /// # Errors
    /// The port, given up by `refuse`, cannot be bound again.
    pub async fn pass(&self) -> Result<()> {
        *self.shared.triggers() = Triggers::default();
        self.state.send_modify(|state| *state = State { generation: state.generation, ..State::default() });
        self.wait_listening(true).await
    }

    /// Accepts connections and carries no bytes in either direction.
    pub fn stall(&self) {
        self.stall_way(Way::ToServer);
        self.stall_way(Way::ToClient);
    }

    /// Carries no bytes in one direction.
    pub fn stall_way(&self, way: Way) {
        self.change(way, |fault| fault.stalled = true);
    }

    /// Every chunk of one direction is held for `delay`.
    pub fn delay(&self, way: Way, delay: Duration) {
        self.change(way, |fault| fault.delay = delay);
    }

    /// At most so many bytes a second pass on each connection in one direction.
    pub fn throttle(&self, way: Way, bytes_per_second: u64) {
        self.change(way, |fault| fault.bytes_per_second = Some(bytes_per_second.max(1)));
    }

    /// New connections are refused by the operating system until `pass`; existing ones stay open.
    ///
    /// # Errors
    /// The listening task has ended.
    pub async fn refuse(&self) -> Result<()> {
        self.state.send_modify(|state| state.refusing = true);
        self.wait_listening(false).await
    }

    /// Cuts all connections that exist.
    pub fn cut(&self) {
        self.state.send_modify(|state| state.generation += 1);
    }

    /// Once: lets `bytes` more pass in this direction, counted over all connections, and cuts the connection that
    /// carries the last of them. With 0, the next bytes are kept back and their connection is cut: toward the client,
    /// that loses the answer to a request that the server has carried out.
    pub fn cut_after(&self, way: Way, bytes: u64) {
        self.shared.triggers().cut_after[way as usize] = Some(bytes);
    }

    /// Once: passes on the next chunk toward the server that contains `text`, and cuts its connection when the server
    /// sends anything after that. Other answers on the same connection may arrive first, so the outcome of the request
    /// is unknown to the client, and may be either.
    pub fn cut_answer_to(&self, text: impl Into<Vec<u8>>) {
        self.shared.triggers().cut_answer_to = Some(text.into());
    }

    /// Connections accepted so far.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.shared.counters.accepted.load(Ordering::Relaxed)
    }

    /// Connections cut so far by any fault.
    #[must_use]
    pub fn cuts(&self) -> u64 {
        self.shared.counters.cut.load(Ordering::Relaxed)
    }

    /// Bytes passed on so far in one direction.
    #[must_use]
    pub fn bytes(&self, way: Way) -> u64 {
        self.shared.counters.bytes[way as usize].load(Ordering::Relaxed)
    }

    fn change(&self, way: Way, change: impl FnOnce(&mut Fault)) {
        self.state.send_modify(|state| change(&mut state.faults[way as usize]));
    }

    async fn wait_listening(&self, wanted: bool) -> Result<()> {
        self.listening.clone().wait_for(|is| *is == wanted).await.context("the proxy's port is lost")?;
        Ok(())
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(
    listener: TcpListener,
    server: String,
    mut state: watch::Receiver<State>,
    listening: watch::Sender<bool>,
    shared: Arc<Shared>,
) {
    let Ok(address) = listener.local_addr() else { return };
    let mut listener = Some(listener);
    let mut links = JoinSet::new();
    loop {
        let refusing = state.borrow_and_update().refusing;
        if refusing && listener.take().is_some() {
            listening.send_replace(false);
        }
        if !refusing && listener.is_none() {
            let Some(again) = bind_again(address).await else { return };
            listener = Some(again);
            listening.send_replace(true);
        }
        tokio::select! {
            changed = state.changed() => if changed.is_err() { return },
            client = accept(listener.as_ref()) => if let Some(client) = client {
                shared.counters.accepted.fetch_add(1, Ordering::Relaxed);
                links.spawn(link(client, server.clone(), state.clone(), shared.clone()));
            },
            Some(_) = links.join_next() => {}
        }
    }
}

// The port was given up to refuse connections: another process may hold it for a moment.
async fn bind_again(address: SocketAddr) -> Option<TcpListener> {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if let Ok(listener) = TcpListener::bind(address).await {
            return Some(listener);
        }
        sleep(Duration::from_millis(50)).await;
    }
    None
}

async fn accept(listener: Option<&TcpListener>) -> Option<TcpStream> {
    match listener {
        Some(listener) => listener.accept().await.ok().map(|(stream, _)| stream),
        None => std::future::pending().await,
    }
}

/// A fault, and not one of the two sides, ended the connection.
struct ConnectionCut;

async fn link(mut client: TcpStream, server: String, state: watch::Receiver<State>, shared: Arc<Shared>) {
    let generation = state.borrow().generation;
    let mut newer_state = state.clone();
    let end = tokio::select! {
        end = carry(&mut client, &server, &state, &shared) => end,
        () = newer_than(&mut newer_state, generation) => Err(ConnectionCut),
    };
    if let Err(ConnectionCut) = end {
        shared.counters.cut.fetch_add(1, Ordering::Relaxed);
        // A reset, so that the client learns of the cut also in the middle of an answer.
        let _unsupported = client.set_zero_linger();
    }
}

async fn newer_than(state: &mut watch::Receiver<State>, generation: u64) {
    if state.wait_for(|now| now.generation != generation).await.is_err() {
        std::future::pending::<()>().await;
    }
}

async fn carry(
    client: &mut TcpStream,
    server: &str,
    state: &watch::Receiver<State>,
    shared: &Shared,
) -> Result<(), ConnectionCut> {
    let Ok(mut upstream) = TcpStream::connect(server).await else { return Err(ConnectionCut) };
    for stream in [&*client, &upstream] {
        let _unsupported = stream.set_nodelay(true);
    }
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = upstream.split();
    let answer_owed = watch::Sender::new(false);
    tokio::try_join!(
        pump(Way::ToServer, from_client, to_server, state.clone(), shared, &answer_owed),
        pump(Way::ToClient, from_server, to_client, state.clone(), shared, &answer_owed),
    )?;
    Ok(())
}

async fn pump(
    way: Way,
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    mut state: watch::Receiver<State>,
    shared: &Shared,
    answer_owed: &watch::Sender<bool>,
) -> Result<(), ConnectionCut> {
    let mut buffer = vec![0; CHUNK];
    loop {
        let count = from.read(&mut buffer).await.map_err(|_| ConnectionCut)?;
        // Check after the read: bytes that arrive after a fault was set must not pass.
        let fault = moving(way, &mut state).await?;
        if count == 0 {
            return to.shutdown().await.map_err(|_| ConnectionCut);
        }
        sleep_unless_zero(fault.delay).await;
        let mut rest = &buffer[..count];
        while !rest.is_empty() {
            let rate = moving(way, &mut state).await?.bytes_per_second;
            let max_piece = rate.and_then(|rate| usize::try_from(rate / 20).ok()).unwrap_or(CHUNK).max(1);
            let (piece, later) = rest.split_at(max_piece.min(rest.len()));
            let (allowed, cut) = allowed(way, piece, shared, answer_owed);
            to.write_all(&piece[..allowed]).await.map_err(|_| ConnectionCut)?;
            shared.counters.bytes[way as usize].fetch_add(allowed as u64, Ordering::Relaxed);
            if cut {
                return Err(ConnectionCut);
            }
            if let Some(rate) = rate {
                sleep(Duration::from_secs_f64(piece.len() as f64 / rate as f64)).await;
            }
            rest = later;
        }
    }
}

/// Number of bytes of a chunk that may pass, and true if the connection is cut after them.
fn allowed(way: Way, chunk: &[u8], shared: &Shared, answer_owed: &watch::Sender<bool>) -> (usize, bool) {
    if way == Way::ToClient && *answer_owed.borrow() {
        return (0, true);
    }
    let mut triggers = shared.triggers();
    if way == Way::ToServer && triggers.cut_answer_to.as_ref().is_some_and(|text| contains(chunk, text)) {
        triggers.cut_answer_to = None;
        answer_owed.send_replace(true);
    }
    let size = chunk.len() as u64;
    match triggers.cut_after[way as usize] {
        Some(left) if size >= left => {
            triggers.cut_after[way as usize] = None;
            (usize::try_from(left).unwrap_or(chunk.len()), true)
        }
        Some(left) => {
            triggers.cut_after[way as usize] = Some(left - size);
            (chunk.len(), false)
        }
        None => (chunk.len(), false),
    }
}

fn contains(chunk: &[u8], text: &[u8]) -> bool {
    text.is_empty() || chunk.windows(text.len()).any(|window| window == text)
}

async fn moving(way: Way, state: &mut watch::Receiver<State>) -> Result<Fault, ConnectionCut> {
    let current_state = state
        .wait_for(|current_state| !current_state.faults[way as usize].stalled)
        .await
        .map_err(|_| ConnectionCut)?;
    Ok(current_state.faults[way as usize])
}

async fn sleep_unless_zero(time: Duration) {
    if !time.is_zero() {
        sleep(time).await;
    }
}

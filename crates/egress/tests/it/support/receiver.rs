//! Receiver that plays a script on every connection, and counts received and sent bytes. It is no HTTP
//! server: it writes any bytes, valid or not.
#![allow(clippy::unwrap_used)]
#![allow(dead_code, unreachable_pub, reason = "each test file is a crate and uses a part of this")]

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use tidegate_egress::callback::{self, Attempt, CallbackRequest, NotSent};
use tidegate_egress::resolver::Resolver;
use tidegate_egress::{Client, Secret, Settings};
use tidegate_schemas::ids::EventId;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// Step of a script. The connection is closed at its end.
#[derive(Clone)]
pub enum Step {
    /// Reads a request to the end of its body.
    Read,
    Write(Vec<u8>),
    /// Writes the bytes one by one, and then repeats the last one.
    Drip(Vec<u8>),
    /// Repeats the bytes as fast as the peer reads them.
    Endless(Vec<u8>),
    Hang,
    /// Waits for a signal of the test.
    Await(Arc<Semaphore>),
    /// Closes with RST.
    Reset,
}

pub fn write(text: &str) -> Step {
    Step::Write(text.as_bytes().to_vec())
}

#[derive(Default)]
pub struct ReceiverLog {
    pub connections: AtomicUsize,
    pub written: AtomicUsize,
    pub requests: Mutex<Vec<Vec<u8>>>,
}

impl ReceiverLog {
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

pub struct Receiver {
    pub address: SocketAddr,
    pub log: Arc<ReceiverLog>,
    accepting: tokio::task::JoinHandle<()>,
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Receiver {
    pub async fn start(script: Vec<Step>) -> Self {
        Self::start_on("127.0.0.1:0", script).await.unwrap()
    }

    pub async fn start_on(address: &str, script: Vec<Step>) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let log = Arc::new(ReceiverLog::default());
        let task_log = Arc::clone(&log);
        let accepting = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                task_log.connections.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(play(stream, script.clone(), Arc::clone(&task_log)));
            }
        });
        Ok(Self { address, log, accepting })
    }

    /// Answers every request with these lines and this body, and closes.
    pub async fn answering(head: &str, body: &str) -> Self {
        let length = body.len();
        let answer =
            format!("HTTP/1.1 {head}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}");
        Self::start(vec![Step::Read, write(&answer)]).await
    }

    pub fn url(&self) -> String {
        format!("http://{}/hook?token=in-the-query", self.address)
    }

    pub fn request(&self) -> String {
        String::from_utf8(self.log.requests.lock().unwrap()[0].clone()).unwrap()
    }
}

/// Ends when the peer closes the connection, so that write errors can be ignored.
async fn play(mut stream: TcpStream, script: Vec<Step>, log: Arc<ReceiverLog>) -> io::Result<()> {
    for step in script {
        match step {
            Step::Read => {
                let request = read_request(&mut stream).await?;
                log.requests.lock().unwrap().push(request);
            }
            Step::Write(bytes) => stream.write_all(&bytes).await?,
            Step::Drip(bytes) => {
                let mut at = 0;
                loop {
                    stream.write_all(&[bytes[at]]).await?;
                    at = (at + 1).min(bytes.len() - 1);
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
            Step::Endless(bytes) => loop {
                stream.write_all(&bytes).await?;
                log.written.fetch_add(bytes.len(), Ordering::SeqCst);
            },
            Step::Hang => std::future::pending().await,
            Step::Await(go) => go.acquire().await.unwrap().forget(),
            Step::Reset => {
                stream.set_zero_linger()?;
                return Ok(());
            }
        }
    }
    stream.shutdown().await?;
    // Unread bytes of the peer would turn the close into a reset.
    while stream.read(&mut [0; 4096]).await? > 0 {}
    Ok(())
}

async fn read_request(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut request = Vec::new();
    loop {
        if stream.read_buf(&mut request).await? == 0 {
            return Ok(request);
        }
        let text = String::from_utf8_lossy(&request).to_lowercase();
        if let Some((head, _)) = text.split_once("\r\n\r\n") {
            let length = head
                .split("content-length: ")
                .nth(1)
                .map_or(0, |rest| rest.split("\r\n").next().unwrap().parse::<usize>().unwrap());
            if request.len() >= head.len() + 4 + length {
                return Ok(request);
            }
        }
    }
}

/// Name server that gives prepared answers in order, and then repeats the last one; `None` is a failure.
pub struct Answers {
    prepared: Mutex<Vec<Option<Vec<IpAddr>>>>,
    pub asked: AtomicUsize,
}

impl Answers {
    pub fn new(prepared: &[&[&str]]) -> Arc<Self> {
        let prepared = prepared.iter().map(|addresses| Some(addresses.iter().map(|text| ip(text)).collect()));
        Arc::new(Self { prepared: Mutex::new(prepared.collect()), asked: AtomicUsize::new(0) })
    }

    pub fn failing() -> Arc<Self> {
        Arc::new(Self { prepared: Mutex::new(vec![None]), asked: AtomicUsize::new(0) })
    }
}

impl Resolver for Answers {
    fn resolve(&self, _host: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let mut prepared = self.prepared.lock().unwrap();
        let answer = prepared[0].clone();
        if prepared.len() > 1 {
            drop(prepared.remove(0));
        }
        async move { answer.ok_or_else(|| io::ErrorKind::NotFound.into()) }.boxed()
    }
}

/// Settings that allow loopback and have limits that a test does not reach by itself.
pub fn patient() -> Settings {
    Settings {
        allow_cidrs: vec!["127.0.0.0/8".parse().unwrap()],
        connect_timeout_ms: 60_000,
        total_timeout_ms: 60_000,
        min_rate: 0,
        ..Settings::default()
    }
}

/// Settings for receivers that never answer.
pub fn ending_soon() -> Settings {
    Settings { connect_timeout_ms: 2_000, total_timeout_ms: 2_000, ..patient() }
}

/// Settings for receivers with an endless body.
pub fn demanding() -> Settings {
    Settings { min_rate: 1_000_000, min_rate_grace_ms: 100, ..patient() }
}

pub fn callback(url: &str) -> CallbackRequest {
    CallbackRequest {
        url: url.to_owned(),
        event_id: "00000000-0000-4000-8000-000000000001".parse::<EventId>().unwrap(),
        event_type: "action.automatic".to_owned(),
        attempt_no: 3,
        body: r#"{"id":"1","name":"Zürich"}"#.into(),
        headers: vec![("X-Own".to_owned(), "own value".to_owned())],
        secrets: vec![Secret::generate([7; 32])],
    }
}

pub const NOW: u64 = 1_795_255_200;

/// Makes one attempt. The timeout exceeds all deadlines of the settings, so only a hang reaches it.
pub async fn attempt_with(client: &Client, url: &str) -> Result<Attempt, NotSent> {
    tokio::time::timeout(Duration::from_secs(50), callback::send(client, &callback(url), NOW))
        .await
        .expect("the attempt hangs")
}

pub async fn attempt(settings: Settings, url: &str) -> Attempt {
    attempt_with(&Client::new(settings).unwrap(), url).await.unwrap()
}

pub fn tag(attempt: &Attempt) -> Option<&'static str> {
    attempt.error.as_ref().map(tidegate_egress::Failure::tag)
}

pub fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

//! Receiver of a platform on loopback. Records every request and answers by path and number of the request.

use std::{io, net::SocketAddr, sync::Arc};

use http::{HeaderMap, HeaderName, HeaderValue};
use parking_lot::Mutex;
use tidegate_egress::{Secret, signature};
use tidegate_schemas::ids::Millis;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer {
    Status(u16),
    Hang,
    Close,
}

/// Returns the answer to the nth request (from 0) of an event at a path.
type Behaviour = dyn Fn(&str, usize) -> Answer + Send + Sync;

pub(crate) struct Receiver {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
    accepting: JoinHandle<()>,
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Receiver {
    pub(crate) async fn start(behaviour: impl Fn(&str, usize) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests: Arc<Mutex<Vec<Request>>> = Arc::default();
        let behaviour: Arc<Behaviour> = Arc::new(behaviour);
        let recorded = Arc::clone(&requests);
        let accepting = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(stream, Arc::clone(&recorded), Arc::clone(&behaviour)));
            }
        });
        Self { address, requests, accepting }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().clone()
    }

    pub(crate) fn requests_at(&self, path: &str) -> Vec<Request> {
        self.requests().into_iter().filter(|request| request.path == path).collect()
    }

    /// Verifies the signatures of all received requests.
    pub(crate) fn all_are_signed(&self, secrets: &[Secret]) {
        for request in self.requests() {
            let current_second = Millis::now().0.div_euclid(1_000).unsigned_abs();
            signature::verify(&request.headers, &request.body, secrets, current_second, 300).unwrap();
        }
    }
}

impl Request {
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

async fn serve(
    mut stream: TcpStream,
    requests: Arc<Mutex<Vec<Request>>>,
    behaviour: Arc<Behaviour>,
) -> io::Result<()> {
    let mut bytes = Vec::new();
    loop {
        let Some(request) = read(&mut stream, &mut bytes).await? else { return Ok(()) };
        let answer = {
            let mut requests = requests.lock();
            let before = requests
                .iter()
                .filter(|other| {
                    other.path == request.path && other.header("webhook-id") == request.header("webhook-id")
                })
                .count();
            let answer = behaviour(&request.path, before);
            requests.push(request);
            answer
        };
        match answer {
            Answer::Status(status) => {
                let head = format!("HTTP/1.1 {status} Told\r\ncontent-length: 0\r\n\r\n");
                stream.write_all(head.as_bytes()).await?;
            }
            Answer::Hang => std::future::pending::<()>().await,
            Answer::Close => return Ok(()),
        }
    }
}

async fn read(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> io::Result<Option<Request>> {
    loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
            let mut lines = head.split("\r\n");
            let path = lines.next().unwrap().split(' ').nth(1).unwrap().to_owned();
            let headers: HeaderMap = lines
                .map(|line| {
                    let (name, value) = line.split_once(':').unwrap();
                    let value = HeaderValue::from_str(value.trim()).unwrap();
                    (name.parse::<HeaderName>().unwrap(), value)
                })
                .collect();
            let length: usize = headers["content-length"].to_str().unwrap().parse().unwrap();
            if bytes.len() >= end + 4 + length {
                let body = bytes[end + 4..end + 4 + length].to_vec();
                bytes.drain(..end + 4 + length);
                return Ok(Some(Request { path, headers, body }));
            }
        }
        if stream.read_buf(bytes).await? == 0 {
            return Ok(None);
        }
    }
}

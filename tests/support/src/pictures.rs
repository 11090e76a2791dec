//! A host of pictures with answers chosen by the test. It keeps the heads of its requests.
//! Serves one request a connection.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::{Semaphore, SemaphorePermit},
    task::JoinHandle,
    time::sleep,
};

/// Answer to a request.
#[derive(Clone)]
pub enum Answer {
    Picture(Vec<u8>),
    /// A status line's rest and further header lines, such as `404 Not Found` or `304 Not Modified\r\netag: "1"`.
    Head(String, Vec<u8>),
    /// An answer that waits for the test.
    After(Arc<Semaphore>, Box<Answer>),
    /// An answer after some time, as from a slow host.
    Later(Duration, Box<Answer>),
    /// A byte of the body every ten milliseconds, and the rest of it when the test allows it.
    Drip(Arc<Semaphore>, Vec<u8>),
    /// A body with a wrong `content-length`.
    Claim(usize, Vec<u8>),
    /// The same, with a connection that stays open until the test allows its end.
    Stall(Arc<Semaphore>, usize, Vec<u8>),
    Never,
}

/// Stops when dropped.
pub struct Host {
    pub address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
    accepting: JoinHandle<()>,
}

impl Drop for Host {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Host {
    /// `answer` receives the request's head, which begins with `GET /path`.
    pub async fn start(answer: impl Fn(&str) -> Answer + Send + Sync + 'static) -> std::io::Result<Self> {
        Self::start_at(Ipv4Addr::LOCALHOST, answer).await
    }

    /// Starts a host at an address of its own, because hosts differ by name.
    pub async fn start_at(
        address: Ipv4Addr,
        answer: impl Fn(&str) -> Answer + Send + Sync + 'static,
    ) -> std::io::Result<Self> {
        let listener = TcpListener::bind((address, 0)).await?;
        let address = listener.local_addr()?;
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let (answer, remembered) = (Arc::new(answer), Arc::clone(&requests));
        let accepting = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (answer, requests) = (Arc::clone(&answer), Arc::clone(&remembered));
                tokio::spawn(async move {
                    let head = head_of(&mut stream).await?;
                    requests.lock().unwrap_or_else(PoisonError::into_inner).push(head.clone());
                    give(&mut stream, answer(&head)).await
                });
            }
        });
        Ok(Self { address, asked: requests, accepting })
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}/{path}", self.address)
    }

    /// Heads of the requests with a path that begins with `path`.
    pub fn asked(&self, path: &str) -> Vec<String> {
        let requests = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let begins = format!("GET /{path}");
        requests.iter().filter(|head| head.starts_with(&begins)).cloned().collect()
    }
}

async fn head_of(stream: &mut TcpStream) -> std::io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

async fn give(stream: &mut TcpStream, mut answer: Answer) -> std::io::Result<()> {
    const OK: &str = "200 OK\r\ncontent-type: image/bmp";
    loop {
        let (head, length, body) = match answer {
            Answer::Picture(body) => (OK.to_owned(), body.len(), body),
            Answer::Head(head, body) => (head, body.len(), body),
            Answer::Claim(length, body) => (OK.to_owned(), length, body),
            Answer::After(go, then) => {
                wait_for(&go).await;
                answer = *then;
                continue;
            }
            Answer::Later(pause, then) => {
                sleep(pause).await;
                answer = *then;
                continue;
            }
            Answer::Drip(go, body) => {
                stream.write_all(begin(OK, body.len()).as_bytes()).await?;
                let mut sent_bytes = 0;
                while sent_bytes < body.len() && go.try_acquire().map(SemaphorePermit::forget).is_err() {
                    stream.write_all(&body[sent_bytes..=sent_bytes]).await?;
                    sent_bytes += 1;
                    sleep(Duration::from_millis(10)).await;
                }
                stream.write_all(&body[sent_bytes..]).await?;
                return stream.shutdown().await;
            }
            Answer::Stall(go, length, body) => {
                stream.write_all(begin(OK, length).as_bytes()).await?;
                stream.write_all(&body).await?;
                wait_for(&go).await;
                return stream.shutdown().await;
            }
            Answer::Never => std::future::pending().await,
        };
        stream.write_all(begin(&head, length).as_bytes()).await?;
        stream.write_all(&body).await?;
        return stream.shutdown().await;
    }
}

fn begin(head: &str, length: usize) -> String {
    format!("HTTP/1.1 {head}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n")
}

async fn wait_for(go: &Semaphore) {
    if let Ok(permit) = go.acquire().await {
        permit.forget();
    }
}

/// A BMP file with blocks of gray, detailed enough for a hash. Seeds give different pictures.
pub fn picture(seed: u32) -> Vec<u8> {
    const SIDE: u32 = 128;
    let pixels = SIDE * SIDE * 3;
    let mut file = b"BM".to_vec();
    for word in [54 + pixels, 0, 54, 40, SIDE, SIDE, 1 | 24 << 16, 0, pixels, 2_835, 2_835, 0, 0] {
        file.extend_from_slice(&word.to_le_bytes());
    }
    for y in 0..SIDE {
        for x in 0..SIDE {
            let block = (x / 16 + 8 * (y / 16)).wrapping_add(seed.wrapping_mul(131));
            let [gray, ..] = block.wrapping_mul(2_654_435_761).to_be_bytes();
            file.extend_from_slice(&[gray; 3]);
        }
    }
    file
}

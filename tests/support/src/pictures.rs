//! A host of pictures that answers as a test wants, and remembers what it was asked.
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

/// How a request is answered.
#[derive(Clone)]
pub enum Answer {
    Picture(Vec<u8>),
    /// A status line's rest and further header lines, such as `404 Not Found` or `304 Not Modified\r\netag: "1"`.
    Head(String, Vec<u8>),
    /// Once the test lets it go on.
    After(Arc<Semaphore>, Box<Answer>),
    /// When so much time has passed, as slow hosts do.
    Later(Duration, Box<Answer>),
    /// A byte of the body every ten milliseconds, and the rest of it once the test lets it go on.
    Drip(Arc<Semaphore>, Vec<u8>),
    /// A body under a length that is not its own.
    Claim(usize, Vec<u8>),
    /// The same, and nothing more until the test lets it end.
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
    /// `answer` is given the request's head, which begins with `GET /path`.
    pub async fn start(answer: impl Fn(&str) -> Answer + Send + Sync + 'static) -> std::io::Result<Self> {
        Self::start_at(Ipv4Addr::LOCALHOST, answer).await
    }

    /// One under an address of its own: hosts are told apart by name.
    pub async fn start_at(
        address: Ipv4Addr,
        answer: impl Fn(&str) -> Answer + Send + Sync + 'static,
    ) -> std::io::Result<Self> {
        let listener = TcpListener::bind((address, 0)).await?;
        let address = listener.local_addr()?;
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let (answer, remembered) = (Arc::new(answer), Arc::clone(&asked));
        let accepting = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (answer, asked) = (Arc::clone(&answer), Arc::clone(&remembered));
                tokio::spawn(async move {
                    let head = head_of(&mut stream).await?;
                    asked.lock().unwrap_or_else(PoisonError::into_inner).push(head.clone());
                    give(&mut stream, answer(&head)).await
                });
            }
        });
        Ok(Self { address, asked, accepting })
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}/{path}", self.address)
    }

    /// The heads of the requests whose path begins with this.
    pub fn asked(&self, path: &str) -> Vec<String> {
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let begins = format!("GET /{path}");
        asked.iter().filter(|head| head.starts_with(&begins)).cloned().collect()
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
                let mut given = 0;
                while given < body.len() && go.try_acquire().map(SemaphorePermit::forget).is_err() {
                    stream.write_all(&body[given..=given]).await?;
                    given += 1;
                    sleep(Duration::from_millis(10)).await;
                }
                stream.write_all(&body[given..]).await?;
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

/// A picture with enough to see for a hash, another one for each seed: blocks of gray in a BMP file.
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

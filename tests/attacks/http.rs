//! A plain HTTP/1.1 client on one connection, with control over each byte of a request.

use std::{io, time::Duration};

use anyhow::{Context as _, Result, anyhow, bail};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
    time::timeout,
};

/// Longer than any answer may take.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    pub(crate) fn ok(self, what: &str) -> Result<Value> {
        if (200..300).contains(&self.status) {
            return Ok(self.json());
        }
        Err(anyhow!("{what}: {} {}", self.status, String::from_utf8_lossy(&self.body)))
    }
}

pub(crate) struct Connection {
    pub(crate) stream: TcpStream,
    address: String,
    unread: Vec<u8>,
}

/// A request's head; `header` is a full line.
pub(crate) fn head(method: &str, path: &str, header: &str, length: usize) -> String {
    format!(
        "{method} {path} HTTP/1.1\r\nhost: h\r\n{header}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    )
}

pub(crate) fn api_key(key: &str) -> String {
    format!("x-api-key: {key}")
}

impl Connection {
    pub(crate) async fn open(address: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, address: address.to_owned(), unread: Vec::new() })
    }

    /// Opens a connection from the attacker's own address, where connections are counted by address.
    pub(crate) async fn open_from_afar(address: &str) -> Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(([127, 0, 0, 66], 0).into())?;
        let stream = socket.connect(address.parse()?).await?;
        Ok(Self { stream, address: address.to_owned(), unread: Vec::new() })
    }

    /// Sends a request and reads its answer.
    pub(crate) async fn ask(&mut self, method: &str, path: &str, header: &str, body: &str) -> Result<Answer> {
        let request = head(method, path, header, body.len()) + body;
        let exchange = async {
            self.stream.write_all(request.as_bytes()).await?;
            self.answer().await
        };
        timeout(PATIENCE, exchange)
            .await
            .with_context(|| format!("no answer of {} in a minute", self.address))?
    }

    pub(crate) async fn answer(&mut self) -> Result<Answer> {
        loop {
            if let Some(answer) = self.parse()? {
                return Ok(answer);
            }
            if self.stream.read_buf(&mut self.unread).await? == 0 {
                bail!("the connection was closed");
            }
        }
    }

    fn parse(&mut self) -> Result<Option<Answer>> {
        let Some(head) = self.unread.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
        let text = std::str::from_utf8(&self.unread[..head])?.to_ascii_lowercase();
        let status = text.get(9..12).context("no status")?.parse()?;
        let length = text.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.map_or(Ok(0), str::parse)?;
        let end = head + 4 + length;
        if self.unread.len() < end {
            return Ok(None);
        }
        let rest = self.unread.split_off(end);
        let body = std::mem::replace(&mut self.unread, rest).split_off(head + 4);
        Ok(Some(Answer { status, body }))
    }
}

/// One request on a connection of its own.
pub(crate) async fn ask(address: &str, method: &str, path: &str, header: &str, body: &str) -> Result<Answer> {
    Connection::open(address).await?.ask(method, path, header, body).await
}

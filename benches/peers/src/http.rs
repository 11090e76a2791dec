//! A plain HTTP/1.1 request on a connection of its own, for set-up and for looking at results.
//!
//! The load has its own, quicker way (`load`).

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

pub struct Answer {
    pub status: u16,
    pub body: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or(Value::Null)
    }
}

/// `header`: a whole line, such as `X-API-KEY: k`; may be empty.
pub async fn ask(
    address: &str,
    method: &str,
    path: &str,
    header: &str,
    body: Option<&Value>,
) -> Result<Answer> {
    let body = body.map(Value::to_string).unwrap_or_default();
    let header = if header.is_empty() { String::new() } else { format!("{header}\r\n") };
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n{header}\r\n{body}",
        body.len()
    );
    let exchange = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    let answer = timeout(Duration::from_secs(60), exchange).await.context("no answer in a minute")??;
    let answer = String::from_utf8_lossy(&answer);
    let Some((head, body)) = answer.split_once("\r\n\r\n") else { bail!("no HTTP answer from {address}") };
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).context("no status")?;
    let is_chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    Ok(Answer { status, body: if is_chunked { unchunked(body) } else { body.to_owned() } })
}

fn unchunked(mut rest: &str) -> String {
    let mut whole = String::new();
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16).unwrap_or(0);
        let (Some(chunk), Some(next)) = (after.get(..size), after.get(size + 2..)) else { break };
        if size == 0 {
            break;
        }
        whole.push_str(chunk);
        rest = next;
    }
    whole
}

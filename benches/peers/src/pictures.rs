//! A host of photographs: no two addresses hold the same bytes, and some addresses never answer.
//!
//! It runs in the bench's own process, whose CPU time nobody counts.

use std::{net::SocketAddr, sync::Arc};

use anyhow::Result;
use jpeg_encoder::{ColorType, Encoder};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

const WIDTH: u16 = 1_280;
const HEIGHT: u16 = 960;

/// Photographs that are made; what differs between two of the same is behind the picture's end.
const MADE: u64 = 24;

pub struct Photographs(Vec<Vec<u8>>);

impl Photographs {
    pub fn make() -> Result<Self> {
        Ok(Self((0..MADE).map(photograph).collect::<Result<_>>()?))
    }

    pub fn file(&self, number: u64) -> Vec<u8> {
        let nth = usize::try_from(number % MADE).unwrap_or(0);
        let mut file = self.0[nth].clone();
        file.extend_from_slice(&number.to_be_bytes());
        file
    }
}

/// Slopes, edges and noise, as photographs have them.
fn photograph(seed: u64) -> Result<Vec<u8>> {
    let (width, height) = (usize::from(WIDTH), usize::from(HEIGHT));
    let mut noise = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut pixels = Vec::with_capacity(width * height * 3);
    for y in 0..height {
        for x in 0..width {
            noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let block = (x / 80 * 31 + y / 60 * 57 + usize::try_from(seed % 97).unwrap_or(0) * 13) % 96;
            let slope = (x * 80 / width + y * 60 / height) % 128;
            let base = block + slope + usize::try_from(noise >> 61).unwrap_or(0);
            for colour in [0, 9, 21] {
                pixels.push(u8::try_from((base + colour).min(255)).unwrap_or(u8::MAX));
            }
        }
    }
    let mut file = Vec::new();
    Encoder::new(&mut file, 85).encode(&pixels, WIDTH, HEIGHT, ColorType::Rgb)?;
    Ok(file)
}

/// Stops when dropped.
pub struct Host {
    pub address: SocketAddr,
    accepting: JoinHandle<()>,
}

impl Drop for Host {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Host {
    /// Without photographs, it takes every request and never answers. Each kind has an address of its own: it is by its
    /// name, whatever the port, that a host is left alone.
    pub async fn start(photographs: Option<Arc<Photographs>>) -> Result<Self> {
        let own = if photographs.is_some() { "127.0.0.1:0" } else { "127.0.0.2:0" };
        let listener = TcpListener::bind(own).await?;
        let address = listener.local_addr()?;
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, photographs.clone()));
            }
        });
        Ok(Self { address, accepting })
    }

    pub fn url(&self, number: u64) -> String {
        format!("http://{}/{number}.jpg", self.address)
    }
}

/// One connection after the other's request, kept open.
async fn serve(mut stream: TcpStream, photographs: Option<Arc<Photographs>>) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut head, mut piece) = (Vec::new(), [0; 4_096]);
    loop {
        head.clear();
        while !head.ends_with(b"\r\n\r\n") {
            match stream.read(&mut piece).await? {
                0 => return Ok(()),
                read => head.extend_from_slice(&piece[..read]),
            }
        }
        let Some(photographs) = &photographs else { return std::future::pending().await };
        let text = String::from_utf8_lossy(&head);
        let digits = text.trim_start_matches("GET /").split('.').next().unwrap_or_default();
        let body = photographs.file(digits.parse().unwrap_or(0));
        let answer =
            format!("HTTP/1.1 200 OK\r\ncontent-type: image/jpeg\r\ncontent-length: {}\r\n\r\n", body.len());
        stream.write_all(answer.as_bytes()).await?;
        stream.write_all(&body).await?;
    }
}

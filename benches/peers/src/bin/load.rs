//! The load: so many connections, each with one request under way at a time, until a time or a number is reached.
//!
//! It prints one line of JSON: what was acknowledged, in what time. It knows items, and nothing of who takes them.

use std::{
    cell::RefCell,
    rc::Rc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use tidegate_benches::{
    items::{Pool, Template},
    table,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::LocalSet,
};

#[derive(Parser)]
struct Args {
    #[arg(long)]
    address: String,
    #[arg(long, default_value = "")]
    key: String,
    #[arg(long)]
    connections: usize,
    /// Items a request.
    #[arg(long)]
    items: usize,
    /// The number of the first item.
    #[arg(long)]
    first: u64,
    /// How long requests are begun, in seconds; 0: until `most` are sent.
    #[arg(long, default_value_t = 0.0)]
    seconds: f64,
    /// How many items are sent at most.
    #[arg(long, default_value_t = u64::MAX)]
    most: u64,
}

struct State {
    next: u64,
    end: u64,
    until: Option<Instant>,
    acknowledged: u64,
    millis: Vec<f64>,
    failed: Option<anyhow::Error>,
}

impl State {
    /// The numbers of one request's items.
    fn take(&mut self, items: u64) -> Option<u64> {
        let is_over = self.until.is_some_and(|until| Instant::now() >= until);
        let first = self.next;
        if is_over || first + items > self.end {
            return None;
        }
        self.next += items;
        Some(first)
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let args = Rc::new(Args::parse());
    let pool = Rc::new(Pool::new());
    let began = Instant::now();
    let until = (args.seconds > 0.0).then(|| began + Duration::from_secs_f64(args.seconds));
    let state = State {
        next: args.first,
        end: args.first.saturating_add(args.most),
        until,
        acknowledged: 0,
        millis: Vec::new(),
        failed: None,
    };
    let state = Rc::new(RefCell::new(state));
    let all = LocalSet::new();
    for nth in 0..args.connections {
        let (args, pool, state) = (Rc::clone(&args), Rc::clone(&pool), Rc::clone(&state));
        all.spawn_local(async move {
            if let Err(error) = connection(&args, &pool, &state, nth).await {
                // The others end with their next request.
                let mut state = state.borrow_mut();
                state.end = 0;
                state.failed.get_or_insert(error.context(format!("connection {nth}")));
            }
        });
    }
    all.await;
    let took = began.elapsed().as_secs_f64();
    if let Some(error) = state.borrow_mut().failed.take() {
        return Err(error);
    }
    let state = state.borrow();
    let requests = state.millis.len();
    let mut millis = state.millis.clone();
    millis.sort_by(f64::total_cmp);
    let p99 = millis.get(requests * 99 / 100).copied().unwrap_or(f64::NAN);
    println!(
        "{}",
        serde_json::json!({
            "acknowledged": state.acknowledged, "requests": requests, "seconds": took,
            "p50": table::median(millis), "p99": p99,
        })
    );
    Ok(())
}

async fn connection(args: &Args, pool: &Pool, state: &RefCell<State>, nth: usize) -> Result<()> {
    let Args { address, key, items, .. } = args;
    let head = |bytes: usize| {
        let key = if key.is_empty() { String::new() } else { format!("X-API-KEY: {key}\r\n") };
        format!(
            "POST /api/v1/items/async HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n\
             {key}Content-Length: {bytes}\r\n\r\n"
        )
    };
    let mut template = Template::new(pool, head, *items, nth * items);
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let mut answer = Vec::with_capacity(64 << 10);
    loop {
        let first = state.borrow_mut().take(*items as u64);
        let Some(first) = first else { return Ok(()) };
        template.number(first);
        let sent = Instant::now();
        stream.write_all(&template.bytes).await?;
        answer.clear();
        let end = loop {
            if let Some(end) = end(&answer)
                && answer.len() >= end
            {
                break end;
            }
            if stream.read_buf(&mut answer).await? == 0 {
                bail!("the connection ended");
            }
        };
        if !answer.starts_with(b"HTTP/1.1 202") || answer.len() != end {
            bail!("not accepted: {}", String::from_utf8_lossy(&answer[..answer.len().min(500)]));
        }
        let mut state = state.borrow_mut();
        state.acknowledged += *items as u64;
        state.millis.push(sent.elapsed().as_secs_f64() * 1_000.0);
    }
}

/// Where an answer ends, once its head is here.
fn end(answer: &[u8]) -> Option<usize> {
    let head = answer.windows(4).position(|window| window == b"\r\n\r\n")?;
    let text = std::str::from_utf8(&answer[..head]).ok()?;
    let length = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    Some(head + 4 + length.context("an answer has a length").unwrap_or(0))
}

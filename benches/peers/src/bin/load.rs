//! The load: so many connections, each with one request under way at a time, until a time or a number is reached. With a rate
//! requests arrive at random moments of their own, and wait for a free connection if there is none.
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
    /// Sends each item to `/api/v1/content`, and checks in its answer that this rule matched the texts with the word, and
    /// no rule the others.
    #[arg(long)]
    content: Option<String>,
    /// Reads the policies instead: a request that costs little.
    #[arg(long)]
    policies: bool,
    /// Requests that arrive in a second, in an open loop; 0: a closed loop.
    #[arg(long, default_value_t = 0.0)]
    rate: f64,
}

/// Moments at which requests arrive, as independent clients would send them: the gaps are exponential.
struct Arrivals {
    at: Instant,
    rate: f64,
    draw: u64,
}

impl Arrivals {
    fn next(&mut self) -> Instant {
        self.draw = self.draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // Between 0 and 1, never 0.
        let uniform = ((self.draw >> 33) as f64 + 1.0) / (f64::from(1_u32 << 31) + 1.0);
        self.at += Duration::from_secs_f64(-uniform.ln() / self.rate);
        self.at
    }
}

struct State {
    next: u64,
    end: u64,
    until: Option<Instant>,
    arrivals: Option<Arrivals>,
    acknowledged: u64,
    millis: Vec<f64>,
    failed: Option<anyhow::Error>,
}

impl State {
    /// The numbers of one request's items, and when it arrives.
    fn take(&mut self, items: u64) -> Option<(u64, Instant)> {
        let arrives = self.arrivals.as_mut().map_or_else(Instant::now, Arrivals::next);
        let is_over = self.until.is_some_and(|until| arrives >= until);
        let first = self.next;
        if is_over || first + items > self.end {
            return None;
        }
        self.next += items;
        Some((first, arrives))
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
        arrivals: (args.rate > 0.0).then_some(Arrivals { at: began, rate: args.rate, draw: args.first }),
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
            "p50": table::median(millis.clone()), "p99": p99, "most": millis.last(),
        })
    );
    Ok(())
}

/// Texts of a connection that sends content, one after the other.
const TEXTS_A_CONNECTION: usize = 16;

async fn connection(args: &Args, pool: &Pool, state: &RefCell<State>, nth: usize) -> Result<()> {
    let Args { address, key, items, content, policies, .. } = args;
    let route = match (policies, content) {
        (true, _) => "GET /api/v1/policies",
        (false, Some(_)) => "POST /api/v1/content",
        (false, None) => "POST /api/v1/items/async",
    };
    let head = |bytes: usize| {
        let key = if key.is_empty() { String::new() } else { format!("X-API-KEY: {key}\r\n") };
        format!(
            "{route} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n\
             {key}Content-Length: {bytes}\r\n\r\n"
        )
    };
    // Each request with the parts that its answer must have.
    let mut templates: Vec<(Template, Vec<String>)> = match content {
        _ if *policies => vec![(Template::empty(head), vec!["HTTP/1.1 200".to_owned()])],
        None => {
            vec![(Template::new(pool, head, *items, nth * items), vec!["HTTP/1.1 202".to_owned()])]
        }
        Some(rule) => (nth * TEXTS_A_CONNECTION..(nth + 1) * TEXTS_A_CONNECTION)
            .map(|text| {
                let matched = match pool.is_matched(text) {
                    true => format!(r#""matchedRules":[{{"id":"{rule}","#),
                    false => r#""matchedRules":[],"#.to_owned(),
                };
                (Template::content(pool, head, text), vec!["HTTP/1.1 200".to_owned(), matched])
            })
            .collect(),
    };
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let mut answer = Vec::with_capacity(64 << 10);
    for turn in 0.. {
        let taken = state.borrow_mut().take(*items as u64);
        let Some((first, arrives)) = taken else { break };
        let nth = turn % templates.len();
        let (template, wanted) = &mut templates[nth];
        template.number(first);
        if arrives > Instant::now() {
            tokio::time::sleep_until(arrives.into()).await;
        }
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
        let has = |part: &String| answer.windows(part.len()).any(|window| window == part.as_bytes());
        if !wanted.iter().all(has) || answer.len() != end {
            bail!("{wanted:?} is not in {}", String::from_utf8_lossy(&answer[..answer.len().min(900)]));
        }
        let mut state = state.borrow_mut();
        state.acknowledged += *items as u64;
        // From the moment at which the request arrived: what waits for a connection waits too.
        state.millis.push(arrives.elapsed().as_secs_f64() * 1_000.0);
    }
    Ok(())
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

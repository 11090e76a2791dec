//! Attacks on processing: windows over one key, expensive patterns, and more items than the service can process.

use std::{
    fmt::Write as _,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use crate::{
    attack::{Attack, Bars, Running, Target},
    http::{Connection, api_key},
    service::Start,
};

/// Evaluation of the good client's items beside windows of another organisation.
const BESIDE_WINDOWS: Bars =
    Bars { answers: Duration::from_millis(50), evaluated: Some(Duration::from_millis(250)) };

pub(crate) fn attacks() -> Vec<Attack> {
    vec![
        Attack {
            name: "windows",
            about: "100 windows over one key, each rule asking for more than 9,990, and 12,000 items",
            start: Start { documents: Some(|| windows_with_rules(100, None)), ..Start::default() },
            bars: BESIDE_WINDOWS,
            run: |target, stop| windows(target, stop, 120),
        },
        Attack {
            name: "windows-20",
            about: "20 windows over one key, each rule asking for more than 9,990, and 3,000 items",
            start: Start { documents: Some(|| windows_with_rules(20, None)), ..Start::default() },
            bars: BESIDE_WINDOWS,
            run: |target, stop| windows(target, stop, 30),
        },
        Attack {
            name: "windows-unread",
            about: "100 windows over one key with rules that match no item, and 12,000 items: 1.2 million rows",
            start: Start { documents: Some(|| windows_with_rules(100, Some("never"))), ..Start::default() },
            bars: BESIDE_WINDOWS,
            run: |target, stop| windows(target, stop, 120),
        },
        Attack {
            name: "patterns",
            about: "16 rules of two slow patterns and one of 49 over 400 items of 64 KiB",
            start: Start { documents: Some(slow_patterns), ..Start::default() },
            bars: Bars::default(),
            run: patterns,
        },
        Attack {
            name: "flood",
            about: "items as fast as they are taken, from 8 connections, with max_lag_seconds = 1",
            start: Start { settings: "[ingest]\nmax_lag_seconds = 1\n", ..Start::default() },
            bars: Bars::default(),
            run: |target, stop| flood(target, stop, None),
        },
        Attack {
            name: "flood-15000",
            about: "15,000 items a second, from 8 connections",
            start: Start::default(),
            bars: Bars { answers: Duration::from_millis(100), ..Bars::default() },
            run: |target, stop| flood(target, stop, Some(Duration::from_secs(1) * FLOOD_BATCH / 15_000)),
        },
        Attack {
            name: "slow-rules",
            about: "6 items a second with slow rules beside 200 cheap items a second of another organisation, with \
                    max_lag_seconds = 5",
            start: Start {
                settings: "[ingest]\nmax_lag_seconds = 5\n",
                documents: Some(costly_rules),
                ..Start::default()
            },
            bars: Bars::default(),
            run: slow_rules,
        },
        Attack {
            name: "slow-burst",
            about: "the same with 300 of those items at once, and no more of them until they are processed",
            start: Start {
                settings: "[ingest]\nmax_lag_seconds = 5\n",
                documents: Some(costly_rules),
                ..Start::default()
            },
            bars: Bars::default(),
            run: slow_burst,
        },
    ]
}

/// Windows over one text, and a rule for each that asks for more than most items find. `word`: rules ask only about items
/// with it.
fn windows_with_rules(count: usize, word: Option<&str>) -> String {
    let mut documents = String::new();
    let asks = |number| {
        let window = format!("count: {{window: w{number}, gt: 9990}}");
        match word {
            None => format!("  {window}"),
            Some(word) => format!("  all:\n    - text: {{in: [text], words: [{word}]}}\n    - {window}"),
        }
    };
    for number in 0..count {
        write!(
            documents,
            "window: w{number}\nitem_types: [post]\nby: text\nover: {}h\n---\nrule: r{number}\nstatus: live\nitem_types: \
             [post]\nwhen:\n{}\npolicies: [scam]\nactions: []\n---\n",
            24 + number,
            asks(number)
        )
        .unwrap();
    }
    documents
}

fn slow_patterns() -> String {
    let mut documents = String::new();
    for number in 1..=16 {
        write!(
            documents,
            "rule: p{number}\nstatus: live\nitem_types: [post]\nwhen:\n  text: {{in: [text], regex: \
             ['a.{{0,200}}b[q-r]{{{number}}}', 'b.{{0,200}}a[q-r]{{{number}}}']}}\npolicies: [scam]\nactions: []\n---\n"
        )
        .unwrap();
    }
    let list: Vec<_> = (1..=49).map(|number| format!("'a[ab]{{{number}}}c'")).collect();
    write!(
        documents,
        "rule: list\nstatus: live\nitem_types: [post]\nwhen:\n  text: {{in: [text], regex: [{}]}}\npolicies: [scam]\n\
         actions: []\n---\n",
        list.join(", ")
    )
    .unwrap();
    documents
}

/// Rules that each pay for their pattern, which takes about a quarter of a second together.
fn costly_rules() -> String {
    let mut documents = String::new();
    for number in 0..RULES {
        write!(
            documents,
            "rule: p{number}\nstatus: live\nitem_types: [post]\nwhen:\n  text: {{in: [text], regex: 'a[ab]{{{}}}c'}}\n\
             policies: [scam]\nactions: []\n---\n",
            30 + number
        )
        .unwrap();
    }
    documents
}

/// Number of costly rules.
const RULES: usize = 14;

/// Text of which almost every part almost matches.
fn hostile_text() -> Arc<str> {
    // A generator of its own: the same text each time, and no crate for it.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut letter = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        if state & 1 == 0 { 'a' } else { 'b' }
    };
    (0..64 << 10).map(&mut letter).collect::<String>().into()
}

/// Submits batches on several connections until they are used up or `stop` is cancelled, with `pause` between the starts
/// of two batches. Returns accepted items and refused requests.
async fn submit(
    target: &Arc<Target>,
    stop: &CancellationToken,
    connections: usize,
    pause: Option<Duration>,
    batch: impl Fn() -> Option<Value> + Clone + Send + 'static,
) -> (usize, usize) {
    let (accepted, refused) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (began, turns) = (Instant::now(), Arc::new(AtomicU32::new(0)));
    let mut tasks = JoinSet::new();
    for _ in 0..connections {
        let (target, stop, batch) = (Arc::clone(target), stop.clone(), batch.clone());
        let (accepted, refused, turns) = (Arc::clone(&accepted), Arc::clone(&refused), Arc::clone(&turns));
        tasks.spawn(async move {
            let header = api_key(&target.key);
            let mut connection = None;
            while let (false, Some(items)) = (stop.is_cancelled(), batch()) {
                if let Some(pause) = pause {
                    sleep_until(began + pause * turns.fetch_add(1, Ordering::Relaxed)).await;
                }
                let count = items.as_array().map_or(0, Vec::len);
                let body = json!({ "items": items }).to_string();
                let request = async {
                    let open = match connection.take() {
                        Some(open) => open,
                        None => Connection::open(&target.api).await?,
                    };
                    connection.insert(open).ask("POST", "/api/v1/items/async/", &header, &body).await
                };
                match stop.run_until_cancelled(request).await {
                    Some(Ok(answer)) if answer.status == 202 => accepted.fetch_add(count, Ordering::Relaxed),
                    _ => refused.fetch_add(1, Ordering::Relaxed),
                };
            }
        });
    }
    while tasks.join_next().await.is_some() {}
    (accepted.load(Ordering::Relaxed), refused.load(Ordering::Relaxed))
}

/// Numbers batches, up to `most` of them.
fn batches(
    most: usize,
    batch: impl Fn(usize) -> Value + Clone + Send + 'static,
) -> impl Fn() -> Option<Value> + Clone + Send + 'static {
    let next = Arc::new(AtomicUsize::new(0));
    move || {
        let number = next.fetch_add(1, Ordering::Relaxed);
        (number < most).then(|| batch(number))
    }
}

fn posts(batch: usize, count: usize, text: &str) -> Value {
    let post =
        |number| json!({ "id": format!("b{batch}-{number}"), "typeId": "post", "data": { "text": text } });
    (0..count).map(post).collect()
}

fn report((accepted, refused): (usize, usize)) -> String {
    format!("{accepted} items, {refused} refusals")
}

fn windows(target: Arc<Target>, stop: CancellationToken, most_batches: usize) -> Running {
    Box::pin(async move {
        let items = batches(most_batches, |batch| posts(batch, 100, "one hot key"));
        let totals = submit(&target, &stop, 4, None, items).await;
        stop.cancelled().await;
        Ok(report(totals))
    })
}

fn patterns(target: Arc<Target>, stop: CancellationToken) -> Running {
    Box::pin(async move {
        let text = hostile_text();
        let totals = submit(&target, &stop, 4, None, batches(80, move |batch| posts(batch, 5, &text))).await;
        stop.cancelled().await;
        Ok(report(totals))
    })
}

/// Items of one request of a flood.
const FLOOD_BATCH: u32 = 100;

fn flood(target: Arc<Target>, stop: CancellationToken, pause: Option<Duration>) -> Running {
    Box::pin(async move {
        let text = "a post of some length, as people write them every day. ".repeat(5);
        let batch = move |batch| posts(batch, FLOOD_BATCH as usize, &text);
        Ok(report(submit(&target, &stop, 8, pause, batches(usize::MAX, batch)).await))
    })
}

/// Answers to one organisation's requests, by the second.
#[derive(Default)]
struct Answers {
    accepted: usize,
    refused: usize,
    first_refusal: Option<Duration>,
    last_refusal: Option<Duration>,
}

impl Answers {
    fn cell(&self) -> String {
        let second =
            |at: Option<Duration>| at.map_or_else(|| "-".to_owned(), |at| format!("{:.0}", at.as_secs_f64()));
        let (first, last) = (second(self.first_refusal), second(self.last_refusal));
        format!("{} accepted, {} refused (second {first} to {last})", self.accepted, self.refused)
    }
}

/// Sends batches of one organisation at a rate until `stop` is cancelled.
async fn send_at(
    target: Arc<Target>,
    key: String,
    stop: CancellationToken,
    every: Duration,
    batch: impl Fn(usize) -> Value + Send + 'static,
) -> Answers {
    let (mut answers, began, header) = (Answers::default(), Instant::now(), api_key(&key));
    let mut ticks = tokio::time::interval(every);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    let mut connection = None;
    for number in 0.. {
        if stop.run_until_cancelled(ticks.tick()).await.is_none() {
            break;
        }
        let body = json!({ "items": batch(number) }).to_string();
        let request = async {
            let open = match connection.take() {
                Some(open) => open,
                None => Connection::open(&target.api).await?,
            };
            connection.insert(open).ask("POST", "/api/v1/items/async/", &header, &body).await
        };
        match stop.run_until_cancelled(request).await {
            Some(Ok(answer)) if answer.status == 202 => answers.accepted += 1,
            Some(_) => {
                let at = began.elapsed();
                answers.refused += 1;
                answers.first_refusal.get_or_insert(at);
                answers.last_refusal = Some(at);
            }
            None => break,
        }
    }
    answers
}

/// Runs a cheap sender beside a slow one, and reports the answers to both.
fn beside_cheap_items(
    target: Arc<Target>,
    stop: CancellationToken,
    every: Duration,
    slow: impl Fn(usize) -> Value + Send + 'static,
) -> Running {
    Box::pin(async move {
        let cheap = |batch| posts(batch, 10, "a post of some length, as people write them every day. ");
        let middle = tokio::spawn(send_at(
            Arc::clone(&target),
            target.other.clone(),
            stop.clone(),
            Duration::from_millis(50),
            cheap,
        ));
        let slow = send_at(Arc::clone(&target), target.key.clone(), stop, every, slow).await;
        Ok(format!("slow: {}; cheap: {}", slow.cell(), middle.await?.cell()))
    })
}

fn slow_rules(target: Arc<Target>, stop: CancellationToken) -> Running {
    let text = hostile_text();
    let slow = move |batch| posts(batch, 1, &text);
    beside_cheap_items(target, stop, Duration::from_millis(1_000) / 6, slow)
}

fn slow_burst(target: Arc<Target>, stop: CancellationToken) -> Running {
    let text = hostile_text();
    // Later requests have no items and show when the organisation is accepted again.
    let slow = move |batch| posts(batch, if batch < 5 { 60 } else { 0 }, &text);
    beside_cheap_items(target, stop, Duration::from_millis(100), slow)
}

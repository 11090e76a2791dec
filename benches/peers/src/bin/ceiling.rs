//! The ceiling of ingest: a bare handler that reads and parses a body, and a raw producer behind it. It checks no key,
//! no item and no type, makes no id, and answers without a body; what it acknowledges is as durable as the service's.
//!
//! It is as quick as `notes/stream-anchors.md` 4.2 made handler and producer: typed parsing with borrowed raw data, one
//! worker, `ThreadedProducer`, all acknowledgements counted by one counter a request.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use anyhow::Result;
use axum::{Router, body::Bytes, extract::State, http::StatusCode, routing::post};
use clap::{Parser, ValueEnum};
use rdkafka::{
    ClientConfig, ClientContext,
    message::DeliveryResult,
    producer::{BaseRecord, Producer as _, ProducerContext, ThreadedProducer},
};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::oneshot;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Records {
    /// None: the handler alone.
    None,
    /// One an item.
    Item,
    /// One for the items of a request that share a partition, as order asks for.
    Partition,
    /// One a request, whatever its items' partitions: the cheapest there is, and no order.
    Request,
}

#[derive(Parser)]
struct Args {
    #[arg(long)]
    listen: SocketAddr,
    #[arg(long)]
    brokers: String,
    #[arg(long)]
    topic: String,
    #[arg(long)]
    partitions: i32,
    #[arg(long)]
    records: Records,
}

#[derive(Deserialize)]
struct Body<'a> {
    #[serde(borrow)]
    items: Vec<Item<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Item<'a> {
    id: &'a str,
    type_id: &'a str,
    #[serde(borrow)]
    data: &'a RawValue,
}

/// The reports of one request's records.
struct Reports {
    left: AtomicUsize,
    failed: AtomicBool,
    done: std::sync::Mutex<Option<oneshot::Sender<()>>>,
}

struct Context;

impl ClientContext for Context {}

impl ProducerContext for Context {
    type DeliveryOpaque = Arc<Reports>;

    fn delivery(&self, result: &DeliveryResult<'_>, reports: Arc<Reports>) {
        if result.is_err() {
            reports.failed.store(true, Ordering::Relaxed);
        }
        if reports.left.fetch_sub(1, Ordering::AcqRel) == 1
            && let Ok(mut done) = reports.done.lock()
            && let Some(done) = done.take()
        {
            let _gone = done.send(());
        }
    }
}

struct Shared {
    producer: ThreadedProducer<Context>,
    topic: String,
    partitions: i32,
    records: Records,
}

impl Shared {
    fn send(&self, partition: i32, key: &[u8], value: &[u8], reports: &Arc<Reports>) -> bool {
        let record = BaseRecord::with_opaque_to(&self.topic, Arc::clone(reports))
            .partition(partition)
            .key(key)
            .payload(value);
        self.producer.send(record).is_ok()
    }

    /// The cheapest thing that spreads: FNV-1a.
    fn partition(&self, id: &str) -> i32 {
        let hash =
            id.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        i32::try_from(hash % self.partitions.unsigned_abs()).unwrap_or(0)
    }
}

async fn submit(State(shared): State<Arc<Shared>>, body: Bytes) -> StatusCode {
    let Ok(Body { items }) = serde_json::from_slice::<Body<'_>>(&body) else {
        return StatusCode::BAD_REQUEST;
    };
    if items.iter().any(|item| item.type_id != "post") {
        return StatusCode::BAD_REQUEST;
    }
    let (done, woken) = oneshot::channel();
    let reports = |count| {
        Arc::new(Reports {
            left: AtomicUsize::new(count),
            failed: AtomicBool::new(false),
            done: std::sync::Mutex::new(Some(done)),
        })
    };
    let (sent, reports) = match shared.records {
        Records::None => return StatusCode::ACCEPTED,
        Records::Item => {
            let reports = reports(items.len());
            let sent = items.iter().all(|item| {
                shared.send(
                    shared.partition(item.id),
                    item.id.as_bytes(),
                    item.data.get().as_bytes(),
                    &reports,
                )
            });
            (sent, reports)
        }
        Records::Partition => {
            let mut groups: Vec<Vec<&Item<'_>>> = Vec::new();
            groups.resize_with(shared.partitions.unsigned_abs() as usize, Vec::new);
            for item in &items {
                groups[shared.partition(item.id).unsigned_abs() as usize].push(item);
            }
            let reports = reports(groups.iter().filter(|group| !group.is_empty()).count());
            let mut value = Vec::new();
            let sent = (0..).zip(&groups).filter(|(_, group)| !group.is_empty()).all(|(partition, group)| {
                value.clear();
                for item in group {
                    value.extend_from_slice(item.id.as_bytes());
                    value.extend_from_slice(item.data.get().as_bytes());
                }
                shared.send(partition, group[0].id.as_bytes(), &value, &reports)
            });
            (sent, reports)
        }
        Records::Request => {
            let Some(first) = items.first() else { return StatusCode::ACCEPTED };
            let reports = reports(1);
            (shared.send(shared.partition(first.id), first.id.as_bytes(), &body, &reports), reports)
        }
    };
    if !sent || woken.await.is_err() || reports.failed.load(Ordering::Relaxed) {
        return StatusCode::SERVICE_UNAVAILABLE;
    }
    StatusCode::ACCEPTED
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let Args { listen, brokers, topic, partitions, records } = Args::parse();
    let mut config = ClientConfig::new();
    // As the service's producer is set by default.
    config
        .set("bootstrap.servers", &brokers)
        .set("acks", "all")
        .set("enable.idempotence", "true")
        .set("linger.ms", "5")
        .set("compression.type", "lz4");
    let producer = config.create_with_context(Context)?;
    let shared = Arc::new(Shared { producer, topic, partitions, records });
    let router = Router::new().route("/api/v1/items/async", post(submit)).with_state(Arc::clone(&shared));
    let listener = tokio::net::TcpListener::bind(listen).await?;
    println!("the ceiling is ready: {}", listener.local_addr()?);
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    let served = axum::serve(
        axum::serve::ListenerExt::tap_io(listener, |stream| {
            let _unsupported = stream.set_nodelay(true);
        }),
        router,
    );
    tokio::select! {
        served = served => served?,
        _ = terminate.recv() => {}
    }
    shared.producer.flush(std::time::Duration::from_secs(10))?;
    Ok(())
}

//! The API against its composed ceiling: the same load, on the same Kafka, in turn, items per CPU-second of each.
//!
//! Both sides' records are read back: every acknowledged item is there once, with the text that was sent.

use std::{collections::BTreeMap, sync::Arc};

use anyhow::Result;
use tidegate_benches::{
    installation::Installation,
    items::Pool,
    kafka::{Content, Names, Topic, blocking},
    process::{Process, free_port},
    servers::Servers,
    table::{median, percent, print, spread, thousands, verdict},
};

use crate::{
    Place,
    load::{End, Load, Sent},
};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Rounds; every side is measured once in each
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds of load in each measurement
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Partitions of every topic; the service's default on Kafka
    #[arg(long, default_value_t = 64)]
    partitions: u32,
    /// Connections while requests hold one item
    #[arg(long, default_value_t = 512)]
    single_connections: usize,
    /// Connections while requests hold a hundred
    #[arg(long, default_value_t = 64)]
    batch_connections: usize,
}

const SERVICE: &str = "tidegate ingest";

/// A way of the ceiling to make records, where its records name their items, and what `stream-anchors` 4.2 composed for
/// it, in items per core-second, by items a request.
struct Ceiling {
    records: &'static str,
    names: Names,
    noted: &'static [(usize, Option<f64>)],
}

const CEILINGS: [Ceiling; 3] = [
    Ceiling { records: "item", names: Names::Key, noted: &[(1, Some(100_000.0)), (100, Some(465_000.0))] },
    Ceiling { records: "partition", names: Names::Value, noted: &[(100, None)] },
    Ceiling { records: "request", names: Names::Value, noted: &[(100, Some(885_000.0))] },
];

/// What `stream-anchors` 4.2 noted for the handler alone, which reads, parses and sends nothing: by how much the machine
/// of the run differs from the one of the notes.
const HANDLER: [(usize, f64); 2] = [(1, 163_000.0), (100, 2_270_000.0)];

/// Below this share of the noted figure a ceiling proves nothing.
const VOID: f64 = 0.7;
const BAR: f64 = 0.6;

struct Side {
    process: u32,
    address: String,
    key: String,
    topic: Arc<Topic>,
    names: Names,
}

struct Measured {
    sent: Sent,
    content: Content,
    cpu: f64,
}

pub(crate) async fn run(place: &Place, args: &Args) -> Result<()> {
    let servers = Servers::start(&place.repository).await?;
    // As many as the ceiling has: on one thread no worker wakes another.
    let workers = 1;
    let installation =
        Installation::on_servers(&place.repository, &place.binary, &servers, &["ingest"], args.partitions, workers)
            .await?;
    let partitions = i32::try_from(args.partitions)?;
    let mut sides = BTreeMap::new();
    let mut ceilings = Vec::new();
    for ceiling in CEILINGS {
        let topic = Topic::named(&servers.kafka, &format!("ceiling-{}", ceiling.records), partitions);
        topic.create().await?;
        let address = format!("127.0.0.1:{}", free_port()?);
        let program = std::env::current_exe()?.with_file_name("ceiling");
        let (name, count) = (format!("ceiling-{}", ceiling.records), args.partitions.to_string());
        let told = ["--listen", &address, "--brokers", &servers.kafka, "--topic", &name];
        let told = told.into_iter().chain(["--partitions", &count, "--records", ceiling.records]);
        let mut process = Process::start(&program, told, &installation.dir.path().join(&name))?;
        process.line("is ready").await?;
        let side = Side {
            process: process.id,
            address,
            key: String::new(),
            topic: Arc::new(topic),
            names: ceiling.names,
        };
        sides.insert(ceiling.records, side);
        ceilings.push(process);
    }
    let address = format!("127.0.0.1:{}", free_port()?);
    let told = ["--listen", &address, "--brokers", &servers.kafka, "--topic", "none"];
    let told = told.into_iter().chain(["--partitions", "1", "--records", "none"]);
    let program = std::env::current_exe()?.with_file_name("ceiling");
    let mut handler = Process::start(&program, told, &installation.dir.path().join("handler"))?;
    handler.line("is ready").await?;
    let handler = Handler { process: handler, address };
    let service = Side {
        process: installation.processes["ingest"].id,
        address: installation.api.clone(),
        key: installation.key.clone(),
        topic: Arc::new(Topic::named(&servers.kafka, "bench.items", partitions)),
        names: Names::Value,
    };
    sides.insert(SERVICE, service);

    let pool = Arc::new(Pool::new());
    let mut next = 0;
    for (items, connections) in [(1, args.single_connections), (100, args.batch_connections)] {
        let wanted = |name: &str| {
            let ceiling = CEILINGS.iter().find(|ceiling| ceiling.records == name);
            ceiling.is_none_or(|ceiling| ceiling.noted.iter().any(|(noted, _)| *noted == items))
        };
        let mut results: BTreeMap<&str, Vec<Measured>> = BTreeMap::new();
        let mut bare = Vec::new();
        for round in 0..=args.rounds {
            let seconds = if round == 0 { 1.0 } else { args.seconds };
            let rate = handler.rate(items, connections, seconds, &mut next).await?;
            if round > 0 {
                bare.push(rate);
            }
            for (name, side) in sides.iter().filter(|(name, _)| wanted(name)) {
                let seconds = if round == 0 { 1.0 } else { args.seconds };
                let measured = measure(side, &pool, items, connections, seconds, &mut next).await?;
                eprintln!(
                    "{items} a request, round {round}, {name}: {} items, {:.2} s of CPU, {:.2} s, p50 {:.1} ms, p99 {:.1} ms",
                    measured.sent.acknowledged,
                    measured.cpu,
                    measured.sent.seconds,
                    measured.sent.p50,
                    measured.sent.p99
                );
                // The first one only warms up.
                if round > 0 {
                    results.entry(name).or_default().push(measured);
                }
            }
        }
        report(items, connections, &results, median(bare));
    }
    drop(ceilings);
    installation.stop_all().await
}

async fn measure(
    side: &Side,
    pool: &Arc<Pool>,
    items: usize,
    connections: usize,
    seconds: f64,
    next: &mut u64,
) -> Result<Measured> {
    let topic = Arc::clone(&side.topic);
    let before = blocking(move || topic.ends()).await?;
    let first = *next;
    let began = tidegate_benches::clock::cpu_seconds(side.process)?;
    let load = Load { address: &side.address, key: &side.key, connections, items, next };
    let sent = load.run(End::Seconds(seconds)).await?;
    let cpu = tidegate_benches::clock::cpu_seconds(side.process)? - began;
    let (topic, pool, names) = (Arc::clone(&side.topic), Arc::clone(pool), side.names);
    let verify = move || topic.verify(&before, &pool, names, first, sent.acknowledged);
    let content = blocking(verify).await?;
    anyhow::ensure!(content.items == sent.acknowledged, "acknowledged and consumed differ");
    Ok(Measured { sent, content, cpu })
}

fn report(items: usize, connections: usize, results: &BTreeMap<&str, Vec<Measured>>, bare: f64) {
    let rates = |name: &str| -> Vec<f64> {
        results[name].iter().map(|it| it.sent.acknowledged as f64 / it.cpu).collect()
    };
    let service = rates(SERVICE);
    let mut rows = Vec::new();
    let mut checks = Vec::new();
    for (name, measured) in results {
        let own = rates(name);
        let ((low, high), middle) = (spread(&own), median(own.clone()));
        let records: u64 = measured.iter().map(|it| it.content.records).sum();
        let requests: u64 = measured.iter().map(|it| it.sent.requests).sum();
        let wall = measured.iter().map(|it| it.sent.acknowledged as f64 / it.sent.seconds).collect();
        let ratio = median(service.iter().zip(&own).map(|(service, own)| service / own).collect());
        let ceiling = CEILINGS.iter().find(|ceiling| ceiling.records == *name);
        let side =
            ceiling.map_or_else(|| (*name).to_owned(), |it| format!("ceiling, a record {}", of(it.records)));
        rows.push(vec![
            side.clone(),
            format!("{:.1}", records as f64 / requests as f64),
            thousands(middle),
            format!("{} to {}", thousands(low), thousands(high)),
            format!("{:.2}", 1e6 / middle),
            thousands(median(wall)),
            ceiling.map_or_else(String::new, |_| percent(ratio)),
        ]);
        let Some(ceiling) = ceiling else { continue };
        let noted = ceiling.noted.iter().find(|(noted, _)| *noted == items).and_then(|(_, figure)| *figure);
        if let Some(noted) = noted {
            let valid = middle >= VOID * noted;
            let valid = if valid { "it is a ceiling" } else { "VOID as a ceiling" };
            let share = percent(middle / noted);
            checks.push(format!("{side}: {share} of the noted {} per core: {valid}.", thousands(noted)));
        }
        checks.push(format!(
            "The service reaches {} of it: {} is {}.",
            percent(ratio),
            percent(BAR),
            verdict(ratio >= BAR)
        ));
    }
    let noted = HANDLER.iter().find(|(noted, _)| *noted == items).map_or(f64::NAN, |(_, figure)| *figure);
    checks.push(format!(
        "The bare handler alone, nothing sent: {} items per CPU-second, {} of the noted {}.",
        thousands(bare),
        percent(bare / noted),
        thousands(noted)
    ));
    println!("### Ingest, {items} a request, {connections} connections\n");
    let head = [
        "side",
        "records a request",
        "items per CPU-second",
        "lowest to highest",
        "CPU µs an item",
        "items/s",
        "service / it",
    ];
    print(&head, &rows);
    println!("{}\n", checks.join("\n"));
}

/// The ceiling's handler without a producer behind it.
struct Handler {
    process: Process,
    address: String,
}

impl Handler {
    /// Items per CPU-second.
    async fn rate(&self, items: usize, connections: usize, seconds: f64, next: &mut u64) -> Result<f64> {
        let began = tidegate_benches::clock::cpu_seconds(self.process.id)?;
        let load = Load { address: &self.address, key: "", connections, items, next };
        let sent = load.run(End::Seconds(seconds)).await?;
        let cpu = tidegate_benches::clock::cpu_seconds(self.process.id)? - began;
        Ok(sent.acknowledged as f64 / cpu)
    }
}

fn of(records: &str) -> &str {
    match records {
        "item" => "an item",
        "partition" => "a partition of the request",
        _ => "a request",
    }
}

//! The whole pipeline on Kafka and Cassandra, one process a role, against embedded: CPU time of our processes an item.
//!
//! What the servers use is left out: it is not ours, but it shares the machine, so items per second say little here.

use anyhow::Result;
use tidegate_benches::{
    installation::{Installation, UP},
    servers::Servers,
    table::{median, print, spread, thousands, verdict},
};

use crate::{
    Place,
    pipeline::{Round, Subject},
};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Items of a round
    #[arg(long, default_value_t = 50_000)]
    items: u64,
    #[arg(long, default_value_t = 16)]
    connections: usize,
    #[arg(long, default_value_t = 64)]
    partitions: u32,
}

const BAR: f64 = 2.0;

pub(crate) async fn run(place: &Place, args: &Args) -> Result<()> {
    let servers = Servers::start(&place.repository).await?;
    let installation = Installation::embedded(&place.repository, &place.binary).await?;
    let mut embedded = Subject { installation, role: UP, next: 0 };
    let roles = ["ingest", "process", "deliver", "console"];
    let installation =
        Installation::on_servers(&place.repository, &place.binary, &servers, &roles, args.partitions, 0).await?;
    let mut cluster = Subject { installation, role: "process", next: 0 };
    let (mut one, mut other): (Vec<Round>, Vec<Round>) = (Vec::new(), Vec::new());
    for nth in 0..=args.rounds {
        let items = if nth == 0 { args.items / 10 } else { args.items };
        for (name, subject, rounds) in
            [("embedded", &mut embedded, &mut one), ("kafka and cassandra", &mut cluster, &mut other)]
        {
            let round = subject.round(items, args.connections).await?;
            eprintln!(
                "round {nth}, {name}: {} items in {:.2} s, {:.2} s of CPU",
                round.items, round.seconds, round.cpu
            );
            // The first one only warms up.
            if nth > 0 {
                rounds.push(round);
            }
        }
    }
    embedded.check_sample().await?;
    cluster.check_sample().await?;
    let line = |name: &str, rounds: &[Round]| {
        let cpu: Vec<f64> = rounds.iter().map(Round::cpu_micros).collect();
        let (low, high) = spread(&cpu);
        let rate = median(rounds.iter().map(Round::rate).collect());
        vec![
            name.to_owned(),
            format!("{:.1}", median(cpu)),
            format!("{low:.1} to {high:.1}"),
            thousands(rate),
        ]
    };
    println!("### Whole pipeline, Kafka and Cassandra against embedded, 100 a request\n");
    print(
        &["on", "CPU µs an item, our processes", "lowest to highest", "items/s, servers on the same cores"],
        &[line("embedded", &one), line("Kafka and Cassandra", &other)],
    );
    let ratio =
        median(one.iter().zip(&other).map(|(one, other)| other.cpu_micros() / one.cpu_micros()).collect());
    println!(
        "Kafka and Cassandra cost {ratio:.2} times embedded's CPU: at most {BAR} is {}.\n",
        verdict(ratio <= BAR)
    );
    embedded.installation.stop_all().await?;
    cluster.installation.stop_all().await
}

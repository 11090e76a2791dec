//! The benches: each starts what it measures, holds the results of both sides equal, and prints a table.
//!
//! `benches/run` builds what is measured and calls this.

mod answers;
mod cluster;
mod growth;
mod images;
mod ingest;
mod load;
mod pipeline;
mod rules;
mod start;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Parser)]
struct Args {
    /// The repository's folder
    #[arg(long, default_value = ".")]
    repository: PathBuf,
    /// The service's binary
    #[arg(long)]
    binary: PathBuf,
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Subcommand)]
enum Bench {
    /// The API against a bare handler and a raw producer, on Kafka, by CPU time
    Ingest(ingest::Args),
    /// Everything from the request to the stored evaluation, embedded
    Pipeline(pipeline::Args),
    /// The same on Kafka and Cassandra against embedded, by CPU time of our processes
    Cluster(cluster::Args),
    /// The same as `pipeline` on data that grows: CPU an item and bytes on disk
    Growth(growth::Args),
    /// The whole pipeline with ten thousand rules against the same with ten, by CPU time
    Rules(rules::Args),
    /// Items with photographs against hashing alone, and beside a host that hangs
    Images(images::Args),
    /// Waiting times of a platform and a moderator: for the outcome of one item, and for a claimed job
    Answers(answers::Args),
    /// From the start of the process to the first evaluated item, and memory at rest
    Start(start::Args),
}

/// What every bench needs to know.
struct Place {
    repository: PathBuf,
    binary: PathBuf,
}

#[tokio::main]
async fn main() -> Result<()> {
    let Args { repository, binary, bench } = Args::parse();
    let place = Place { repository: repository.canonicalize()?, binary: binary.canonicalize()? };
    match bench {
        Bench::Ingest(args) => Box::pin(ingest::run(&place, &args)).await,
        Bench::Pipeline(args) => Box::pin(pipeline::run(&place, &args)).await,
        Bench::Cluster(args) => Box::pin(cluster::run(&place, &args)).await,
        Bench::Growth(args) => Box::pin(growth::run(&place, &args)).await,
        Bench::Rules(args) => Box::pin(rules::run(&place, &args)).await,
        Bench::Images(args) => Box::pin(images::run(&place, &args)).await,
        Bench::Answers(args) => Box::pin(answers::run(&place, &args)).await,
        Bench::Start(args) => Box::pin(start::run(&place, &args)).await,
    }
}

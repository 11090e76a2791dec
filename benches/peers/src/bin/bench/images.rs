//! Items with one photograph each through the whole pipeline, embedded: against hashing the same files alone, and with
//! a host beside that never answers.
//!
//! Before any figure counts, each item's stored hash must be the one that the command finds in the file.

use std::{collections::BTreeMap, fs, path::Path, process::Stdio, sync::Arc, time::Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use tidegate_benches::{
    installation::{Installation, UP},
    pictures::{Host, Photographs},
    process::PATIENCE,
    table::{median, percent, print, spread, verdict},
};
use tokio::{process::Command, time::sleep};

use crate::Place;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Photographs of a round
    #[arg(long, default_value_t = 400)]
    images: u64,
    /// Further items of a request of ten, which name the host that never answers
    #[arg(long, default_value_t = 2)]
    hanging: u64,
}

const A_REQUEST: u64 = 10;
/// Of the throughput beside a host that hangs, against the one without.
const BAR: f64 = 0.9;

struct Round {
    seconds: f64,
    cpu: f64,
}

struct Bench {
    installation: Installation,
    good: Host,
    hanging: Host,
    /// The number of the next photograph.
    next: u64,
}

impl Bench {
    /// Sends so many items, and waits until each with a photograph is evaluated.
    async fn round(&mut self, images: u64, hanging: u64) -> Result<(Round, BTreeMap<u64, String>)> {
        let process = &self.installation.processes[UP];
        let (cpu, began) = (process.cpu_seconds()?, Instant::now());
        let numbers = self.next..self.next + images;
        self.next = numbers.end;
        for first in numbers.clone().step_by(usize::try_from(A_REQUEST)?) {
            let good = (first..numbers.end.min(first + A_REQUEST)).map(|nth| item("good", nth, &self.good));
            let bad = (first..first + hanging).map(|nth| item("bad", nth, &self.hanging));
            let body = json!({ "items": good.chain(bad).collect::<Vec<_>>() });
            let answer = self.installation.platform("POST", "/api/v1/items/async/", Some(&body)).await?;
            ensure!(answer.status == 202, "{}", answer.body);
        }
        let mut hashes = BTreeMap::new();
        for number in numbers {
            let medium = self.evaluated(number).await?;
            ensure!(medium["state"] == "ok", "photograph {number}: {medium}");
            hashes.insert(number, medium["pdq"].as_str().context("a hash")?.to_owned());
        }
        let process = &self.installation.processes[UP];
        let seconds = began.elapsed().as_secs_f64();
        Ok((Round { seconds, cpu: process.cpu_seconds()? - cpu }, hashes))
    }

    async fn evaluated(&self, number: u64) -> Result<Value> {
        let until = Instant::now() + PATIENCE;
        loop {
            let path = format!("/api/v1/items/post/good-{number}");
            let answer = self.installation.platform("GET", &path, None).await?.json();
            if answer["state"] == "evaluated" {
                return Ok(answer["media"][0].clone());
            }
            ensure!(Instant::now() < until, "item {number} is not evaluated: {answer}");
            sleep(std::time::Duration::from_millis(20)).await;
        }
    }
}

fn item(prefix: &str, number: u64, host: &Host) -> Value {
    let author = json!({ "typeId": "user", "id": format!("u{}", number % 50) });
    let data = json!({ "text": "look at this", "author": author, "images": [host.url(number)] });
    json!({ "id": format!("{prefix}-{number}"), "typeId": "post", "data": data })
}

/// What `media hash` makes of the files, and its CPU seconds.
async fn alone(binary: &Path, files: &[String]) -> Result<(Vec<String>, f64)> {
    let script = r#"TIMEFORMAT='%U %S'; time "$0" media hash --json "$@""#;
    let mut command = Command::new("bash");
    command.args(["-c", script]).arg(binary).args(files).stdin(Stdio::null());
    let output = command.output().await?;
    let told = String::from_utf8(output.stderr)?;
    ensure!(output.status.success(), "media hash: {told}");
    let times = told.lines().last().context("no times")?;
    let cpu =
        times.split(' ').map(str::parse::<f64>).sum::<Result<f64, _>>().with_context(|| told.clone())?;
    let lines = String::from_utf8(output.stdout)?;
    let hash = |line: &str| {
        let found: Value = serde_json::from_str(line)?;
        Ok(found["pdq"].as_str().with_context(|| line.to_owned())?.to_owned())
    };
    Ok((lines.lines().map(hash).collect::<Result<_>>()?, cpu))
}

pub(crate) async fn run(place: &Place, args: &Args) -> Result<()> {
    let photographs = Arc::new(Photographs::make()?);
    let good = Host::start(Some(Arc::clone(&photographs))).await?;
    let hanging = Host::start(None).await?;
    let more = format!(
        "[egress]\nallow_cidrs = [\"127.0.0.0/8\"]\n[egress.media]\nports = [{}, {}]\n",
        good.address.port(),
        hanging.address.port()
    );
    let installation = Installation::embedded_with(&place.repository, &place.binary, &more, None).await?;
    let mut bench = Bench { installation, good, hanging, next: 0 };
    let folder = TempDir::new()?;
    let mut files = Vec::new();
    for number in 0..args.images {
        let path = folder.path().join(format!("{number}.jpg"));
        fs::write(&path, photographs.file(number))?;
        files.push(path.display().to_string());
    }
    let (wanted, _) = alone(&place.binary, &files).await?;
    let (_, stored) = bench.round(args.images, 0).await?;
    ensure!(stored.into_values().eq(wanted), "the pipeline's hashes are not those of the files");

    let (mut hashing, mut calm, mut beside) = (Vec::new(), Vec::new(), Vec::new());
    for nth in 1..=args.rounds {
        hashing.push(alone(&place.binary, &files).await?.1);
        calm.push(bench.round(args.images, 0).await?.0);
        beside.push(bench.round(args.images, args.hanging).await?.0);
        let (calm, beside) = (&calm[nth - 1], &beside[nth - 1]);
        eprintln!(
            "round {nth}: {:.2} s of CPU alone; {:.2} s of CPU in {:.2} s through the pipeline; {:.2} s beside a host \
             that hangs",
            hashing[nth - 1],
            calm.cpu,
            calm.seconds,
            beside.seconds
        );
    }
    let images = args.images as f64;
    let line = |name: &str, cpu: Vec<f64>| {
        let (low, high) = spread(&cpu);
        let middle = median(cpu);
        vec![
            name.to_owned(),
            format!("{:.1}", images / middle),
            format!("{:.2}", middle * 1e3 / images),
            format!("{:.2} to {:.2}", low * 1e3 / images, high * 1e3 / images),
        ]
    };
    println!("### Items with one photograph of 1.2 megapixels each, embedded\n");
    let through: Vec<f64> = calm.iter().map(|round| round.cpu).collect();
    let ratio = median(through.iter().zip(&hashing).map(|(through, alone)| through / alone).collect());
    print(
        &["", "images per CPU-second", "CPU ms an image", "lowest to highest"],
        &[line("`media hash`, the same files", hashing), line("the whole pipeline", through)],
    );
    println!("The whole pipeline costs {ratio:.2} times the CPU of hashing alone.");
    let kept = median(calm.iter().zip(&beside).map(|(calm, beside)| calm.seconds / beside.seconds).collect());
    println!(
        "With {} further items in {} that name a host which never answers, the others have {} of the throughput \
         without: at least {} is {}.\n",
        args.hanging,
        A_REQUEST + args.hanging,
        percent(kept),
        percent(BAR),
        verdict(kept >= BAR)
    );
    bench.installation.stop_all().await
}

//! `tidegate rules bench`: what the rules in a folder cost on items from a file, on one core.
//!
//! It reads no store, so it leaves out what look-ups cost.

mod memory;
mod times;

use std::{
    fs,
    hint::black_box,
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::bail;
use clap::Args;
use tidegate_schemas::ids::Millis;

use self::{memory::Resident, times::Times};
use super::{
    Folder, evaluate,
    items::{self, Refused},
};
use crate::output::say;

#[derive(Debug, Args)]
pub(crate) struct Bench {
    #[command(flatten)]
    folder: Folder,
    /// A file with one item a line; `-` reads standard input
    #[arg(long, value_name = "FILE")]
    items: PathBuf,
    /// Seconds to measure
    #[arg(long, value_name = "SECONDS", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    seconds: u64,
}

impl Bench {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let (bare, began) = (Resident::now(), Instant::now());
        let Some(config) = self.folder.compile()? else { return Ok(ExitCode::FAILURE) };
        let (build, compiled) = (began.elapsed(), Resident::now());
        let now = Millis::now();
        let (mut read, mut refused) = (Vec::new(), Refused::default());
        for line in items::lines(&self.items)? {
            let (number, line) = line?;
            match items::read(&config, &line, now).item {
                Ok(prepared) => read.push(prepared),
                Err(fault) => refused.add(number, &fault),
            }
        }
        if read.is_empty() {
            match refused.0 {
                0 => bail!("there are no items in {}", self.items.display()),
                refused => bail!("none of {refused} items fits its type"),
            }
        }
        let with_items = Resident::now();
        let matching = read.iter().filter(|prepared| !evaluate(prepared).matched.is_empty()).count();
        let (began, end) = (spent(), Instant::now() + Duration::from_secs(self.seconds));
        let mut times = Times::default();
        while Instant::now() < end {
            for prepared in &read {
                let began = Instant::now();
                black_box(evaluate(prepared));
                times.add(began.elapsed());
            }
        }
        let spent = (spent() - began).as_secs_f64();
        let rate = times.count() as f64 / spent.max(f64::MIN_POSITIVE);
        let (half, most, all) = (times.within(50), times.within(99), times.longest());
        let figures = config.plan().size();
        say(format!("{matching} items of {} match a rule; {} do not fit their type", read.len(), refused.0));
        say(format!("{rate:.0} items a second of CPU, each {:?}", Duration::from_secs_f64(1.0 / rate)));
        say(format!("by the clock half within {half:?}, 99 in 100 within {most:?}, all within {all:?}"));
        say(format!(
            "{} rules with {} conditions, {} of them different",
            figures.rules, figures.conditions, figures.predicates
        ));
        say(format!(
            "{} rules are evaluated for each item, because they cannot be indexed",
            figures.unindexed
        ));
        say(format!("{} words are sought, in {} KB", figures.words, figures.search_bytes / 1_000));
        say(format!("read and compiled in {build:?}"));
        say(memory::told(&[
            ("before", bare),
            ("with the rules", compiled),
            ("with the items", with_items),
            ("after they were evaluated", Resident::now()),
        ]));
        Ok(ExitCode::SUCCESS)
    }
}

/// Returns the CPU time of the thread, or wall time where the system does not report it.
fn spent() -> Duration {
    let told = fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanos = told.and_then(|told| told.split(' ').next()?.parse().ok());
    nanos.map_or_else(|| CLOCK.elapsed(), Duration::from_nanos)
}

static CLOCK: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);

//! `tidegate rules bench`: measures evaluation of items from a file on one core.
//!
//! No store is read, so the cost of look-ups is left out.

mod histogram;
mod memory;

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

use self::{histogram::DurationHistogram, memory::ResidentMemory};
use super::{
    Folder, evaluate,
    items::{self, RefusedLines},
};
use crate::output::print_line;

#[derive(Debug, Args)]
pub(crate) struct Bench {
    #[command(flatten)]
    folder: Folder,
    /// File with one item per line; `-` reads standard input
    #[arg(long, value_name = "FILE")]
    items: PathBuf,
    /// Duration of the measurement in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    seconds: u64,
}

impl Bench {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let (memory_at_start, started_at) = (ResidentMemory::read(), Instant::now());
        let Some(config) = self.folder.compile()? else { return Ok(ExitCode::FAILURE) };
        let (build_time, memory_compiled) = (started_at.elapsed(), ResidentMemory::read());
        let now = Millis::now();
        let (mut prepared_items, mut refused_lines) = (Vec::new(), RefusedLines::default());
        for line in items::lines(&self.items)? {
            let (number, line) = line?;
            match items::parse_line(&config, &line, now).item {
                Ok(prepared) => prepared_items.push(prepared),
                Err(fault) => refused_lines.add(number, &fault),
            }
        }
        if prepared_items.is_empty() {
            match refused_lines.0 {
                0 => bail!("there are no items in {}", self.items.display()),
                refused => bail!("none of {refused} items fits its type"),
            }
        }
        let memory_with_items = ResidentMemory::read();
        // Counted in a pass of its own, so that the measured loop only evaluates.
        let matching =
            prepared_items.iter().filter(|prepared| !evaluate(prepared).matched.is_empty()).count();
        let (cpu_start, end) = (cpu_time(), Instant::now() + Duration::from_secs(self.seconds));
        let mut times = DurationHistogram::default();
        while Instant::now() < end {
            for prepared in &prepared_items {
                let item_start = Instant::now();
                // Keeps the compiler from removing the evaluation as unused.
                black_box(evaluate(prepared));
                times.add(item_start.elapsed());
            }
        }
        // The rate uses CPU time: wall time also includes pauses of the thread.
        let cpu_seconds = (cpu_time() - cpu_start).as_secs_f64();
        // The clock of the thread may not have advanced during a short measurement.
        let rate = times.count() as f64 / cpu_seconds.max(f64::MIN_POSITIVE);
        let (median, percentile_99, longest) = (times.percentile(50), times.percentile(99), times.longest());
        let figures = config.plan().size();
        print_line(format!(
            "{matching} items of {} match a rule; {} do not fit their type",
            prepared_items.len(),
            refused_lines.0
        ));
        print_line(format!(
            "{rate:.0} items a second of CPU, each {:?}",
            Duration::from_secs_f64(1.0 / rate)
        ));
        print_line(format!(
            "by the clock half within {median:?}, 99 in 100 within {percentile_99:?}, all within {longest:?}"
        ));
        print_line(format!(
            "{} rules with {} conditions, {} of them different",
            figures.rules, figures.conditions, figures.predicates
        ));
        print_line(format!(
            "{} rules are evaluated for each item, because they cannot be indexed",
            figures.unindexed
        ));
        print_line(format!("{} words are sought, in {} KB", figures.words, figures.search_bytes / 1_000));
        print_line(format!("read and compiled in {build_time:?}"));
        print_line(memory::describe(&[
            ("before", memory_at_start),
            ("with the rules", memory_compiled),
            ("with the items", memory_with_items),
            ("after they were evaluated", ResidentMemory::read()),
        ]));
        Ok(ExitCode::SUCCESS)
    }
}

/// Returns the CPU time of the thread, or wall time where the system does not report it.
fn cpu_time() -> Duration {
    let schedstat = fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanos = schedstat.and_then(|text| text.split(' ').next()?.parse().ok());
    nanos.map_or_else(|| CLOCK.elapsed(), Duration::from_nanos)
}

static CLOCK: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);

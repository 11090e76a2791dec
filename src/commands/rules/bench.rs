//! `tidegate rules bench`: what the rules in a folder cost on items from a file, on one core.
//!
//! It reads no store, so it leaves out what look-ups cost.

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

use super::{Folder, evaluate, items};
use crate::output::say;

#[derive(Debug, Args)]
pub(crate) struct Bench {
    #[command(flatten)]
    folder: Folder,
    /// A file with one item a line; `-` reads standard input
    #[arg(long, value_name = "FILE")]
    items: PathBuf,
    /// How long to measure
    #[arg(long, value_name = "SECONDS", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    seconds: u64,
}

impl Bench {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let began = spent();
        let Some(config) = self.folder.compile()? else { return Ok(ExitCode::FAILURE) };
        let build = spent() - began;
        let now = Millis::now();
        let (mut read, mut refused) = (Vec::new(), 0);
        for line in items::lines(&self.items)? {
            match items::read(&config, &line?.1, now).item {
                Ok(prepared) => read.push(prepared),
                Err(_) => refused += 1,
            }
        }
        if read.is_empty() {
            bail!("none of {refused} items fits its type");
        }
        let matching = read.iter().filter(|prepared| !evaluate(prepared).matched.is_empty()).count();
        let (began, end) = (spent(), Instant::now() + Duration::from_secs(self.seconds));
        let (mut times, mut count) = (Vec::new(), 0_u32);
        while Instant::now() < end {
            for prepared in &read {
                let began = Instant::now();
                black_box(evaluate(prepared));
                count += 1;
                // Enough to know the rare ones by; more would only be memory.
                if times.len() < 10_000_000 {
                    times.push(began.elapsed());
                }
            }
        }
        let each = (spent() - began) / count;
        times.sort_unstable();
        let at = |share: usize| times[(times.len() - 1) * share / 100];
        let figures = config.plan().figures();
        say(format!("{} items of {} match a rule; {refused} do not fit their type", matching, read.len()));
        say(format!("{:.0} items a second of CPU, each {each:?}", 1.0 / each.as_secs_f64()));
        say(format!("half within {:?}, 99 in 100 within {:?}, all within {:?}", at(50), at(99), at(100)));
        say(format!(
            "{} rules with {} conditions, {} of them different",
            figures.rules, figures.conditions, figures.predicates
        ));
        say(format!(
            "{} rules are judged for each item, because nothing announces them",
            figures.unannounced
        ));
        say(format!("{} words are sought, in {} KB", figures.words, figures.search_bytes / 1_000));
        say(format!("read and compiled in {build:?} of CPU"));
        Ok(ExitCode::SUCCESS)
    }
}

/// What the thread has had of a processor; the clock where the system does not say.
fn spent() -> Duration {
    let told = fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanos = told.and_then(|told| told.split(' ').next()?.parse().ok());
    nanos.map_or_else(|| CLOCK.elapsed(), Duration::from_nanos)
}

static CLOCK: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);

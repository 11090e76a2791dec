//! One attack: the start of the service, the requests of the attacker, and the measurements of the good client.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use anyhow::{Error, Result, ensure};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::{
    good::{GoodClient, Noticed},
    http2, processing, requests,
    service::{Service, Start},
};

/// Greatest resident memory in MiB.
const MEMORY: f64 = 1_536.0;
/// Time for an attack to end after its stop.
const ENDING: Duration = Duration::from_secs(30);

/// Greatest times for 99 of 100 requests of the good client.
#[derive(Clone, Copy)]
pub(crate) struct Bars {
    /// Answers to submissions.
    pub(crate) answers: Duration,
    /// Evaluations of accepted items; `None`: no bar.
    pub(crate) evaluated: Option<Duration>,
}

impl Default for Bars {
    fn default() -> Self {
        Self { answers: Duration::from_millis(50), evaluated: None }
    }
}

/// The service's addresses and the attacker's key.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) api: String,
    pub(crate) admin: String,
    pub(crate) key: String,
    /// Key of an organisation that does not abuse the service.
    pub(crate) other: String,
}

/// Runs until the token is cancelled, and returns a summary of its requests.
pub(crate) type Running = Pin<Box<dyn Future<Output = Result<String>> + Send>>;

pub(crate) struct Attack {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) start: Start,
    pub(crate) bars: Bars,
    pub(crate) run: fn(Arc<Target>, CancellationToken) -> Running,
}

pub(crate) const HEAD: [&str; 13] = [
    "attack",
    "requests",
    "p50 ms",
    "p99 ms",
    "max ms",
    "not 2xx",
    "evaluated p50 ms",
    "p99 ms",
    "content p99 ms",
    "probe max ms",
    "MiB",
    "stop s (code)",
    "bars",
];

pub(crate) struct Row {
    pub(crate) name: &'static str,
    did: String,
    noticed: Noticed,
    memory: f64,
    bars: Bars,
    /// Exit code after SIGTERM, and the time until then.
    stopped: (Option<i32>, Duration),
    broken: Option<String>,
}

/// All attacks, after an empty one that measures the machine itself.
pub(crate) fn all() -> Vec<Attack> {
    let quiet = Attack {
        name: "none",
        about: "the good client alone",
        start: Start::default(),
        bars: Bars::default(),
        run: |_, stop| {
            Box::pin(async move {
                stop.cancelled().await;
                Ok("nothing".to_owned())
            })
        },
    };
    let mut all = vec![quiet];
    all.extend(requests::attacks());
    all.extend(http2::attacks());
    all.extend(processing::attacks());
    all
}

impl Attack {
    pub(crate) async fn run(&self, lasts: Duration) -> Result<Row> {
        let mut service = Service::start(&self.start).await?;
        let good_client = GoodClient::start(&service.api, &service.operations, &service.good);
        let target = Arc::new(Target {
            api: service.api.clone(),
            admin: service.admin.clone(),
            key: service.bad.clone(),
            other: service.other.clone(),
        });
        let stop = CancellationToken::new();
        let attack = tokio::spawn((self.run)(target, stop.clone()));
        let deadline = tokio::time::Instant::now() + lasts;
        while tokio::time::Instant::now() < deadline && service.process.runs() {
            sleep(Duration::from_millis(200)).await;
        }
        let survived = service.process.runs();
        let memory = service.resident().map_or(f64::NAN, |(_, most)| most);
        let limited = service.metric("tidegate_http_limited_total").await.unwrap_or(f64::NAN);
        let noticed = good_client.stop().await?;
        stop.cancel();
        let did =
            timeout(ENDING, attack).await??.unwrap_or_else(|error| format!("the attack failed: {error:#}"));
        ensure!(survived, "the service ended:\n{}", service.tail());
        // The stop includes the unfinished work of the attack.
        let stopped = service.stop().await?;
        let did = format!("{did}; {limited} limited");
        Ok(Row { name: self.name, did, noticed, memory, stopped, bars: self.bars, broken: None })
    }
}

impl Row {
    pub(crate) fn from_error(name: &'static str, error: &Error) -> Self {
        let error_text = Some(format!("{error:#}").replace(['\n', '|'], " "));
        let (noticed, bars) = (Noticed::default(), Bars::default());
        let stopped = (None, Duration::ZERO);
        Self { name, did: String::new(), noticed, memory: f64::NAN, stopped, bars, broken: error_text }
    }

    pub(crate) fn meets_bars(&self) -> bool {
        let keeps = |times: &[Duration], bar| at(times, 99).is_some_and(|p99| p99 <= bar);
        let is_quick = keeps(&self.noticed.answers, self.bars.answers)
            && self.bars.evaluated.is_none_or(|bar| keeps(&self.noticed.evaluated, bar));
        let is_unharmed = self.noticed.failures.is_empty() && self.memory <= MEMORY;
        self.broken.is_none() && is_quick && is_unharmed && self.stopped.0 == Some(0)
    }

    pub(crate) fn cells(&self) -> Vec<String> {
        let Noticed { answers, evaluated, content, probes, failures } = &self.noticed;
        let millis = |times: &[Duration], percent| {
            at(times, percent)
                .map_or_else(|| "-".to_owned(), |time| format!("{:.1}", time.as_secs_f64() * 1e3))
        };
        let verdict = match (&self.broken, self.meets_bars(), failures.first()) {
            (Some(broken), ..) => broken.clone(),
            (None, true, _) => "held".to_owned(),
            (None, false, None) => "MISSED".to_owned(),
            (None, false, Some(first)) => {
                format!("MISSED: {}", first.chars().take(120).collect::<String>().replace('|', " "))
            }
        };
        vec![
            self.name.to_owned(),
            self.did.clone(),
            millis(answers, 50),
            millis(answers, 99),
            millis(answers, 100),
            format!(
                "{} of {}",
                failures.len(),
                failures.len() + answers.len() + evaluated.len() + content.len() + probes.len()
            ),
            millis(evaluated, 50),
            millis(evaluated, 99),
            millis(content, 99),
            millis(probes, 100),
            format!("{:.0}", self.memory),
            format!(
                "{:.1} ({})",
                self.stopped.1.as_secs_f64(),
                self.stopped.0.map_or("-".to_owned(), |code| code.to_string())
            ),
            verdict,
        ]
    }
}

/// Percentile of the times.
fn at(times: &[Duration], percent: usize) -> Option<Duration> {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    sorted.get((sorted.len() * percent / 100).min(sorted.len().saturating_sub(1))).copied()
}

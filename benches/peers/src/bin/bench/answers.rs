//! Waiting times of a platform and a moderator: for the outcome of one item that `POST /api/v1/content` evaluates, and for the
//! claim of a job while the platform's partial items endpoint hangs.
//!
//! Wall-clock figures: on a machine that does other work they are upper bounds.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use tidegate_benches::{
    installation::{Installation, UP},
    items::{Pool, id},
    process::PATIENCE,
    table::{median, print, spread, verdict},
};
use tokio::{
    io::AsyncReadExt as _,
    net::{TcpListener, TcpStream},
    task::{JoinHandle, JoinSet},
    time::sleep,
};

use crate::{
    Place,
    load::{End, Load, Sent, Single},
    rules::{MATCHING, rules},
};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Length of a round in seconds
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    #[arg(long, default_value_t = 10_000)]
    rules: usize,
    /// Numbers of connections with which the saturated rate is looked for
    #[arg(long, value_delimiter = ',', default_values_t = [8, 16, 32, 64, 128, 256])]
    connections: Vec<usize>,
    /// Share of the saturated rate at which requests arrive
    #[arg(long, default_value_t = 0.5)]
    share: f64,
    /// Jobs that are claimed
    #[arg(long, default_value_t = 1_000)]
    claims: usize,
    /// Moderators who claim at the same time
    #[arg(long, default_value_t = 4)]
    reviewers: usize,
}

/// Milliseconds at the 99th percentile of an outcome, and of a claim.
const OUTCOME_BAR: f64 = 20.0;
const CLAIM_BAR: f64 = 50.0;
/// Texts whose outcomes are compared before any timing.
const COMPARED: usize = 512;
/// Connections of the open loop: more than are ever needed at the rate.
const OPEN: usize = 256;
/// Smallest age at which data of a claimed job is asked for again.
const REFRESH_AFTER: Duration = Duration::from_secs(1);

pub(crate) async fn run(place: &Place, args: &Args) -> Result<()> {
    outcomes(place, args).await?;
    claims(place, args).await
}

struct Round {
    sent: Sent,
    cpu: f64,
}

impl Round {
    fn rate(&self) -> f64 {
        self.sent.requests as f64 / self.sent.seconds
    }

    fn cpu_millis(&self) -> f64 {
        self.cpu * 1e3 / self.sent.requests as f64
    }
}

struct Outcomes {
    installation: Installation,
    next: u64,
}

impl Outcomes {
    async fn round(&mut self, connections: usize, rate: f64, seconds: f64) -> Result<Round> {
        let before = self.installation.processes[UP].cpu_seconds()?;
        let load = Load {
            address: &self.installation.api,
            key: &self.installation.key,
            connections,
            items: 1,
            next: &mut self.next,
        };
        let sent = load.run_single(Single::Content { rule: MATCHING }, rate, End::Seconds(seconds)).await?;
        Ok(Round { sent, cpu: self.installation.processes[UP].cpu_seconds()? - before })
    }

    /// The same rate of requests that only read what is in memory: how long machine and client let an answer wait.
    async fn control(&self, rate: f64, seconds: f64) -> Result<Sent> {
        let load = Load {
            address: &self.installation.api,
            key: &self.installation.key,
            connections: OPEN,
            items: 1,
            next: &mut 0,
        };
        load.run_single(Single::Policies, rate, End::Seconds(seconds)).await
    }

    /// Compares whole outcomes with what the words of the texts say.
    async fn compare(&mut self, pool: &Pool) -> Result<()> {
        let mut matching = 0;
        for text in 0..COMPARED {
            let content: Value = serde_json::from_str(pool.data(text))?;
            let body = json!({"contentType": "post", "contentId": id(self.next, text), "content": content});
            self.next += 1;
            let answer = self.installation.platform("POST", "/api/v1/content/", Some(&body)).await?;
            ensure!(answer.status == 200, "text {text}: {}", answer.body);
            let outcome = answer.json();
            let matched = outcome["matchedRules"].as_array().context("matched rules")?;
            let ids: Vec<_> = matched.iter().filter_map(|rule| rule["id"].as_str()).collect();
            let wanted: &[&str] = if pool.is_matched(text) { &[MATCHING] } else { &[] };
            ensure!(ids == wanted, "text {text} matches {ids:?}, and its words say {wanted:?}");
            matching += wanted.len();
        }
        ensure!(matching > COMPARED / 20, "{matching} of {COMPARED} texts match");
        eprintln!("{COMPARED} outcomes compared, {matching} of them with a rule that matched");
        Ok(())
    }
}

async fn outcomes(place: &Place, args: &Args) -> Result<()> {
    let rules = rules(args.rules);
    let installation = Installation::embedded_with(&place.repository, &place.binary, "", Some(&rules)).await?;
    let mut subject = Outcomes { installation, next: 0 };
    subject.compare(&Pool::new()).await?;
    let mut saturated: Option<(f64, usize)> = None;
    for connections in &args.connections {
        let round = subject.round(*connections, 0.0, (args.seconds / 2.0).max(1.0)).await?;
        eprintln!("closed loop, {connections} connections: {}", round_line(&round));
        if saturated.is_none_or(|(rate, _)| round.rate() > rate) {
            saturated = Some((round.rate(), *connections));
        }
    }
    let (saturated, connections) = saturated.context("at least one number of connections")?;
    let (mut rounds, mut controls) = (Vec::new(), Vec::new());
    for nth in 1..=args.rounds {
        let round = subject.round(OPEN, saturated * args.share, args.seconds).await?;
        eprintln!("open loop, round {nth}: {}", round_line(&round));
        rounds.push(round);
        let control = subject.control(saturated * args.share, args.seconds).await?;
        eprintln!("policies at the same rate: p50 {:.2} ms, p99 {:.2} ms", control.p50, control.p99);
        controls.push(control.p99);
    }
    subject.installation.until_processed(UP, subject.next).await?;
    println!("### Outcome of one item in the request, embedded, {} rules\n", args.rules);
    let column = |figure: fn(&Round) -> f64| -> Vec<f64> { rounds.iter().map(figure).collect() };
    let (p50, p99) = (column(|round| round.sent.p50), column(|round| round.sent.p99));
    let ((low50, high50), (low99, high99)) = (spread(&p50), spread(&p99));
    let p99 = median(p99);
    let (low_control, high_control) = spread(&controls);
    let control = median(controls);
    print(
        &[
            "answers/s",
            "p50 ms",
            "lowest to highest",
            "p99 ms",
            "lowest to highest",
            "longest ms",
            "CPU ms an answer",
        ],
        &[vec![
            format!("{:.0}", median(column(Round::rate))),
            format!("{:.2}", median(p50)),
            format!("{low50:.2} to {high50:.2}"),
            format!("{p99:.2}"),
            format!("{low99:.2} to {high99:.2}"),
            format!("{:.1}", spread(&column(|round| round.sent.most)).1),
            format!("{:.3}", median(column(Round::cpu_millis))),
        ]],
    );
    println!(
        "Requests arrive at random moments, at {:.2} of the {saturated:.0} answers/s that {connections} connections get in a \
         closed loop. Each answer has the expected rules. p99 below {OUTCOME_BAR} ms: {}.\n\
         Policies, which are read from memory, at the same rate: p99 {control:.2} ms ({low_control:.2} to \
         {high_control:.2}); what machine and client add is in both.\n\
         Left out: rules that act, media, other load beside it, and Kafka. Up to 1 ms is the client's timer.\n",
        args.share,
        verdict(p99 < OUTCOME_BAR)
    );
    subject.installation.stop_all().await
}

fn round_line(round: &Round) -> String {
    let Sent { p50, p99, most, .. } = round.sent;
    let (rate, cpu) = (round.rate(), round.cpu_millis());
    format!(
        "{rate:.0} answers/s, p50 {p50:.2} ms, p99 {p99:.2} ms, longest {most:.1} ms, {cpu:.3} ms of CPU an answer"
    )
}

/// A partial items endpoint that takes every request and never answers. Stops when dropped.
struct Hanging {
    url: String,
    asked: Arc<AtomicU64>,
    accepting: JoinHandle<()>,
}

impl Drop for Hanging {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Hanging {
    async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.2:0").await?;
        let url = format!("http://{}/items", listener.local_addr()?);
        let asked = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&asked);
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(hang(stream, Arc::clone(&counted)));
            }
        });
        Ok(Self { url, asked, accepting })
    }

    fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }
}

/// Counts a request once its body is here, and reads on until the client gives up.
async fn hang(mut stream: TcpStream, asked: Arc<AtomicU64>) {
    let mut request = Vec::new();
    let mut is_counted = false;
    while stream.read_buf(&mut request).await.is_ok_and(|read| read > 0) {
        if !is_counted && request.ends_with(b"]}") {
            is_counted = true;
            asked.fetch_add(1, Ordering::Relaxed);
        }
    }
}

async fn claims(place: &Place, args: &Args) -> Result<()> {
    let mut rows = Vec::new();
    let hanging = Hanging::start().await?;
    let more = format!(
        "[egress]\nallow_cidrs = [\"127.0.0.0/8\"]\n[partial_items.default]\nurl = \"{}\"\n[review]\n\
         refresh_after_ms = {}\n",
        hanging.url,
        REFRESH_AFTER.as_millis()
    );
    let mut worst = 0.0_f64;
    for (name, more, endpoint) in [("none", "", None), ("hangs", more.as_str(), Some(&hanging))] {
        let installation = Arc::new(Installation::embedded_with(&place.repository, &place.binary, more, None).await?);
        let jobs = reported(&installation, args.claims + 1).await?;
        sleep(REFRESH_AFTER + Duration::from_millis(100)).await;
        let (first, rest) = jobs.split_first().context("a job")?;
        claim(&installation, first, 0).await?;
        if let Some(endpoint) = endpoint {
            let until = Instant::now() + PATIENCE;
            while endpoint.asked() == 0 {
                ensure!(Instant::now() < until, "the claim did not ask the endpoint");
                sleep(Duration::from_millis(10)).await;
            }
        }
        let cpu = installation.processes[UP].cpu_seconds()?;
        let began = Instant::now();
        let millis = all_claimed(&installation, rest, args.reviewers).await?;
        let seconds = began.elapsed().as_secs_f64();
        let cpu = (installation.processes[UP].cpu_seconds()? - cpu) * 1e3 / millis.len() as f64;
        let at = |share: usize| millis.get(millis.len() * share / 100).copied().unwrap_or(f64::NAN);
        let (p50, p99) = (at(50), at(99));
        let asked = endpoint.map_or(0, Hanging::asked);
        worst = worst.max(p99);
        rows.push(vec![
            name.to_owned(),
            format!("{:.0}", millis.len() as f64 / seconds),
            format!("{p50:.2}"),
            format!("{p99:.2}"),
            format!("{:.1}", millis.last().copied().unwrap_or(f64::NAN)),
            format!("{cpu:.2}"),
            asked.to_string(),
        ]);
        let installation = Arc::into_inner(installation).context("nobody else has the installation")?;
        installation.stop_all().await?;
    }
    println!("### Claim of a job, embedded, {} moderators at once\n", args.reviewers);
    print(
        &[
            "partial items endpoint",
            "claims/s",
            "p50 ms",
            "p99 ms",
            "longest ms",
            "CPU ms a claim",
            "requests it got",
        ],
        &rows,
    );
    println!(
        "{} jobs, each claimed once on a connection of its own; each answer is the job. p99 below {CLAIM_BAR} ms: {}.\n\
         Left out: claims of the next job of a queue, jobs with long threads, other load beside it, and Cassandra.\n",
        args.claims,
        verdict(worst < CLAIM_BAR)
    );
    Ok(())
}

/// Reports items, and returns the ids of their jobs once all are open.
async fn reported(installation: &Installation, count: usize) -> Result<Vec<String>> {
    for nth in 0..count {
        let report = json!({
            "reporter": {"kind": "user", "id": format!("reporter-{}", nth % 100), "typeId": "user"},
            "reportedAt": "2026-01-02T03:04:05.678Z",
            "reportedItem": {"id": format!("reported-{nth}"), "typeId": "post", "data": {"text": "as it was"}},
        });
        let answer = installation.platform("POST", "/api/v1/report", Some(&report)).await?;
        ensure!(answer.status == 201, "{}", answer.body);
    }
    let until = Instant::now() + PATIENCE;
    loop {
        let jobs = open_jobs(installation).await?;
        if jobs.len() == count {
            return Ok(jobs);
        }
        ensure!(Instant::now() < until, "{} of {count} jobs are open", jobs.len());
        sleep(Duration::from_millis(250)).await;
    }
}

async fn open_jobs(installation: &Installation) -> Result<Vec<String>> {
    let (mut jobs, mut cursor) = (Vec::new(), String::new());
    loop {
        let path = format!("/jobs?queue=default&limit=500{cursor}");
        let answer = installation.admin("GET", &path, None).await?;
        ensure!(answer.status == 200, "{}", answer.body);
        let page = answer.json();
        let items = page["items"].as_array().context("jobs")?;
        jobs.extend(items.iter().filter_map(|job| job["id"].as_str()).map(str::to_owned));
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return Ok(jobs),
        }
    }
}

/// Milliseconds of every claim, ascending.
async fn all_claimed(installation: &Arc<Installation>, jobs: &[String], reviewers: usize) -> Result<Vec<f64>> {
    let left = Arc::new(Mutex::new(VecDeque::from(jobs.to_vec())));
    let mut claiming = JoinSet::new();
    for reviewer in 0..reviewers {
        let (installation, left) = (Arc::clone(installation), Arc::clone(&left));
        claiming.spawn(async move {
            let mut millis = Vec::new();
            loop {
                let job = left.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                let Some(job) = job else { return Ok::<_, anyhow::Error>(millis) };
                millis.push(claim(&installation, &job, reviewer).await?);
            }
        });
    }
    let mut millis = Vec::new();
    while let Some(claimed) = claiming.join_next().await {
        millis.extend(claimed??);
    }
    ensure!(millis.len() == jobs.len(), "{} of {} jobs were claimed", millis.len(), jobs.len());
    millis.sort_by(f64::total_cmp);
    Ok(millis)
}

/// Milliseconds of a claim that answered the job.
async fn claim(installation: &Installation, job: &str, reviewer: usize) -> Result<f64> {
    let body = json!({ "reviewer": format!("reviewer-{reviewer}") });
    let began = Instant::now();
    let answer = installation.admin("POST", &format!("/jobs/{job}/claim"), Some(&body)).await?;
    let millis = began.elapsed().as_secs_f64() * 1_000.0;
    let claimed = answer.json();
    if answer.status != 200 || claimed["id"] != job || claimed["claimedBy"] != body["reviewer"] {
        bail!("job {job}: {}", answer.body);
    }
    Ok(millis)
}

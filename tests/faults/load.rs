//! Clients of the platform: they send items, reports and appeals under ids of their own while processes are killed.
//!
//! An id counts as taken only after its 2xx. Half of the requests carry an `Idempotency-Key` and are repeated until
//! they are taken; the others are sent once, so an answer lost in a crash stays unknown.

use std::{
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tidegate_schemas::validation_error::tag;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use crate::{
    installation::{Installation, LONG},
    oracle::{
        self, Content, REVIEW_ACTION, Reply, SCAM_ACTION, SentAppeal, SentItem, SentReport, SentRequests,
    },
    pictures::Pictures,
    seeded::Seeded,
};

/// Jobs of a kind that the moderator decides in one round.
const AT_ONCE: usize = 3;
/// Name under which jobs are claimed and decided.
const REVIEWER: &str = "faults";

/// State that the clients share.
pub(crate) struct Load {
    pub(crate) installation: Arc<Installation>,
    pub(crate) sent: Arc<Mutex<SentRequests>>,
    seed: Seeded,
    /// Base URL of the pictures.
    pictures: String,
    /// Remaining requests of all clients.
    left: AtomicU64,
    pause: Duration,
    stop: AtomicBool,
}

#[derive(Clone, Copy)]
pub(crate) struct Pace {
    pub(crate) clients: u64,
    pub(crate) requests: u64,
    pub(crate) pause: Duration,
}

pub(crate) struct Clients {
    load: Arc<Load>,
    tasks: JoinSet<Result<()>>,
}

impl Clients {
    pub(crate) fn start(
        installation: &Arc<Installation>,
        pictures: &Pictures,
        seed: u64,
        pace: Pace,
    ) -> Self {
        let load = Arc::new(Load {
            installation: Arc::clone(installation),
            sent: Arc::default(),
            seed: Seeded::new(seed).branch(2),
            pictures: pictures.base(),
            left: AtomicU64::new(pace.requests),
            pause: pace.pause,
            stop: AtomicBool::new(false),
        });
        let mut tasks = JoinSet::new();
        for number in 0..pace.clients {
            tasks.spawn(Arc::clone(&load).client(number));
        }
        tasks.spawn(Arc::clone(&load).appellant());
        tasks.spawn(Arc::clone(&load).moderator());
        Self { load, tasks }
    }

    /// Stops new requests and waits until open ones are taken. The process must run.
    pub(crate) async fn finish(mut self) -> Result<SentRequests> {
        self.load.stop.store(true, Ordering::SeqCst);
        while let Some(ended) = self.tasks.join_next().await {
            ended??;
        }
        let requests = self.load.sent.lock().unwrap().clone();
        Ok(requests)
    }

    /// Number of items, reports and appeals that were accepted so far.
    pub(crate) fn count_accepted(&self) -> usize {
        oracle::count_accepted(&self.load.sent.lock().unwrap())
    }

    /// Number of accepted appeals against actions on scams.
    pub(crate) fn overturned(&self) -> usize {
        let requests = self.load.sent.lock().unwrap();
        let accepted = (oracle::ACCEPTED.to_owned(), Reply::Accepted);
        let all = requests.appeals.values().filter(|appeal| appeal.of_scam);
        all.filter(|appeal| appeal.decision.as_ref() == Some(&accepted)).count()
    }

    /// Returns the first refusal or panic of a client so far.
    pub(crate) fn check(&mut self) -> Result<()> {
        while let Some(ended) = self.tasks.try_join_next() {
            ended??;
        }
        Ok(())
    }
}

/// Result of one attempt.
enum Answer {
    Taken(Value),
    /// The connection was refused, so the request was not sent.
    Unsent,
    Unknown,
    /// The request is taken; its outcome follows later.
    Kept,
}

impl Load {
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    async fn client(self: Arc<Self>, number: u64) -> Result<()> {
        let mut seeded = self.seed.branch(100 + number);
        let mut count = 0;
        while !self.stopped() && self.takes_one() {
            count += 1;
            let id = format!("c{number}-{count}");
            match seeded.below(16) {
                0..=6 => self.items(&id, &mut seeded).await?,
                7..=8 => self.report(&id, &mut seeded).await?,
                9 => self.appeal(&id, false).await?,
                10..=13 => self.content(&id, &mut seeded).await?,
                _ => self.own_actions(&id, &mut seeded).await?,
            }
            sleep(self.pause).await;
        }
        Ok(())
    }

    /// Appeals against actions on scams, one after the other: a client that waits for an action sends no other request.
    async fn appellant(self: Arc<Self>) -> Result<()> {
        let mut count = 0;
        while !self.stopped() && self.takes_one() {
            count += 1;
            self.appeal(&format!("a{count}"), true).await?;
            sleep(self.pause).await;
        }
        Ok(())
    }

    fn takes_one(&self) -> bool {
        self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
    }

    async fn items(&self, id: &str, seeded: &mut Seeded) -> Result<()> {
        let is_keyed = seeded.below(2) == 0;
        let mut items = Vec::new();
        let mut ids = Vec::new();
        for position in 0..=seeded.below(4) {
            let content = *seeded.pick(&[
                Content::Plain,
                Content::Scam,
                Content::Scam,
                Content::Picture,
                Content::Threat,
            ]);
            let (id, user) = (format!("{id}-i{position}"), user(seeded));
            items.push(json!({ "id": id, "typeId": "post", "data": self.data(&id, content, &user) }));
            self.sent.lock().unwrap().items.insert(id.clone(), SentItem::new(&user, content));
            ids.push(id);
        }
        self.submit(&ids, &items, is_keyed.then_some(id)).await
    }

    async fn submit(&self, ids: &[String], items: &[Value], key: Option<&str>) -> Result<()> {
        let body = json!({ "items": items });
        let Some(answer) = self.send("/api/v1/items/async/", &body, key, StatusCode::ACCEPTED).await? else {
            return Ok(());
        };
        let submissions = answer["submissions"].as_array().context("an answer names its submissions")?;
        let mut requests = self.sent.lock().unwrap();
        for (id, submission) in ids.iter().zip(submissions) {
            let item = requests.items.get_mut(id).context("an item that was sent")?;
            item.reply = Reply::Accepted;
            item.submission = submission["submissionId"].as_str().map(str::to_owned);
            if submission["id"] != json!(id) || item.submission.is_none() {
                bail!("the submissions do not stand for the items: {answer}");
            }
        }
        Ok(())
    }

    pub(crate) fn data(&self, id: &str, content: Content, user: &str) -> Value {
        let text = match content {
            Content::Plain => format!("nothing to see in {id}"),
            Content::Scam => format!("buy scamcoin on offer, says {id}"),
            Content::Picture => format!("look at {id}"),
            Content::Threat => format!("{id} may threaten you"),
        };
        let mut data = json!({ "text": text, "author": { "typeId": "user", "id": user } });
        if content == Content::Picture {
            let folder = if id.len().is_multiple_of(2) { "late" } else { "soon" };
            data["images"] = json!([format!("{}{folder}/{id}.bmp", self.pictures)]);
        }
        data
    }

    async fn report(&self, id: &str, seeded: &mut Seeded) -> Result<()> {
        let csam = seeded.below(5) == 0;
        // Plain reports share their item with other reports and join its job; an item with an action is reported once.
        let content = if csam {
            Content::Plain
        } else {
            *seeded.pick(&[Content::Plain, Content::Scam, Content::Picture])
        };
        let item = match content {
            Content::Plain => format!("r-shared{}{}", if csam { "-worst" } else { "" }, seeded.below(40)),
            _ => format!("r-{id}"),
        };
        let user = user(seeded);
        let named_item = (seeded.below(2) == 0).then(|| format!("named-{id}"));
        let report = SentReport {
            item: item.clone(),
            user: user.clone(),
            content,
            csam,
            reply: Reply::Missing,
            report: None,
            named: named_item.clone(),
        };
        let at = {
            let reports = &mut self.sent.lock().unwrap().reports;
            reports.push(report);
            reports.len() - 1
        };
        let mut body = json!({
            "reporter": { "kind": "user", "typeId": "user", "id": format!("reporter-{id}") },
            "reportedAt": "2026-01-02T03:04:05Z",
            "reportedItem": { "id": item, "typeId": "post", "data": self.data(&item, content, &user) },
            "reportedForReason": { "reason": id, "csam": csam },
        });
        if let Some(named_item) = named_item {
            body["reportedItemsInThread"] = json!([{ "typeId": "post", "id": named_item }]);
        }
        let key = (seeded.below(2) == 0).then_some(id);
        if let Some(answer) = self.send("/api/v1/report", &body, key, StatusCode::CREATED).await? {
            let report = answer["reportId"].as_str().context("an answer names its report")?.to_owned();
            let sent_report = &mut self.sent.lock().unwrap().reports[at];
            (sent_report.reply, sent_report.report) = (Reply::Accepted, Some(report));
        }
        Ok(())
    }

    /// Appeals against a removal that never happened, or against the action on a scam, which has a strike.
    async fn appeal(&self, id: &str, of_scam: bool) -> Result<()> {
        let item = oracle::appealed(id);
        let (content, user, action) = if of_scam {
            (Content::Scam, format!("appellant-{id}"), SCAM_ACTION)
        } else {
            (Content::Plain, "appellant".to_owned(), REVIEW_ACTION)
        };
        let data = self.data(&item, content, &user);
        if of_scam && !self.acted_on(&item, &data, &user).await? {
            return Ok(());
        }
        let appeal = SentAppeal { reply: Reply::Missing, of_scam, decision: None };
        self.sent.lock().unwrap().appeals.insert(id.to_owned(), appeal);
        let body = json!({
            "appealId": id,
            "appealedBy": { "typeId": "user", "id": user },
            "appealedAt": "2026-01-02T03:04:05Z",
            "actionedItem": { "id": item, "typeId": "post", "data": data },
            "actionsTaken": [action],
        });
        // The id is the key: an appeal can always be repeated.
        if self.send("/api/v1/report/appeal", &body, Some(id), StatusCode::NO_CONTENT).await?.is_some() {
            self.sent.lock().unwrap().appeals.get_mut(id).context("an appeal that was sent")?.reply =
                Reply::Accepted;
        }
        Ok(())
    }

    /// Sends a scam and waits for its action. Returns false if the load ended before.
    async fn acted_on(&self, id: &str, data: &Value, user: &str) -> Result<bool> {
        let item = json!({ "id": id, "typeId": "post", "data": data });
        self.sent.lock().unwrap().items.insert(id.to_owned(), SentItem::new(user, Content::Scam));
        self.submit(&[id.to_owned()], &[item], Some(id)).await?;
        while !self.stopped() {
            let response =
                self.installation.platform(Method::GET, &format!("/api/v1/items/post/{id}")).send().await;
            // An error means that the process is down.
            if let Ok(answer) = response
                && let Ok(bytes) = answer.bytes().await
                && let Ok(item) = serde_json::from_slice::<Value>(&bytes)
                && item["actions"]
                    .as_array()
                    .is_some_and(|all| all.iter().any(|one| one["id"] == SCAM_ACTION))
            {
                return Ok(true);
            }
            sleep(self.pause).await;
        }
        Ok(false)
    }

    /// Repeats a request with a key until it is taken, and sends one without a key once.
    pub(crate) async fn send(
        &self,
        path: &str,
        body: &Value,
        key: Option<&str>,
        success_status: StatusCode,
    ) -> Result<Option<Value>> {
        let mut deadline = Instant::now() + LONG;
        loop {
            match self.attempt(path, body, key, success_status).await? {
                Answer::Taken(answer) => return Ok(Some(answer)),
                Answer::Kept if key.is_none() => return Ok(Some(Value::Null)),
                Answer::Unknown if key.is_none() => return Ok(None),
                Answer::Unsent | Answer::Unknown | Answer::Kept => sleep(Duration::from_millis(20)).await,
            }
            if !self.stopped() {
                deadline = Instant::now() + LONG;
            } else if Instant::now() >= deadline {
                bail!("{path} was not taken within {LONG:?} after the last kill");
            }
        }
    }

    async fn attempt(
        &self,
        path: &str,
        body: &Value,
        key: Option<&str>,
        success_status: StatusCode,
    ) -> Result<Answer> {
        let mut request = self.installation.platform(Method::POST, path).json(body);
        if let Some(key) = key {
            request = request.header("Idempotency-Key", key);
        }
        let answer = match request.send().await {
            Ok(answer) => answer,
            Err(error) if error.is_connect() => return Ok(Answer::Unsent),
            Err(_) => return Ok(Answer::Unknown),
        };
        let status = answer.status();
        if status == success_status {
            // The status means that the request is taken. If the body is cut off, its id is unknown.
            return Ok(answer.bytes().await.map_or(Answer::Unknown, |bytes| {
                Answer::Taken(serde_json::from_slice(&bytes).unwrap_or(Value::Null))
            }));
        }
        if status == StatusCode::SERVICE_UNAVAILABLE {
            let text = answer.text().await.unwrap_or_default();
            return Ok(if text.contains(tag::EVALUATION_TIMEOUT) { Answer::Kept } else { Answer::Unknown });
        }
        if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
            return Ok(Answer::Unknown);
        }
        bail!("{path} answered {status}: {}", answer.text().await.unwrap_or_default())
    }

    /// Decides appeals and items under review through the admin API while the load runs.
    async fn moderator(self: Arc<Self>) -> Result<()> {
        while !self.stopped() {
            // An error means that the process is down, or that the job is decided or claimed: the next round tries
            // again. The functions note each decision before they send it.
            for _ in 0..AT_ONCE {
                let _seen_next_round = self.decide_appeal().await;
            }
            let _seen_next_round = self.remove_threats().await;
            sleep(self.pause * 4).await;
        }
        Ok(())
    }

    /// Removes some of the threats that wait for a review. Jobs about reported items stay open: later reports join them.
    async fn remove_threats(&self) -> Result<()> {
        let (status, open) =
            self.installation.admin(Method::GET, "/jobs?queue=default&limit=500", None).await?;
        if status != StatusCode::OK {
            return Ok(());
        }
        let jobs = open["items"].as_array().map_or(&[][..], Vec::as_slice);
        let item_of = |job: &Value| job.pointer("/item/id").and_then(Value::as_str).map(str::to_owned);
        let threats = jobs.iter().filter_map(|job| {
            let item = item_of(job)?;
            let content = self.sent.lock().unwrap().items.get(&item)?.content;
            (content == Content::Threat).then_some((text(job, "id").ok()?, item))
        });
        for (id, item) in threats.take(AT_ONCE) {
            let (status, job) = self
                .installation
                .admin(Method::POST, &format!("/jobs/{id}/claim"), Some(&json!({ "reviewer": REVIEWER })))
                .await?;
            if status != StatusCode::OK {
                continue;
            }
            let note_removal = |answer| {
                if let Some(item) = self.sent.lock().unwrap().items.get_mut(&item)
                    && item.removal != Some(Reply::Accepted)
                {
                    item.removal = Some(answer);
                }
            };
            note_removal(Reply::Missing);
            let decision = json!({ "epoch": job["epoch"], "verdict": "act", "actions": [REVIEW_ACTION], "reviewer": REVIEWER });
            let (status, _) = self
                .installation
                .admin(Method::POST, &format!("/jobs/{id}/decisions"), Some(&decision))
                .await?;
            if status.is_success() {
                note_removal(Reply::Accepted);
            }
        }
        Ok(())
    }

    async fn decide_appeal(&self) -> Result<()> {
        let (status, job) = self
            .installation
            .admin(
                Method::POST,
                "/jobs/claim-next",
                Some(&json!({ "queue": "appeals", "reviewer": REVIEWER })),
            )
            .await?;
        if status != StatusCode::OK {
            return Ok(());
        }
        let (id, appeal) = (text(&job, "id")?, text(&job, "appealId")?);
        let is_accepted = appeal.bytes().last().is_some_and(|last| last.is_multiple_of(2));
        let verdict = if is_accepted { "accept" } else { "reject" };
        {
            let mut requests = self.sent.lock().unwrap();
            let appeal = requests.appeals.get_mut(appeal).context("a job for an appeal that was not sent")?;
            appeal.decision.get_or_insert((verdict.to_uppercase(), Reply::Missing));
        }
        let decision = json!({ "epoch": job["epoch"], "verdict": verdict, "reviewer": REVIEWER });
        let (status, _) =
            self.installation.admin(Method::POST, &format!("/jobs/{id}/decisions"), Some(&decision)).await?;
        if status.is_success()
            && let Some((_, answer)) =
                self.sent.lock().unwrap().appeals.get_mut(appeal).and_then(|appeal| appeal.decision.as_mut())
        {
            *answer = Reply::Accepted;
        }
        Ok(())
    }
}

pub(crate) fn text<'a>(value: &'a Value, name: &str) -> Result<&'a str> {
    value[name].as_str().with_context(|| format!("{name} is missing in {value}"))
}

/// One of 200 users: few enough that most cross the threshold.
pub(crate) fn user(seeded: &mut Seeded) -> String {
    format!("user-{}", seeded.below(200))
}

impl fmt::Debug for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Load")
    }
}

//! A running `tidegate up --demo` of a test: started on free ports, spoken to as a platform and as an operator.
//! Knows no particular test.

pub(crate) mod browser;

use std::{
    collections::BTreeMap,
    path::PathBuf,
    process::{ExitStatus, Output},
};

use anyhow::{Context as _, Result, bail};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tidegate_test_support::{PATIENCE, Process, Program, eventually_ok, openapi::contract};

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_tidegate");
const ANYWHERE: &str = "127.0.0.1:0";
/// Name under which [`Demo::decide`] claims and decides.
const REVIEWER: &str = "ann";

/// Temporary folder for the data and output of a test's process.
pub(crate) struct Place {
    pub(crate) folder: tempfile::TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn program(&self) -> Program {
        self.configure(Program::new(BINARY, self.folder.path().join("output")))
    }

    fn configure(&self, program: Program) -> Program {
        program
            .args(["up", "--demo", "--api-listen", ANYWHERE, "--console-listen", ANYWHERE])
            .args(["--ops-listen", ANYWHERE, "--receiver-listen", ANYWHERE, "--data"])
            .arg(self.data())
            .env("TIDEGATE__TELEMETRY__FILTER", "warn")
            .env("TIDEGATE__REVIEW__UNDO_MS", "100")
    }

    pub(crate) async fn start(&self) -> Result<Demo> {
        self.start_with(&[]).await
    }

    pub(crate) async fn start_with(&self, env: &[(&str, &str)]) -> Result<Demo> {
        self.started(env.iter().fold(self.program(), |program, (name, value)| program.env(name, value))).await
    }

    /// Starts a demo with files limited to `blocks` blocks of the shell's size.
    pub(crate) async fn start_with_short_files(&self, blocks: u32) -> Result<Demo> {
        self.started(self.with_limit(&format!("ulimit -f {blocks}"))).await
    }

    /// Starts a process that may open at most `files` files. Does not wait until it is ready.
    pub(crate) fn begin_with_few_files(&self, files: u32) -> Result<Process> {
        self.with_limit(&format!("ulimit -n {files}")).start()
    }

    fn with_limit(&self, limit: &str) -> Program {
        let shell = format!("{limit}; exec \"$0\" \"$@\"");
        let program = Program::new("/bin/sh", self.folder.path().join("output"));
        self.configure(program.args(["-c", &shell, BINARY]))
    }

    async fn started(&self, program: Program) -> Result<Demo> {
        let mut process = program.start()?;
        let ready = process.line("is ready: api", PATIENCE).await?;
        let ops = ready.rsplit("operations http://").next().context("the last address is the operations'")?;
        process.http_ok(ops.trim(), "/readyz", PATIENCE).await?;
        let env = std::fs::read_to_string(self.data().join("env"))?;
        let env = env.lines().filter_map(|line| line.split_once('='));
        let env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Ok(Demo { process, env, ops: ops.trim().to_owned(), http: http() })
    }

    /// Runs a command to its end, in the test's folder.
    pub(crate) async fn run(&self, args: &[&str]) -> Output {
        self.run_with(args, &[]).await
    }

    pub(crate) async fn run_with(&self, args: &[&str], env: &[(&str, &str)]) -> Output {
        let mut command = tokio::process::Command::new(BINARY);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("TIDEGATE_") {
                command.env_remove(name);
            }
        }
        command.args(args).envs(env.iter().copied()).current_dir(self.folder.path()).kill_on_drop(true);
        tokio::time::timeout(PATIENCE, command.output()).await.expect("a command ends").unwrap()
    }

    /// Runs a command against the demo on this place's data, which must succeed. Returns its standard output.
    pub(crate) async fn run_ok(&self, args: &[&str]) -> String {
        let data = self.data();
        let args: Vec<_> = args.iter().copied().chain(["--data", data.to_str().unwrap()]).collect();
        let output = self.run(&args).await;
        assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[expect(clippy::disallowed_methods, reason = "a test talks to the process that it started")]
pub(crate) fn http() -> reqwest::Client {
    let _first = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().timeout(PATIENCE).build().unwrap()
}

pub(crate) struct Demo {
    pub(crate) process: Process,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) ops: String,
    http: reqwest::Client,
}

pub(crate) type Answer = (StatusCode, Value);

impl Demo {
    pub(crate) fn var(&self, name: &str) -> &str {
        &self.env[name]
    }

    /// A request of the platform.
    pub(crate) async fn platform(&self, method: Method, path: &str, body: Option<&Value>) -> Answer {
        self.platform_as(self.var("TIDEGATE_API_KEY"), method, path, body).await
    }

    /// Sends a platform request with `key`, or without a key if it is empty. Checks the answer against the description.
    pub(crate) async fn platform_as(
        &self,
        key: &str,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Answer {
        let request = self.http.request(method.clone(), format!("{}{path}", self.var("TIDEGATE_URL")));
        let request = if key.is_empty() { request } else { request.header("x-api-key", key) };
        let answer = answer(request, body).await;
        contract().check_answer(method.as_str(), path, answer.0.as_u16(), &answer.1).unwrap();
        answer
    }

    /// Sends an operator request with `token`, or without a token if it is empty.
    pub(crate) async fn admin_as(
        &self,
        token: &str,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Answer {
        let request = self.http.request(method, format!("{}/admin/v1{path}", self.var("TIDEGATE_ADMIN_URL")));
        let request = if token.is_empty() { request } else { request.bearer_auth(token) };
        answer(request, body).await
    }

    pub(crate) async fn admin(&self, path: &str) -> Value {
        let (status, body) = self.admin_as(self.var("TIDEGATE_ADMIN_KEY"), Method::GET, path, None).await;
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    pub(crate) async fn command(&self, path: &str, body: &Value) -> Answer {
        self.admin_as(self.var("TIDEGATE_ADMIN_KEY"), Method::POST, path, Some(body)).await
    }

    pub(crate) async fn submit(&self, item: &Value) {
        let body = json!({ "items": [item] });
        let (status, body) = self.platform(Method::POST, "/api/v1/items/async/", Some(&body)).await;
        assert_eq!(status, 202, "{body}");
    }

    /// Waits until an item is evaluated and returns its view.
    pub(crate) async fn evaluated(&self, type_id: &str, id: &str) -> Value {
        eventually_ok("the item to be evaluated", PATIENCE, async || {
            let path = format!("/api/v1/items/{type_id}/{id}?wait=10s");
            let (status, body) = self.platform(Method::GET, &path, None).await;
            if status == 200 && body["state"] == "evaluated" { Ok(body) } else { bail!("{status}: {body}") }
        })
        .await
        .unwrap()
    }

    /// Waits for `count` verified callbacks of a type.
    pub(crate) async fn wait_for_callbacks(&self, event_type: &str, count: usize) -> Vec<Value> {
        let description = format!("{count} callbacks {event_type}");
        eventually_ok(&description, PATIENCE, async || {
            let all = self.all_received().await?;
            let matching: Vec<_> = all.into_iter().filter(|body| body["type"] == event_type).collect();
            if matching.len() >= count { Ok(matching) } else { bail!("{} so far", matching.len()) }
        })
        .await
        .unwrap()
    }

    /// All verified callbacks, each checked against the API description.
    pub(crate) async fn all_received(&self) -> Result<Vec<Value>> {
        let url = format!("{}/received", self.var("TIDEGATE_RECEIVER_URL"));
        let bodies: Vec<Value> = serde_json::from_slice(&self.http.get(url).send().await?.bytes().await?)?;
        for body in &bodies {
            contract().check_webhook(body).unwrap_or_else(|error| panic!("{error}\n{body}"));
        }
        Ok(bodies)
    }

    /// Waits for the one open job of a queue about an item.
    pub(crate) async fn job(&self, queue: &str, item: &str) -> Value {
        eventually_ok("a job", PATIENCE, async || {
            let jobs = self.admin(&format!("/jobs?queue={queue}&itemId={item}")).await;
            match jobs["items"].as_array().map(Vec::as_slice) {
                Some([job]) => Ok(job.clone()),
                _ => bail!("{jobs}"),
            }
        })
        .await
        .unwrap()
    }

    /// Waits for a job with its causes, which are written after the job.
    pub(crate) async fn whole_job(&self, job: &Value) -> Value {
        eventually_ok("the job's cause", PATIENCE, async || {
            let details = self.admin(&format!("/jobs/{}", job["id"].as_str().unwrap())).await;
            if details["causes"] == json!([]) { bail!("{details}") } else { Ok(details) }
        })
        .await
        .unwrap()
    }

    /// Claims a job and decides it.
    pub(crate) async fn decide(&self, job: &Value, verdict: &str, actions: &[&str]) -> Value {
        let id = job["id"].as_str().unwrap();
        let (status, claimed_job) =
            self.command(&format!("/jobs/{id}/claim"), &json!({ "reviewer": REVIEWER })).await;
        assert_eq!(status, 200, "{claimed_job}");
        let decision = json!({
            "epoch": claimed_job["epoch"], "verdict": verdict, "actions": actions, "reason": "seen",
            "reviewer": REVIEWER,
        });
        let (status, decision_response) = self.command(&format!("/jobs/{id}/decisions"), &decision).await;
        assert_eq!(status, 202, "{decision_response}");
        decision_response
    }

    /// A plain GET on the operations port.
    pub(crate) async fn operations(&self, path: &str) -> (StatusCode, String) {
        let response = self.http.get(format!("http://{}{path}", self.ops)).send().await.unwrap();
        (response.status(), response.text().await.unwrap())
    }

    pub(crate) async fn stop(mut self) -> ExitStatus {
        self.process.terminate().await.unwrap();
        // `timeout` signals the process and its group, so the test sends two signals. The process may have ended already.
        let _ended = self.process.terminate().await;
        self.process.exit(PATIENCE).await.unwrap()
    }
}

async fn answer(request: reqwest::RequestBuilder, body: Option<&Value>) -> Answer {
    let request = match body {
        Some(body) => request.json(body),
        None => request,
    };
    let response = request.send().await.unwrap();
    let status = response.status();
    let bytes = response.bytes().await.unwrap();
    (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
}

/// Token of the operator of a running service.
pub(crate) fn operator(place: &Place) -> String {
    let server = std::fs::read(place.data().join("server.json")).unwrap();
    serde_json::from_slice::<Value>(&server).unwrap()["token"].as_str().unwrap().to_owned()
}

/// A post by `author`.
pub(crate) fn post(id: &str, author: &str, text: &str) -> Value {
    json!({ "id": id, "typeId": "post", "data": { "text": text, "author": { "id": author, "typeId": "user" } } })
}

pub(crate) fn report(item: &Value) -> Value {
    json!({
        "reporter": { "kind": "user", "id": "alice", "typeId": "user" },
        "reportedAt": "2026-01-02T03:04:05.678Z",
        "reportedItem": item,
    })
}

pub(crate) fn appeal(id: &str, item: &Value) -> Value {
    json!({
        "appealId": id,
        "appealedBy": { "id": "mallory", "typeId": "user" },
        "appealedAt": "2026-01-02T03:04:05.678Z",
        "actionedItem": item,
        "actionsTaken": ["limit_reach"],
    })
}

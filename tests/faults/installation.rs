//! One installation under test: its folder, its ports and its settings, which outlive the process.
//!
//! Faults are in `killer`, which ends the processes of this installation.

use std::{collections::BTreeMap, env, fs, io, path::PathBuf, sync::Once, time::Duration};

use anyhow::{Context as _, Result, anyhow, bail};
use reqwest::{Client, Method, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;
use tidegate_test_support::{PATIENCE, Process, Program, eventually_ok, free_port};

/// Longer than any start or drain, also on a machine that compiles meanwhile.
pub(crate) const LONG: Duration = Duration::from_secs(120);

/// The process that runs all roles.
pub(crate) const UP: &str = "up";

pub(crate) struct Installation {
    pub(crate) dir: TempDir,
    pub(crate) http: Client,
    api: u16,
    console: u16,
    /// Processes of the installation, each with the port of its health checks.
    ops: BTreeMap<&'static str, u16>,
    /// The platform's key.
    key: String,
    /// Settings beyond those of every installation, as TOML.
    more: String,
}

/// The binary under test. `TIDEGATE_FAULTS_BINARY` names another one, to show that the oracle finds its fault.
pub(crate) fn binary() -> PathBuf {
    env::var_os("TIDEGATE_FAULTS_BINARY").map_or_else(|| env!("CARGO_BIN_EXE_tidegate").into(), PathBuf::from)
}

pub(crate) fn client() -> Client {
    static PROVIDER: Once = Once::new();
    PROVIDER.call_once(|| {
        rustls::crypto::ring::default_provider().install_default().expect("no other provider is installed");
    });
    #[expect(clippy::disallowed_methods, reason = "a test's client, which calls only the process under test")]
    let builder = Client::builder();
    builder.no_proxy().timeout(Duration::from_secs(10)).build().unwrap()
}

impl Installation {
    /// `processes` holds `up` for all roles in one process, or the name of each role.
    pub(crate) fn new(more: &str, processes: &[&'static str]) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let ops = processes.iter().map(|name| Ok((*name, free_port()?))).collect::<io::Result<_>>()?;
        let installation = Self {
            http: client(),
            api: free_port()?,
            console: free_port()?,
            ops,
            key: String::new(),
            more: more.to_owned(),
            dir,
        };
        fs::write(installation.dir.path().join("tidegate.toml"), installation.settings())?;
        Ok(installation)
    }

    /// Short times for retries, leases and sweeps, so that interrupted work continues soon.
    fn settings(&self) -> String {
        let Self { api, console, more, .. } = self;
        let data = self.data().display().to_string();
        format!(
            r#"
[data]
folder = "{data}"
[api]
listen = "127.0.0.1:{api}"
[console]
listen = "127.0.0.1:{console}"
[egress]
allow_cidrs = ["127.0.0.0/8"]
connect_timeout_ms = 1000
total_timeout_ms = 2000
[review]
undo_ms = 300
[callbacks]
schedule = ["0s", "100ms", "200ms", "400ms", "800ms", "1s", "2s", "2s", "2s", "5s", "5s", "5s"]
lease_margin_ms = 500
poll_ms = 100
sweep_ms = 1000
hold_recheck_ms = 1000
[telemetry]
filter = "info"
{more}
"#
        )
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    pub(crate) fn program(&self, command: &str) -> Program {
        let output = self.dir.path().join(format!("{command}.log"));
        Program::new(binary(), output).arg(command).arg("--config").arg(self.dir.path().join("tidegate.toml"))
    }

    /// Starts one process, without waiting.
    pub(crate) fn start(&self, process: &'static str, failpoints: Option<String>) -> Result<Process> {
        let mut program = self.program(process).arg("--ops-listen").arg(self.ops_of(process)?);
        if let Some(failpoints) = failpoints {
            program = program.env("TIDEGATE_FAILPOINTS", failpoints);
        }
        program.start()
    }

    /// Starts all roles in one process, without waiting.
    pub(crate) fn up(&self, failpoints: Option<String>) -> Result<Process> {
        self.start(UP, failpoints)
    }

    pub(crate) fn ops_of(&self, process: &str) -> Result<String> {
        let port =
            self.ops.get(process).with_context(|| format!("{process} is no process of this installation"))?;
        Ok(format!("127.0.0.1:{port}"))
    }

    pub(crate) async fn ready(&self, process: &mut Process) -> Result<()> {
        self.process_ready(UP, process).await
    }

    pub(crate) async fn process_ready(&self, name: &str, process: &mut Process) -> Result<()> {
        process.http_ok(&self.ops_of(name)?, "/readyz", LONG).await
    }

    /// Keeps the key that the first start left in a file.
    pub(crate) async fn learn_key(&mut self, process: &mut Process) -> Result<()> {
        process.line("first-key", PATIENCE).await?;
        let key = fs::read_to_string(self.data().join("first-key")).context("the first start left no key")?;
        key.trim().clone_into(&mut self.key);
        Ok(())
    }

    /// Asks the process to drain, and checks that it exits with success.
    pub(crate) async fn stop(&self, process: &mut Process) -> Result<()> {
        process.terminate().await?;
        let status = process.exit(LONG).await?;
        if !status.success() {
            bail!("the process did not drain: {status}\n{}", crate::killer::tail(process));
        }
        Ok(())
    }

    pub(crate) fn platform(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.http
            .request(method, format!("http://127.0.0.1:{}{path}", self.api))
            .header("X-API-KEY", &self.key)
    }

    /// The token changes with each life.
    fn token(&self) -> Result<String> {
        let file: Value = serde_json::from_slice(&fs::read(self.data().join("server.json"))?)?;
        file["token"].as_str().map(str::to_owned).context("server.json has no token")
    }

    pub(crate) async fn admin(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(StatusCode, Value)> {
        let url = format!("http://127.0.0.1:{}/admin/v1{path}", self.console);
        let mut request = self.http.request(method, url).bearer_auth(self.token()?);
        if let Some(body) = body {
            request = request.json(body);
        }
        let answer = request.send().await?;
        let status = answer.status();
        let bytes = answer.bytes().await?;
        Ok((status, serde_json::from_slice(&bytes).unwrap_or(Value::Null)))
    }

    pub(crate) async fn admin_get(&self, path: &str) -> Result<Value> {
        eventually_ok(&format!("an answer of {path}"), PATIENCE, async || {
            match self.admin(Method::GET, path, None).await? {
                (StatusCode::OK, body) => Ok(body),
                (status, body) => Err(anyhow!("{status}: {body}")),
            }
        })
        .await
    }

    /// All pages of a list.
    pub(crate) async fn list(&self, path: &str) -> Result<Vec<Value>> {
        let mut all = Vec::new();
        let mut cursor = None::<String>;
        loop {
            let separator = if path.contains('?') { '&' } else { '?' };
            let from = cursor.as_ref().map_or_else(String::new, |cursor| format!("&cursor={cursor}"));
            let page = self.admin_get(&format!("{path}{separator}limit=500{from}")).await?;
            all.extend(page["items"].as_array().context("a list has items")?.iter().cloned());
            match page["next"].as_str() {
                Some(next) => cursor = Some(next.to_owned()),
                None => return Ok(all),
            }
        }
    }

    /// Applies the documents as the configuration, and waits until the process uses it.
    pub(crate) async fn apply(&self, documents: &Value) -> Result<()> {
        let (status, body) = self.admin(Method::POST, "/config", Some(documents)).await?;
        if !status.is_success() {
            bail!("the documents are refused: {status} {body}");
        }
        self.admin_get(&format!("/config/wait?version={}&withinMs=30000", body["version"])).await?;
        Ok(())
    }

    pub(crate) async fn secret(&self, endpoint: &str) -> Result<String> {
        let path = format!("/endpoints/{endpoint}/secret/reveal");
        let (status, body) = self.admin(Method::POST, &path, Some(&json!({}))).await?;
        body["secret"]
            .as_str()
            .map(str::to_owned)
            .with_context(|| format!("no secret of {endpoint}: {status}"))
    }

    /// Sum of a metric over its labels and processes; `None` if the metric does not exist.
    pub(crate) async fn metric(&self, name: &str) -> Result<Option<f64>> {
        let mut sum = None;
        for port in self.ops.values() {
            let answer = self.http.get(format!("http://127.0.0.1:{port}/metrics")).send().await?;
            let text = answer.error_for_status()?.text().await?;
            for line in text.lines().filter(|line| line.starts_with(name)) {
                let value: f64 = line.rsplit(' ').next().unwrap_or_default().parse()?;
                sum = Some(sum.unwrap_or(0.0) + value);
            }
        }
        Ok(sum)
    }
}

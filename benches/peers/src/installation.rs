//! One installation of the service under measurement: its folder, settings, processes, key and documents.
//!
//! It measures nothing. The settings are the defaults, but for addresses, places and the name of a server's engine.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::sleep;

use crate::{
    http::{self, Answer},
    process::{PATIENCE, Process, free_port, run},
    servers::Servers,
};

pub const UP: &str = "up";

/// The files of the demo that make types, policies and rules; its actions come along with an endpoint.
const DOCUMENTS: [&str; 6] =
    ["item_types.yaml", "policies.yaml", "actions.yaml", "rules.yaml", "thresholds.yaml", "queues.yaml"];

pub struct Installation {
    binary: PathBuf,
    repository: PathBuf,
    pub dir: TempDir,
    pub api: String,
    console: String,
    ops: BTreeMap<&'static str, String>,
    pub key: String,
    pub processes: BTreeMap<&'static str, Process>,
}

impl Installation {
    fn new(repository: &Path, binary: &Path, roles: &[&'static str], more: &str) -> Result<Self> {
        let here = || Ok::<_, anyhow::Error>(format!("127.0.0.1:{}", free_port()?));
        let installation = Self {
            binary: binary.to_owned(),
            repository: repository.to_owned(),
            dir: tempfile::tempdir()?,
            api: here()?,
            console: here()?,
            ops: roles.iter().map(|role| Ok((*role, here()?))).collect::<Result<_>>()?,
            key: String::new(),
            processes: BTreeMap::new(),
        };
        let settings = format!(
            "[data]\nfolder = \"{}\"\n[api]\nlisten = \"{}\"\n[console]\nlisten = \"{}\"\n{more}",
            installation.dir.path().join("data").display(),
            installation.api,
            installation.console
        );
        fs::write(installation.config(), settings)?;
        Ok(installation)
    }

    /// All roles in one process, on embedded data; configured and ready.
    pub async fn embedded(repository: &Path, binary: &Path) -> Result<Self> {
        Self::embedded_with(repository, binary, "", None).await
    }

    /// The same with further settings, and perhaps with rules of its own instead of the demo's.
    pub async fn embedded_with(
        repository: &Path,
        binary: &Path,
        more: &str,
        rules: Option<&str>,
    ) -> Result<Self> {
        let mut installation = Self::new(repository, binary, &[UP], more)?;
        installation.start(UP).await?;
        installation.configure(UP, rules).await?;
        Ok(installation)
    }

    /// Each role in a process of its own, on Kafka and Cassandra; configured, and these roles ready. `workers` are the
    /// runtime's threads of each; 0 for the default, one a core.
    pub async fn on_servers(
        repository: &Path,
        binary: &Path,
        servers: &Servers,
        roles: &[&'static str],
        partitions: u32,
        workers: u16,
    ) -> Result<Self> {
        let mut all = roles.to_vec();
        if !all.contains(&"console") {
            all.push("console");
        }
        let mut installation = Self::new(repository, binary, &all, &settings(servers, partitions, workers))?;
        // On a busy machine a broker may not know yet what was made just now; asking again makes what is missing.
        if installation.command(&["topics", "create"]).await.is_err() {
            installation.command(&["topics", "create"]).await?;
        }
        installation.command(&["store", "migrate"]).await?;
        installation.start("console").await?;
        installation.configure("console", None).await?;
        if !roles.contains(&"console") {
            installation.stop("console").await?;
        }
        for role in roles.iter().filter(|role| **role != "console") {
            installation.start(role).await?;
        }
        Ok(installation)
    }

    fn config(&self) -> PathBuf {
        self.dir.path().join("tidegate.toml")
    }

    async fn command(&self, words: &[&str]) -> Result<String> {
        let config = self.config().display().to_string();
        let args: Vec<&str> = words.iter().copied().chain(["--config", &config]).collect();
        run(&self.binary, args).await
    }

    /// Starts a role and waits until it is ready.
    pub async fn start(&mut self, role: &'static str) -> Result<()> {
        let ops = self.ops.get(role).context("a role of this installation")?.clone();
        let config = self.config().display().to_string();
        let args = [role, "--config", &config, "--ops-listen", &ops];
        let mut process = Process::start(&self.binary, args, &self.dir.path().join(format!("{role}.log")))?;
        process.line("is ready:").await?;
        let until = Instant::now() + PATIENCE;
        while http::ask(&ops, "GET", "/readyz", "", None).await?.status != 200 {
            ensure!(Instant::now() < until, "{role} does not become ready\n{}", process.output());
            sleep(Duration::from_millis(20)).await;
        }
        self.processes.insert(role, process);
        Ok(())
    }

    pub async fn stop(&mut self, role: &'static str) -> Result<()> {
        self.processes.remove(role).context("it runs")?.stop().await.with_context(|| role.to_owned())
    }

    pub async fn stop_all(mut self) -> Result<()> {
        for (role, process) in std::mem::take(&mut self.processes) {
            process.stop().await.with_context(|| role.to_owned())?;
        }
        Ok(())
    }

    /// Keeps the key that the first start left in a file, and applies the demo's documents, its rules perhaps replaced.
    async fn configure(&mut self, role: &'static str, rules: Option<&str>) -> Result<()> {
        let process = self.processes.get_mut(role).context("it runs")?;
        process.line("first-key").await?;
        let key = fs::read_to_string(self.dir.path().join("data/first-key"));
        key.context("the first start left no key")?.trim().clone_into(&mut self.key);
        let documents = documents(&self.repository, rules)?;
        let made = self.admin("POST", "/config", Some(&documents)).await?;
        ensure!((200..300).contains(&made.status), "the documents are refused: {}", made.body);
        let wait = format!("/config/wait?version={}&withinMs=30000", made.json()["version"]);
        let live = self.admin("GET", &wait, None).await?;
        ensure!(live.status == 200, "the documents do not become live: {}", live.body);
        Ok(())
    }

    pub async fn admin(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Answer> {
        let file: Value = serde_json::from_slice(&fs::read(self.dir.path().join("data/server.json"))?)?;
        let token = file["token"].as_str().context("server.json has no token")?;
        let path = format!("/admin/v1{path}");
        http::ask(&self.console, method, &path, &format!("Authorization: Bearer {token}"), body).await
    }

    pub async fn platform(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Answer> {
        http::ask(&self.api, method, path, &format!("X-API-KEY: {}", self.key), body).await
    }

    /// How many items a process has done, and how many of all it gave up.
    pub async fn processed(&self, role: &str) -> Result<(u64, u64)> {
        let ops = self.ops.get(role).context("a role of this installation")?;
        let metrics = http::ask(ops, "GET", "/metrics", "", None).await?.body;
        let (mut done, mut other) = (0, 0);
        let of_items = r#"role="items""#;
        let lines = metrics.lines().filter(|line| line.starts_with("tidegate_processed_total{"));
        for line in lines.filter(|line| line.contains(of_items)) {
            let count: f64 = line.rsplit(' ').next().unwrap_or_default().parse()?;
            // Counts are whole and far below what a float holds exactly.
            let count = format!("{count:.0}").parse::<u64>()?;
            if line.contains(r#"outcome="done""#) { done += count } else { other += count }
        }
        Ok((done, other))
    }

    /// Waits until a role has done so many items since it was started.
    pub async fn until_processed(&self, role: &str, wanted: u64) -> Result<()> {
        let until = Instant::now() + 3 * PATIENCE;
        loop {
            let (done, other) = self.processed(role).await?;
            ensure!(other == 0, "{other} items were not evaluated");
            if done >= wanted {
                ensure!(done == wanted, "{done} items were evaluated, and {wanted} were acknowledged");
                return Ok(());
            }
            if Instant::now() > until {
                bail!("only {done} of {wanted} items were evaluated");
            }
            // Rendering the metrics costs the process that is measured.
            sleep(Duration::from_millis(250)).await;
        }
    }
}

/// One node of each: no second copy to wait for.
fn settings(servers: &Servers, partitions: u32, workers: u16) -> String {
    let Servers { kafka, cql, .. } = servers;
    format!(
        r#"
[runtime]
workers = {workers}
[security]
master_key = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
[stream]
engine = "kafka"
prefix = "bench"
partitions = {partitions}
[stream.kafka]
brokers = ["{kafka}"]
[stream.kafka.topics]
replication = 1
min_insync_replicas = 1
[store]
engine = "cql"
[store.cql]
contact_points = ["{cql}"]
keyspace = "tidegate_bench"
replication = {{ simple = 1 }}
"#
    )
}

fn documents(repository: &Path, rules: Option<&str>) -> Result<Value> {
    let mut files = Vec::new();
    for name in DOCUMENTS {
        let path = repository.join("src/demo/documents").join(name);
        files.push(match rules.filter(|_| name == "rules.yaml") {
            Some(rules) => json!({ "name": "rules.json", "text": rules }),
            None => {
                let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
                json!({ "name": name, "text": text })
            }
        });
    }
    let endpoint = "endpoint: nobody\nurl: https://receiver.invalid/callbacks\n";
    files.push(json!({ "name": "endpoints.yaml", "text": endpoint }));
    Ok(json!({ "files": files }))
}

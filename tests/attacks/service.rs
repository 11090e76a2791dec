//! The service under attack: one process with all roles on embedded data, and two organisations.

use std::{
    env, fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use tempfile::TempDir;
use tidegate_test_support::{Process, Program, free_port};

use crate::http;

/// Longer than any start.
const LONG: Duration = Duration::from_secs(120);

const TYPES: &str = "\
item_type: post
kind: CONTENT
fields:
  - {name: text, type: STRING, required: true}
---
policy: scam
name: Scams
";

pub(crate) struct Service {
    _folder: TempDir,
    pub(crate) process: Process,
    pub(crate) api: String,
    pub(crate) admin: String,
    pub(crate) operations: String,
    token: String,
    /// Key of the organisation that uses the service properly.
    pub(crate) good: String,
    /// Key of a second proper organisation, which an attack may use beside the good client.
    pub(crate) other: String,
    /// Key of the organisation that abuses the service, also for the admin API.
    pub(crate) bad: String,
}

/// Start of the service for an attack.
#[derive(Clone, Copy, Default)]
pub(crate) struct Start {
    /// Settings beyond the defaults, as TOML.
    pub(crate) settings: &'static str,
    /// Limit of open files of the process.
    pub(crate) files: Option<u32>,
    /// Documents of the abusing organisation beside its types.
    pub(crate) documents: Option<fn() -> String>,
}

fn binary() -> PathBuf {
    env::var_os("TIDEGATE_ATTACKS_BINARY")
        .map_or_else(|| env!("CARGO_BIN_EXE_tidegate").into(), PathBuf::from)
}

impl Service {
    pub(crate) async fn start(start: &Start) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let listen_address = || Ok::<_, std::io::Error>(format!("127.0.0.1:{}", free_port()?));
        let (api, admin, operations) = (listen_address()?, listen_address()?, listen_address()?);
        let data = folder.path().join("data");
        let settings = format!(
            "[data]\nfolder = {data:?}\n[api]\nlisten = {api:?}\n[console]\nlisten = {admin:?}\n[ops]\nlisten = {operations:?}\n{}",
            start.settings
        );
        let config = folder.path().join("tidegate.toml");
        fs::write(&config, settings)?;
        let output = folder.path().join("output");
        let program = match start.files {
            None => Program::new(binary(), output),
            Some(files) => Program::new("sh", output)
                .args(["-c", &format!("ulimit -n {files}; exec \"$0\" \"$@\"")])
                .arg(binary()),
        };
        let mut process = program.arg("up").arg("--config").arg(&config).start()?;
        process.http_ok(&operations, "/readyz", LONG).await?;
        let file: Value = serde_json::from_slice(&fs::read(data.join("server.json"))?)?;
        let token = file["token"].as_str().context("server.json has no token")?.to_owned();
        let mut service = Self {
            _folder: folder,
            process,
            api,
            admin,
            operations,
            token,
            good: String::new(),
            other: String::new(),
            bad: String::new(),
        };
        let documents = match start.documents {
            Some(documents) => format!("{TYPES}---\n{}", documents()),
            None => TYPES.to_owned(),
        };
        service.good = service.org("good", &[], TYPES).await?;
        service.other = service.org("other", &[], TYPES).await?;
        service.bad = service.org("bad", &["admin"], &documents).await?;
        Ok(service)
    }

    /// Makes an organisation with a configuration, and returns its key.
    async fn org(&self, id: &str, scopes: &[&str], documents: &str) -> Result<String> {
        self.operator("POST", "/orgs", &json!({ "id": id })).await?;
        let files = json!([{ "name": "all.yaml", "text": documents }]);
        let applied = self.operator("POST", &format!("/config?org={id}"), &json!({ "files": files })).await?;
        let version = &applied["version"];
        let wait_path = format!("/config/wait?org={id}&version={version}&withinMs=30000");
        self.operator("GET", &wait_path, &Value::Null).await?;
        let platform = ["items:write", "items:read", "policies:read", "reports:write", "appeals:write"];
        let scopes: Vec<_> = platform.iter().chain(scopes).collect();
        let key = self.operator("POST", &format!("/keys?org={id}"), &json!({ "scopes": scopes })).await?;
        Ok(key["key"].as_str().context("no key")?.to_owned())
    }

    pub(crate) async fn operator(&self, method: &str, path: &str, body: &Value) -> Result<Value> {
        let header = format!("authorization: Bearer {}", self.token);
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let path = format!("/admin/v1{path}");
        http::ask(&self.admin, method, &path, &header, &body).await?.ok(&path)
    }

    /// A metric's value, summed over its labels.
    pub(crate) async fn metric(&self, name: &str) -> Result<f64> {
        let answer = http::ask(&self.operations, "GET", "/metrics", "accept: */*", "").await?;
        let text = String::from_utf8(answer.body)?;
        let metric_lines = text.lines().filter(|line| line.starts_with(name));
        Ok(0.0 + metric_lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>())
    }

    /// Resident memory of the process now and at most so far, in MiB.
    pub(crate) fn resident(&self) -> Result<(f64, f64)> {
        let status = fs::read_to_string(format!(
            "/proc/{}/status",
            self.process.id().context("the process has ended")?
        ))?;
        let of = |name: &str| -> Option<f64> {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse::<f64>().ok().map(|kib| kib / 1024.0)
        };
        of("VmRSS:").zip(of("VmHWM:")).context("the status file lacks the memory of the process")
    }

    /// Ends the process by a signal. Returns its exit code and the time that it took.
    pub(crate) async fn stop(&mut self) -> Result<(Option<i32>, Duration)> {
        let began = Instant::now();
        self.process.terminate().await?;
        let status = self.process.exit(LONG).await?;
        Ok((status.code(), began.elapsed()))
    }

    pub(crate) fn tail(&self) -> String {
        let output = self.process.output().unwrap_or_default();
        let lines: Vec<_> = output.lines().rev().take(5).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }
}

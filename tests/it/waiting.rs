//! Roles that start while their servers are unavailable: they stay alive, name the missing server and continue once it
//! answers. An error that waiting cannot fix ends them immediately.

use std::{fs, path::PathBuf};

use crate::support::{BINARY, http};
use anyhow::{Result, bail};
use serde_json::Value;
use tidegate_test_support::{PATIENCE, Process, Program, Proxy, eventually_ok, free_port, servers};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

struct Place {
    folder: tempfile::TempDir,
    api: u16,
    ops: u16,
}

impl Place {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), api: free_port().unwrap(), ops: free_port().unwrap() }
    }

    /// The settings of a role on Kafka at `kafka` and CQL at `cql`.
    fn settings(
        &self,
        kafka: &str,
        cql: &str,
        name: &str,
        (partitions, open_timeout_ms): (u32, u32),
        more: &str,
    ) -> PathBuf {
        let path = self.folder.path().join("tidegate.toml");
        let (api, ops) = (self.api, self.ops);
        let text = format!(
            r#"
[api]
listen = "127.0.0.1:{api}"
[ops]
listen = "127.0.0.1:{ops}"
linger_ms = 0
[security]
master_key = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
[stream]
engine = "kafka"
prefix = "{name}"
partitions = {partitions}
[stream.kafka]
brokers = ["{kafka}"]
open_timeout_ms = {open_timeout_ms}
[stream.kafka.topics]
replication = 1
min_insync_replicas = 1
[store]
engine = "cql"
[store.cql]
contact_points = ["{cql}"]
keyspace = "{name}"
connect_timeout_ms = 1000
replication = {{ simple = 1 }}
{more}
"#
        );
        fs::write(&path, text).unwrap();
        path
    }

    fn start(&self, words: &[&str], settings: &PathBuf) -> Process {
        let output = self.folder.path().join("output");
        Program::new(BINARY, output).args(words).arg("--config").arg(settings).start().unwrap()
    }

    async fn succeeds(&self, words: &[&str], settings: &PathBuf) {
        let mut process = self.start(words, settings);
        let status = process.exit(PATIENCE).await.unwrap();
        assert!(status.success(), "{words:?}: {}", process.output().unwrap());
    }

    /// Output of a process that refused to start.
    async fn refuses(&self, words: &[&str], settings: &PathBuf) -> String {
        let mut process = self.start(words, settings);
        let status = process.exit(PATIENCE).await.unwrap();
        let output = process.output().unwrap();
        assert_eq!(status.code(), Some(1), "{words:?}: {output}");
        output
    }

    async fn get(&self, port: u16, path: &str) -> Result<reqwest::Response> {
        Ok(http().get(format!("http://127.0.0.1:{port}{path}")).send().await?)
    }

    /// Waits until the complaints of `/readyz` satisfy the condition.
    async fn complaints(&self, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        eventually_ok(what, PATIENCE, async || {
            let answer = self.get(self.ops, "/readyz").await?;
            let (status, report) = (answer.status(), answer.json::<Value>().await?);
            let complaints = report["complaints"].clone();
            if holds(&complaints) && (status == 200) == (complaints == serde_json::json!({})) {
                Ok(complaints)
            } else {
                bail!("{status}: {report}")
            }
        })
        .await
        .unwrap()
    }
}

/// Whether the complaint gives a reason, not only a pending state.
fn is_away(complaint: &Value) -> bool {
    complaint.as_str().is_some_and(|why| !why.contains("being opened"))
}

#[tokio::test]
async fn role_without_its_servers_stays_unready_and_stops_cleanly() {
    let place = Place::new();
    let nobody = || format!("127.0.0.1:{}", free_port().unwrap());
    let settings = place.settings(&nobody(), &nobody(), "waiting", (4, 500), "");
    let mut process = place.start(&["ingest"], &settings);
    let both = |complaints: &Value| is_away(&complaints["log"]) && is_away(&complaints["store"]);
    place.complaints("both servers to be named", both).await;
    assert_eq!(place.get(place.ops, "/livez").await.unwrap().status(), 200);
    let refusal = place.get(place.api, "/api/v1/policies/").await.unwrap();
    assert_eq!(refusal.status(), 503, "a client does not hang");
    assert!(refusal.headers().contains_key("retry-after"));
    assert_eq!(refusal.headers()["content-type"], "application/problem+json");
    assert!(process.runs());
    process.terminate().await.unwrap();
    assert_eq!(process.exit(PATIENCE).await.unwrap().code(), Some(0));
    let output = process.output().unwrap();
    for part in ["log", "store"] {
        assert!(
            output.lines().any(|line| line.contains("the start waits for it") && line.contains(part)),
            "{output}"
        );
    }
}

/// Implements the part of CQL that refuses a password.
async fn refuse_password(mut stream: TcpStream) -> std::io::Result<()> {
    const OPTIONS: u8 = 5;
    const STARTUP: u8 = 1;
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await?;
        let length = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let mut body = vec![0; length as usize];
        stream.read_exact(&mut body).await?;
        let text = |text: &str| {
            let mut bytes = u16::try_from(text.len()).unwrap().to_be_bytes().to_vec();
            bytes.extend(text.as_bytes());
            bytes
        };
        let (opcode, body) = match head[4] {
            OPTIONS => (6, vec![0, 0]),
            STARTUP => (3, text("org.apache.cassandra.auth.PasswordAuthenticator")),
            _ => (
                0,
                [&0x0100_u32.to_be_bytes()[..], &text("Provided username and/or password are incorrect")]
                    .concat(),
            ),
        };
        let mut frame = vec![0x84, 0, head[2], head[3], opcode];
        frame.extend(u32::try_from(body.len()).unwrap().to_be_bytes());
        frame.extend(body);
        stream.write_all(&frame).await?;
    }
}

#[tokio::test]
async fn refused_store_password_ends_the_start_without_the_log() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let cql = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(refuse_password(stream));
        }
    });
    let place = Place::new();
    let nobody = format!("127.0.0.1:{}", free_port().unwrap());
    let credentials = "username = \"tidegate\"\npassword = \"wrong\"";
    let settings = place.settings(&nobody, &cql, "waiting", (4, 500), credentials);
    let output = place.refuses(&["process"], &settings).await;
    assert!(output.contains("password are incorrect"), "{output}");
}

#[tokio::test]
async fn role_starts_once_its_servers_answer_and_refuses_bad_settings() {
    const SUITE: &str = "a role that is started while its servers are away";
    let (Some(kafka), Some(cql)) = (servers::kafka(SUITE), servers::cql(SUITE)) else { return };
    let first = |list: &str| list.split(',').next().unwrap().to_owned();
    let (kafka, cql) = (Proxy::to(first(&kafka)).await.unwrap(), Proxy::to(first(&cql)).await.unwrap());
    let place = Place::new();
    let name = format!("waiting_{}", std::process::id());
    let (at_kafka, at_cql) = (kafka.address().to_string(), cql.address().to_string());
    let with = |partitions| {
        place.settings(&at_kafka, &at_cql, &name, (partitions, 60_000), "request_timeout_ms = 30000")
    };

    let output = place.refuses(&["process"], &with(4)).await;
    assert!(
        output.contains("run `tidegate topics create`") || output.contains("run `tidegate store migrate`"),
        "{output}"
    );
    place.succeeds(&["topics", "create"], &with(4)).await;
    let output = place.refuses(&["process"], &with(4)).await;
    assert!(output.contains("run `tidegate store migrate`"), "{output}");
    place.succeeds(&["store", "migrate"], &with(4)).await;
    let output = place.refuses(&["process"], &with(8)).await;
    assert!(output.contains("has 4 partitions") && output.contains("stream.partitions is 8"), "{output}");

    kafka.refuse().await.unwrap();
    cql.refuse().await.unwrap();
    let impatient = place.settings(&at_kafka, &at_cql, &name, (4, 1_000), "request_timeout_ms = 30000");
    let mut process = place.start(&["ingest"], &impatient);
    let both = |complaints: &Value| is_away(&complaints["log"]) && is_away(&complaints["store"]);
    place.complaints("both servers to be named", both).await;
    assert_eq!(place.get(place.api, "/api/v1/policies/").await.unwrap().status(), 503);
    cql.pass().await.unwrap();
    let log_only = |complaints: &Value| is_away(&complaints["log"]) && complaints.get("store").is_none();
    place.complaints("the log alone to be missed", log_only).await;
    kafka.pass().await.unwrap();
    place.complaints("readiness", |complaints| *complaints == serde_json::json!({})).await;
    assert_eq!(
        place.get(place.api, "/api/v1/policies/").await.unwrap().status(),
        401,
        "the API itself answers"
    );
    process.terminate().await.unwrap();
    assert_eq!(process.exit(PATIENCE).await.unwrap().code(), Some(0));
}

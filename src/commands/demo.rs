//! `tidegate demo send`: acts as a platform's user against a running `tidegate up --demo`, through the public API.

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context as _, bail};
use clap::{Subcommand, ValueEnum};
use serde_json::{Value, json};
use tidegate_schemas::ids::{Millis, SubmissionId};

use crate::{
    client,
    demo::{self, EnvFile},
    output::print_line,
};

#[derive(Debug, Subcommand)]
pub(crate) enum Demo {
    /// Send sample content, and show the result
    Send {
        what: Sample,
        /// Data folder of the demo; default: ./tidegate-demo
        #[arg(long, value_name = "DIR")]
        data: Option<PathBuf>,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Sample {
    /// A post that mentions scamcoin
    Scam,
    /// A user reports a post
    Report,
    /// A user appeals against the removal of a scam
    Appeal,
}

struct Platform {
    http: reqwest::Client,
    env: EnvFile,
}

impl Demo {
    pub(crate) async fn run(self) -> anyhow::Result<ExitCode> {
        let Self::Send { what, data } = self;
        let folder = demo::folder_or_default(data);
        let env = EnvFile::read(&folder)?.with_context(|| {
            format!("there is no {}: start `tidegate up --demo`", EnvFile::path(&folder).display())
        })?;
        let platform = Platform { http: client::new_http_client()?, env };
        match what {
            Sample::Scam => platform.send_scam().await.map(drop)?,
            Sample::Report => platform.send_report().await?,
            Sample::Appeal => platform.send_appeal().await?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn random_id(kind: &str) -> String {
    let mut digits = SubmissionId::random().0.simple().to_string();
    // Short enough to read, and unlikely to repeat within a demo.
    digits.truncate(8);
    format!("{kind}-{digits}")
}

fn post(text: &str) -> Value {
    json!({
        "id": random_id("post"),
        "typeId": "post",
        "data": {
            "text": text,
            "author": { "id": "mallory", "typeId": "user" },
            "createdAt": Millis::now().iso(),
        },
    })
}

impl Platform {
    async fn send_scam(&self) -> anyhow::Result<Value> {
        let item = post("Send me one scamcoin and you get two back");
        let response = self.post("/api/v1/items/async/", &json!({ "items": [item] })).await?;
        let id = item["id"].as_str().unwrap_or_default();
        print_line(format!("sent post {id}: {response}"));
        let answer = self.get(&format!("/api/v1/items/post/{id}?wait=10s")).await?;
        print_line(format!(
            "it is {}: rules {}, actions {}",
            answer["state"], answer["matchedRules"], answer["actions"]
        ));
        print_line(if self.env.can_verify() {
            format!("the callback is printed by the demo, and listed at {}/received", self.env.receiver_url)
        } else {
            "the callback is held: the master key of its signing secret is lost".to_owned()
        });
        Ok(item)
    }

    async fn send_report(&self) -> anyhow::Result<()> {
        let item = post("I know where you live");
        let report = json!({
            "reporter": { "kind": "user", "id": "alice", "typeId": "user" },
            "reportedAt": Millis::now().iso(),
            "reportedItem": item,
            "reportedForReason": { "reason": "I am afraid of this person" },
        });
        let answer = self.post("/api/v1/report", &report).await?;
        print_line(format!("reported post {}: {answer}", item["id"]));
        self.print_job_hint("default");
        Ok(())
    }

    async fn send_appeal(&self) -> anyhow::Result<()> {
        let item = self.send_scam().await?;
        let appeal_id = random_id("appeal");
        let policies = self.get("/api/v1/policies/").await?;
        let all_policies = policies["policies"].as_array().into_iter().flatten();
        let violated_policies: Vec<_> = all_policies
            .filter(|policy| policy["name"] == "Scams and fraud")
            .map(|policy| json!({ "id": policy["id"] }))
            .collect();
        let appeal = json!({
            "appealId": appeal_id,
            "appealedBy": { "id": "mallory", "typeId": "user" },
            "appealedAt": Millis::now().iso(),
            "actionedItem": item,
            "actionsTaken": ["limit_reach"],
            "appealReason": "It was a joke",
            "violatingPolicies": violated_policies,
        });
        self.post("/api/v1/report/appeal", &appeal).await?;
        print_line(format!("appealed as {appeal_id}"));
        self.print_job_hint("appeals");
        Ok(())
    }

    fn print_job_hint(&self, queue: &str) {
        print_line(format!(
            "a moderator finds its job with\n  curl -H \"Authorization: Bearer $TIDEGATE_ADMIN_KEY\" \
             \"{}/admin/v1/jobs?queue={queue}\"",
            self.env.admin_url
        ));
    }

    async fn post(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        let request = self.http.post(format!("{}{path}", self.env.url)).json(body);
        self.send(path, request).await
    }

    async fn get(&self, path: &str) -> anyhow::Result<Value> {
        self.send(path, self.http.get(format!("{}{path}", self.env.url))).await
    }

    async fn send(&self, path: &str, request: reqwest::RequestBuilder) -> anyhow::Result<Value> {
        let request = request.header("x-api-key", &self.env.api_key);
        let response = request.send().await.map_err(|_| {
            anyhow::anyhow!("{} does not answer: does `tidegate up --demo` run?", self.env.url)
        })?;
        let status = response.status();
        let text = response.text().await.context("the answer was cut off")?;
        if !status.is_success() {
            bail!("{path} answered {status}: {text}");
        }
        if text.is_empty() { Ok(Value::Null) } else { Ok(serde_json::from_str(&text)?) }
    }
}

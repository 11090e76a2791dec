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
        what: What,
        /// Data folder of the demo; default: ./tidegate-demo
        #[arg(long, value_name = "DIR")]
        data: Option<PathBuf>,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum What {
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
        let folder = demo::folder(data);
        let env = EnvFile::read(&folder)?.with_context(|| {
            format!("there is no {}: start `tidegate up --demo`", EnvFile::path(&folder).display())
        })?;
        let platform = Platform { http: client::http()?, env };
        match what {
            What::Scam => platform.scam().await.map(drop)?,
            What::Report => platform.report().await?,
            What::Appeal => platform.appeal().await?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn some_id(kind: &str) -> String {
    let mut digits = SubmissionId::random().0.simple().to_string();
    digits.truncate(8);
    format!("{kind}-{digits}")
}

fn post(text: &str) -> Value {
    json!({
        "id": some_id("post"),
        "typeId": "post",
        "data": {
            "text": text,
            "author": { "id": "mallory", "typeId": "user" },
            "createdAt": Millis::now().iso(),
        },
    })
}

impl Platform {
    async fn scam(&self) -> anyhow::Result<Value> {
        let item = post("Send me one scamcoin and you get two back");
        let sent = self.post("/api/v1/items/async/", &json!({ "items": [item] })).await?;
        let id = item["id"].as_str().unwrap_or_default();
        print_line(format!("sent post {id}: {sent}"));
        let answer = self.get(&format!("/api/v1/items/post/{id}?wait=10s")).await?;
        print_line(format!(
            "it is {}: rules {}, actions {}",
            answer["state"], answer["matchedRules"], answer["actions"]
        ));
        print_line(if self.env.can_verify() {
            format!("the callback is printed by the demo, and listed at {}/received", self.env.receiver_url)
        } else {
            "the callback is held: the key that its signing secret is sealed under is lost".to_owned()
        });
        Ok(item)
    }

    async fn report(&self) -> anyhow::Result<()> {
        let item = post("I know where you live");
        let report = json!({
            "reporter": { "kind": "user", "id": "alice", "typeId": "user" },
            "reportedAt": Millis::now().iso(),
            "reportedItem": item,
            "reportedForReason": { "reason": "I am afraid of this person" },
        });
        let answer = self.post("/api/v1/report", &report).await?;
        print_line(format!("reported post {}: {answer}", item["id"]));
        self.jobs("default");
        Ok(())
    }

    async fn appeal(&self) -> anyhow::Result<()> {
        let item = self.scam().await?;
        let appeal_id = some_id("appeal");
        let policies = self.get("/api/v1/policies/").await?;
        let scam = policies["policies"].as_array().into_iter().flatten();
        let violated: Vec<_> = scam
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
            "violatingPolicies": violated,
        });
        self.post("/api/v1/report/appeal", &appeal).await?;
        print_line(format!("appealed as {appeal_id}"));
        self.jobs("appeals");
        Ok(())
    }

    fn jobs(&self, queue: &str) {
        print_line(format!(
            "a moderator finds its job with\n  curl -H \"Authorization: Bearer $TIDEGATE_ADMIN_KEY\" \
             \"{}/admin/v1/jobs?queue={queue}\"",
            self.env.admin_url
        ));
    }

    async fn post(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        let request = self.http.post(format!("{}{path}", self.env.url)).json(body);
        self.ask(path, request).await
    }

    async fn get(&self, path: &str) -> anyhow::Result<Value> {
        self.ask(path, self.http.get(format!("{}{path}", self.env.url))).await
    }

    async fn ask(&self, path: &str, request: reqwest::RequestBuilder) -> anyhow::Result<Value> {
        let request = request.header("x-api-key", &self.env.api_key);
        let response = request.send().await.map_err(|_| {
            anyhow::anyhow!("{} does not answer: does `tidegate up --demo` run?", self.env.url)
        })?;
        let status = response.status();
        let text = response.text().await.context("the answer broke off")?;
        if !status.is_success() {
            bail!("{path} answered {status}: {text}");
        }
        if text.is_empty() { Ok(Value::Null) } else { Ok(serde_json::from_str(&text)?) }
    }
}

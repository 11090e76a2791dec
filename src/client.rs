//! Talks to the admin API of a running process, for commands.
//!
//! It knows no resource: commands name paths and bodies.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use reqwest::{Method, Response, StatusCode, header};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{server_file, settings::Settings};

/// Address of the admin API and the key to use. Default: the process that runs on the data folder of this machine.
#[derive(Debug, Args)]
pub(crate) struct Connection {
    #[command(flatten)]
    server: Server,
    /// Settings file that names the data folder
    #[arg(long, env = "TIDEGATE_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Options of [`Connection`] for commands that name the settings file differently.
#[derive(Debug, Args)]
pub(crate) struct Server {
    /// Address of the admin API, such as http://127.0.0.1:8081
    #[arg(long, env = "TIDEGATE_SERVER", value_name = "URL", hide_env_values = true)]
    server: Option<String>,
    /// API key with the scope `admin`
    #[arg(long, env = "TIDEGATE_TOKEN", value_name = "KEY", hide_env_values = true)]
    token: Option<String>,
    /// Organisation to act for; only with the token from server.json
    #[arg(long, env = "TIDEGATE_ORG", value_name = "ID")]
    org: Option<String>,
    /// Data folder of the process to talk to
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

pub(crate) struct Client {
    http: reqwest::Client,
    base: String,
    /// The same for messages.
    shown: String,
    /// The address, or the file that it is found in.
    server: String,
    token: String,
    org: Option<String>,
    /// Origin of the address, for messages.
    found_in: String,
}

#[derive(Deserialize)]
struct ProblemDetails {
    #[serde(default)]
    title: String,
    #[serde(default)]
    errors: Vec<ProblemEntry>,
}

#[derive(Deserialize)]
struct ProblemEntry {
    #[serde(default)]
    pointer: Option<String>,
    #[serde(default)]
    detail: String,
}

impl Connection {
    pub(crate) fn settings(&self) -> anyhow::Result<Settings> {
        Ok(crate::settings::load(self.config.as_deref(), Vec::new())?.settings)
    }

    pub(crate) fn open(self) -> anyhow::Result<Client> {
        self.server.open(self.config.as_deref())
    }
}

impl Server {
    /// `settings`: the file that names the data folder.
    pub(crate) fn open(self, settings: Option<&Path>) -> anyhow::Result<Client> {
        let Self { server, token, org, data } = self;
        let (base, token, found_in, file) = match (server, token) {
            (Some(server), Some(token)) => (server, token, "--server or TIDEGATE_SERVER".to_owned(), None),
            (Some(server), None) => bail!(
                "{} needs a key: give one of scope `admin` with --token or TIDEGATE_TOKEN (make one with \
                 `tidegate keys create --scopes admin` on the machine that runs it)",
                shown(&server)
            ),
            (None, token) => {
                let folder = match data {
                    Some(folder) => folder,
                    None => crate::settings::load(settings, Vec::new())?.settings.data.folder,
                };
                let path = server_file::path(&folder);
                let found = server_file::read(&folder)?.ok_or_else(|| not_running(&path))?;
                let file = path.canonicalize().unwrap_or_else(|_| path.clone());
                (found.admin_url, token.unwrap_or(found.token), path.display().to_string(), Some(file))
            }
        };
        let client = Client::new(base.trim_end_matches('/').to_owned(), token, org, found_in)?;
        Ok(match file {
            Some(file) => Client { server: file.display().to_string(), ..client },
            None => client,
        })
    }
}

fn not_running(path: &Path) -> anyhow::Error {
    anyhow!(
        "there is no {}: start `tidegate up` (the demo's data are in ./tidegate-demo: --data ./tidegate-demo), or name \
         a running process with --server and --token",
        path.display()
    )
}

impl Client {
    pub(crate) fn new(
        base: String,
        token: String,
        org: Option<String>,
        found_in: String,
    ) -> anyhow::Result<Self> {
        let shown = shown(&base);
        Ok(Self { http: http()?, base, server: shown.clone(), shown, token, org, found_in })
    }

    /// Identity of the process: one that is found by its data folder may have another address each time.
    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, String)],
    ) -> anyhow::Result<T> {
        self.ask::<T, Value>(Method::GET, path, query, None).await
    }

    pub(crate) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> anyhow::Result<T> {
        self.ask(Method::POST, path, &[], Some(body)).await
    }

    /// Posts as often as the service says that others come first.
    pub(crate) async fn post_in_turn<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> anyhow::Result<T> {
        loop {
            let response = self.send(Method::POST, path, &[], Some(body)).await?;
            let wait =
                response.headers().get(header::RETRY_AFTER).and_then(|wait| wait.to_str().ok()?.parse().ok());
            match wait {
                Some(seconds) if response.status() == StatusCode::SERVICE_UNAVAILABLE => {
                    tokio::time::sleep(Duration::from_secs(seconds)).await;
                }
                _ => return self.answer(response).await,
            }
        }
    }

    async fn ask<T: DeserializeOwned, B: Serialize>(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, String)],
        body: Option<&B>,
    ) -> anyhow::Result<T> {
        self.answer(self.send(method, path, query, body).await?).await
    }

    async fn send<B: Serialize>(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, String)],
        body: Option<&B>,
    ) -> anyhow::Result<Response> {
        let mut url = reqwest::Url::parse(&format!("{}/admin/v1{path}", self.base))
            .with_context(|| format!("{} (from {}) is no address", self.shown, self.found_in))?;
        if !url.username().is_empty() || url.password().is_some() {
            bail!(
                "{} (from {}) names a user or a password, which the admin API does not ask for: name the address \
                 without them, and give a key with --token or TIDEGATE_TOKEN",
                self.shown,
                self.found_in
            );
        }
        if !matches!(url.scheme(), "http" | "https") {
            bail!("{} (from {}) does not begin with http:// or https://", self.shown, self.found_in);
        }
        let org = self.org.iter().map(|org| ("org", org.clone()));
        let pairs: Vec<_> = query.iter().cloned().chain(org).collect();
        if !pairs.is_empty() {
            url.query_pairs_mut().extend_pairs(pairs);
        }
        let mut request = self.http.request(method, url).bearer_auth(&self.token);
        if let Some(body) = body {
            request = request.json(body);
        }
        request.send().await.map_err(|error| self.unreachable(&error))
    }

    async fn answer<T: DeserializeOwned>(&self, response: Response) -> anyhow::Result<T> {
        let status = response.status();
        let bytes = response.bytes().await.context("the answer broke off")?;
        if !status.is_success() {
            return Err(self.refused(status, &bytes));
        }
        let text: &[u8] = if bytes.is_empty() { b"null" } else { &bytes };
        serde_json::from_slice(text)
            .with_context(|| format!("{} does not answer as tidegate does", self.shown))
    }

    fn unreachable(&self, error: &reqwest::Error) -> anyhow::Error {
        let reason = if error.is_connect() { "nobody listens there" } else { "it does not answer" };
        anyhow!(
            "the admin API at {} (from {}) cannot be reached: {reason}; is the process running?",
            self.shown,
            self.found_in
        )
    }

    fn refused(&self, status: StatusCode, body: &[u8]) -> anyhow::Error {
        if status == StatusCode::UNAUTHORIZED {
            return anyhow!(
                "the admin API at {} does not know this key (from {}): it was revoked, or the process was started \
                 anew meanwhile",
                self.shown,
                self.found_in
            );
        }
        let Ok(problem) = serde_json::from_slice::<ProblemDetails>(body) else {
            return anyhow!("{} answered {status}", self.shown);
        };
        let details: Vec<_> = problem
            .errors
            .iter()
            .map(|entry| match &entry.pointer {
                Some(pointer) => format!("{pointer}: {}", entry.detail),
                None => entry.detail.clone(),
            })
            .collect();
        match details.as_slice() {
            [] => anyhow!("{} ({status})", problem.title),
            [only] => anyhow!("{only}"),
            many => anyhow!("{}\n  {}", problem.title, many.join("\n  ")),
        }
    }
}

/// An address without its user and password, whether it is one or not: a password may stand where a port would.
fn shown(address: &str) -> String {
    let (scheme, place) = address.split_at(address.find("://").map_or(0, |at| at + 3));
    let known = ["http://", "https://"].into_iter().find(|known| *known == scheme).unwrap_or_default();
    match place.rsplit_once('@') {
        Some((_, place)) => format!("{known}...@{place}"),
        None if is_place(place) => address.to_owned(),
        None => format!("{known}..."),
    }
}

/// A host and perhaps a port, and what follows them.
fn is_place(text: &str) -> bool {
    let authority = text.split(['/', '?', '#']).next().unwrap_or_default();
    let (host, port) = authority.rsplit_once(':').unwrap_or((authority, ""));
    let has_port = port.bytes().all(|byte| byte.is_ascii_digit()) || port.ends_with(']');
    has_port && host.is_ascii() && !host.contains('%')
}

/// A plain client, for addresses that the operator names.
#[expect(
    clippy::disallowed_methods,
    reason = "the operator names the address, on the command line, in server.json or in the demo's env"
)]
pub(crate) fn http() -> anyhow::Result<reqwest::Client> {
    const PATIENCE: Duration = Duration::from_secs(90);
    reqwest::Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .timeout(PATIENCE)
        .build()
        .context(
            "the HTTP client cannot be made; without CA certificates, install the package ca-certificates",
        )
}

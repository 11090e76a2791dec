//! Client of the admin API of a running process, for commands.
//!
//! Commands name the paths and bodies of the resources.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use reqwest::{Method, RequestBuilder, Response, StatusCode, header};
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
    /// Address for messages, without user and password.
    display_address: String,
    /// Identity of the process: its address, or the path of its `server.json`, since the port may differ after each start.
    identity: String,
    token: String,
    org: Option<String>,
    /// Origin of the address, for messages.
    address_origin: String,
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
    /// Returns the organisation of the option `--org`.
    pub(crate) fn org(&self) -> Option<&str> {
        self.org.as_deref()
    }

    /// Opens a client. `settings` is the file that names the data folder.
    pub(crate) fn open(self, settings: Option<&Path>) -> anyhow::Result<Client> {
        let Self { server, token, org, data } = self;
        let (base, token, address_origin, file) = match (server, token) {
            (Some(server), Some(token)) => (server, token, "--server or TIDEGATE_SERVER".to_owned(), None),
            // The token of a local process is not valid on another server.
            (Some(server), None) => bail!(
                "{} needs a key: give one of scope `admin` with --token or TIDEGATE_TOKEN (create one with \
                 `tidegate keys create --scopes admin` on the machine that runs it)",
                redact_credentials(&server)
            ),
            (None, token) => {
                let folder = match data {
                    Some(folder) => folder,
                    None => crate::settings::load(settings, Vec::new())?.settings.data.folder,
                };
                let path = server_file::path(&folder);
                let running_server = server_file::read(&folder)?.ok_or_else(|| not_running_error(&path))?;
                // Absolute, so that the identity does not depend on the current folder.
                let file = path.canonicalize().unwrap_or_else(|_| path.clone());
                (
                    running_server.admin_url,
                    token.unwrap_or(running_server.token),
                    path.display().to_string(),
                    Some(file),
                )
            }
        };
        let client = Client::new(base.trim_end_matches('/').to_owned(), token, org, address_origin)?;
        Ok(match file {
            // The port of a local process may differ after each start; the path of its file stays the same.
            Some(file) => Client { identity: file.display().to_string(), ..client },
            None => client,
        })
    }
}

fn not_running_error(path: &Path) -> anyhow::Error {
    anyhow!(
        "no running service found, because {} does not exist: start `tidegate up` (for the demo add \
         --data ./tidegate-demo), or name a running process with --server and --token",
        path.display()
    )
}

impl Client {
    pub(crate) fn new(
        base: String,
        token: String,
        org: Option<String>,
        address_origin: String,
    ) -> anyhow::Result<Self> {
        let display_address = redact_credentials(&base);
        Ok(Self {
            http: new_http_client()?,
            base,
            identity: display_address.clone(),
            display_address,
            token,
            org,
            address_origin,
        })
    }

    /// Returns the identity of the process, which stays the same when its address changes.
    pub(crate) fn identity(&self) -> &str {
        &self.identity
    }

    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, String)],
    ) -> anyhow::Result<T> {
        self.request::<T, Value>(Method::GET, path, query, None).await
    }

    pub(crate) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> anyhow::Result<T> {
        self.request(Method::POST, path, &[], Some(body)).await
    }

    /// Posts, and repeats the request while the service answers that earlier ones have to finish first.
    pub(crate) async fn post_in_turn<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> anyhow::Result<T> {
        loop {
            let response = self.send(Method::POST, path, &[], Some(body)).await?;
            let retry_after = response
                .headers()
                .get(header::RETRY_AFTER)
                .and_then(|value| value.to_str().ok()?.parse().ok());
            match retry_after {
                // Long requests of an organisation take turns, so the wait may exceed the time limit of one request.
                Some(seconds) if response.status() == StatusCode::SERVICE_UNAVAILABLE => {
                    tokio::time::sleep(Duration::from_secs(seconds)).await;
                }
                _ => return self.parse_response(response).await,
            }
        }
    }

    async fn request<T: DeserializeOwned, B: Serialize>(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, String)],
        body: Option<&B>,
    ) -> anyhow::Result<T> {
        self.parse_response(self.send(method, path, query, body).await?).await
    }

    /// Starts a GET with a long body, such as an export.
    pub(crate) async fn get_stream(&self, path: &str, query: &[(&str, String)]) -> anyhow::Result<Response> {
        // The time limit of a request includes its body, which can take hours.
        const STREAM_TIMEOUT: Duration = Duration::from_secs(30 * 86_400);
        let request = self.build_request(Method::GET, path, query)?.timeout(STREAM_TIMEOUT);
        let response = request.send().await.map_err(|error| self.unreachable_error(&error))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let bytes = response.bytes().await.context("the answer was cut off")?;
        Err(self.error_from_response(status, &bytes))
    }

    async fn send<B: Serialize>(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, String)],
        body: Option<&B>,
    ) -> anyhow::Result<Response> {
        let mut request = self.build_request(method, path, query)?;
        if let Some(body) = body {
            request = request.json(body);
        }
        request.send().await.map_err(|error| self.unreachable_error(&error))
    }

    /// Checks the address and builds the request with its key, without a body.
    fn build_request(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, String)],
    ) -> anyhow::Result<RequestBuilder> {
        let mut url = reqwest::Url::parse(&format!("{}/admin/v1{path}", self.base)).with_context(|| {
            format!("{} (from {}) is not an address", self.display_address, self.address_origin)
        })?;
        // The HTTP client would send them as basic authentication.
        if !url.username().is_empty() || url.password().is_some() {
            bail!(
                "{} (from {}) names a user or a password, which the admin API does not ask for: name the address \
                 without them, and give a key with --token or TIDEGATE_TOKEN",
                self.display_address,
                self.address_origin
            );
        }
        if !matches!(url.scheme(), "http" | "https") {
            bail!(
                "{} (from {}) does not begin with http:// or https://",
                self.display_address,
                self.address_origin
            );
        }
        let org = self.org.iter().map(|org| ("org", org.clone()));
        let pairs: Vec<_> = query.iter().cloned().chain(org).collect();
        if !pairs.is_empty() {
            url.query_pairs_mut().extend_pairs(pairs);
        }
        Ok(self.http.request(method, url).bearer_auth(&self.token))
    }

    async fn parse_response<T: DeserializeOwned>(&self, response: Response) -> anyhow::Result<T> {
        let status = response.status();
        // Read before the status is checked: the body of a refusal holds its reasons.
        let bytes = response.bytes().await.context("the answer was cut off")?;
        if !status.is_success() {
            return Err(self.error_from_response(status, &bytes));
        }
        // Some responses have no body. `null` deserialises into `Value` and `()`.
        let text: &[u8] = if bytes.is_empty() { b"null" } else { &bytes };
        serde_json::from_slice(text)
            .with_context(|| format!("{} does not answer like Tidegate", self.display_address))
    }

    fn unreachable_error(&self, error: &reqwest::Error) -> anyhow::Error {
        let reason = if error.is_connect() { "no process listens there" } else { "it does not answer" };
        anyhow!(
            "the admin API at {} (from {}) cannot be reached: {reason}; is the process running?",
            self.display_address,
            self.address_origin
        )
    }

    fn error_from_response(&self, status: StatusCode, body: &[u8]) -> anyhow::Error {
        // The token in server.json is a new one after each start, so a key that was valid may end with the process.
        if status == StatusCode::UNAUTHORIZED {
            return anyhow!(
                "the admin API at {} rejects this key (from {}): it was revoked, or the process was restarted \
                 meanwhile",
                self.display_address,
                self.address_origin
            );
        }
        // A proxy in between may answer without a problem document.
        let Ok(problem) = serde_json::from_slice::<ProblemDetails>(body) else {
            return anyhow!("{} answered {status}", self.display_address);
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

/// Removes user and password from an address, even from an invalid one: a password may be in the place of the port.
fn redact_credentials(address: &str) -> String {
    let (scheme, remainder) = address.split_at(address.find("://").map_or(0, |index| index + 3));
    // Only these are repeated: any other text before `://` may be part of a password.
    let known_scheme =
        ["http://", "https://"].into_iter().find(|prefix| *prefix == scheme).unwrap_or_default();
    // The last `@`, because a password may contain others.
    match remainder.rsplit_once('@') {
        Some((_, host)) => format!("{known_scheme}...@{host}"),
        None if is_host_with_port(remainder) => address.to_owned(),
        // The text may be a password that was given in the place of an address.
        None => format!("{known_scheme}..."),
    }
}

/// True if the text begins with a host and an optional port.
fn is_host_with_port(text: &str) -> bool {
    let authority = text.split(['/', '?', '#']).next().unwrap_or_default();
    let (host, port) = authority.rsplit_once(':').unwrap_or((authority, ""));
    // A `]` ends an IPv6 address that has no port.
    let is_port_or_ipv6 = port.bytes().all(|byte| byte.is_ascii_digit()) || port.ends_with(']');
    // An escaped `@` would be part of the host, with credentials before it.
    is_port_or_ipv6 && host.is_ascii() && !host.contains('%')
}

/// Creates an HTTP client without address checks, for addresses that the operator names.
#[expect(
    clippy::disallowed_methods,
    reason = "the operator names the address, on the command line, in server.json or in the demo's env"
)]
pub(crate) fn new_http_client() -> anyhow::Result<reqwest::Client> {
    const TIMEOUT: Duration = Duration::from_secs(90);
    reqwest::Client::builder()
        // A proxy of the environment would receive the key of every plain HTTP request.
        .no_proxy()
        // A redirect could lead to another server, which must not get the key.
        .redirect(reqwest::redirect::Policy::none())
        .timeout(TIMEOUT)
        .build()
        .context(
            "the HTTP client cannot be created; without CA certificates, install the package ca-certificates",
        )
}

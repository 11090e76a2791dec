//! Client of a schema registry (Confluent's API): registers our schemas and looks up those of others, each once.
//!
//! The operator sets the address, so it is called with a plain client and not through `egress`.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use apache_avro::Schema;
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use reqwest::{Method, StatusCode, Url, header};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::runtime::Handle;
use tokio_util::sync::{CancellationToken, DropGuard};

const CONTENT_TYPE: &str = "application/vnd.schemaregistry.v1+json";
/// Size limit of an answer, far above that of any schema. A larger answer is not from a registry.
const MAX_ANSWER_BYTES: usize = 4 << 20;

/// The section `schema_registry` of the service's settings.
///
/// Records carry the ids of one registry, or the checked-in ids without a registry. Add, remove or replace a registry only on
/// empty topics, because ids of two sources mean different schemas.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RegistrySettings {
    /// The address, `http` or `https`, with the path under which the Confluent API lives, such as
    /// `http://registry:8081` or `http://registry:8080/apis/ccompat/v7`. No user name in it.
    pub url: String,
    /// User name of basic authentication. Default none.
    pub username: Option<String>,
    /// Password of basic authentication. Default none.
    pub password: Option<Password>,
    /// A file that holds the password, instead of `password`; the line end at its end does not count. Default none.
    pub password_file: Option<PathBuf>,
    /// A PEM file of certificate authorities trusted beside the public ones. Default none.
    pub ca_file: Option<PathBuf>,
    /// Time for one request, in milliseconds. Default 5,000.
    pub request_timeout_ms: u64,
    /// The pause before a look-up that found no schema, or no registry, is tried again, in milliseconds. It doubles
    /// while the registry does not answer. Default 500.
    pub retry_ms: u64,
    /// The longest such pause, in milliseconds. Default 10,000.
    pub retry_max_ms: u64,
}

impl Default for RegistrySettings {
    fn default() -> Self {
        Self {
            url: "http://127.0.0.1:8081".to_owned(),
            username: None,
            password: None,
            password_file: None,
            ca_file: None,
            request_timeout_ms: 5_000,
            retry_ms: 500,
            retry_max_ms: 10_000,
        }
    }
}

/// Password that prints and serializes as `***`.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Password(String);

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl Serialize for Password {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("***")
    }
}

impl From<&str> for Password {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl RegistrySettings {
    /// Refuses invalid values. The error names both settings of a contradiction.
    pub fn validate(&self) -> Result<(), String> {
        self.base()?;
        if self.password.is_some() && self.password_file.is_some() {
            return Err("schema_registry.password and schema_registry.password_file are both set".to_owned());
        }
        if self.username.is_none() && (self.password.is_some() || self.password_file.is_some()) {
            return Err("schema_registry has a password but no username".to_owned());
        }
        for (name, value) in [("request_timeout_ms", self.request_timeout_ms), ("retry_ms", self.retry_ms)] {
            if value == 0 {
                return Err(format!("schema_registry.{name} = 0: must be at least 1"));
            }
        }
        if self.retry_ms > self.retry_max_ms {
            return Err(format!(
                "schema_registry.retry_ms = {} is above schema_registry.retry_max_ms = {}",
                self.retry_ms, self.retry_max_ms
            ));
        }
        Ok(())
    }

    /// Reads the configured files, as a client would.
    pub(crate) fn check_files(&self) -> Result<(), String> {
        self.authorities().map(drop).map_err(|why| why.to_string())?;
        self.credentials().map(drop).map_err(|why| why.to_string())
    }

    fn authorities(&self) -> Result<Vec<reqwest::Certificate>, RegistryError> {
        let Some(path) = &self.ca_file else { return Ok(Vec::new()) };
        let to_error = |why: String| {
            RegistryError::Settings(format!("schema_registry.ca_file {}: {why}", path.display()))
        };
        let pem = std::fs::read(path).map_err(|why| to_error(why.to_string()))?;
        reqwest::Certificate::from_pem_bundle(&pem).map_err(|why| to_error(why.to_string()))
    }

    fn base(&self) -> Result<Url, String> {
        // The messages do not show the value, which may hold a password.
        let base = Url::parse(&self.url).map_err(|why| format!("schema_registry.url: {why}"))?;
        if !matches!(base.scheme(), "http" | "https") || base.host_str().is_none() {
            return Err("schema_registry.url: must be an http or https address".to_owned());
        }
        if !base.username().is_empty() || base.password().is_some() || base.query().is_some() {
            return Err(
                "schema_registry.url: takes neither a user name nor a query; see username and password"
                    .to_owned(),
            );
        }
        Ok(base)
    }

    fn credentials(&self) -> Result<Option<Credentials>, RegistryError> {
        let Some(username) = self.username.clone() else { return Ok(None) };
        let password = match &self.password_file {
            Some(path) => {
                let text = std::fs::read_to_string(path).map_err(|why| {
                    RegistryError::Settings(format!(
                        "schema_registry.password_file {}: {why}",
                        path.display()
                    ))
                })?;
                Some(Password(text.trim_end_matches(['\r', '\n']).to_owned()))
            }
            None => self.password.clone(),
        };
        Ok(Some(Credentials { username, password }))
    }
}

struct Credentials {
    username: String,
    password: Option<Password>,
}

/// Error of a request to the registry.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RegistryError {
    #[error("the schema registry does not answer: {0}")]
    Unreachable(String),
    #[error("the schema registry does not know the schema")]
    NotFound,
    #[error("the schema registry refuses the credentials: status {0}")]
    Denied(u16),
    #[error("the schema registry refuses the request: status {status}: {message}")]
    Refused { status: u16, message: String },
    #[error("the answer of the schema registry is invalid: {0}")]
    Malformed(String),
    #[error("{0}")]
    Settings(String),
}

impl RegistryError {
    pub const fn tag(&self) -> &'static str {
        match self {
            Self::Unreachable(_) => "registry_unreachable",
            Self::NotFound => "registry_not_found",
            Self::Denied(_) => "registry_denied",
            Self::Refused { .. } => "registry_refused",
            Self::Malformed(_) => "registry_malformed",
            Self::Settings(_) => "registry_settings",
        }
    }
}

/// HTTP client of the registry, without a cache.
struct RegistryClient {
    http: reqwest::Client,
    base: Url,
    credentials: Option<Credentials>,
}

#[derive(Deserialize)]
struct RegisterAnswer {
    id: u32,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SchemaAnswer {
    schema: String,
    schema_type: Option<String>,
    references: Option<Vec<serde::de::IgnoredAny>>,
}

#[derive(Deserialize)]
struct ErrorAnswer {
    message: String,
}

impl RegistryClient {
    fn new(settings: &RegistrySettings) -> Result<Self, RegistryError> {
        settings.validate().map_err(RegistryError::Settings)?;
        // reqwest uses the TLS provider of the process, which its first user must install.
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            drop(rustls::crypto::ring::default_provider().install_default());
        }
        #[expect(clippy::disallowed_methods, reason = "the operator alone names the registry")]
        let mut http = reqwest::Client::builder()
            .timeout(Duration::from_millis(settings.request_timeout_ms))
            // A redirect could send the credentials to another host.
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy();
        if settings.ca_file.is_some() {
            http = http.tls_certs_merge(settings.authorities()?);
        }
        let http = http.build().map_err(|why| RegistryError::Settings(why.without_url().to_string()))?;
        let base = settings.base().map_err(RegistryError::Settings)?;
        Ok(Self { http, base, credentials: settings.credentials()? })
    }

    async fn register(&self, subject: &str, schema: &str) -> Result<u32, RegistryError> {
        let body = serde_json::json!({ "schema": schema, "schemaType": "AVRO" });
        let answer: RegisterAnswer =
            self.call(Method::POST, &["subjects", subject, "versions"], Some(&body)).await?;
        Ok(answer.id)
    }

    async fn by_id(&self, id: u32) -> Result<SchemaAnswer, RegistryError> {
        self.call(Method::GET, &["schemas", "ids", &id.to_string()], None).await
    }

    async fn call<A: for<'de> Deserialize<'de>>(
        &self,
        method: Method,
        path: &[&str],
        body: Option<&serde_json::Value>,
    ) -> Result<A, RegistryError> {
        let mut url = self.base.clone();
        url.path_segments_mut()
            .map_err(|()| RegistryError::Settings("schema_registry.url cannot be a base".to_owned()))?
            .pop_if_empty()
            .extend(path);
        let mut request = self.http.request(method, url).header(header::ACCEPT, CONTENT_TYPE);
        if let Some(Credentials { username, password }) = &self.credentials {
            request = request.basic_auth(username, password.as_ref().map(|Password(text)| text));
        }
        if let Some(body) = body {
            request = request.body(body.to_string()).header(header::CONTENT_TYPE, CONTENT_TYPE);
        }
        let mut answer = request.send().await.map_err(unreachable)?;
        let status = answer.status();
        let mut text = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(unreachable)? {
            // Checked by chunk, because the answer may not declare its length.
            if text.len() + chunk.len() > MAX_ANSWER_BYTES {
                return Err(RegistryError::Malformed(format!("more than {MAX_ANSWER_BYTES} bytes")));
            }
            text.extend_from_slice(&chunk);
        }
        match status {
            StatusCode::OK | StatusCode::CREATED => {
                serde_json::from_slice(&text).map_err(|why| RegistryError::Malformed(why.to_string()))
            }
            StatusCode::NOT_FOUND => Err(RegistryError::NotFound),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(RegistryError::Denied(status.as_u16())),
            StatusCode::CONFLICT | StatusCode::UNPROCESSABLE_ENTITY | StatusCode::BAD_REQUEST => {
                let message = serde_json::from_slice(&text)
                    .map_or_else(|_| String::new(), |ErrorAnswer { message }| message);
                Err(RegistryError::Refused { status: status.as_u16(), message })
            }
            // Server errors count as an outage, which is retried.
            _ => Err(RegistryError::Unreachable(format!("status {status}"))),
        }
    }
}

/// Converts an error without its address, which may contain a secret.
fn unreachable(error: reqwest::Error) -> RegistryError {
    use std::error::Error;
    let error = error.without_url();
    let mut detail = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        detail = format!("{detail}: {cause}");
        source = cause.source();
    }
    RegistryError::Unreachable(detail)
}

/// Schema behind an id.
#[derive(Debug)]
pub(crate) enum WriterSchema {
    Avro(Box<Schema>),
    /// Not Avro, or invalid Avro: no version of Tidegate wrote with it.
    Foreign(String),
}

/// Client of a registry with a cache. A known schema is never requested again.
pub(crate) struct SchemaRegistry {
    inner: Arc<Inner>,
    _cancels_look_ups: DropGuard,
}

struct Inner {
    client: RegistryClient,
    cache: ArcSwap<HashMap<u32, Arc<WriterSchema>>>,
    in_progress: Mutex<HashSet<u32>>,
    outage: Mutex<Option<RegistryError>>,
    retry: Duration,
    retry_max: Duration,
    runtime: Handle,
    closed: CancellationToken,
}

impl SchemaRegistry {
    /// Creates the client without sending a request. Look-ups run on the runtime of the caller.
    pub(crate) fn new(settings: &RegistrySettings) -> Result<Self, RegistryError> {
        let closed = CancellationToken::new();
        Ok(Self {
            inner: Arc::new(Inner {
                client: RegistryClient::new(settings)?,
                cache: ArcSwap::default(),
                in_progress: Mutex::default(),
                outage: Mutex::default(),
                retry: Duration::from_millis(settings.retry_ms),
                retry_max: Duration::from_millis(settings.retry_max_ms),
                runtime: Handle::current(),
                closed: closed.clone(),
            }),
            _cancels_look_ups: closed.drop_guard(),
        })
    }

    /// Registers our schema under the subject and returns its id; the same schema always has the same id.
    pub(crate) async fn register(&self, subject: &str, schema: &str) -> Result<u32, RegistryError> {
        self.inner.client.register(subject, schema).await
    }

    /// Returns the schema of an id if it is known, or else starts one background look-up of the id.
    pub(crate) fn get(&self, id: u32) -> Option<Arc<WriterSchema>> {
        let cached_schema = self.inner.cache.load().get(&id).cloned();
        // One look-up for an id, however many records wait for it.
        if cached_schema.is_none() && self.inner.in_progress.lock().insert(id) {
            let inner = Arc::clone(&self.inner);
            self.inner.runtime.spawn(async move {
                let closed = inner.closed.clone();
                closed.run_until_cancelled(inner.look_up(id)).await;
            });
        }
        cached_schema
    }

    /// Error of the last look-up while the registry does not answer.
    pub(crate) fn outage(&self) -> Option<RegistryError> {
        self.inner.outage.lock().clone()
    }
}

impl Inner {
    async fn look_up(&self, id: u32) {
        let mut pause = self.retry;
        loop {
            match self.client.by_id(id).await {
                Ok(answer) => {
                    *self.outage.lock() = None;
                    let writer = Arc::new(parse(answer));
                    self.cache.rcu(|cache| {
                        let mut cache = HashMap::clone(cache);
                        cache.insert(id, Arc::clone(&writer));
                        cache
                    });
                    break;
                }
                // A waiting caller repeats `get`, which starts the next look-up.
                Err(RegistryError::NotFound) => {
                    *self.outage.lock() = None;
                    tracing::warn!(schema = id, "the schema registry does not know a schema yet");
                    tokio::time::sleep(self.retry).await;
                    break;
                }
                Err(outage) => {
                    tracing::warn!(schema = id, tag = outage.tag(), "{outage}");
                    *self.outage.lock() = Some(outage);
                    tokio::time::sleep(pause).await;
                    // Backs off, so that a failing registry is not flooded by all processes.
                    pause = (pause * 2).min(self.retry_max);
                }
            }
        }
        self.in_progress.lock().remove(&id);
    }
}

fn parse(answer: SchemaAnswer) -> WriterSchema {
    if let Some(schema_type) = answer.schema_type.filter(|kind| kind != "AVRO") {
        return WriterSchema::Foreign(format!("it is of type {schema_type}"));
    }
    if answer.references.is_some_and(|references| !references.is_empty()) {
        return WriterSchema::Foreign("it refers to other subjects".to_owned());
    }
    match Schema::parse_str(&answer.schema) {
        Ok(schema) => WriterSchema::Avro(Box::new(schema)),
        Err(why) => WriterSchema::Foreign(why.to_string()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(crate) mod fake;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

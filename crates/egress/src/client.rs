//! Sends one request to an address that may be called, and reads its answer within bounds of time and size.
//! Not responsible for following redirects, for retries, or for what the bytes mean.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::time::{Instant, timeout_at};

use crate::addresses::Guard;
use crate::failure::Failure;
use crate::resolver::{Checked, Lookup, System};
use crate::settings::{Settings, SettingsError};
use crate::target::Target;

/// The guarded client. Cheap to clone; clones share their connections.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    guard: Arc<Guard>,
    settings: Arc<Settings>,
}

/// What to send.
#[derive(Debug)]
pub struct Request {
    pub method: Method,
    pub target: Target,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub limits: Limits,
}

/// What one request may cost.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// From the look-up of the name to the last byte of the body.
    pub total: Duration,
    /// From the look-up of the name to the head of the response, if it has a bound of its own.
    pub head: Option<Duration>,
    /// The longest pause between two pieces of the body, if it has a bound of its own.
    pub idle: Option<Duration>,
    /// Longest body that [`Response::chunk`] hands out.
    pub body_bytes: u64,
    pub rate: Rate,
}

/// How slowly a body may come.
#[derive(Debug, Clone, Copy)]
pub struct Rate {
    /// On average; 0 accepts any rate.
    pub bytes_per_second: u64,
    /// Before the rate counts.
    pub grace: Duration,
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error("egress.ca_file = {}: {why}", path.display())]
    CaFile { path: PathBuf, why: String },
    #[error("TLS cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
    #[error("the HTTP client cannot be set up: {0}")]
    Http(#[from] reqwest::Error),
}

impl ClientError {
    pub fn tag(&self) -> &'static str {
        match self {
            Self::Settings(error) => error.tag(),
            Self::CaFile { .. } => "ca_file",
            Self::Tls(_) => "tls_setup",
            Self::Http(_) => "http_setup",
        }
    }
}

impl Client {
    /// A client over the operating system's resolver.
    pub fn new(settings: Settings) -> Result<Self, ClientError> {
        let lookup = Arc::new(System::new(settings.lookups));
        Self::with_lookup(settings, lookup)
    }

    /// A client over another resolver.
    pub fn with_lookup(settings: Settings, lookup: Arc<dyn Lookup>) -> Result<Self, ClientError> {
        settings.validate()?;
        let guard = Arc::new(Guard { allow: settings.allow_cidrs.clone() });
        // Decompression and cookies are absent from the build; so is HTTP/2, whose streams would share one fate.
        #[expect(clippy::disallowed_methods, reason = "this is the guarded client")]
        let http = reqwest::Client::builder()
            .tls_backend_preconfigured(tls(&settings)?)
            .dns_resolver(Checked { lookup, guard: Arc::clone(&guard) })
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .no_proxy()
            .referer(false)
            .connect_timeout(settings.connect_timeout())
            .pool_idle_timeout(Duration::from_millis(settings.pool_idle_ms))
            .pool_max_idle_per_host(settings.pool_idle_per_host)
            .user_agent(settings.user_agent.as_str())
            .build()?;
        Ok(Self { http, guard, settings: Arc::new(settings) })
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Limits with the settings' rate, and no bound of their own for head and pauses.
    pub fn limits(&self, total: Duration, body_bytes: u64) -> Limits {
        let grace = Duration::from_millis(self.settings.min_rate_grace_ms);
        let rate = Rate { bytes_per_second: self.settings.min_rate, grace };
        Limits { total, head: None, idle: None, body_bytes, rate }
    }

    /// Sends the request and returns once the head of the response is there. Any status is an answer, a redirect too.
    pub async fn send(&self, request: Request) -> Result<Response, Failure> {
        let limits = request.limits;
        let deadline = Instant::now() + limits.total;
        let head_deadline = limits.head.map_or(deadline, |head| deadline.min(Instant::now() + head));
        // A literal never reaches the resolver, so this is the only check it gets.
        if let Some(address) = request.target.literal() {
            self.guard.check(address)?;
        }
        let mut headers = request.headers;
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let sending = self
            .http
            .request(request.method, request.target.into_url())
            .headers(headers)
            .body(request.body)
            .send();
        let answer = match timeout_at(head_deadline, sending).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => return Err(Failure::of_request(&error)),
            Err(_) => return Err(Failure::Timeout),
        };
        Ok(Response {
            answer,
            deadline,
            body_began: Instant::now(),
            received: 0,
            limit: limits.body_bytes,
            idle: limits.idle,
            rate: limits.rate,
        })
    }
}

/// The head of an answer, and its body as it comes in. Dropped before its end, the connection is closed.
pub struct Response {
    answer: reqwest::Response,
    deadline: Instant,
    body_began: Instant,
    received: u64,
    limit: u64,
    idle: Option<Duration>,
    rate: Rate,
}

impl Response {
    pub fn status(&self) -> StatusCode {
        self.answer.status()
    }

    pub fn headers(&self) -> &HeaderMap {
        self.answer.headers()
    }

    /// The length of the body, if it is announced.
    pub fn length(&self) -> Option<u64> {
        self.answer.content_length()
    }

    /// Leaves a time out of the rate and of the time in all, for whoever let the body wait.
    pub fn excuse(&mut self, waited: Duration) {
        self.body_began += waited;
        self.deadline += waited;
    }

    /// The address that answered.
    pub fn remote_ip(&self) -> Option<IpAddr> {
        self.answer.remote_addr().map(|address| address.ip().to_canonical())
    }

    /// The next piece of the body, or `None` at its end. At the limit the remainder is left unread.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, Failure> {
        let until = self.next_deadline();
        let chunk = match timeout_at(until, self.answer.chunk()).await {
            Ok(Ok(Some(chunk))) => chunk,
            Ok(Ok(None)) => return Ok(None),
            Ok(Err(error)) => return Err(Failure::of_body(&error)),
            Err(_) => return Err(Failure::BodyTimeout),
        };
        self.received += chunk.len() as u64;
        if self.received > self.limit {
            return Err(Failure::TooLarge { limit: self.limit });
        }
        Ok(Some(chunk))
    }

    /// The first `limit` bytes of the body, and why there is not all of it.
    pub async fn head(mut self) -> (Bytes, Option<Failure>) {
        let mut head = Vec::new();
        let limit = usize::try_from(self.limit).unwrap_or(usize::MAX);
        self.limit = u64::MAX;
        loop {
            match self.chunk().await {
                Ok(Some(chunk)) => {
                    let room = limit - head.len();
                    head.extend_from_slice(&chunk[..room.min(chunk.len())]);
                    if chunk.len() > room {
                        return (head.into(), Some(Failure::TooLarge { limit: limit as u64 }));
                    }
                }
                Ok(None) => return (head.into(), None),
                Err(failure) => return (head.into(), Some(failure)),
            }
        }
    }

    /// What has come in so far at the minimum rate buys time, but never beyond the other deadlines.
    fn next_deadline(&self) -> Instant {
        let deadline = self.idle.map_or(self.deadline, |idle| self.deadline.min(Instant::now() + idle));
        let bought = match (self.received + 1).saturating_mul(1_000).checked_div(self.rate.bytes_per_second) {
            None => return deadline,
            Some(millis) => Duration::from_millis(millis),
        };
        self.body_began.checked_add(self.rate.grace + bought).map_or(deadline, |rate| rate.min(deadline))
    }
}

pub(crate) fn tls(settings: &Settings) -> Result<rustls::ClientConfig, ClientError> {
    let mut roots = rustls::RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    if let Some(path) = &settings.ca_file {
        let fault = |why: String| ClientError::CaFile { path: path.clone(), why };
        let before = roots.len();
        for certificate in CertificateDer::pem_file_iter(path).map_err(|error| fault(error.to_string()))? {
            let certificate = certificate.map_err(|error| fault(error.to_string()))?;
            roots.add(certificate).map_err(|error| fault(error.to_string()))?;
        }
        if roots.len() == before {
            return Err(fault("holds no certificate".to_owned()));
        }
    }
    let mut config =
        rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

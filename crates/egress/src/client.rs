//! Sends one request to an address that may be called, and reads the response within limits of time and size. Redirects
//! are not followed.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use tokio::time::{Instant, timeout_at};

use crate::addresses::AddressGuard;
use crate::failure::Failure;
use crate::resolver::{GuardedResolver, Resolver, SystemResolver};
use crate::settings::{Settings, SettingsError};
use crate::target::Target;
use crate::tls::{self, TlsError};

/// The guarded HTTP client. Cheap to clone; clones share their connections.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    guard: Arc<AddressGuard>,
    settings: Arc<Settings>,
}

/// A request to send.
#[derive(Debug)]
pub struct Request {
    pub method: Method,
    pub target: Target,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub limits: RequestLimits,
}

/// Limits of one request.
#[derive(Debug, Clone, Copy)]
pub struct RequestLimits {
    /// Time from the DNS look-up to the last byte of the body.
    pub total: Duration,
    /// Time from the DNS look-up to the head of the response, if it has a limit of its own.
    pub head: Option<Duration>,
    /// Longest pause between two chunks of the body, if it has a limit of its own.
    pub idle: Option<Duration>,
    /// Longest body that [`Response::chunk`] hands out.
    pub body_bytes: u64,
    pub min_rate: MinRate,
}

/// Lowest rate at which a body may arrive.
#[derive(Debug, Clone, Copy)]
pub struct MinRate {
    /// Average rate; 0 accepts any.
    pub bytes_per_second: u64,
    /// Time before the rate counts.
    pub grace: Duration,
}

/// The client cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("the HTTP client cannot be set up: {0}")]
    Http(#[from] reqwest::Error),
}

impl ClientError {
    pub fn tag(&self) -> &'static str {
        match self {
            Self::Settings(error) => error.tag(),
            Self::Tls(error) => error.tag(),
            Self::Http(_) => "http_setup",
        }
    }
}

impl Client {
    /// Makes a client that uses the operating system's resolver.
    pub fn new(settings: Settings) -> Result<Self, ClientError> {
        let resolver = Arc::new(SystemResolver::new(settings.lookups));
        Self::with_resolver(settings, resolver)
    }

    /// Makes a client that uses another resolver.
    pub fn with_resolver(settings: Settings, resolver: Arc<dyn Resolver>) -> Result<Self, ClientError> {
        settings.validate()?;
        let guard = Arc::new(AddressGuard { allow: settings.allow_cidrs.clone() });
        // Decompression and cookies are not compiled in. Nor is HTTP/2: a stalled connection would hold all its streams.
        #[expect(clippy::disallowed_methods, reason = "this is the guarded client")]
        let http = reqwest::Client::builder()
            .tls_backend_preconfigured(tls::client_config(settings.ca_file.as_deref())?)
            .dns_resolver(GuardedResolver { resolver, guard: Arc::clone(&guard) })
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

    /// Returns limits with the rate of the settings, and no own limits for head and pauses.
    pub fn limits(&self, total: Duration, body_bytes: u64) -> RequestLimits {
        let grace = Duration::from_millis(self.settings.min_rate_grace_ms);
        let min_rate = MinRate { bytes_per_second: self.settings.min_rate, grace };
        RequestLimits { total, head: None, idle: None, body_bytes, min_rate }
    }

    /// Sends the request and returns once the head of the response has arrived. Every status is a response, redirects too.
    pub async fn send(&self, request: Request) -> Result<Response, Failure> {
        let limits = request.limits;
        let deadline = Instant::now() + limits.total;
        let head_deadline = limits.head.map_or(deadline, |head| deadline.min(Instant::now() + head));
        // An IP literal never reaches the resolver, so this is its only check.
        if let Some(address) = request.target.ip_literal() {
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
        let response = match timeout_at(head_deadline, sending).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(Failure::from_request(&error)),
            Err(_) => return Err(Failure::Timeout),
        };
        Ok(Response {
            response,
            deadline,
            body_began: Instant::now(),
            received: 0,
            limit: limits.body_bytes,
            idle: limits.idle,
            min_rate: limits.min_rate,
        })
    }
}

/// The head of a response, and its body as it arrives. Dropping it before the end closes the connection.
pub struct Response {
    response: reqwest::Response,
    deadline: Instant,
    body_began: Instant,
    received: u64,
    limit: u64,
    idle: Option<Duration>,
    min_rate: MinRate,
}

impl Response {
    pub fn status(&self) -> StatusCode {
        self.response.status()
    }

    pub fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    /// Returns the length of the body that the head declares.
    pub fn content_length(&self) -> Option<u64> {
        self.response.content_length()
    }

    /// Extends the deadlines by a time that we, and not the peer, let the body wait.
    pub fn extend_deadlines(&mut self, waited: Duration) {
        self.body_began += waited;
        self.deadline += waited;
    }

    /// Returns the address of the peer.
    pub fn remote_ip(&self) -> Option<IpAddr> {
        self.response.remote_addr().map(|address| address.ip().to_canonical())
    }

    /// Reads the next chunk of the body; `None` at its end. Beyond the limit, the rest is left unread.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, Failure> {
        let until = self.next_deadline();
        let chunk = match timeout_at(until, self.response.chunk()).await {
            Ok(Ok(Some(chunk))) => chunk,
            Ok(Ok(None)) => return Ok(None),
            Ok(Err(error)) => return Err(Failure::from_body(&error)),
            Err(_) => return Err(Failure::BodyTimeout),
        };
        self.received += chunk.len() as u64;
        if self.received > self.limit {
            return Err(Failure::TooLarge { limit: self.limit });
        }
        Ok(Some(chunk))
    }

    /// Reads the body up to the limit. Also returns why the rest is missing, if it is.
    pub async fn read_prefix(mut self) -> (Bytes, Option<Failure>) {
        let mut prefix = Vec::new();
        let limit = usize::try_from(self.limit).unwrap_or(usize::MAX);
        self.limit = u64::MAX;
        loop {
            match self.chunk().await {
                Ok(Some(chunk)) => {
                    let room = limit - prefix.len();
                    prefix.extend_from_slice(&chunk[..room.min(chunk.len())]);
                    if chunk.len() > room {
                        return (prefix.into(), Some(Failure::TooLarge { limit: limit as u64 }));
                    }
                }
                Ok(None) => return (prefix.into(), None),
                Err(failure) => return (prefix.into(), Some(failure)),
            }
        }
    }

    /// Returns when the next chunk must be there. Bytes received so far extend it at the minimum rate, but never beyond the
    /// other deadlines.
    fn next_deadline(&self) -> Instant {
        let deadline = self.idle.map_or(self.deadline, |idle| self.deadline.min(Instant::now() + idle));
        let earned =
            match (self.received + 1).saturating_mul(1_000).checked_div(self.min_rate.bytes_per_second) {
                None => return deadline,
                Some(millis) => Duration::from_millis(millis),
            };
        self.body_began.checked_add(self.min_rate.grace + earned).map_or(deadline, |rate| rate.min(deadline))
    }
}

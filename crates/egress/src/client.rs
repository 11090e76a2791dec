//! Guarded HTTP client: sends one request to an allowed address, and reads the response within limits of time
//! and size. Redirects are not followed.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use async_recursion::async_recursion as boxed;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use tokio::time::{Instant, timeout_at};

use crate::addresses::AddressGuard;
use crate::failure::Failure;
use crate::resolver::{GuardedResolver, Resolver, SystemResolver};
use crate::settings::{Settings, SettingsError};
use crate::target::Target;
use crate::tls::{self, TlsError};

/// Guarded HTTP client. Clones share its connections.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    guard: Arc<AddressGuard>,
    settings: Arc<Settings>,
}

/// Request to send.
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
    /// Time from the DNS lookup to the last byte of the body.
    pub total: Duration,
    /// Time from the DNS lookup to the head of the response; `None` applies only the total.
    pub head: Option<Duration>,
    /// Longest pause between two chunks of the body; `None` applies only the total.
    pub idle: Option<Duration>,
    /// Longest body that [`Response::chunk`] returns.
    pub body_bytes: u64,
    pub min_rate: MinRate,
}

/// Lowest accepted rate of a body.
#[derive(Debug, Clone, Copy)]
pub struct MinRate {
    /// Average rate; 0 accepts any.
    pub bytes_per_second: u64,
    /// Time before the rate is enforced.
    pub grace: Duration,
}

/// Error of creating a client.
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
    /// Creates a client with the resolver of the operating system.
    pub fn new(settings: Settings) -> Result<Self, ClientError> {
        let resolver = Arc::new(SystemResolver::new(settings.lookups));
        Self::with_resolver(settings, resolver)
    }

    /// Creates a client with another resolver.
    pub fn with_resolver(settings: Settings, resolver: Arc<dyn Resolver>) -> Result<Self, ClientError> {
        settings.validate()?;
        let guard = Arc::new(AddressGuard { allow: settings.allow_cidrs.clone() });
        // The build has no decompression and no cookies. It has no HTTP/2 either: a stalled connection would
        // block all of its streams.
        #[expect(clippy::disallowed_methods, reason = "this is the guarded client")]
        let http = reqwest::Client::builder()
            .tls_backend_preconfigured(tls::client_config(settings.ca_file.as_deref())?)
            .dns_resolver(GuardedResolver { resolver, guard: Arc::clone(&guard) })
            .redirect(reqwest::redirect::Policy::none())
            // Callers count and record each attempt, so none may be repeated here.
            .retry(reqwest::retry::never())
            // A proxy would connect to addresses that the guard never sees.
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

    /// Returns limits with the settings' rate, and none for head and pauses.
    pub fn limits(&self, total: Duration, body_bytes: u64) -> RequestLimits {
        let grace = Duration::from_millis(self.settings.min_rate_grace_ms);
        let min_rate = MinRate { bytes_per_second: self.settings.min_rate, grace };
        RequestLimits { total, head: None, idle: None, body_bytes, min_rate }
    }

    /// Sends the request and returns when the head of the response has arrived. Any status counts as a
    /// response.
    #[boxed]
    pub async fn send(&self, request: Request) -> Result<Response, Failure> {
        let limits = request.limits;
        let deadline = Instant::now() + limits.total;
        let head_deadline = limits.head.map_or(deadline, |head| deadline.min(Instant::now() + head));
        // The resolver is not called for an IP literal, so the address is checked here.
        if let Some(address) = request.target.ip_literal() {
            self.guard.check(address)?;
        }
        let mut headers = request.headers;
        // Decompression is not compiled in, so a compressed body could not be read.
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let response_future = self
            .http
            .request(request.method, request.target.into_url())
            .headers(headers)
            .body(request.body)
            .send();
        let response = match timeout_at(head_deadline, response_future).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(Failure::from_request(&error)),
            Err(_) => return Err(Failure::Timeout),
        };
        Ok(Response {
            response,
            deadline,
            body_started_at: Instant::now(),
            received_bytes: 0,
            body_limit: limits.body_bytes,
            idle: limits.idle,
            min_rate: limits.min_rate,
        })
    }
}

/// Head of a response, and its body while it arrives. Dropping it early closes the connection.
pub struct Response {
    response: reqwest::Response,
    deadline: Instant,
    body_started_at: Instant,
    received_bytes: u64,
    body_limit: u64,
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

    /// Returns the length that the head declares.
    pub fn content_length(&self) -> Option<u64> {
        self.response.content_length()
    }

    /// Extends the deadlines by a delay on our side, for which the peer is not responsible.
    pub fn extend_deadlines(&mut self, waited: Duration) {
        self.body_started_at += waited;
        self.deadline += waited;
    }

    /// Returns the address of the peer.
    pub fn remote_ip(&self) -> Option<IpAddr> {
        // A mapped IPv4 address is recorded as IPv4.
        self.response.remote_addr().map(|address| address.ip().to_canonical())
    }

    /// Reads the next chunk of the body; `None` at its end. The part beyond the limit stays unread.
    #[boxed]
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, Failure> {
        let deadline = self.next_deadline();
        let chunk = match timeout_at(deadline, self.response.chunk()).await {
            Ok(Ok(Some(chunk))) => chunk,
            Ok(Ok(None)) => return Ok(None),
            Ok(Err(error)) => return Err(Failure::from_body(&error)),
            Err(_) => return Err(Failure::BodyTimeout),
        };
        self.received_bytes += chunk.len() as u64;
        if self.received_bytes > self.body_limit {
            return Err(Failure::TooLarge { limit: self.body_limit });
        }
        Ok(Some(chunk))
    }

    /// Reads the body up to the limit. Also returns the failure if the body is incomplete.
    pub async fn read_prefix(mut self) -> (Bytes, Option<Failure>) {
        let mut prefix = Vec::new();
        let limit = usize::try_from(self.body_limit).unwrap_or(usize::MAX);
        // `chunk` returns none of a chunk that crosses the limit, but the prefix needs its beginning.
        self.body_limit = u64::MAX;
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

    /// Returns the deadline of the next chunk. Received bytes extend it at the minimum rate, but never beyond
    /// the other deadlines.
    fn next_deadline(&self) -> Instant {
        let deadline = self.idle.map_or(self.deadline, |idle| self.deadline.min(Instant::now() + idle));
        // One byte more than received, as the next chunk has at least one.
        let due_bytes = self.received_bytes + 1;
        // A minimum rate of 0 accepts any rate.
        let Some(earned_millis) = due_bytes.saturating_mul(1_000).checked_div(self.min_rate.bytes_per_second)
        else {
            return deadline;
        };
        self.body_started_at
            .checked_add(self.min_rate.grace + Duration::from_millis(earned_millis))
            .map_or(deadline, |rate_deadline| rate_deadline.min(deadline))
    }
}

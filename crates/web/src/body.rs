//! Receives a body whole: bounded in size, in time, in pace, and by the bytes under way over all requests.
//!
//! It is called after the caller is known: nobody without a key makes us keep a byte.

use std::pin::pin;

use axum::{
    body::Body as Incoming,
    extract::Request,
    http::{HeaderMap, HeaderValue, StatusCode, header},
};
use bytes::Bytes;
use http_body_util::BodyExt;
use tidegate_schemas::{ids::OrgId, validation_error::tag};
use tokio::time::{Instant, sleep_until};

use crate::{
    HttpServer, Problem,
    connection::Connection,
    fair_budget::{Holder, Lease, Refusal},
    server::Limit,
};

/// A received body; its bytes are given back to the budget when it is dropped.
#[derive(Debug)]
pub struct Body {
    pub bytes: Bytes,
    _lease: Lease,
}

/// Smallest buffer of a body that comes in several pieces.
const STEP: usize = 8 << 10;

impl HttpServer {
    /// Reads a JSON body of an organisation.
    pub async fn read_body(&self, request: Request, org: &OrgId) -> Result<Body, Problem> {
        let (parts, mut body) = request.into_parts();
        check_coding(&parts.headers)?;
        check_type(&parts.headers)?;
        let announced = length(&parts.headers);
        let limit = self.settings().body_bytes;
        if announced.is_some_and(|length| length > limit) {
            return Err(too_large(limit));
        }
        let connection = parts.extensions.get::<Connection>().map(Connection::body_bytes);
        let holder = Holder { org: Some(org.clone()), connection };
        self.collect(&mut body, announced, holder).await
    }

    /// Bytes count as they arrive: a client that announces a body and sends none takes nothing from others.
    async fn collect(
        &self,
        body: &mut Incoming,
        announced: Option<usize>,
        holder: Holder,
    ) -> Result<Body, Problem> {
        let settings = self.settings();
        let full = |refusal: Refusal| {
            self.refuse(refusal, [Limit::BodyShare, Limit::BodyTotal], "the bytes of requests under way")
        };
        let mut lease = self.bodies().take(holder, 0).map_err(full)?;
        let mut pace = Pace::new(self);
        let mut check = pin!(sleep_until(pace.next_check));
        let mut first: Option<Bytes> = None;
        let mut whole = Vec::new();
        let mut length = 0;
        loop {
            let frame = tokio::select! {
                biased;
                frame = body.frame() => frame,
                () = &mut check => {
                    if !pace.holds(length, check.deadline()) {
                        self.count_limited(Limit::BodyPace);
                        return Err(too_slow(settings));
                    }
                    check.as_mut().reset(pace.next_check);
                    continue;
                }
            };
            let Some(frame) = frame else { break };
            let frame = frame.map_err(|_| {
                Problem::new(
                    StatusCode::BAD_REQUEST,
                    tag::INVALID_INPUT,
                    "The body broke off.",
                    "The connection ended before the body did.",
                )
            })?;
            let Ok(data) = frame.into_data() else { continue };
            length += data.len();
            if length > settings.body_bytes {
                return Err(too_large(settings.body_bytes));
            }
            // Most bodies are one frame: they are not copied.
            if first.is_none() && whole.is_empty() {
                lease.grow(data.len()).map_err(full)?;
                first = Some(data);
                continue;
            }
            if length > whole.capacity() {
                // At most twice what has arrived, and never more than can come.
                let most = announced.unwrap_or(settings.body_bytes).max(length);
                let capacity = length.max(whole.capacity() * 2).max(STEP).min(most);
                lease.grow(capacity - lease.amount()).map_err(full)?;
                whole.reserve_exact(capacity - whole.len());
            }
            if let Some(first) = first.take() {
                whole.extend_from_slice(&first);
            }
            whole.extend_from_slice(&data);
        }
        Ok(Body { bytes: first.unwrap_or_else(|| whole.into()), _lease: lease })
    }
}

/// Measures whether a body comes fast enough.
struct Pace {
    window: std::time::Duration,
    /// Bytes that a window must bring.
    least: usize,
    end: Instant,
    next_check: Instant,
    at_last_check: usize,
}

impl Pace {
    fn new(server: &HttpServer) -> Self {
        let (settings, now) = (server.settings(), Instant::now());
        let window = settings.body_pace();
        let millis = usize::try_from(settings.body_pace_ms).unwrap_or(usize::MAX);
        let least = settings.body_bytes_per_second.saturating_mul(millis) / 1_000;
        let end = now + settings.body_read();
        Self { window, least, end, next_check: end.min(now + window), at_last_check: 0 }
    }

    /// True if the body may go on until the next check, with so many bytes received by now.
    fn holds(&mut self, length: usize, now: Instant) -> bool {
        if now >= self.end || length - self.at_last_check < self.least {
            return false;
        }
        self.at_last_check = length;
        self.next_check = self.end.min(now + self.window);
        true
    }
}

fn check_type(headers: &HeaderMap) -> Result<(), Problem> {
    let sent = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    let mut parts = sent.split(';').map(str::trim);
    if !parts.next().unwrap_or("").eq_ignore_ascii_case("application/json") {
        let detail = "Send it with `Content-Type: application/json`.";
        return Err(unsupported("The body must be JSON.", detail));
    }
    let charsets = parts.filter_map(|parameter| parameter.split_once('='));
    let mut charsets = charsets.filter(|(name, _)| name.trim().eq_ignore_ascii_case("charset"));
    if charsets.all(|(_, named)| is_utf8(named.trim().trim_matches('"'))) {
        return Ok(());
    }
    Err(unsupported("The body must be UTF-8.", "Send it as UTF-8; `charset` may say so or be left out."))
}

fn is_utf8(charset: &str) -> bool {
    ["utf-8", "utf8"].iter().any(|name| charset.eq_ignore_ascii_case(name))
}

fn check_coding(headers: &HeaderMap) -> Result<(), Problem> {
    let is_plain = |value: &HeaderValue| value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"identity");
    if headers.get_all(header::CONTENT_ENCODING).iter().all(is_plain) {
        return Ok(());
    }
    let detail = "Send it as it is, without `Content-Encoding`.";
    let problem = unsupported("The body must not be compressed.", detail);
    Err(problem.with(header::ACCEPT_ENCODING, HeaderValue::from_static("identity")))
}

fn unsupported(title: &'static str, detail: &'static str) -> Problem {
    Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, tag::INVALID_INPUT, title, detail)
}

fn length(headers: &HeaderMap) -> Option<usize> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn too_large(limit: usize) -> Problem {
    Problem::too_large(format!("A body may have at most {limit} bytes."))
}

fn too_slow(settings: &crate::Settings) -> Problem {
    let detail = format!(
        "It must come at {} bytes a second, measured over {} ms, and be here within {} ms.",
        settings.body_bytes_per_second, settings.body_pace_ms, settings.body_read_ms
    );
    Problem::new(StatusCode::REQUEST_TIMEOUT, tag::INVALID_INPUT, "The body came too slowly.", detail)
}

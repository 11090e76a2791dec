//! Reads request bodies completely and decompresses them. Size, time, pace and the bytes of all requests in progress are
//! bounded. Callers authenticate first: without a key, only small forms are read.

use std::pin::pin;

use async_recursion::async_recursion as boxed;
use axum::{
    body::Body as Incoming,
    extract::Request,
    http::{HeaderMap, StatusCode, header},
};
use bytes::Bytes;
use http_body_util::BodyExt;
use tidegate_scheduler::{BudgetRefusal, Holder, Lease};
use tidegate_schemas::{ids::OrgId, json::skip_byte_order_mark, validation_error::tag};
use tokio::time::{Instant, sleep_until};

use crate::{
    HttpServer, Problem,
    connection::Connection,
    content_coding::{Coding, Decoder},
    server::Limit,
};

/// Received body. Its bytes return to the budget when it is dropped.
#[derive(Debug)]
pub struct Body {
    pub bytes: Bytes,
    _lease: Lease,
}

/// Smallest buffer for a body of several frames.
const MIN_BUFFER_BYTES: usize = 8 << 10;

/// Bytes decompressed at once.
const DECODE_STEP_BYTES: usize = 64 << 10;

impl HttpServer {
    /// Reads the JSON body of an organisation's request.
    #[boxed]
    pub async fn read_body(&self, request: Request, org: &OrgId) -> Result<Body, Problem> {
        let (parts, mut body) = request.into_parts();
        let coding = Coding::from_headers(&parts.headers)?;
        require_json(&parts.headers)?;
        let limit = self.settings().body_bytes;
        let announced_length = announced_length(&parts.headers, limit)?;
        let connection = parts.extensions.get::<Connection>().map(Connection::body_bytes);
        let holder = Holder { org: Some(org.clone()), connection };
        self.collect_body(&mut body, coding, announced_length, holder, limit).await
    }

    /// Reads a form of at most `limit` bytes. `org` is `None` before the sign-in.
    #[boxed]
    pub async fn read_form(
        &self,
        request: Request,
        org: Option<&OrgId>,
        limit: usize,
    ) -> Result<Body, Problem> {
        let (parts, mut body) = request.into_parts();
        if Coding::from_headers(&parts.headers)?.is_some() {
            return Err(unsupported_media_type(
                "The form must not be compressed.",
                "Send it without Content-Encoding.",
            ));
        }
        require_media_type(
            &parts.headers,
            "application/x-www-form-urlencoded",
            "The body must be a form.",
            "Send it with `Content-Type: application/x-www-form-urlencoded`.",
        )?;
        let limit = limit.min(self.settings().body_bytes);
        let announced_length = announced_length(&parts.headers, limit)?;
        let connection = parts.extensions.get::<Connection>().map(Connection::body_bytes);
        let holder = Holder { org: org.cloned(), connection };
        self.collect_body(&mut body, None, announced_length, holder, limit).await
    }

    /// Counts bytes as they arrive and as they are decompressed. A client that announces a body without sending it therefore
    /// takes no room from others.
    async fn collect_body(
        &self,
        body: &mut Incoming,
        coding: Option<Coding>,
        announced_length: Option<usize>,
        holder: Holder,
        limit: usize,
    ) -> Result<Body, Problem> {
        let settings = self.settings();
        let mut decoder =
            coding.map(|coding| Decompression::new(self, coding, holder.clone())).transpose()?;
        // The announced length is the compressed one, so it bounds only bodies without compression.
        let max_length = announced_length.filter(|_| decoder.is_none()).unwrap_or(limit);
        let mut collected = CollectedBody::new(self, max_length, holder, limit)?;
        let mut pace = Pace::new(self);
        let mut check_timer = pin!(sleep_until(pace.next_check));
        let mut received_bytes = 0;
        loop {
            let frame = tokio::select! {
                biased;
                // Polled first: bytes that have arrived count before the pace is judged.
                frame = body.frame() => frame,
                () = &mut check_timer => {
                    if !pace.check_window(received_bytes, check_timer.deadline()) {
                        self.count_limited(Limit::BodyPace);
                        return Err(body_too_slow(settings));
                    }
                    check_timer.as_mut().reset(pace.next_check);
                    continue;
                }
            };
            let Some(frame) = frame else { break };
            let frame = frame.map_err(|_| {
                Problem::new(
                    StatusCode::BAD_REQUEST,
                    tag::INVALID_INPUT,
                    "The body is incomplete.",
                    "The connection ended before the end of the body.",
                )
            })?;
            // Trailers are no part of the body.
            let Ok(data) = frame.into_data() else { continue };
            received_bytes += data.len();
            match &mut decoder {
                // A single frame is used as it is; only bodies of several frames are copied.
                None => collected.push(data)?,
                // Checked here as well: a body may be larger compressed than decompressed.
                Some(_) if received_bytes > limit => return Err(body_too_large(limit)),
                Some(decoder) => decoder.decode(Some(data), received_bytes, &mut collected).await?,
            }
        }
        if let Some(decoder) = &mut decoder {
            decoder.decode(None, received_bytes, &mut collected).await?;
        }
        Ok(collected.into_body())
    }

    fn budget_problem(&self, refusal: BudgetRefusal) -> Problem {
        self.refuse(refusal, [Limit::BodyShare, Limit::BodyTotal], "the bytes of requests under way")
    }
}

/// Received part of a body.
struct CollectedBody<'a> {
    server: &'a HttpServer,
    /// Greatest length that this body can reach, by its announced length.
    max_length: usize,
    /// Greatest length permitted for a body.
    limit: usize,
    lease: Lease,
    /// First frame, while it is the only one. Most bodies have one frame, which is not copied.
    only_frame: Option<Bytes>,
    buffer: Vec<u8>,
    length: usize,
}

impl<'a> CollectedBody<'a> {
    fn new(server: &'a HttpServer, max_length: usize, holder: Holder, limit: usize) -> Result<Self, Problem> {
        let lease = server.body_budget().take(holder, 0).map_err(|refusal| server.budget_problem(refusal))?;
        Ok(Self { server, max_length, limit, lease, only_frame: None, buffer: Vec::new(), length: 0 })
    }

    fn push(&mut self, data: Bytes) -> Result<(), Problem> {
        if self.only_frame.is_none() && self.buffer.is_empty() {
            self.count_bytes(data.len())?;
            self.lease.grow(data.len()).map_err(|refusal| self.server.budget_problem(refusal))?;
            self.only_frame = Some(data);
            return Ok(());
        }
        self.append(&data)
    }

    fn append(&mut self, data: &[u8]) -> Result<(), Problem> {
        self.count_bytes(data.len())?;
        if self.length > self.buffer.capacity() {
            // Doubled to bound the number of copies, but never beyond the length that the body can reach.
            let max_length = self.max_length.max(self.length);
            let capacity = self.length.max(self.buffer.capacity() * 2).max(MIN_BUFFER_BYTES).min(max_length);
            // The lease covers the only frame or the previous buffer, neither of which exceeds the new capacity.
            let additional_bytes = capacity - self.lease.amount();
            self.lease.grow(additional_bytes).map_err(|refusal| self.server.budget_problem(refusal))?;
            self.buffer.reserve_exact(capacity - self.buffer.len());
        }
        if let Some(frame) = self.only_frame.take() {
            self.buffer.extend_from_slice(&frame);
        }
        self.buffer.extend_from_slice(data);
        Ok(())
    }

    fn count_bytes(&mut self, bytes: usize) -> Result<(), Problem> {
        self.length += bytes;
        if self.length > self.limit { Err(body_too_large(self.limit)) } else { Ok(()) }
    }

    fn into_body(self) -> Body {
        let mut bytes = self.only_frame.unwrap_or_else(|| self.buffer.into());
        // Some clients send UTF-8 with a byte order mark, which JSON does not permit.
        skip_byte_order_mark(&mut bytes);
        Body { bytes, _lease: self.lease }
    }
}

/// Decompression of one body. Its memory is leased in addition to the body's bytes.
struct Decompression<'a> {
    server: &'a HttpServer,
    decoder: Decoder,
    step_buffer: Vec<u8>,
    lease: Lease,
}

impl<'a> Decompression<'a> {
    fn new(server: &'a HttpServer, coding: Coding, holder: Holder) -> Result<Self, Problem> {
        let lease = server
            .body_budget()
            .take(holder, DECODE_STEP_BYTES)
            .map_err(|refusal| server.budget_problem(refusal))?;
        Ok(Self { server, decoder: Decoder::new(coding), step_buffer: vec![0; DECODE_STEP_BYTES], lease })
    }

    /// Decompresses the next bytes of the body; `None` marks its end. `received_bytes` is the compressed length so far.
    async fn decode(
        &mut self,
        data: Option<Bytes>,
        received_bytes: usize,
        collected: &mut CollectedBody<'_>,
    ) -> Result<(), Problem> {
        self.decoder.receive(data);
        let expansion = self.server.settings().body_expansion;
        loop {
            let length = self.decoder.decode(&mut self.step_buffer)?;
            let additional_bytes =
                (DECODE_STEP_BYTES + self.decoder.memory()).saturating_sub(self.lease.amount());
            self.lease.grow(additional_bytes).map_err(|refusal| self.server.budget_problem(refusal))?;
            if length == 0 {
                return Ok(());
            }
            collected.append(&self.step_buffer[..length])?;
            // Short texts of one repeated letter exceed the ratio legitimately, so small bodies are exempt.
            if collected.length > DECODE_STEP_BYTES && collected.length / expansion > received_bytes {
                return Err(Problem::too_large(format!(
                    "A body may decompress to at most {expansion} times its size: send it uncompressed."
                )));
            }
            // A small body can decompress to megabytes: other requests of this thread run in between.
            tokio::task::yield_now().await;
        }
    }
}

/// Minimum pace of a body.
struct Pace {
    window: std::time::Duration,
    /// Bytes that must arrive in a window.
    min_bytes: usize,
    end: Instant,
    next_check: Instant,
    received_at_last_check: usize,
}

impl Pace {
    fn new(server: &HttpServer) -> Self {
        let (settings, now) = (server.settings(), Instant::now());
        let window = settings.body_pace();
        let millis = usize::try_from(settings.body_pace_ms).unwrap_or(usize::MAX);
        let min_bytes = settings.body_bytes_per_second.saturating_mul(millis) / 1_000;
        let end = now + settings.body_read();
        Self { window, min_bytes, end, next_check: end.min(now + window), received_at_last_check: 0 }
    }

    /// Checks the window that has ended with the bytes received so far, and starts the next one. False if the body must end.
    fn check_window(&mut self, length: usize, now: Instant) -> bool {
        if now >= self.end || length - self.received_at_last_check < self.min_bytes {
            return false;
        }
        self.received_at_last_check = length;
        self.next_check = self.end.min(now + self.window);
        true
    }
}

fn require_json(headers: &HeaderMap) -> Result<(), Problem> {
    require_media_type(
        headers,
        "application/json",
        "The body must be JSON.",
        "Send it with `Content-Type: application/json`.",
    )
}

fn require_media_type(
    headers: &HeaderMap,
    expected: &str,
    title: &'static str,
    detail: &'static str,
) -> Result<(), Problem> {
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    let mut parts = content_type.split(';').map(str::trim);
    if !parts.next().unwrap_or("").eq_ignore_ascii_case(expected) {
        return Err(unsupported_media_type(title, detail));
    }
    let charsets = parts.filter_map(|parameter| parameter.split_once('='));
    let mut charsets = charsets.filter(|(name, _)| name.trim().eq_ignore_ascii_case("charset"));
    if charsets.all(|(_, charset)| is_utf8(charset.trim().trim_matches('"'))) {
        return Ok(());
    }
    Err(unsupported_media_type(
        "The body must be UTF-8.",
        "Send it as UTF-8; `charset` may say so or be left out.",
    ))
}

fn is_utf8(charset: &str) -> bool {
    ["utf-8", "utf8"].iter().any(|name| charset.eq_ignore_ascii_case(name))
}

fn unsupported_media_type(title: &'static str, detail: &'static str) -> Problem {
    Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, tag::INVALID_INPUT, title, detail)
}

/// Returns the length in the headers. Refuses it here if it exceeds the limit, before any byte is read.
fn announced_length(headers: &HeaderMap, limit: usize) -> Result<Option<usize>, Problem> {
    let length = content_length(headers);
    if length.is_some_and(|length| length > limit) {
        return Err(body_too_large(limit));
    }
    Ok(length)
}

fn content_length(headers: &HeaderMap) -> Option<usize> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn body_too_large(limit: usize) -> Problem {
    Problem::too_large(format!("A body may have at most {limit} bytes."))
}

fn body_too_slow(settings: &crate::Settings) -> Problem {
    let detail = format!(
        "A body must arrive at {} bytes a second or more, measured over {} ms, and be complete within {} ms.",
        settings.body_bytes_per_second, settings.body_pace_ms, settings.body_read_ms
    );
    Problem::new(StatusCode::REQUEST_TIMEOUT, tag::INVALID_INPUT, "The body arrived too slowly.", detail)
}

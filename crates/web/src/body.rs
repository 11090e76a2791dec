//! Receives a body whole and decompressed: bounded in size, in time, in pace, and by the bytes under way over all requests.
//!
//! It is called after the caller is known: nobody without a key makes us keep more than the fields of a small form.

use std::pin::pin;

use axum::{
    body::Body as Incoming,
    extract::Request,
    http::{HeaderMap, StatusCode, header},
};
use bytes::Bytes;
use http_body_util::BodyExt;
use tidegate_schemas::{ids::OrgId, json::skip_byte_order_mark, validation_error::tag};
use tokio::time::{Instant, sleep_until};

use crate::{
    HttpServer, Problem,
    connection::Connection,
    content_coding::{Coding, Decoder},
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

/// Bytes that are decompressed at once.
const DECODED_STEP: usize = 64 << 10;

impl HttpServer {
    /// Reads a JSON body of an organisation.
    pub async fn read_body(&self, request: Request, org: &OrgId) -> Result<Body, Problem> {
        let (parts, mut body) = request.into_parts();
        let coding = Coding::of(&parts.headers)?;
        check_type(&parts.headers)?;
        let limit = self.settings().body_bytes;
        let announced = announced(&parts.headers, limit)?;
        let connection = parts.extensions.get::<Connection>().map(Connection::body_bytes);
        let holder = Holder { org: Some(org.clone()), connection };
        self.collect(&mut body, coding, announced, holder, limit).await
    }

    /// Reads the fields of a form of at most `limit` bytes: of an organisation, or of somebody who is not known yet.
    pub async fn read_form(
        &self,
        request: Request,
        org: Option<&OrgId>,
        limit: usize,
    ) -> Result<Body, Problem> {
        let (parts, mut body) = request.into_parts();
        if Coding::of(&parts.headers)?.is_some() {
            return Err(unsupported("The form must not be compressed.", "Send it without Content-Encoding."));
        }
        check_media_type(
            &parts.headers,
            "application/x-www-form-urlencoded",
            "The body must be a form.",
            "Send it with `Content-Type: application/x-www-form-urlencoded`.",
        )?;
        let limit = limit.min(self.settings().body_bytes);
        let announced = announced(&parts.headers, limit)?;
        let connection = parts.extensions.get::<Connection>().map(Connection::body_bytes);
        let holder = Holder { org: org.cloned(), connection };
        self.collect(&mut body, None, announced, holder, limit).await
    }

    /// Bytes count as they arrive and as they are decompressed: a client that announces a body and sends none takes nothing
    /// from others.
    async fn collect(
        &self,
        body: &mut Incoming,
        coding: Option<Coding>,
        announced: Option<usize>,
        holder: Holder,
        limit: usize,
    ) -> Result<Body, Problem> {
        let settings = self.settings();
        let mut decoder =
            coding.map(|coding| Decompression::new(self, coding, holder.clone())).transpose()?;
        // The length that is announced is that of the compressed body.
        let most = announced.filter(|_| decoder.is_none()).unwrap_or(limit);
        let mut collected = Collected::new(self, most, holder, limit)?;
        let mut pace = Pace::new(self);
        let mut check = pin!(sleep_until(pace.next_check));
        let mut received = 0;
        loop {
            let frame = tokio::select! {
                biased;
                frame = body.frame() => frame,
                () = &mut check => {
                    if !pace.holds(received, check.deadline()) {
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
            received += data.len();
            match &mut decoder {
                None => collected.push(data)?,
                Some(_) if received > limit => return Err(too_large(limit)),
                Some(decoder) => decoder.decode(Some(data), received, &mut collected).await?,
            }
        }
        if let Some(decoder) = &mut decoder {
            decoder.decode(None, received, &mut collected).await?;
        }
        Ok(collected.into_body())
    }

    fn full(&self, refusal: Refusal) -> Problem {
        self.refuse(refusal, [Limit::BodyShare, Limit::BodyTotal], "the bytes of requests under way")
    }
}

/// The part of a body that is here.
struct Collected<'a> {
    server: &'a HttpServer,
    /// Greatest length that the body can have.
    most: usize,
    /// Greatest length that a body may have.
    limit: usize,
    lease: Lease,
    /// The only frame of most bodies: they are not copied.
    first: Option<Bytes>,
    whole: Vec<u8>,
    length: usize,
}

impl<'a> Collected<'a> {
    fn new(server: &'a HttpServer, most: usize, holder: Holder, limit: usize) -> Result<Self, Problem> {
        let lease = server.bodies().take(holder, 0).map_err(|refusal| server.full(refusal))?;
        Ok(Self { server, most, limit, lease, first: None, whole: Vec::new(), length: 0 })
    }

    fn push(&mut self, data: Bytes) -> Result<(), Problem> {
        if self.first.is_none() && self.whole.is_empty() {
            self.count(data.len())?;
            self.lease.grow(data.len()).map_err(|refusal| self.server.full(refusal))?;
            self.first = Some(data);
            return Ok(());
        }
        self.copy(&data)
    }

    fn copy(&mut self, data: &[u8]) -> Result<(), Problem> {
        self.count(data.len())?;
        if self.length > self.whole.capacity() {
            // At most twice what has arrived, and never more than can come.
            let most = self.most.max(self.length);
            let capacity = self.length.max(self.whole.capacity() * 2).max(STEP).min(most);
            let more = capacity - self.lease.amount();
            self.lease.grow(more).map_err(|refusal| self.server.full(refusal))?;
            self.whole.reserve_exact(capacity - self.whole.len());
        }
        if let Some(first) = self.first.take() {
            self.whole.extend_from_slice(&first);
        }
        self.whole.extend_from_slice(data);
        Ok(())
    }

    fn count(&mut self, bytes: usize) -> Result<(), Problem> {
        self.length += bytes;
        if self.length > self.limit { Err(too_large(self.limit)) } else { Ok(()) }
    }

    fn into_body(self) -> Body {
        let mut bytes = self.first.unwrap_or_else(|| self.whole.into());
        skip_byte_order_mark(&mut bytes);
        Body { bytes, _lease: self.lease }
    }
}

/// Decompression of one body, whose memory is counted beside the body's bytes.
struct Decompression<'a> {
    server: &'a HttpServer,
    decoder: Decoder,
    step: Vec<u8>,
    lease: Lease,
}

impl<'a> Decompression<'a> {
    fn new(server: &'a HttpServer, coding: Coding, holder: Holder) -> Result<Self, Problem> {
        let lease = server.bodies().take(holder, DECODED_STEP).map_err(|refusal| server.full(refusal))?;
        Ok(Self { server, decoder: Decoder::new(coding), step: vec![0; DECODED_STEP], lease })
    }

    /// Decompresses the next bytes of the body; `None`: it has ended. `received` is its length so far.
    async fn decode(
        &mut self,
        data: Option<Bytes>,
        received: usize,
        collected: &mut Collected<'_>,
    ) -> Result<(), Problem> {
        self.decoder.receive(data);
        let expansion = self.server.settings().body_expansion;
        loop {
            let length = self.decoder.decode(&mut self.step)?;
            let more = (DECODED_STEP + self.decoder.memory()).saturating_sub(self.lease.amount());
            self.lease.grow(more).map_err(|refusal| self.server.full(refusal))?;
            if length == 0 {
                return Ok(());
            }
            collected.copy(&self.step[..length])?;
            // A small body may be of one letter.
            if collected.length > DECODED_STEP && collected.length / expansion > received {
                return Err(Problem::too_large(format!(
                    "A body may decompress to at most {expansion} times its size: send it uncompressed."
                )));
            }
            // A small body may decompress to megabytes: other requests of this thread come first.
            tokio::task::yield_now().await;
        }
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
    check_media_type(
        headers,
        "application/json",
        "The body must be JSON.",
        "Send it with `Content-Type: application/json`.",
    )
}

fn check_media_type(
    headers: &HeaderMap,
    wanted: &str,
    title: &'static str,
    detail: &'static str,
) -> Result<(), Problem> {
    let sent = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    let mut parts = sent.split(';').map(str::trim);
    if !parts.next().unwrap_or("").eq_ignore_ascii_case(wanted) {
        return Err(unsupported(title, detail));
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

fn unsupported(title: &'static str, detail: &'static str) -> Problem {
    Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, tag::INVALID_INPUT, title, detail)
}

/// The length that a body has by its headers.
fn announced(headers: &HeaderMap, limit: usize) -> Result<Option<usize>, Problem> {
    let announced = length(headers);
    if announced.is_some_and(|length| length > limit) {
        return Err(too_large(limit));
    }
    Ok(announced)
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

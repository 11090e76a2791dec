//! Makes one request of a media fetch: an unauthenticated GET through the guarded client into a sink. The
//! caller follows redirects and retries.

mod fetch_outcome;
mod freshness;

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use tidegate_schemas::ids::OrgId;
use tokio::time::Instant;

pub use fetch_outcome::{FetchError, FetchOutcome, FetchedBody};
pub use freshness::{Freshness, Validators};

use crate::client::{Client, MinRate, Request, RequestLimits, Response};
use crate::failure::Failure;
use crate::outcome;
use crate::target::{Target, UrlError};

/// Receiver of a body.
pub trait Sink: Send {
    /// Called before the body is read. May wait for memory; `length` is the length that the peer declares.
    fn begin(&mut self, length: Option<u64>) -> impl Future<Output = Result<(), NoRoom>> + Send;

    /// Receives the next chunk. May wait for memory. The total may exceed the declared length.
    fn take(&mut self, chunk: Bytes) -> impl Future<Output = Result<(), NoRoom>> + Send;
}

/// Error of a sink without free memory for the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("there is no room for the body at the moment")]
pub struct NoRoom;

/// Media fetch for an org.
#[derive(Debug)]
pub struct FetchRequest<'a> {
    pub org: &'a OrgId,
    pub target: Target,
    /// Validators of the cached copy, if there is one.
    pub validators: Option<&'a Validators>,
}

/// Redirects and time used by an attempt. An attempt consists of one request, and one more for each redirect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttemptUsage {
    redirects: u32,
    time: Duration,
}

/// Makes the next request of an attempt at `now` (unix seconds). All requests of an attempt share the total
/// time of the settings; pauses between them do not count.
pub async fn fetch(
    client: &Client,
    fetch: FetchRequest<'_>,
    usage: &mut AttemptUsage,
    sink: &mut impl Sink,
    now: u64,
) -> FetchOutcome {
    let started_at = Instant::now();
    let deadline = started_at + client.settings().media.total().saturating_sub(usage.time);
    let outcome = match send_request(client, fetch, (usage.redirects, deadline), sink, now).await {
        Ok(outcome) => outcome,
        Err(Failure::BlockedAddress(_)) => FetchOutcome::BlockedAddress,
        Err(Failure::TooLarge { .. }) => FetchOutcome::TooLarge,
        Err(failure) => FetchOutcome::failed(FetchError::Failure(failure)),
    };
    usage.time += started_at.elapsed();
    usage.redirects += u32::from(matches!(outcome, FetchOutcome::Redirected { .. }));
    outcome
}

async fn send_request(
    client: &Client,
    FetchRequest { org, target, validators }: FetchRequest<'_>,
    (redirects, deadline): (u32, Instant),
    sink: &mut impl Sink,
    now: u64,
) -> Result<FetchOutcome, Failure> {
    let settings = &client.settings().media;
    // Also applies to redirects, so that none leads to another service of the host.
    if !settings.may_call(org, target.port()) {
        return Err(UrlError::Port.into());
    }
    let is_direct = redirects == 0;
    // Validators belong to the URL of the cached copy. At the target of a redirect they could match another
    // file.
    let validators = validators.filter(|_| is_direct);
    let new_request = || Request {
        method: Method::GET,
        target: target.clone(),
        headers: conditional_headers(validators),
        body: Bytes::new(),
        limits: request_limits(client, deadline),
    };
    let response = match client.send(new_request()).await {
        // The peer may close an idle connection while it is reused. There was no answer, so a repetition is
        // safe.
        Err(Failure::Reset) => client.send(new_request()).await?,
        other => other?,
    };
    let status = response.status();
    // A 304 to a request without validators refers to no copy.
    if status == StatusCode::NOT_MODIFIED && validators.is_some() {
        return Ok(FetchOutcome::Unchanged(Freshness::from_headers(response.headers())));
    }
    if !is_redirect(status) {
        return read_body(response, is_direct, settings.max_bytes, sink, now).await;
    }
    Ok(match redirect_target(&target, response.headers()) {
        Ok(_) if redirects >= settings.redirects => FetchOutcome::failed(FetchError::TooManyRedirects),
        Ok(next) => FetchOutcome::Redirected {
            to: Box::new(next),
            freshness: Freshness::from_headers(response.headers()),
        },
        Err(reason) => FetchOutcome::failed(reason),
    })
}

fn request_limits(client: &Client, deadline: Instant) -> RequestLimits {
    let settings = &client.settings().media;
    RequestLimits {
        total: deadline.saturating_duration_since(Instant::now()),
        head: Some(client.settings().connect_timeout() + settings.first_byte()),
        idle: Some(settings.idle()),
        body_bytes: settings.max_bytes,
        min_rate: MinRate { bytes_per_second: settings.min_rate, grace: settings.min_rate_grace() },
    }
}

fn conditional_headers(validators: Option<&Validators>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if let Some(validators) = validators {
        for (name, value) in [
            (header::IF_NONE_MATCH, &validators.etag),
            (header::IF_MODIFIED_SINCE, &validators.last_modified),
        ] {
            if let Some(value) = value {
                headers.insert(name, value.clone());
            }
        }
    }
    headers
}

fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

/// Returns the target of a redirect, validated like the URL of an item. The next request checks its port and
/// address.
fn redirect_target(from: &Target, headers: &HeaderMap) -> Result<Target, FetchError> {
    let location = headers.get(header::LOCATION).and_then(|value| value.to_str().ok());
    let to = from
        .join(location.ok_or(FetchError::NoLocation)?)
        .map_err(|error| FetchError::Failure(error.into()))?;
    // An unencrypted hop would reveal the URL, and allow the file to be replaced.
    if from.is_https() && !to.is_https() {
        return Err(FetchError::Downgrade);
    }
    Ok(to)
}

async fn read_body(
    mut response: Response,
    is_direct: bool,
    max_bytes: u64,
    sink: &mut impl Sink,
    now: u64,
) -> Result<FetchOutcome, Failure> {
    let status = response.status();
    // A partial response or an explanatory page is not the file.
    if !matches!(status.as_u16(), 200 | 203) {
        return Ok(FetchOutcome::FetchFailed {
            reason: FetchError::Status(status.as_u16()),
            retry_after: retry_after(response.headers(), now),
        });
    }
    if is_encoded(response.headers()) {
        return Ok(FetchOutcome::failed(FetchError::Encoded));
    }
    let length = response.content_length();
    // Refused before the sink reserves memory.
    if length.is_some_and(|length| length > max_bytes) {
        return Ok(FetchOutcome::TooLarge);
    }
    let mut waiting_since = Instant::now();
    let mut room = sink.begin(length).await;
    let mut bytes = 0;
    loop {
        if room.is_err() {
            return Ok(FetchOutcome::failed(FetchError::NoRoom));
        }
        // The wait of the sink for memory does not count against the peer.
        response.extend_deadlines(waiting_since.elapsed());
        let Some(chunk) = response.chunk().await? else { break };
        bytes += chunk.len() as u64;
        waiting_since = Instant::now();
        room = sink.take(chunk).await;
    }
    let content_type = response.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let mut freshness = Freshness::from_headers(response.headers());
    // The validators belong to the final URL, while the cached copy is stored under the first one.
    if !is_direct {
        freshness.validators = Validators::default();
    }
    Ok(FetchOutcome::Ok(FetchedBody { bytes, content_type: content_type.map(str::to_owned), freshness }))
}

fn is_encoded(headers: &HeaderMap) -> bool {
    headers.get_all(header::CONTENT_ENCODING).iter().any(|value| !is_identity(value))
}

fn is_identity(value: &HeaderValue) -> bool {
    value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"identity") || value.is_empty()
}

fn retry_after(headers: &HeaderMap, now: u64) -> Option<Duration> {
    headers
        .get(header::RETRY_AFTER)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| outcome::retry_after(value, now))
}

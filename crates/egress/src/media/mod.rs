//! One step of fetching a medium: an unauthenticated GET through the guarded client, into a sink, or to where it leads.
//! Not responsible for taking the next step, for trying again, for how many fetches run at once, or for what the bytes are.

mod freshness;
mod outcome;
mod settings;

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use tidegate_schemas::ids::OrgId;
use tokio::time::Instant;

pub use freshness::{Freshness, Validators};
pub use outcome::{Arrived, Outcome, Reason};
pub use settings::Settings;

use crate::client::{Client, Limits, Rate, Request, Response};
use crate::failure::Failure;
use crate::outcomes;
use crate::target::{Target, UrlFault};

/// Where the bytes go.
pub trait Sink: Send {
    /// Asked before the body is read. May wait until there is room for it; `length` is what the peer announces.
    fn begin(&mut self, length: Option<u64>) -> impl Future<Output = Result<(), NoRoom>> + Send;

    /// The next piece of the body. May wait, too. What was announced is no bound on what comes.
    fn take(&mut self, piece: Bytes) -> impl Future<Output = Result<(), NoRoom>> + Send;
}

/// There is no memory to spare for the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("there is no room for the body at the moment")]
pub struct NoRoom;

/// What to fetch, and for whom.
#[derive(Debug)]
pub struct Wanted<'a> {
    pub org: &'a OrgId,
    pub target: Target,
    /// Of the copy that is at hand, if there is one.
    pub validators: Option<&'a Validators>,
}

/// What an attempt has taken so far: an attempt is one request after the other until none redirects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    redirects: u32,
    time: Duration,
}

/// Makes the next request of an attempt at `now` (unix seconds). All of an attempt's requests together end within the
/// settings' total time; between two of them the clock stands still.
pub async fn fetch(
    client: &Client,
    wanted: Wanted<'_>,
    spent: &mut Spent,
    sink: &mut impl Sink,
    now: u64,
) -> Outcome {
    let began = Instant::now();
    let deadline = began + client.settings().media.total().saturating_sub(spent.time);
    let outcome = match request(client, wanted, (spent.redirects, deadline), sink, now).await {
        Ok(outcome) => outcome,
        Err(Failure::BlockedAddress(_)) => Outcome::BlockedAddress,
        Err(Failure::TooLarge { .. }) => Outcome::TooLarge,
        Err(failure) => Outcome::failed(Reason::Failure(failure)),
    };
    spent.time += began.elapsed();
    spent.redirects += u32::from(matches!(outcome, Outcome::Redirected { .. }));
    outcome
}

async fn request(
    client: &Client,
    Wanted { org, target, validators }: Wanted<'_>,
    (redirects, deadline): (u32, Instant),
    sink: &mut impl Sink,
    now: u64,
) -> Result<Outcome, Failure> {
    let settings = &client.settings().media;
    if !settings.may_call(org, target.port()) {
        return Err(UrlFault::Port.into());
    }
    let is_direct = redirects == 0;
    // What is known was answered by this very address, without a redirect.
    let validators = validators.filter(|_| is_direct);
    let ask = || Request {
        method: Method::GET,
        target: target.clone(),
        headers: conditions(validators),
        body: Bytes::new(),
        limits: limits(client, deadline),
    };
    let response = match client.send(ask()).await {
        // A connection that was kept may be closed just when it is asked again: nothing was answered.
        Err(Failure::Reset) => client.send(ask()).await?,
        other => other?,
    };
    let status = response.status();
    if status == StatusCode::NOT_MODIFIED && validators.is_some() {
        return Ok(Outcome::Unchanged(Freshness::of(response.headers())));
    }
    if !is_redirect(status) {
        return read(response, is_direct, settings.max_bytes, sink, now).await;
    }
    Ok(match next(&target, response.headers()) {
        Ok(_) if redirects >= settings.redirects => Outcome::failed(Reason::TooManyRedirects),
        Ok(next) => Outcome::Redirected { to: Box::new(next), freshness: Freshness::of(response.headers()) },
        Err(reason) => Outcome::failed(reason),
    })
}

fn limits(client: &Client, deadline: Instant) -> Limits {
    let settings = &client.settings().media;
    Limits {
        total: deadline.saturating_duration_since(Instant::now()),
        head: Some(client.settings().connect_timeout() + settings.first_byte()),
        idle: Some(settings.idle()),
        body_bytes: settings.max_bytes,
        rate: Rate { bytes_per_second: settings.min_rate, grace: settings.min_rate_grace() },
    }
}

fn conditions(validators: Option<&Validators>) -> HeaderMap {
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

/// Where a redirect leads, checked as if an item had named it but for its port and address, which asking it checks.
fn next(from: &Target, headers: &HeaderMap) -> Result<Target, Reason> {
    let location = headers.get(header::LOCATION).and_then(|value| value.to_str().ok());
    let to = from.join(location.ok_or(Reason::NoLocation)?).map_err(|fault| Reason::Failure(fault.into()))?;
    if from.is_https() && !to.is_https() {
        return Err(Reason::Downgrade);
    }
    Ok(to)
}

async fn read(
    mut response: Response,
    is_direct: bool,
    max_bytes: u64,
    sink: &mut impl Sink,
    now: u64,
) -> Result<Outcome, Failure> {
    let status = response.status();
    // A part of a picture, or a page that says why there is none, is not the picture.
    if !matches!(status.as_u16(), 200 | 203) {
        return Ok(Outcome::FetchFailed {
            reason: Reason::Status(status.as_u16()),
            retry_after: retry_after(response.headers(), now),
        });
    }
    if is_encoded(response.headers()) {
        return Ok(Outcome::failed(Reason::Encoded));
    }
    let length = response.length();
    if length.is_some_and(|length| length > max_bytes) {
        return Ok(Outcome::TooLarge);
    }
    let mut asked = Instant::now();
    let mut room = sink.begin(length).await;
    let mut bytes = 0;
    loop {
        if room.is_err() {
            return Ok(Outcome::failed(Reason::NoRoom));
        }
        // Waiting for room is not the peer's slowness.
        response.excuse(asked.elapsed());
        let Some(piece) = response.chunk().await? else { break };
        bytes += piece.len() as u64;
        asked = Instant::now();
        room = sink.take(piece).await;
    }
    let content_type = response.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let mut freshness = Freshness::of(response.headers());
    if !is_direct {
        freshness.validators = Validators::default();
    }
    Ok(Outcome::Ok(Arrived { bytes, content_type: content_type.map(str::to_owned), freshness }))
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
        .and_then(|value| outcomes::retry_after(value, now))
}

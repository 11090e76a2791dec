//! Asks a platform for items with one signed request, and parses the answer. The caller splits, schedules and
//! records.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use async_recursion::async_recursion as boxed;
use bytes::Bytes;
use http::Method;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use tidegate_schemas::ids::ItemKey;
use tidegate_schemas::json::skip_byte_order_mark;
use tidegate_schemas::wire::items::SubmittedItem;
use tidegate_schemas::wire::{Limits, partial_items};
use tokio::time::Instant;

use crate::callback::NotSent;
use crate::client::{Client, Request, Response};
use crate::failure::Failure;
use crate::headers::{HeaderError, parse_headers};
use crate::settings::partial_items::Endpoint;
use crate::signature::{self, Secret};
use crate::target::Target;

/// Request for items. `Debug` shows neither the endpoint nor secrets.
pub struct PartialItemsRequest {
    pub endpoint: Endpoint,
    /// Id of the request, sent as `webhook-id`. A repetition has the same id.
    pub id: String,
    /// Items to ask for, at most as many as `egress.partial_items.items`.
    pub items: Vec<ItemKey>,
    /// Valid secrets, the newest first.
    pub secrets: Vec<Secret>,
    /// Bounds of the ids and the data of an entry.
    pub limits: Limits,
}

impl std::fmt::Debug for PartialItemsRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PartialItemsRequest")
            .field("id", &self.id)
            .field("items", &self.items.len())
            .finish_non_exhaustive()
    }
}

/// Valid answer of a platform.
#[derive(Debug, Clone)]
pub struct Answer {
    /// One entry for each requested item in the answer.
    pub entries: Vec<Entry>,
    /// Requested items that the answer lacks: unknown to the platform, or withheld by it.
    pub missing: Vec<ItemKey>,
    /// Number of entries that were not requested, and dropped.
    pub dropped: usize,
    pub status: u16,
    pub took: Duration,
}

/// Item as received. Its data is not checked against its type.
#[derive(Debug, Clone)]
pub struct Entry {
    pub item: SubmittedItem,
    /// Faults of the entry: duplicates, of which the first one counts, or data above the limit.
    pub faults: Vec<String>,
    /// False if the data cannot be stored.
    pub is_usable: bool,
}

/// Failed request for items.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {error}", error.name())]
pub struct PartialItemsError {
    pub error: ErrorKind,
    /// Status of the answer, if there was one.
    pub status: Option<u16>,
    pub took: Duration,
}

/// Kinds of failed requests. No message carries a URL or a header.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ErrorKind {
    #[error("the endpoint answered with status {status}, not with a 2xx one{}", status_hint(*.status))]
    EndpointResponse { status: u16 },
    #[error("{detail}{}; the answer begins with \"{prefix}\"", .cause.map_or("", UsualCause::explain))]
    InvalidResponse {
        detail: String,
        /// First bytes of the body, escaped.
        prefix: String,
        cause: Option<UsualCause>,
    },
    #[error("{0}")]
    EndpointUnreachable(Failure),
}

/// Common cause of an unreadable answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsualCause {
    WrittenTwice,
    HtmlPage,
    Empty,
}

impl UsualCause {
    fn explain(self) -> &'static str {
        match self {
            Self::WrittenTwice => {
                ": the body was written twice, for example by middleware that writes `null` before the payload"
            }
            Self::HtmlPage => {
                ": it is an HTML page, as a tunnel or proxy sends in place of the answer; send a header that it asks \
                 for, or call the platform directly"
            }
            Self::Empty => ": the body is empty; an endpoint that has no item answers {\"items\": []}",
        }
    }
}

fn status_hint(status: u16) -> &'static str {
    match status {
        300..=399 => "; redirects are not followed, so configure the address that it leads to",
        401 | 403 => "; check the configured headers, and that the platform verifies with the right secret",
        _ => "",
    }
}

impl ErrorKind {
    /// Returns the name of the error, as the interface defines it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::EndpointResponse { .. } => "PartialItemsEndpointResponseError",
            Self::InvalidResponse { .. } => "PartialItemsInvalidResponseError",
            Self::EndpointUnreachable(_) => "PartialItemsEndpointUnreachableError",
        }
    }

    /// Returns the class for metrics.
    pub fn tag(&self) -> &'static str {
        match self {
            Self::EndpointResponse { .. } => "endpoint_response",
            Self::InvalidResponse { .. } => "invalid_response",
            Self::EndpointUnreachable(_) => "endpoint_unreachable",
        }
    }

    /// True if another request may succeed: there was no answer, or the platform is overloaded or failing.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::EndpointResponse { status } => matches!(status, 408 | 425 | 429 | 500..),
            Self::InvalidResponse { .. } => false,
            Self::EndpointUnreachable(failure) => {
                // A wrong URL stays wrong until the operator changes it.
                !matches!(failure, Failure::Url(_) | Failure::BlockedAddress(_))
            }
        }
    }
}

/// Sends one request within the settings' time, and repeats it once after a failed connection. `now` is in
/// unix seconds.
#[boxed]
pub async fn fetch_items(
    client: &Client,
    request: &PartialItemsRequest,
    now: u64,
) -> Result<Result<Answer, PartialItemsError>, NotSent> {
    if request.secrets.is_empty() {
        return Err(NotSent::NoSecret);
    }
    let target = Target::parse(&request.endpoint.url)?;
    let body = partial_items::request(&request.items);
    let headers = build_headers(request, &body, now)?;
    let started_at = Instant::now();
    let result = send_with_retry(client, target, headers, body, started_at).await;
    let duration = started_at.elapsed();
    let (status, error) = match result {
        Ok((status, body)) => match parse_answer(client, request, &body) {
            Ok(answer) => return Ok(Ok(Answer { status, took: duration, ..answer })),
            Err(error) => (Some(status), error),
        },
        Err((status, error)) => (status, error),
    };
    Ok(Err(PartialItemsError { error, status, took: duration }))
}

type RawAnswer = Result<(u16, Bytes), (Option<u16>, ErrorKind)>;

async fn send_with_retry(
    client: &Client,
    target: Target,
    headers: HeaderMap,
    body: Bytes,
    started_at: Instant,
) -> RawAnswer {
    let settings = &client.settings().partial_items;
    let total = settings.total();
    let mut is_retried = false;
    loop {
        // The second connection shares the total time of the first one.
        let remaining_time = total.saturating_sub(started_at.elapsed());
        let request = Request {
            method: Method::POST,
            target: target.clone(),
            headers: headers.clone(),
            body: body.clone(),
            limits: client.limits(remaining_time, settings.response_bytes),
        };
        match client.send(request).await {
            Ok(response) => return read_body(client, response).await,
            // The request only reads at the platform, so a repetition is safe even if the first one arrived.
            Err(failure)
                if is_connection_failure(&failure) && !is_retried && started_at.elapsed() < total =>
            {
                is_retried = true;
            }
            Err(failure) => return Err((None, ErrorKind::EndpointUnreachable(failure))),
        }
    }
}

fn is_connection_failure(failure: &Failure) -> bool {
    use Failure as F;
    matches!(failure, F::Dns | F::ConnectRefused | F::ConnectTimeout | F::Reset | F::Network)
}

async fn read_body(client: &Client, response: Response) -> RawAnswer {
    let status = response.status();
    if !status.is_success() {
        return Err((Some(status.as_u16()), ErrorKind::EndpointResponse { status: status.as_u16() }));
    }
    let status_number = status.as_u16();
    let (mut body, read_failure) = response.read_prefix().await;
    // JSON allows no byte order mark, but some platforms write one.
    skip_byte_order_mark(&mut body);
    match read_failure {
        None => Ok((status_number, body)),
        Some(Failure::TooLarge { limit }) => {
            let detail =
                format!("the answer is longer than {limit} bytes (egress.partial_items.response_bytes)");
            Err((Some(status_number), invalid_response(client, detail, &body)))
        }
        Some(failure) => Err((Some(status_number), ErrorKind::EndpointUnreachable(failure))),
    }
}

fn invalid_response(client: &Client, detail: String, body: &Bytes) -> ErrorKind {
    // The prefix is logged, so it is bounded, and escaped below.
    let prefix = &body[..body.len().min(client.settings().partial_items.prefix_bytes)];
    let cause = guess_cause(body);
    ErrorKind::InvalidResponse { detail, prefix: prefix.escape_ascii().to_string(), cause }
}

/// Guesses the cause of an unreadable body.
fn guess_cause(body: &[u8]) -> Option<UsualCause> {
    let text = body.trim_ascii_start();
    let starts_with =
        |tag: &str| text.get(..tag.len()).is_some_and(|head| head.eq_ignore_ascii_case(tag.as_bytes()));
    if text.is_empty() {
        Some(UsualCause::Empty)
    } else if starts_with("<!doctype") || starts_with("<html") {
        Some(UsualCause::HtmlPage)
    } else if ["null", "true", "false", "{}", "[]", "\"\""].into_iter().any(|first| {
        let rest = text.strip_prefix(first.as_bytes());
        rest.is_some_and(|rest| !rest.trim_ascii().is_empty())
    }) {
        Some(UsualCause::WrittenTwice)
    } else {
        // Adjacent objects. Braces within texts look alike, but then the answer is unreadable for another
        // reason.
        let has_adjacent_objects = text.windows(2).any(|pair| pair == b"}{");
        (has_adjacent_objects && text.starts_with(b"{")).then_some(UsualCause::WrittenTwice)
    }
}

/// Parses an answer, and separates requested entries from others.
fn parse_answer(client: &Client, request: &PartialItemsRequest, body: &Bytes) -> Result<Answer, ErrorKind> {
    let request_limits = &request.limits;
    // Unrequested entries and data above the limit concern a single entry. They must not make the whole
    // answer invalid, so the parser gets limits that the body cannot exceed.
    let limits = Limits { items: body.len(), data_bytes: body.len(), ..request_limits.clone() };
    let parsed = partial_items::parse(body, &limits).map_err(|parse_faults| {
        let errors: Vec<_> = parse_faults.into_vec().iter().take(3).map(ToString::to_string).collect();
        invalid_response(
            client,
            format!("the answer has not the form {{\"items\": [...]}}: {}", errors.join(" ")),
            body,
        )
    })?;
    let requested_items: HashSet<&ItemKey> = request.items.iter().collect();
    let mut entries: Vec<Entry> = Vec::new();
    let mut entry_indexes = HashMap::new();
    let mut dropped = 0;
    for item in parsed.content {
        let key = item.key();
        if !requested_items.contains(&key) {
            dropped += 1;
            continue;
        }
        match entry_indexes.get(&key) {
            None => {
                entry_indexes.insert(key, entries.len());
                entries.push(Entry::new(item, request_limits.data_bytes));
            }
            Some(index) => {
                let entry: &mut Entry = &mut entries[*index];
                let duplicate_fault = "The answer has the item more than once: the first entry counts.";
                if !entry.faults.iter().any(|fault| fault == duplicate_fault) {
                    entry.faults.push(duplicate_fault.to_owned());
                }
            }
        }
    }
    let mut listed_keys = HashSet::new();
    // A request may name an item twice, which is reported missing once.
    let is_missing = |key: &&ItemKey| !entry_indexes.contains_key(*key) && listed_keys.insert((*key).clone());
    let missing_items = request.items.iter().filter(is_missing).cloned().collect();
    Ok(Answer { entries, missing: missing_items, dropped, status: 0, took: Duration::ZERO })
}

impl Entry {
    fn new(item: SubmittedItem, max_bytes: usize) -> Self {
        let bytes = item.data.len();
        let is_usable = bytes <= max_bytes;
        let faults = if is_usable {
            Vec::new()
        } else {
            vec![format!("`data` has {bytes} bytes; at most {max_bytes} are taken.")]
        };
        Self { item, faults, is_usable }
    }
}

fn build_headers(request: &PartialItemsRequest, body: &[u8], now: u64) -> Result<HeaderMap, HeaderError> {
    let mut headers = parse_headers(&request.endpoint.headers)?;
    let id = request.id.clone();
    let signatures = signature::sign(&request.secrets, &id, now, body);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    // A configured `Accept` has precedence.
    headers.entry(header::ACCEPT).or_insert(HeaderValue::from_static("application/json"));
    for (name, value) in [
        (HeaderName::from_static(signature::SERVICE_SIGNATURE), signatures.service),
        (HeaderName::from_static(signature::WEBHOOK_ID), id),
        (HeaderName::from_static(signature::WEBHOOK_TIMESTAMP), now.to_string()),
        (HeaderName::from_static(signature::WEBHOOK_SIGNATURE), signatures.webhook),
    ] {
        let value = HeaderValue::try_from(value).map_err(|_| HeaderError::Value(name.to_string()))?;
        headers.insert(name, value);
    }
    Ok(headers)
}

//! Asks a platform for items: one signed request, and what its answer holds. The caller splits, schedules and records.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

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
use crate::headers::{HeaderError, own_headers};
use crate::settings::partial_items::Endpoint;
use crate::signature::{self, Secret};
use crate::target::Target;

/// One request for items. `Debug` shows neither the endpoint nor secrets.
pub struct PartialItemsRequest {
    pub endpoint: Endpoint,
    /// Id of the request, the same if it is sent again: `webhook-id` carries it.
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

/// An answer of the right form.
#[derive(Debug, Clone)]
pub struct Answer {
    /// One entry for each item that was asked for and came.
    pub entries: Vec<Entry>,
    /// Items that the platform left out: it does not have them, or may not give them.
    pub missing: Vec<ItemKey>,
    /// Entries of items that nobody asked for. They are dropped.
    pub dropped: usize,
    pub status: u16,
    pub took: Duration,
}

/// An item as the platform sent it. Its data is not checked against its type.
#[derive(Debug, Clone)]
pub struct Entry {
    pub item: SubmittedItem,
    /// Faults of the entry: it came more than once, so that the first one counts, or its data is too long.
    pub faults: Vec<String>,
    /// False if the data cannot be stored.
    pub is_usable: bool,
}

/// A request that brought no items.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {error}", error.name())]
pub struct PartialItemsError {
    pub error: ErrorKind,
    /// Status of the answer, if one came.
    pub status: Option<u16>,
    pub took: Duration,
}

/// Kinds of failed requests. No message carries a URL or a header.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ErrorKind {
    #[error("the endpoint answered with status {status}, not with a 2xx one{}", hint_of_status(*.status))]
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

/// A cause that unreadable answers often have.
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

fn hint_of_status(status: u16) -> &'static str {
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

    /// True if another request may bring the items: nothing was answered, or the platform is overloaded or failing.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::EndpointResponse { status } => matches!(status, 408 | 425 | 429 | 500..),
            Self::InvalidResponse { .. } => false,
            Self::EndpointUnreachable(failure) => {
                !matches!(failure, Failure::Url(_) | Failure::BlockedAddress(_))
            }
        }
    }
}

/// Asks once, within the settings' time; after a connection that failed, a second time. `now` is in unix seconds.
pub async fn fetch(
    client: &Client,
    request: &PartialItemsRequest,
    now: u64,
) -> Result<Result<Answer, PartialItemsError>, NotSent> {
    if request.secrets.is_empty() {
        return Err(NotSent::NoSecret);
    }
    let target = Target::parse(&request.endpoint.url)?;
    let body = partial_items::request(&request.items);
    let headers = all_headers(request, &body, now)?;
    let began = Instant::now();
    let answered = ask(client, target, headers, body, began).await;
    let took = began.elapsed();
    let (status, error) = match answered {
        Ok((status, body)) => match read(client, request, &body) {
            Ok(answer) => return Ok(Ok(Answer { status, took, ..answer })),
            Err(error) => (Some(status), error),
        },
        Err((status, error)) => (status, error),
    };
    Ok(Err(PartialItemsError { error, status, took }))
}

type Asked = Result<(u16, Bytes), (Option<u16>, ErrorKind)>;

async fn ask(client: &Client, target: Target, headers: HeaderMap, body: Bytes, began: Instant) -> Asked {
    let settings = &client.settings().partial_items;
    let total = settings.total();
    let mut is_retried = false;
    loop {
        let left = total.saturating_sub(began.elapsed());
        let request = Request {
            method: Method::POST,
            target: target.clone(),
            headers: headers.clone(),
            body: body.clone(),
            limits: client.limits(left, settings.response_bytes),
        };
        match client.send(request).await {
            Ok(response) => return read_body(client, response).await,
            // The request changes nothing at the platform, so it may be repeated although it may have arrived.
            Err(failure) if is_connection(&failure) && !is_retried && began.elapsed() < total => {
                is_retried = true;
            }
            Err(failure) => return Err((None, ErrorKind::EndpointUnreachable(failure))),
        }
    }
}

fn is_connection(failure: &Failure) -> bool {
    use Failure as F;
    matches!(failure, F::Dns | F::ConnectRefused | F::ConnectTimeout | F::Reset | F::Network)
}

async fn read_body(client: &Client, response: Response) -> Asked {
    let status = response.status();
    if !status.is_success() {
        return Err((Some(status.as_u16()), ErrorKind::EndpointResponse { status: status.as_u16() }));
    }
    let status_number = status.as_u16();
    let (mut body, lost) = response.read_prefix().await;
    skip_byte_order_mark(&mut body);
    match lost {
        None => Ok((status_number, body)),
        Some(Failure::TooLarge { limit }) => {
            let detail =
                format!("the answer is longer than {limit} bytes (egress.partial_items.response_bytes)");
            Err((Some(status_number), invalid(client, detail, &body)))
        }
        Some(failure) => Err((Some(status_number), ErrorKind::EndpointUnreachable(failure))),
    }
}

fn invalid(client: &Client, detail: String, body: &Bytes) -> ErrorKind {
    let prefix = &body[..body.len().min(client.settings().partial_items.prefix_bytes)];
    let cause = usual_cause(body);
    ErrorKind::InvalidResponse { detail, prefix: prefix.escape_ascii().to_string(), cause }
}

/// Guesses why a body cannot be read.
fn usual_cause(body: &[u8]) -> Option<UsualCause> {
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
        // Objects side by side. Braces in texts may look so too, but then the answer is unreadable for another reason.
        let twice = text.windows(2).any(|pair| pair == b"}{");
        (twice && text.starts_with(b"{")).then_some(UsualCause::WrittenTwice)
    }
}

/// Sorts the entries of an answer into what was asked for and what was not.
fn read(client: &Client, request: &PartialItemsRequest, body: &Bytes) -> Result<Answer, ErrorKind> {
    let own = &request.limits;
    // Entries that nobody asked for and data that is too long concern one entry, and do not make the answer unreadable.
    let limits = Limits { items: body.len(), data_bytes: body.len(), ..own.clone() };
    let read = partial_items::parse(body, &limits).map_err(|refused| {
        let errors: Vec<_> = refused.into_vec().iter().take(3).map(ToString::to_string).collect();
        invalid(
            client,
            format!("the answer has not the form {{\"items\": [...]}}: {}", errors.join(" ")),
            body,
        )
    })?;
    let asked: HashSet<&ItemKey> = request.items.iter().collect();
    let mut entries: Vec<Entry> = Vec::new();
    let mut places = HashMap::new();
    let mut dropped = 0;
    for item in read.content {
        let key = item.key();
        if !asked.contains(&key) {
            dropped += 1;
            continue;
        }
        match places.get(&key) {
            None => {
                places.insert(key, entries.len());
                entries.push(Entry::new(item, own.data_bytes));
            }
            Some(nth) => {
                let entry: &mut Entry = &mut entries[*nth];
                let said = "The answer has the item more than once: the first entry counts.";
                if !entry.faults.iter().any(|fault| fault == said) {
                    entry.faults.push(said.to_owned());
                }
            }
        }
    }
    let mut seen = HashSet::new();
    let is_missing = |key: &&ItemKey| !places.contains_key(*key) && seen.insert((*key).clone());
    let missing = request.items.iter().filter(is_missing).cloned().collect();
    Ok(Answer { entries, missing, dropped, status: 0, took: Duration::ZERO })
}

impl Entry {
    fn new(item: SubmittedItem, most: usize) -> Self {
        let bytes = item.data.len();
        let is_usable = bytes <= most;
        let faults = if is_usable {
            Vec::new()
        } else {
            vec![format!("`data` has {bytes} bytes; at most {most} are taken.")]
        };
        Self { item, faults, is_usable }
    }
}

fn all_headers(request: &PartialItemsRequest, body: &[u8], now: u64) -> Result<HeaderMap, HeaderError> {
    let mut headers = own_headers(&request.endpoint.headers)?;
    let id = request.id.clone();
    let signed = signature::sign(&request.secrets, &id, now, body);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.entry(header::ACCEPT).or_insert(HeaderValue::from_static("application/json"));
    for (name, value) in [
        (HeaderName::from_static(signature::SERVICE_SIGNATURE), signed.service),
        (HeaderName::from_static(signature::WEBHOOK_ID), id),
        (HeaderName::from_static(signature::WEBHOOK_TIMESTAMP), now.to_string()),
        (HeaderName::from_static(signature::WEBHOOK_SIGNATURE), signed.webhook),
    ] {
        let value = HeaderValue::try_from(value).map_err(|_| HeaderError::Value(name.to_string()))?;
        headers.insert(name, value);
    }
    Ok(headers)
}

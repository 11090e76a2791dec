//! Receives a body whole: bounded in size, in time, and by the bytes under way over all requests.
//!
//! It is called after the caller is known: nobody without a key makes us keep a byte.

use axum::{
    body::Body as Incoming,
    extract::Request,
    http::{HeaderMap, HeaderValue, StatusCode, header},
};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use tidegate_schemas::validation_error::tag;

use crate::{InFlight, Problem, Settings, Spent};

/// A received body; its share of the byte budget is given back when it is dropped.
#[derive(Debug)]
pub struct Body {
    pub bytes: Bytes,
    _spent: Vec<Spent>,
}

/// Step in which the budget is taken when no length is announced.
const STEP: usize = 64 << 10;

/// Reads a JSON body.
pub async fn read(request: Request, settings: &Settings, budget: &InFlight) -> Result<Body, Problem> {
    let (parts, mut body) = request.into_parts();
    check_coding(&parts.headers)?;
    check_type(&parts.headers)?;
    let most = settings.body_bytes;
    let announced = length(&parts.headers);
    let read = if announced.is_some_and(|length| length > most) {
        Ok(Err(over(most)))
    } else {
        tokio::time::timeout(settings.body_read(), collect(&mut body, announced, most, budget)).await
    };
    read.unwrap_or_else(|_| {
        Err(Problem::new(
            StatusCode::REQUEST_TIMEOUT,
            tag::INVALID_INPUT,
            "The body came too slowly.",
            format!("It must be here within {} ms.", settings.body_read_ms),
        ))
    })
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

async fn collect(
    body: &mut Incoming,
    announced: Option<usize>,
    most: usize,
    budget: &InFlight,
) -> Result<Body, Problem> {
    let mut spent = Vec::new();
    let mut room = announced.unwrap_or(0);
    if room > 0 {
        spent.push(budget.take(room).ok_or_else(full)?);
    }
    let mut only: Option<Bytes> = None;
    let mut whole = BytesMut::new();
    let mut length = 0;
    while let Some(frame) = body.frame().await {
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
        if length > most {
            return Err(over(most));
        }
        if length > room {
            let step = (length - room).max(STEP);
            spent.push(budget.take(step).ok_or_else(full)?);
            room += step;
        }
        // Most bodies are one frame: they are not copied.
        if only.is_none() && whole.is_empty() {
            only = Some(data);
            continue;
        }
        if let Some(first) = only.take() {
            whole.reserve(room);
            whole.extend_from_slice(&first);
        }
        whole.extend_from_slice(&data);
    }
    Ok(Body { bytes: only.unwrap_or_else(|| whole.freeze()), _spent: spent })
}

fn over(most: usize) -> Problem {
    Problem::too_large(format!("A body may have at most {most} bytes."))
}

fn full() -> Problem {
    Problem::unavailable("Too many requests are under way.", std::time::Duration::from_secs(1))
}

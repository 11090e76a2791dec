//! Answers on their way to their clients: their bytes count until they are written to the connection.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use axum::{
    body::Body,
    extract::Request,
    http::{Method, Uri},
    response::Response,
};
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tidegate_schemas::ids::OrgId;
use tokio_util::sync::CancellationToken;

use crate::{
    HttpServer, Problem,
    connection::{Connection, UnsentAnswer},
    fair_budget::{Holder, Lease, Refusal},
    problem::replace,
    server::{AnswerFor, Limit},
};

/// Largest piece in which an answer is handed on, so that its progress is seen.
const PIECE: usize = 16 << 10;

/// An answer that no budget has room for, and that cannot be told so.
#[derive(Debug, thiserror::Error)]
#[error("too many answers are not taken by their clients")]
pub(crate) struct NoRoom(#[source] h2::Error);

impl NoRoom {
    fn new() -> Self {
        Self(h2::Reason::ENHANCE_YOUR_CALM.into())
    }
}

/// Connection, stream and request of an answer.
pub(crate) struct Destination {
    pub(crate) connection: Connection,
    pub(crate) stream: Option<CancellationToken>,
    pub(crate) method: Method,
    pub(crate) uri: Uri,
}

/// Size of an answer that a look-up must have room for before it begins, so that none is made in vain.
const EXPECTED: usize = 1 << 20;

impl HttpServer {
    /// Notes that a request has a valid key, and refuses a look-up of an organisation or connection whose share of unsent
    /// bytes is used up.
    pub fn admit(&self, request: &Request, org: &OrgId) -> Result<(), Problem> {
        if let Some(connection) = request.extensions().get::<Connection>() {
            connection.has_valid_key();
        }
        if !request.method().is_safe() {
            return Ok(());
        }
        let connection = request.extensions().get::<Connection>().map(Connection::unsent_bytes);
        let holder = Holder { org: Some(org.clone()), connection };
        let expected = EXPECTED.min(self.settings().unsent_bytes / 8);
        self.answers().take(holder, expected).map(drop).map_err(|refusal| self.no_room(refusal))
    }

    fn no_room(&self, refusal: Refusal) -> Problem {
        let limits = [Limit::AnswerShare, Limit::AnswerTotal];
        self.refuse(refusal, limits, "the answers that clients have not taken")
    }

    /// Counts the answer's bytes until they are sent. Without room for them a look-up is answered with 503; of
    /// anything else the effect stands, so its stream or connection ends instead: nobody is told what is not true.
    pub(crate) fn hold_answer(&self, answer: Response, to: &Destination) -> Result<Response, NoRoom> {
        // HTTP/1.1 has one answer a connection, and a small one is in the system's buffer at once.
        if to.stream.is_none() && answer.body().size_hint().upper().is_some_and(|most| most <= PIECE as u64) {
            return Ok(answer);
        }
        let refusal = match self.lease(&answer, to) {
            Ok(lease) => return Ok(with_lease(answer, lease, to)),
            Err(refusal) => refusal,
        };
        let problem = self.no_room(refusal);
        if !to.method.is_safe() {
            return Err(NoRoom::new());
        }
        let answer = replace(answer, problem, to.uri.path());
        let lease = self.lease(&answer, to).map_err(|_| NoRoom::new())?;
        Ok(with_lease(answer, lease, to))
    }

    fn lease(&self, answer: &Response, to: &Destination) -> Result<Lease, Refusal> {
        let org = answer.extensions().get::<AnswerFor>().map(|AnswerFor(org)| org.clone());
        let holder = Holder { org, connection: Some(to.connection.unsent_bytes()) };
        let bytes = usize::try_from(answer.body().size_hint().lower()).unwrap_or(usize::MAX);
        self.answers().take(holder, bytes)
    }
}

fn with_lease(answer: Response, lease: Lease, to: &Destination) -> Response {
    if answer.body().is_end_stream() {
        return answer;
    }
    let unsent = to.connection.answer(to.stream.clone());
    answer.map(|inner| {
        Body::new(LeasedBody {
            inner,
            ahead: Bytes::new(),
            lease: Arc::new(AnswerLease { unsent, _bytes: lease }),
        })
    })
}

/// Budget share and progress of an answer, held until the last of its bytes is dropped.
struct AnswerLease {
    // First: a connection's next request may come as soon as the bytes are given back.
    _bytes: Lease,
    unsent: UnsentAnswer,
}

/// Bytes of an answer, which hold its lease.
struct LeasedBytes {
    bytes: Bytes,
    _lease: Arc<AnswerLease>,
}

impl AsRef<[u8]> for LeasedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Body of an answer, in pieces.
struct LeasedBody {
    inner: Body,
    /// Rest of the inner body's last frame.
    ahead: Bytes,
    lease: Arc<AnswerLease>,
}

impl HttpBody for LeasedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        if this.ahead.is_empty() {
            match ready!(Pin::new(&mut this.inner).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) if !bytes.is_empty() => {
                        this.ahead =
                            Bytes::from_owner(LeasedBytes { bytes, _lease: Arc::clone(&this.lease) });
                    }
                    Ok(empty) => return Poll::Ready(Some(Ok(Frame::data(empty)))),
                    Err(other) => return Poll::Ready(Some(Ok(other))),
                },
                ended => return Poll::Ready(ended),
            }
        }
        let piece = this.ahead.split_to(this.ahead.len().min(PIECE));
        this.lease.unsent.progress().advance(piece.len());
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.ahead.is_empty() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (ahead, inner) = (self.ahead.len() as u64, self.inner.size_hint());
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower().saturating_add(ahead));
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper.saturating_add(ahead));
        }
        hint
    }
}

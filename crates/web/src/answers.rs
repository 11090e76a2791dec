//! Counts the bytes of answers until they are written to the connection.

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
use tidegate_scheduler::{BudgetRefusal, Holder, Lease};
use tidegate_schemas::ids::OrgId;
use tokio_util::sync::CancellationToken;

use crate::{
    HttpServer, Problem,
    connection::{Connection, UnsentAnswer},
    problem::replace_with_problem,
    server::{AnswerOrg, Limit},
};

/// Largest piece of an answer that is handed to the protocol at once. Small pieces make the client's progress visible.
const MAX_PIECE_BYTES: usize = 16 << 10;

/// Answer without room in the budget that cannot be replaced by a 503. Ends its stream or connection.
#[derive(Debug, thiserror::Error)]
#[error("too many answers are not taken by their clients")]
pub(crate) struct AnswerBudgetExceeded(#[source] h2::Error);

impl AnswerBudgetExceeded {
    fn new() -> Self {
        Self(h2::Reason::ENHANCE_YOUR_CALM.into())
    }
}

/// Connection, stream and request of an answer.
pub(crate) struct AnswerDestination {
    pub(crate) connection: Connection,
    pub(crate) stream: Option<CancellationToken>,
    pub(crate) method: Method,
    pub(crate) uri: Uri,
}

/// Room that a look-up's answer needs before the look-up begins. Otherwise its work would end in a 503.
const EXPECTED_ANSWER_BYTES: usize = 1 << 20;

impl HttpServer {
    /// Marks the connection as authenticated, and refuses a look-up if its organisation or connection has used its share of
    /// unsent bytes.
    pub fn admit(&self, request: &Request, org: &OrgId) -> Result<(), Problem> {
        if let Some(connection) = request.extensions().get::<Connection>() {
            connection.mark_authenticated();
        }
        // Only look-ups are refused: sending the answer of a change may fail, but its effect must not be lost.
        if !request.method().is_safe() {
            return Ok(());
        }
        let connection = request.extensions().get::<Connection>().map(Connection::unsent_bytes);
        let holder = Holder { org: Some(org.clone()), connection };
        let expected_bytes = EXPECTED_ANSWER_BYTES.min(self.settings().unsent_bytes / 8);
        self.answer_budget()
            .take(holder, expected_bytes)
            .map(drop)
            .map_err(|refusal| self.answer_budget_problem(refusal))
    }

    fn answer_budget_problem(&self, refusal: BudgetRefusal) -> Problem {
        let limits = [Limit::AnswerShare, Limit::AnswerTotal];
        self.refuse(refusal, limits, "the answers that clients have not taken")
    }

    /// Counts the answer's bytes until they are sent. Without room for them, a look-up is answered with 503. The effect of any
    /// other request stands, and a 503 would deny it, so its stream or connection ends instead.
    pub(crate) fn lease_answer(
        &self,
        answer: Response,
        destination: &AnswerDestination,
    ) -> Result<Response, AnswerBudgetExceeded> {
        // HTTP/1.1 has one answer per connection at a time, and the system's buffer takes a small one at once.
        if destination.stream.is_none()
            && answer.body().size_hint().upper().is_some_and(|upper| upper <= MAX_PIECE_BYTES as u64)
        {
            return Ok(answer);
        }
        let refusal = match self.take_lease(&answer, destination) {
            Ok(lease) => return Ok(with_lease(answer, lease, destination)),
            Err(refusal) => refusal,
        };
        let problem = self.answer_budget_problem(refusal);
        if !destination.method.is_safe() {
            return Err(AnswerBudgetExceeded::new());
        }
        let answer = replace_with_problem(answer, problem, destination.uri.path());
        let lease = self.take_lease(&answer, destination).map_err(|_| AnswerBudgetExceeded::new())?;
        Ok(with_lease(answer, lease, destination))
    }

    fn take_lease(&self, answer: &Response, destination: &AnswerDestination) -> Result<Lease, BudgetRefusal> {
        let org = answer.extensions().get::<AnswerOrg>().map(|AnswerOrg(org)| org.clone());
        let holder = Holder { org, connection: Some(destination.connection.unsent_bytes()) };
        // Answers are built as a whole, so the lower bound is their size.
        let bytes = usize::try_from(answer.body().size_hint().lower()).unwrap_or(usize::MAX);
        self.answer_budget().take(holder, bytes)
    }
}

fn with_lease(answer: Response, lease: Lease, destination: &AnswerDestination) -> Response {
    if answer.body().is_end_stream() {
        return answer;
    }
    let unsent = destination.connection.add_answer(destination.stream.clone());
    answer.map(|inner| {
        Body::new(LeasedBody {
            inner,
            pending: Bytes::new(),
            lease: Arc::new(AnswerLease { unsent, _bytes: lease }),
        })
    })
}

/// Lease and progress of an answer, held until its last bytes are dropped.
struct AnswerLease {
    // Dropped first: the connection's next request may arrive as soon as the bytes are given back.
    _bytes: Lease,
    unsent: UnsentAnswer,
}

/// Bytes of an answer that keep its lease alive.
struct LeasedBytes {
    bytes: Bytes,
    _lease: Arc<AnswerLease>,
}

impl AsRef<[u8]> for LeasedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Body of an answer, split into pieces.
struct LeasedBody {
    inner: Body,
    /// Remaining bytes of the inner body's last frame.
    pending: Bytes,
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
        if this.pending.is_empty() {
            let next_frame = Pin::new(&mut this.inner).poll_frame(cx);
            this.lease.unsent.progress().set_awaiting_bytes(next_frame.is_pending());
            match ready!(next_frame) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) if !bytes.is_empty() => {
                        this.pending =
                            Bytes::from_owner(LeasedBytes { bytes, _lease: Arc::clone(&this.lease) });
                    }
                    Ok(empty) => return Poll::Ready(Some(Ok(Frame::data(empty)))),
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                end_or_error => return Poll::Ready(end_or_error),
            }
        }
        // hyper asks for the next piece only when the previous one is passed on, so each piece proves progress.
        let piece = this.pending.split_to(this.pending.len().min(MAX_PIECE_BYTES));
        this.lease.unsent.progress().advance(piece.len());
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.pending.is_empty() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (pending, inner) = (self.pending.len() as u64, self.inner.size_hint());
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower().saturating_add(pending));
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper.saturating_add(pending));
        }
        hint
    }
}

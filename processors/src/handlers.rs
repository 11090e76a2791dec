//! Handlers of reports, appeals, strikes and released decisions. Each record is one call of `tidegate-moderation`.

use std::marker::PhantomData;

use tidegate_moderation::{
    self as moderation,
    items::stored::RESENT,
    review::{appeals, decisions, reports},
    users::strikes,
};
use tidegate_schemas::{
    ids::SubmissionId,
    records::{Appeal, Decision, Record, Report, Strike},
};
use tidegate_stream::record::Headers;

use crate::consumer::{
    error::TaskError,
    handler::{DeadLetterContent, Handler, HandlerJob, Job, Part},
    key_queues::{Key, NewPart},
};

/// Facts from the headers of a handled record.
pub(crate) struct RecordHeaders {
    /// True if an operator has sent the record back from the dead letters.
    is_resent: bool,
}

type RecordJob<R> = Job<R, RecordHeaders>;

/// Record that one call of `tidegate-moderation` handles.
pub(crate) trait HandledRecord: Record + Send + Sync + 'static {
    /// Returns the part of the record: its ordering key (org and item or user) and the size of its content.
    fn part(&self) -> NewPart;

    /// Returns the submission for the record's dead letter.
    fn submission_id(&self) -> Option<SubmissionId> {
        None
    }

    fn accept(
        deps: &moderation::Deps,
        job: &RecordJob<Self>,
    ) -> impl Future<Output = Result<(), moderation::Error>> + Send;
}

/// Handler of the records `R`.
pub(crate) struct RecordHandler<R> {
    deps: moderation::Deps,
    record_type: PhantomData<fn() -> R>,
}

impl<R> RecordHandler<R> {
    pub(crate) const fn new(deps: moderation::Deps) -> Self {
        Self { deps, record_type: PhantomData }
    }
}

impl<R: HandledRecord> Handler for RecordHandler<R> {
    type Record = R;
    type Headers = RecordHeaders;
    type Guard = ();

    fn parse_headers(headers: &Headers) -> RecordHeaders {
        RecordHeaders { is_resent: headers.get(RESENT).is_some() }
    }

    fn parts(job: &HandlerJob<Self>) -> Vec<NewPart> {
        vec![job.record.part()]
    }

    fn dead_letter_content(job: &HandlerJob<Self>, _part: usize) -> DeadLetterContent {
        DeadLetterContent { datum: job.value.to_vec(), submission_id: job.record.submission_id() }
    }

    fn start(&self, _job: &HandlerJob<Self>, _part: usize) {}

    async fn handle(&self, part: Part<'_, Self>) -> Result<(), TaskError> {
        Ok(R::accept(&self.deps, &part.job).await?)
    }
}

impl HandledRecord for Report {
    fn part(&self) -> NewPart {
        NewPart::single(Key { org: self.org.clone(), item: self.item.key() }, self.item.data.len())
    }

    fn submission_id(&self) -> Option<SubmissionId> {
        Some(self.item.submission_id)
    }

    async fn accept(deps: &moderation::Deps, job: &RecordJob<Self>) -> Result<(), moderation::Error> {
        reports::accept(deps, &job.record, job.written_at, job.headers.is_resent).await
    }
}

impl HandledRecord for Appeal {
    fn part(&self) -> NewPart {
        NewPart::single(Key { org: self.org.clone(), item: self.item.key() }, self.item.data.len())
    }

    async fn accept(deps: &moderation::Deps, job: &RecordJob<Self>) -> Result<(), moderation::Error> {
        appeals::accept(deps, &job.record, job.written_at).await
    }
}

impl HandledRecord for Strike {
    fn part(&self) -> NewPart {
        NewPart::single(Key { org: self.org.clone(), item: self.user.clone() }, 0)
    }

    async fn accept(deps: &moderation::Deps, job: &RecordJob<Self>) -> Result<(), moderation::Error> {
        strikes::accept(deps, &job.record, job.position.offset.0, job.written_at).await
    }
}

impl HandledRecord for Decision {
    fn part(&self) -> NewPart {
        NewPart::single(Key { org: self.org.clone(), item: self.item.clone() }, 0)
    }

    async fn accept(deps: &moderation::Deps, job: &RecordJob<Self>) -> Result<(), moderation::Error> {
        decisions::accept(deps, &job.record, job.written_at).await
    }
}

//! Handlers of the topics whose records lead to one call of the moderation crate: reports, appeals, strikes and released
//! decisions.

use std::marker::PhantomData;

use tidegate_moderation::{
    self as moderation,
    review::{appeals, decisions, reports},
    strikes,
};
use tidegate_schemas::{
    ids::SubmissionId,
    records::{Appeal, Decision, Record, Report, Strike},
};

use crate::consumer::{
    error::TaskError,
    handler::{DeadPart, Handler, Job, Part},
    key_queues::{Key, NewPart},
};

/// A record that is handled by one call of the moderation crate.
pub(crate) trait Accepted: Record + Send + Sync + 'static {
    /// Organisation and item or user whose records are handled in order, and the size of the content.
    fn part(&self) -> NewPart;

    /// Submission that a dead letter of the record names.
    fn submission(&self) -> Option<SubmissionId> {
        None
    }

    fn accept(
        deps: &moderation::Deps,
        job: &Job<Self>,
    ) -> impl Future<Output = Result<(), moderation::Error>> + Send;
}

/// Consumer of the topic of `R`.
pub(crate) struct RecordHandler<R> {
    deps: moderation::Deps,
    record: PhantomData<fn() -> R>,
}

impl<R> RecordHandler<R> {
    pub(crate) const fn new(deps: moderation::Deps) -> Self {
        Self { deps, record: PhantomData }
    }
}

impl<R: Accepted> Handler for RecordHandler<R> {
    type Record = R;
    type Guard = ();

    fn parts(job: &Job<R>) -> Vec<NewPart> {
        vec![job.record.part()]
    }

    fn dead_part(job: &Job<R>, _part: usize) -> DeadPart {
        DeadPart { datum: job.value.to_vec(), submission_id: job.record.submission() }
    }

    fn start(&self, _job: &Job<R>, _part: usize) {}

    async fn handle(&self, part: Part<'_, R>) -> Result<(), TaskError> {
        Ok(R::accept(&self.deps, &part.job).await?)
    }
}

impl Accepted for Report {
    fn part(&self) -> NewPart {
        NewPart::single(Key { org: self.org.clone(), item: self.item.key() }, self.item.data.len())
    }

    fn submission(&self) -> Option<SubmissionId> {
        Some(self.item.submission_id)
    }

    async fn accept(deps: &moderation::Deps, job: &Job<Self>) -> Result<(), moderation::Error> {
        reports::accept(deps, &job.record, job.written_at, job.is_resent).await
    }
}

impl Accepted for Appeal {
    fn part(&self) -> NewPart {
        NewPart::single(Key { org: self.org.clone(), item: self.item.key() }, self.item.data.len())
    }

    async fn accept(deps: &moderation::Deps, job: &Job<Self>) -> Result<(), moderation::Error> {
        appeals::accept(deps, &job.record, job.written_at).await
    }
}

impl Accepted for Strike {
    fn part(&self) -> NewPart {
        NewPart::single(Key { org: self.org.clone(), item: self.user.clone() }, 0)
    }

    async fn accept(deps: &moderation::Deps, job: &Job<Self>) -> Result<(), moderation::Error> {
        strikes::accept(deps, &job.record, job.at.offset.0).await
    }
}

impl Accepted for Decision {
    fn part(&self) -> NewPart {
        NewPart::single(Key { org: self.org.clone(), item: self.item.clone() }, 0)
    }

    async fn accept(deps: &moderation::Deps, job: &Job<Self>) -> Result<(), moderation::Error> {
        decisions::accept(deps, &job.record, job.written_at).await
    }
}

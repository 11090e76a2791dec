//! Items as the consumer sees them: their keys, their dead letters, and which of them may be handled as a batch.

use tidegate_moderation::items::context_media;
use tidegate_schemas::records::{self, ItemEntry, Record as _, Source};
use tracing::Instrument as _;

use super::{
    job::{ItemBatchPart, ItemJob, may_be_replay, submission},
    pipeline::ItemPipeline,
    window_order::WindowGuard,
};
use crate::consumer::{
    error::TaskError,
    handler::{BatchOutcome, DeadPart, Handler, Part},
    key_queues::{Key, NewPart},
};

impl Handler for ItemPipeline {
    type Record = records::Items;

    type Guard = Option<WindowGuard>;

    fn parts(job: &ItemJob) -> Vec<NewPart> {
        let record = &job.record;
        // Replays look for an earlier run first, and repeated evaluations and items of reports for what they belong to.
        let is_plain = !job.maybe_replayed
            && !job.is_resent
            && job.context_of.is_none()
            && !is_never_counted(record.source)
            && record.report_id.is_none();
        let part = |entry: &ItemEntry| NewPart {
            key: Key { org: record.org.clone(), item: entry.key() },
            bytes: entry.data.len(),
            is_batchable: is_plain && !entry.keyed && entry.origin.is_none(),
        };
        record.items.iter().map(part).collect()
    }

    /// The item with its coordinates, so that a replay knows its position among the item's versions. An item that came
    /// along with a report or an appeal takes with it what shares its row.
    fn dead_part(job: &ItemJob, index: usize) -> DeadPart {
        let submission_id = job.record.items.get(index).map(|entry| entry.submission_id);
        let entries = if job.context_of.is_some() {
            context_media::together(&job.record.items, index).into_iter().cloned().collect()
        } else {
            let at = submission(job, index).at;
            vec![ItemEntry { origin: Some(at), ..job.record.items[index].clone() }]
        };
        DeadPart { datum: job.record.with(entries).to_datum(), submission_id }
    }

    fn start(&self, job: &ItemJob, index: usize) -> Option<WindowGuard> {
        self.window_guard(job, index)
    }

    async fn handle_batch(&self, parts: Vec<ItemBatchPart>) -> BatchOutcome {
        let org = parts.first().map(|part| tracing::field::display(&part.job.record.org));
        let span = tracing::debug_span!("item_batch", org, items = parts.len());
        self.run_batch(parts).instrument(span).await
    }

    async fn handle(&self, part: Part<'_, records::Items>) -> Result<(), TaskError> {
        let (job, index) = (&part.job, part.index);
        let span = tracing::info_span!("item", org = %job.record.org, position = %job.ticket.position(), index,
            submission = %job.record.items[index].submission_id);
        // Boxed: the task of every batch would carry what single items need.
        Box::pin(self.run_single(part).instrument(span)).await
    }
}

impl ItemPipeline {
    /// Returns the place of the item among those that are counted in windows. Only items that come in are counted.
    pub(super) fn window_guard(&self, job: &ItemJob, index: usize) -> Option<WindowGuard> {
        let org = &job.record.org;
        let is_new = job.context_of.is_none() && !is_never_counted(job.record.source);
        let counts =
            || self.deps.live.org(org).is_some_and(|config| config.plan().windows().next().is_some());
        let submission = job.record.items[index].submission_id;
        (is_new && counts()).then(|| self.facts.place(org, submission, may_be_replay(job, index)))
    }
}

/// True if windows do not count the items: they are repeated, or the service fetched them itself.
fn is_never_counted(source: Source) -> bool {
    matches!(source, Source::Retroact | Source::PartialItems)
}

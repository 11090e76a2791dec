//! Handler of item records: ordering keys, batchable items and dead letters.

use std::sync::Arc;

use tidegate_moderation::items::context_media;
use tidegate_schemas::records::{self, ItemEntry, Record as _, Source};
use tidegate_stream::record::Headers;
use tracing::Instrument as _;

use super::{
    job::{ItemBatchPart, ItemHeaders, ItemJob, may_be_replay, submission},
    pipeline::ItemPipeline,
    window_order::WindowGuard,
};
use crate::consumer::{
    error::TaskError,
    handler::{BatchOutcome, DeadLetterContent, Handler, Part},
    key_queues::{Key, NewPart},
};

impl Handler for ItemPipeline {
    type Record = records::Items;

    type Headers = ItemHeaders;

    /// Place in the order of window counts. `None` for items that windows do not count.
    type Guard = Option<Arc<WindowGuard>>;

    fn parse_headers(headers: &Headers) -> ItemHeaders {
        ItemHeaders::parse(headers)
    }

    fn parts(job: &ItemJob) -> Vec<NewPart> {
        let record = &job.record;
        // A batch handles first evaluations only. Replays must look for an earlier run, and repeated evaluations and
        // items of reports for their cause.
        let is_first_evaluation = !job.maybe_replayed
            && !job.headers.is_resent
            && job.headers.context_of.is_none()
            && !is_uncounted_source(record.source)
            && record.report_id.is_none();
        let part = |entry: &ItemEntry| NewPart {
            key: Key { org: record.org.clone(), item: entry.key() },
            bytes: entry.data.len(),
            is_batchable: is_first_evaluation && !entry.keyed && entry.origin.is_none(),
        };
        record.items.iter().map(part).collect()
    }

    /// Encodes the item with its coordinates, so a replay keeps its position among the item's versions. A context item of a
    /// report or an appeal is encoded with all entries that share its row.
    fn dead_letter_content(job: &ItemJob, index: usize) -> DeadLetterContent {
        let submission_id = job.record.items.get(index).map(|entry| entry.submission_id);
        let entries = if job.headers.context_of.is_some() {
            context_media::entries_of_same_item(&job.record.items, index).into_iter().cloned().collect()
        } else {
            let coordinates = submission(job, index).at;
            vec![ItemEntry { origin: Some(coordinates), ..job.record.items[index].clone() }]
        };
        DeadLetterContent { datum: job.record.with(entries).to_datum(), submission_id }
    }

    fn start(&self, job: &ItemJob, index: usize) -> Option<Arc<WindowGuard>> {
        self.take_window_place(job, index)
    }

    /// Gives up the place of an item that is not counted yet, because later readers of windows would wait for it.
    fn release_waiters(window_guard: &mut Option<Arc<WindowGuard>>) {
        window_guard.take_if(|guard| !guard.is_counted());
    }

    async fn handle_batch(&self, parts: Vec<ItemBatchPart>) -> BatchOutcome {
        let org = parts.first().map(|part| tracing::field::display(&part.job.record.org));
        let span = tracing::debug_span!("item_batch", org, items = parts.len());
        self.run_batch(parts).instrument(span).await
    }

    async fn handle(&self, part: Part<'_, Self>) -> Result<(), TaskError> {
        let (job, index) = (&part.job, part.index);
        let span = tracing::info_span!("item", org = %job.record.org, position = %job.ticket.position(), index,
            submission = %job.record.items[index].submission_id);
        // Boxed: otherwise the future of every batch would reserve the memory of this larger one.
        Box::pin(self.run_single(part).instrument(span)).await
    }
}

impl ItemPipeline {
    /// Takes the item's place in the order of window counts. Only submitted items of orgs with windows are counted.
    pub(super) fn take_window_place(&self, job: &ItemJob, index: usize) -> Option<Arc<WindowGuard>> {
        let org = &job.record.org;
        let is_new = job.headers.context_of.is_none() && !is_uncounted_source(job.record.source);
        let has_windows =
            || self.deps.live.org(org).is_some_and(|config| config.plan().windows().next().is_some());
        let submission = job.record.items[index].submission_id;
        let take_place = || Arc::new(self.facts.take_place(org, submission, may_be_replay(job, index)));
        (is_new && has_windows()).then(take_place)
    }
}

/// True for sources that windows do not count: repeated evaluations and items fetched by the service.
fn is_uncounted_source(source: Source) -> bool {
    matches!(source, Source::Retroact | Source::PartialItems)
}

#[cfg(test)]
mod tests {
    use tidegate_schemas::ids::{OrgId, SubmissionId};

    use super::*;
    use crate::items::window_order::WindowOrder;

    #[test]
    fn failed_item_keeps_its_place_only_if_it_is_counted() {
        let order = WindowOrder::default();
        let take_place = || Some(Arc::new(order.take_place(&OrgId::new("o"), SubmissionId::random(), false)));
        let (mut counted, mut uncounted) = (take_place(), take_place());
        counted.iter().for_each(|guard| guard.set_counted());
        ItemPipeline::release_waiters(&mut counted);
        ItemPipeline::release_waiters(&mut uncounted);
        assert!(counted.is_some() && uncounted.is_none());
    }
}

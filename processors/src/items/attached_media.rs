//! Fetches the media of context items of reports and appeals. Moderators see them; the items are not evaluated.

use std::sync::Arc;

use tidegate_moderation::{items::context_media, media};
use uuid::Uuid;

use super::{
    job::ItemJob,
    media_wait::{MediaRequest, MediaWaitResult},
    pipeline::ItemPipeline,
};
use crate::consumer::{error::TaskError, slot::ConcurrencySlot};

impl ItemPipeline {
    /// Inspects the media of one item, once for all its entries in the record, and stores the results for `cause`.
    pub(super) async fn inspect_attached_media(
        &self,
        job: &Arc<ItemJob>,
        index: usize,
        cause: Uuid,
        slot: &ConcurrencySlot,
    ) -> Result<(), TaskError> {
        let (items, org) = (&job.record.items, &job.record.org);
        let entries = context_media::entries_of_same_item(items, index);
        if entries.is_empty() {
            return Ok(());
        }
        let config = self.load_config(&job.record, job.written_at).await?;
        let wanted_media = context_media::list_media(&config, &entries);
        if wanted_media.is_empty() {
            return Ok(());
        }
        let item = items[index].key();
        let bytes = entries.iter().map(|entry| entry.data.len()).sum();
        let request = MediaRequest { org, item: &item, bytes, ticket: &job.ticket, slot };
        let signals = match self.media.wait_for_media(request, &wanted_media).await {
            MediaWaitResult::Found(signals) => signals,
            // Not expected: context records are sent to `items-slow`, where a wait ends without a hand-over.
            MediaWaitResult::HandOver(_) => return Ok(()),
            MediaWaitResult::AssignmentLost => return Err(TaskError::AssignmentLost),
        };
        let (banks, id) = (config.hash_banks(), item.id.clone());
        let judge = move || media::match_media(&banks, id.as_str(), &signals).rows;
        let media = self.pool.run(org, judge).await?;
        Ok(context_media::store_media(&self.deps, org, cause, &item, &media, job.written_at).await?)
    }
}

//! Media of items that came along with a report or an appeal. They are shown to moderators; nothing is evaluated.

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
    /// Looks at the media of one item, once for all of its entries in the record, and stores what was found for `cause`.
    pub(super) async fn look_at_attached_media(
        &self,
        job: &Arc<ItemJob>,
        index: usize,
        cause: Uuid,
        slot: &ConcurrencySlot,
    ) -> Result<(), TaskError> {
        let (items, org) = (&job.record.items, &job.record.org);
        let entries = context_media::together(items, index);
        if entries.is_empty() {
            return Ok(());
        }
        let config = self.config(&job.record, job.written_at).await?;
        let wanted = context_media::wanted(&config, &entries);
        if wanted.is_empty() {
            return Ok(());
        }
        let item = items[index].key();
        let bytes = entries.iter().map(|entry| entry.data.len()).sum();
        let request = MediaRequest { org, item: &item, bytes, ticket: &job.ticket, slot };
        let found = match self.media.wait_for_media(request, &wanted).await {
            MediaWaitResult::Found(found) => found,
            // It came to those who wait longest.
            MediaWaitResult::Later(_) => return Ok(()),
            MediaWaitResult::Left => return Err(TaskError::AssignmentLost),
        };
        let (banks, id) = (config.hash_banks(), item.id.clone());
        let judge = move || media::judge(&banks, id.as_str(), &found).shown;
        let media = self.pool.run(org, judge).await?;
        Ok(context_media::keep(&self.deps, org, cause, &item, &media, job.written_at).await?)
    }
}

//! Lists jobs page by page: by priority over all queues, and by age within a priority.

use serde::Deserialize;
use tidegate_moderation::{
    jobs::summary::{self, JobSummaryResponse},
    review::job_list::{self, JobListRequest, ListPosition},
};
use tidegate_schemas::{ids::QueueId, records::JobClass};
use tidegate_store::tables::review::jobs::{Job, JobState};
use tidegate_web::Problem;

use crate::{
    admin::request::{Caller, faults, invalid, not_a_cursor, page_limit},
    api::{Api, ListResponse},
};

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ListJobsQuery {
    /// Left out: all queues of the org, removed ones included.
    pub(crate) queue: Option<QueueId>,
    /// `open` (if left out), `decided`, `closed`, `moved` or `all`.
    pub(crate) state: Option<String>,
    /// Item type of the jobs to list.
    pub(crate) type_id: Option<String>,
    pub(crate) item_id: Option<String>,
    /// Appeal of the job to list.
    pub(crate) appeal_id: Option<String>,
    pub(crate) limit: Option<usize>,
    pub(crate) cursor: Option<String>,
    #[serde(rename = "org")]
    pub(crate) _org: Option<String>,
}

impl ListJobsQuery {
    fn matches(&self, job: &Job, state: &str) -> bool {
        fn matches_filter(filter: Option<&String>, value: &str) -> bool {
            filter.is_none_or(|expected| expected == value)
        }
        (state == "all" || state == job.state.as_str())
            && matches_filter(self.type_id.as_ref(), job.item.type_id.as_str())
            && matches_filter(self.item_id.as_ref(), job.item.id.as_str())
            && matches_filter(self.appeal_id.as_ref(), job.appeal_id.as_ref().map_or("", |id| id.as_str()))
    }
}

/// Separates the queue of a list from the position in it. No name of a queue contains it.
const SEPARATOR: char = '~';

pub(crate) async fn load_page(
    api: &Api,
    caller: &Caller,
    query: &ListJobsQuery,
) -> Result<ListResponse<JobSummaryResponse>, Problem> {
    if !matches!(query.state.as_deref(), None | Some("open" | "decided" | "closed" | "moved" | "all")) {
        return Err(invalid("", "`state` is open, decided, closed, moved or all."));
    }
    let from = query.cursor.as_deref().map(|cursor| parse_position(cursor, query)).transpose()?;
    let queues = select_queues(api, caller, query).await?;
    let state = query.state.as_deref().unwrap_or("open");
    let request = JobListRequest {
        org: &caller.org,
        queues: &queues,
        from,
        jobs: page_limit(api, query.limit)?,
        rows: api.settings.rows_per_page,
        // Lets the list skip days without open jobs.
        open_only: state == JobState::Open.as_str(),
    };
    // Jobs outside of the caller's scope are left out, so a page does not reveal that they exist.
    let is_listed = |job: &Job| {
        (job.class != JobClass::ChildSafety || caller.may_see_child_safety()) && query.matches(job, state)
    };
    let page = job_list::list_jobs(&api.deps.moderation.store, &request, is_listed)
        .await
        .map_err(faults::moderation_problem)?;
    let items = page.jobs.into_iter().map(summary::summarize).collect::<Result<_, _>>();
    // The cursor names its queue: a position of one queue has no meaning in another.
    let queue = query.queue.as_ref().map_or("", QueueId::as_str);
    let next = page.next.map(|position| format!("{queue}{SEPARATOR}{position}"));
    Ok(ListResponse { items: items.map_err(faults::moderation_problem)?, next })
}

/// Parses a cursor, and refuses one of another queue.
fn parse_position(cursor: &str, query: &ListJobsQuery) -> Result<ListPosition, Problem> {
    let (queue, position) = cursor.split_once(SEPARATOR).ok_or_else(not_a_cursor)?;
    if queue != query.queue.as_ref().map_or("", QueueId::as_str) {
        return Err(not_a_cursor());
    }
    position.parse().map_err(|()| not_a_cursor())
}

/// Returns the queue of the query, or else all queues of the org.
async fn select_queues(api: &Api, caller: &Caller, query: &ListJobsQuery) -> Result<Vec<QueueId>, Problem> {
    if let Some(queue) = &query.queue {
        return Ok(vec![queue.clone()]);
    }
    let config = api.deps.moderation.live.load_latest(&caller.org).await.map_err(faults::catalog_problem)?;
    let queues = config.queues().iter().chain(config.removed_queues());
    Ok(queues.map(|queue| queue.key.clone()).collect())
}

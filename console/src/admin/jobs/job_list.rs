//! Lists jobs page by page: by priority over all queues, and by age within a priority.

use serde::Deserialize;
use tidegate_moderation::{
    jobs::summary::JobSummaryResponse,
    review::job_search::{self, ALL_STATES, JobFilter, JobSearchRequest},
};
use tidegate_schemas::ids::QueueId;
use tidegate_store::tables::review::jobs::JobState;
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
    fn parse_filter(&self) -> Result<JobFilter, Problem> {
        let state = self.state.as_deref().map(str::parse).transpose().map_err(|_| {
            let states: Vec<_> = JobState::ALL.iter().map(|state| state.as_str()).collect();
            invalid("", format!("`state` is {} or {ALL_STATES}.", states.join(", ")))
        })?;
        Ok(JobFilter {
            queue: self.queue.clone(),
            state: state.unwrap_or_default(),
            item_type: self.type_id.clone(),
            item_id: self.item_id.clone(),
            appeal_id: self.appeal_id.clone(),
        })
    }
}

pub(crate) async fn load_page(
    api: &Api,
    caller: &Caller,
    query: &ListJobsQuery,
) -> Result<ListResponse<JobSummaryResponse>, Problem> {
    let filter = query.parse_filter()?;
    let from = query.cursor.as_deref().map(|cursor| filter.parse_cursor(cursor)).transpose();
    let request = JobSearchRequest {
        org: &caller.org,
        filter: &filter,
        from: from.map_err(|_| not_a_cursor())?,
        max_jobs: page_limit(api, query.limit)?,
        max_rows: api.settings.rows_per_page,
        clearance: caller.clearance(),
    };
    let page = job_search::find_jobs(&api.deps.moderation, request).await;
    let page = page.map_err(faults::moderation_problem)?;
    Ok(ListResponse { items: page.jobs, next: page.next })
}

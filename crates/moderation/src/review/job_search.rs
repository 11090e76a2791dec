//! Finds jobs by queue, state, item or appeal, page by page, for the API and the pages. `job_list` reads the index of the
//! queues.

use std::str::FromStr;

use tidegate_schemas::{
    ids::{OrgId, QueueId},
    records::JobClass,
    string_enum::UnknownVariant,
};
use tidegate_store::tables::review::jobs::{Job, JobState};

use super::job_list::{self, JobListRequest, ListPosition};
use crate::{
    Deps, Error,
    child_safety::Clearance,
    jobs::summary::{self, JobSummaryResponse},
};

/// Separates the queue of a cursor from the position. No name of a queue contains it.
const SEPARATOR: char = '~';

/// Text of the filter for jobs in every state.
pub const ALL_STATES: &str = "all";

/// Conditions for the jobs of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobFilter {
    /// `None` for all queues of the org, removed ones included.
    pub queue: Option<QueueId>,
    pub state: StateFilter,
    pub item_type: Option<String>,
    pub item_id: Option<String>,
    pub appeal_id: Option<String>,
}

/// States of listed jobs. As text: one state, or `all`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateFilter {
    All,
    Only(JobState),
}

impl Default for StateFilter {
    fn default() -> Self {
        Self::Only(JobState::Open)
    }
}

impl FromStr for StateFilter {
    type Err = UnknownVariant;

    fn from_str(text: &str) -> Result<Self, UnknownVariant> {
        if text == ALL_STATES { Ok(Self::All) } else { text.parse().map(Self::Only) }
    }
}

impl JobFilter {
    fn is_match(&self, job: &Job) -> bool {
        fn matches_text(condition: Option<&String>, value: &str) -> bool {
            condition.is_none_or(|expected| expected == value)
        }
        let has_state = match self.state {
            StateFilter::All => true,
            StateFilter::Only(state) => job.state == state,
        };
        has_state
            && matches_text(self.item_type.as_ref(), job.item.type_id.as_str())
            && matches_text(self.item_id.as_ref(), job.item.id.as_str())
            && matches_text(self.appeal_id.as_ref(), job.appeal_id.as_ref().map_or("", |id| id.as_str()))
    }

    fn queue_name(&self) -> &str {
        self.queue.as_ref().map_or("", QueueId::as_str)
    }

    /// Formats a cursor with its queue, because a position of one queue has no meaning in another.
    fn format_cursor(&self, position: &ListPosition) -> String {
        format!("{}{SEPARATOR}{position}", self.queue_name())
    }

    /// Parses a cursor, and refuses one of another queue.
    pub fn parse_cursor(&self, cursor: &str) -> Result<ListPosition, tidegate_store::Error> {
        let (queue, position) = cursor.split_once(SEPARATOR).ok_or(tidegate_store::Error::BadCursor)?;
        if queue != self.queue_name() {
            return Err(tidegate_store::Error::BadCursor);
        }
        position.parse()
    }
}

/// Request for a page of jobs.
#[derive(Clone, Debug)]
pub struct JobSearchRequest<'a> {
    pub org: &'a OrgId,
    pub filter: &'a JobFilter,
    pub from: Option<ListPosition>,
    /// Maximum number of jobs on the page.
    pub max_jobs: usize,
    /// Number of index rows after which the page ends early.
    pub max_rows: usize,
    pub clearance: Clearance,
}

/// Jobs of a page and the cursor of the next page.
#[derive(Debug)]
pub struct JobSearchPage {
    pub jobs: Vec<JobSummaryResponse>,
    pub next: Option<String>,
}

/// Finds the jobs that match the filter. Child-safety jobs beyond the clearance are left out, so a page does not reveal
/// that they exist.
pub async fn find_jobs(deps: &Deps, request: JobSearchRequest<'_>) -> Result<JobSearchPage, Error> {
    let JobSearchRequest { org, filter, from, max_jobs, max_rows, clearance } = request;
    let queues = select_queues(deps, org, filter).await?;
    let list_request = JobListRequest {
        org,
        queues: &queues,
        from,
        jobs: max_jobs,
        rows: max_rows,
        // Lets the list skip days without open jobs.
        open_only: filter.state == StateFilter::Only(JobState::Open),
    };
    let is_listed = |job: &Job| {
        (job.class != JobClass::ChildSafety || clearance.covers_child_safety()) && filter.is_match(job)
    };
    let page = job_list::list_jobs(&deps.store, &list_request, is_listed).await?;
    Ok(JobSearchPage {
        jobs: page.jobs.into_iter().map(summary::summarize).collect::<Result<_, _>>()?,
        next: page.next.map(|position| filter.format_cursor(&position)),
    })
}

/// Returns the queue of the filter, or else all queues of the org.
async fn select_queues(deps: &Deps, org: &OrgId, filter: &JobFilter) -> Result<Vec<QueueId>, Error> {
    if let Some(queue) = &filter.queue {
        return Ok(vec![queue.clone()]);
    }
    let config = deps.live.load_latest(org).await?;
    let queues = config.queues().iter().chain(config.removed_queues());
    Ok(queues.map(|queue| queue.key.clone()).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn cursor_belongs_to_the_queue_of_its_list() {
        let of_queue = JobFilter { queue: Some(QueueId::new("default")), ..JobFilter::default() };
        let of_all = JobFilter::default();
        let position = of_queue.parse_cursor("default~3~20778~00ff").unwrap();
        assert_eq!(of_queue.format_cursor(&position), "default~3~20778~00ff");
        assert_eq!(of_all.format_cursor(&position), "~3~20778~00ff");
        assert_eq!(of_all.parse_cursor("~3~20778~00ff").unwrap(), position);
        for (filter, text) in
            [(&of_all, "default~3~20778~00ff"), (&of_queue, "~3~20778~"), (&of_queue, "default")]
        {
            assert!(filter.parse_cursor(text).is_err(), "{text}");
        }
    }

    #[test]
    fn state_filter_is_a_state_or_all() {
        assert_eq!(StateFilter::default(), StateFilter::Only(JobState::Open));
        assert_eq!("all".parse(), Ok(StateFilter::All));
        assert_eq!("closed".parse(), Ok(StateFilter::Only(JobState::Closed)));
        assert!("pending".parse::<StateFilter>().is_err());
    }
}

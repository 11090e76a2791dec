//! Lists jobs page by page: highest priority first across queues, then those that have it for longest.

use serde::Deserialize;
use tidegate_moderation::review::{
    job_list::{self, ListPosition, ListRequest},
    job_view::{self, Summary},
};
use tidegate_schemas::{ids::QueueId, records::JobClass};
use tidegate_store::tables::review::jobs::{Job, JobState};
use tidegate_web::Problem;

use super::{
    Api, List,
    caller::Caller,
    extract::{invalid, not_a_cursor},
    faults,
};

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Wanted {
    /// All of the organisation's queues, the removed ones included, if left out.
    pub(crate) queue: Option<QueueId>,
    /// `open` (if left out), `decided`, `closed`, `moved` or `all`.
    pub(crate) state: Option<String>,
    /// Only jobs about this item.
    pub(crate) type_id: Option<String>,
    pub(crate) item_id: Option<String>,
    /// Only the job of this appeal.
    pub(crate) appeal_id: Option<String>,
    pub(crate) limit: Option<usize>,
    pub(crate) cursor: Option<String>,
    #[serde(rename = "org")]
    pub(crate) _org: Option<String>,
}

impl Wanted {
    fn wants(&self, job: &Job, state: &str) -> bool {
        fn is(named: Option<&String>, own: &str) -> bool {
            named.is_none_or(|named| named == own)
        }
        (state == "all" || state == job.state.as_str())
            && is(self.type_id.as_ref(), job.item.type_id.as_str())
            && is(self.item_id.as_ref(), job.item.id.as_str())
            && is(self.appeal_id.as_ref(), job.appeal_id.as_ref().map_or("", |id| id.as_str()))
    }
}

/// Separates the queue of a list from the position in it. No name of a queue contains it.
const SEPARATOR: char = '~';

pub(crate) async fn page(api: &Api, caller: &Caller, wanted: &Wanted) -> Result<List<Summary>, Problem> {
    if !matches!(wanted.state.as_deref(), None | Some("open" | "decided" | "closed" | "moved" | "all")) {
        return Err(invalid("", "`state` is open, decided, closed, moved or all."));
    }
    let from = wanted.cursor.as_deref().map(|cursor| position(cursor, wanted)).transpose()?;
    let queues = queues(api, caller, wanted).await?;
    let state = wanted.state.as_deref().unwrap_or("open");
    let request = ListRequest {
        org: &caller.org,
        queues: &queues,
        from,
        jobs: limit(api, wanted.limit)?,
        rows: api.settings.rows_per_page,
        open_only: state == JobState::Open.as_str(),
    };
    let fits = |job: &Job| {
        (job.class != JobClass::ChildSafety || caller.may_child_safety()) && wanted.wants(job, state)
    };
    let listed =
        job_list::list(&api.deps.moderation.store, &request, fits).await.map_err(faults::moderation)?;
    let items = listed.jobs.into_iter().map(job_view::summary).collect::<Result<_, _>>();
    let queue = wanted.queue.as_ref().map_or("", QueueId::as_str);
    let next = listed.next.map(|position| format!("{queue}{SEPARATOR}{position}"));
    Ok(List { items: items.map_err(faults::moderation)?, next })
}

/// Reads a cursor, which holds for the queue that it was given for.
fn position(cursor: &str, wanted: &Wanted) -> Result<ListPosition, Problem> {
    let (queue, position) = cursor.split_once(SEPARATOR).ok_or_else(not_a_cursor)?;
    if queue != wanted.queue.as_ref().map_or("", QueueId::as_str) {
        return Err(not_a_cursor());
    }
    position.parse().map_err(|()| not_a_cursor())
}

pub(super) fn limit(api: &Api, wanted: Option<usize>) -> Result<usize, Problem> {
    match wanted {
        None => Ok(api.settings.page),
        Some(limit) if (1..=api.settings.page_most).contains(&limit) => Ok(limit),
        Some(_) => Err(invalid("", format!("`limit` is between 1 and {}.", api.settings.page_most))),
    }
}

/// The queue that is asked for, or all of the organisation.
async fn queues(api: &Api, caller: &Caller, wanted: &Wanted) -> Result<Vec<QueueId>, Problem> {
    if let Some(queue) = &wanted.queue {
        return Ok(vec![queue.clone()]);
    }
    let config = api.deps.moderation.live.latest(&caller.org).await.map_err(faults::catalog)?;
    let queues = config.queues().iter().chain(config.removed_queues());
    Ok(queues.map(|queue| queue.key.clone()).collect())
}

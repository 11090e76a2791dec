//! Lists jobs page by page: by queue, highest priority first, oldest first within it.
//!
//! It only reads. A queue's index grows and never shrinks, so a page is bounded by the rows that it costs: it may be
//! short, even empty, and still say where to go on.

use std::{cmp::Reverse, fmt, str::FromStr};

use serde::Deserialize;
use tidegate_moderation::review::{
    job_view::{self, Summary},
    queues::is_present,
};
use tidegate_schemas::{
    ids::{OrgId, QueueId},
    records::JobClass,
};
use tidegate_store::{
    At, Cursor,
    tables::review::jobs::{Job, QueueDay, QueueEntry},
};
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
    fn wants(&self, job: &Job) -> bool {
        fn is(named: Option<&String>, own: &str) -> bool {
            named.is_none_or(|named| named == own)
        }
        let state = self.state.as_deref().unwrap_or("open");
        (state == "all" || state == job.state.as_str())
            && is(self.type_id.as_ref(), job.item.type_id.as_str())
            && is(self.item_id.as_ref(), job.item.id.as_str())
            && is(self.appeal_id.as_ref(), job.appeal_id.as_ref().map_or("", |id| id.as_str()))
    }
}

/// End of a page: the queue, its day, and the entry in it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    queue: QueueId,
    priority: i64,
    day: i64,
    /// Cursor in the day; none if nothing of the day was read yet.
    after: Option<Cursor>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}~{}~{}~", self.queue, self.priority, self.day)?;
        self.after.as_ref().map_or(Ok(()), |after| write!(f, "{after}"))
    }
}

impl FromStr for Place {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut parts = text.split('~');
        let mut part = || parts.next().ok_or(());
        let (queue, priority, day, after) = (part()?, part()?, part()?, part()?);
        Ok(Self {
            queue: QueueId::new(queue),
            priority: priority.parse().map_err(drop)?,
            day: day.parse().map_err(drop)?,
            after: if after.is_empty() { None } else { Some(after.parse().map_err(drop)?) },
        })
    }
}

impl Place {
    /// True if a day of the same queue comes after this position: priorities fall, days rise.
    fn is_after(&self, day: &QueueDay) -> bool {
        (Reverse(day.priority), day.day) < (Reverse(self.priority), self.day)
    }

    fn is_in(&self, day: &QueueDay) -> bool {
        (day.priority, day.day) == (self.priority, self.day)
    }
}

pub(crate) async fn page(api: &Api, caller: &Caller, wanted: &Wanted) -> Result<List<Summary>, Problem> {
    if !matches!(wanted.state.as_deref(), None | Some("open" | "decided" | "closed" | "moved" | "all")) {
        return Err(invalid("", "`state` is open, decided, closed, moved or all."));
    }
    let org = &caller.org;
    let from = wanted.cursor.as_deref().map(Place::from_str).transpose();
    let from = from.ok().filter(|from| match (from, &wanted.queue) {
        (Some(from), Some(queue)) => from.queue == *queue,
        _ => true,
    });
    let from = from.ok_or_else(not_a_cursor)?;
    let queues = queues(api, org, wanted, from.as_ref()).await?;
    let mut page = Page {
        api,
        org,
        wanted,
        child_safety: caller.may_child_safety(),
        items: Vec::new(),
        most: limit(api, wanted.limit)?,
        rows_left: api.settings.rows_per_page,
    };
    let mut from = from;
    for queue in queues {
        if let Some(next) = page.queue(&queue, from.take()).await.map_err(faults::store)? {
            return page.done(Some(next));
        }
    }
    page.done(None)
}

pub(super) fn limit(api: &Api, wanted: Option<usize>) -> Result<usize, Problem> {
    match wanted {
        None => Ok(api.settings.page),
        Some(limit) if (1..=api.settings.page_most).contains(&limit) => Ok(limit),
        Some(_) => Err(invalid("", format!("`limit` is between 1 and {}.", api.settings.page_most))),
    }
}

/// The queues that are still to be read, in their order.
async fn queues(
    api: &Api,
    org: &OrgId,
    wanted: &Wanted,
    from: Option<&Place>,
) -> Result<Vec<QueueId>, Problem> {
    let mut queues = match &wanted.queue {
        Some(queue) => vec![queue.clone()],
        None => {
            let config = api.deps.moderation.live.latest(org).await.map_err(faults::catalog)?;
            let all = config.queues().iter().chain(config.removed_queues());
            all.map(|queue| queue.key.clone()).collect()
        }
    };
    if let Some(from) = from {
        // A queue that was removed meanwhile is read to its end, and then the others.
        match queues.iter().position(|queue| *queue == from.queue) {
            Some(at) => drop(queues.drain(..at)),
            None => queues.insert(0, from.queue.clone()),
        }
    }
    Ok(queues)
}

/// Rows that are read at once.
const STEP: usize = 500;

struct Page<'a> {
    api: &'a Api,
    org: &'a OrgId,
    wanted: &'a Wanted,
    /// True if the caller may see jobs of child safety.
    child_safety: bool,
    items: Vec<Job>,
    most: usize,
    rows_left: usize,
}

impl Page<'_> {
    /// Reads a queue on; where the page is full, says at which place.
    async fn queue(
        &mut self,
        queue: &QueueId,
        mut from: Option<Place>,
    ) -> Result<Option<Place>, tidegate_store::Error> {
        let store = &self.api.deps.moderation.store;
        let days = store.scan::<QueueDay>(&(self.org.clone(), queue.clone()), At::all()).all().await?;
        for day in days {
            if from.as_ref().is_some_and(|from| from.is_after(&day)) {
                continue;
            }
            let after = from.take().filter(|from| from.is_in(&day)).and_then(|from| from.after);
            if let Some(next) = self.day(&day, after).await? {
                return Ok(Some(next));
            }
        }
        Ok(None)
    }

    async fn day(
        &mut self,
        day: &QueueDay,
        mut after: Option<Cursor>,
    ) -> Result<Option<Place>, tidegate_store::Error> {
        let store = &self.api.deps.moderation.store;
        let partition = (day.org.clone(), day.queue.clone(), day.priority, day.day);
        let place = |after: Option<Cursor>| Place {
            queue: day.queue.clone(),
            priority: day.priority,
            day: day.day,
            after,
        };
        loop {
            let step = self.rows_left.min(STEP);
            if step == 0 || self.items.len() >= self.most {
                return Ok(Some(place(after)));
            }
            let mut entries =
                store.scan::<QueueEntry>(&partition, At::all().limit(step).after(after.clone()));
            let rows = entries.all().await?;
            self.rows_left -= rows.len();
            if let Some(used) = self.take(&rows).await? {
                return Ok(Some(place(rows[..used].last().map(Cursor::after).or(after))));
            }
            match entries.cursor() {
                Some(cursor) => after = Some(cursor),
                None => return Ok(None),
            }
        }
    }

    /// Shows the jobs of these entries as far as there is room; where there is not, says how many rows were used.
    async fn take(&mut self, entries: &[QueueEntry]) -> Result<Option<usize>, tidegate_store::Error> {
        let keys: Vec<_> = entries.iter().map(|entry| (entry.org.clone(), entry.job_id)).collect();
        let jobs = self.api.deps.moderation.store.get_many::<Job>(&keys).await?;
        for (at, (entry, job)) in entries.iter().zip(jobs).enumerate() {
            if let Some(job) = job.filter(|job| is_present(entry, job) && self.shows(job)) {
                if self.items.len() >= self.most {
                    return Ok(Some(at));
                }
                self.items.push(job);
            }
        }
        Ok(None)
    }

    fn shows(&self, job: &Job) -> bool {
        (self.child_safety || job.class != JobClass::ChildSafety) && self.wanted.wants(job)
    }

    fn done(self, next: Option<Place>) -> Result<List<Summary>, Problem> {
        let items = self.items.into_iter().map(job_view::summary).collect::<Result<_, _>>();
        Ok(List { items: items.map_err(faults::moderation)?, next: next.map(|place| place.to_string()) })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_place_survives_its_text_and_nothing_else_is_one() {
        let place = Place {
            queue: QueueId::new("child-safety"),
            priority: -3,
            day: 20_778,
            after: Some("00ff".parse().unwrap()),
        };
        assert_eq!(place.to_string().parse::<Place>().unwrap(), place);
        let start = Place { after: None, ..place };
        assert_eq!(start.to_string().parse::<Place>().unwrap(), start);
        for text in ["", "a", "a~b~c~d", "a~1~2", "a~1~2~xyz"] {
            assert!(text.parse::<Place>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_place_knows_which_days_lie_behind_it() {
        let place = Place { queue: QueueId::new("q"), priority: 1, day: 10, after: None };
        let day = |priority, day| QueueDay {
            org: OrgId::new("o"),
            queue: QueueId::new("q"),
            priority,
            day,
            first_at: tidegate_schemas::ids::Millis(0),
        };
        assert!(place.is_after(&day(2, 99)));
        assert!(place.is_after(&day(1, 9)));
        assert!(place.is_in(&day(1, 10)) && !place.is_after(&day(1, 10)));
        assert!(!place.is_after(&day(1, 11)) && !place.is_after(&day(0, 1)));
        let lowest = Place { priority: i64::MIN, ..place };
        assert!(lowest.is_after(&day(0, 1)));
    }
}

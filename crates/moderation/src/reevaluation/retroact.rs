//! Lets rules act on past items: a run finds the items that match and submits them again.
//!
//! Limits and effects are up to the processors, as for any submission.
//!
//! A run is a row with its rules, their versions and its position. A step evaluates some stored items. For each match it
//! stores which submission is repeated, appends the item as submission H(org, run, original submission), then stores the
//! new position. After a crash the step is repeated with the same ids. Events of a repeated submission have the ids that
//! they would have had the first time, so no action is taken twice, whichever run asks.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use tidegate_catalog::Compiled;
use tidegate_rules::{OnError, Outcome, Status};
use tidegate_schemas::{
    ids::{ActionId, EventId, ItemKey, Kind, Millis, OrgId, RuleId, SubmissionId, derive},
    records::{self, Coordinates, ItemEntry, Record as _, Source, Variant},
};
use tidegate_store::{
    At, Batch, Inserted, Replaced, Store, WriteTime,
    tables::items::{
        items::Item,
        retroactions::{Repeated, Retroaction},
        strikes::ActionByItem,
    },
};
use tidegate_stream::{Record, Topic};
use uuid::Uuid;

use super::stored_evaluation::{Archive, PastEvaluation, PastOutcome, compute};
use crate::{
    Deps, Error,
    child_safety::Clearance,
    effects::event_of,
    items::{
        evaluate::Prepared,
        history::{self, HistoryCursor, Sample, Span},
        stored::{self, Submission},
    },
    rules::windows::Moment,
};

/// Request for a run.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub rules: Vec<RuleId>,
    pub since: Millis,
    pub until: Millis,
    /// Counts the effects without submitting the items.
    pub dry_run: bool,
    /// Whether the run covers items of child safety.
    pub clearance: Clearance,
    pub by: String,
}

/// Reason why a run is not begun or cannot continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    NoSuchRun,
    NoRules,
    NoSuchRule(RuleId),
    /// It would have no effects.
    NotLive(RuleId),
    /// The rule's document has changed since the run began.
    Changed(RuleId),
    /// A step of the same run was faster.
    Overtaken,
    /// The run covers items of child safety, and the caller's clearance does not.
    ChildSafety,
}

/// Numbers of items by result.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Progress {
    pub items: u64,
    /// Items that do not fit their type any more.
    pub unfit: u64,
    /// Items of which a newer version is stored.
    pub superseded: u64,
    /// Items that one of the rules matches.
    pub matched: u64,
    /// Matched items on which all actions were taken before.
    pub done_before: u64,
    /// Matched items outside the rollouts of all matching rules.
    pub outside_rollout: u64,
    /// Items submitted again; in a dry run, those that would be.
    pub sent: u64,
    pub rules: BTreeMap<RuleId, u64>,
    /// Actions to take, before limits apply.
    pub actions: BTreeMap<ActionId, u64>,
}

/// A run.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    pub id: Uuid,
    pub rules: BTreeMap<RuleId, String>,
    pub since: String,
    pub until: String,
    pub dry_run: bool,
    /// True if the run covers items of child safety.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub child_safety: bool,
    pub begun_at: String,
    pub begun_by: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<String>,
    pub progress: Progress,
    /// All items before this instant have been evaluated.
    pub through: String,
}

/// Stores a new run. No item is evaluated yet.
pub async fn begin(
    deps: &Deps,
    org: &OrgId,
    wanted: Wanted,
    now: Millis,
) -> Result<Result<Run, Refusal>, Error> {
    if wanted.rules.is_empty() {
        return Ok(Err(Refusal::NoRules));
    }
    let config = deps.live.latest(org).await?;
    let mut rules = BTreeMap::new();
    for rule in wanted.rules {
        let Some(head) = config.rule(&rule) else { return Ok(Err(Refusal::NoSuchRule(rule))) };
        if head.status != Status::Live {
            return Ok(Err(Refusal::NotLive(rule)));
        }
        rules.insert(rule, head.version.clone());
    }
    let row = Retroaction {
        org: org.clone(),
        run: tidegate_schemas::ids::CauseId::random().0,
        rules: text(&rules)?,
        since: wanted.since,
        until: wanted.until,
        dry_run: wanted.dry_run,
        begun_at: now,
        begun_by: wanted.by,
        place: None,
        progress: text(&Progress::default())?,
        finished_at: None,
        child_safety: Some(wanted.clearance.covers_child_safety()),
        version: 1,
    };
    match deps.store.insert_new(&row).await? {
        Inserted::New => Ok(Ok(shown(&row)?)),
        Inserted::Existing(_) => Ok(Err(Refusal::Overtaken)),
    }
}

/// Returns the runs of an org, newest first. The counts of a run that covers items of child safety are shown only to
/// readers with the clearance for them.
pub async fn list(store: &Store, org: &OrgId, clearance: Clearance) -> Result<Vec<Run>, Error> {
    let rows = store.scan::<Retroaction>(&(org.clone(),), At::all()).all().await?;
    let visible = rows.iter().filter(|row| clearance.covers_child_safety() || !covers_child_safety(row));
    let mut runs: Vec<_> = visible.map(shown).collect::<Result<_, _>>()?;
    runs.sort_by(|left, right| right.begun_at.cmp(&left.begun_at));
    Ok(runs)
}

/// Evaluates the next items of a run until `most` items are sent, the run ends, or `is_enough` returns true.
pub async fn step(
    deps: &Deps,
    org: &OrgId,
    run: Uuid,
    clearance: Clearance,
    window_rows: usize,
    most: u64,
    is_enough: impl Fn() -> bool + Send,
) -> Result<Result<Run, Refusal>, Error> {
    /// Number of stored items read at once; each may have a megabyte.
    const ITEMS: usize = 64;
    let Some(mut row) = deps.store.get::<Retroaction>(&(org.clone(), run)).await? else {
        return Ok(Err(Refusal::NoSuchRun));
    };
    if covers_child_safety(&row) && !clearance.covers_child_safety() {
        return Ok(Err(Refusal::ChildSafety));
    }
    let clearance = Clearance::from_flag(covers_child_safety(&row));
    if row.finished_at.is_some() {
        return Ok(Ok(shown(&row)?));
    }
    let config = deps.live.latest(org).await?;
    let rules: BTreeMap<RuleId, String> = read(&row.rules)?;
    let other = rules.iter().find(|(rule, version)| !is_still(&config, rule, version));
    if let Some((rule, _)) = other {
        return Ok(Err(Refusal::Changed(rule.clone())));
    }
    let mut progress: Progress = read(&row.progress)?;
    let span = Span { time: row.since..row.until, sample: Sample::ALL };
    let mut place: Option<HistoryCursor> = row
        .place
        .as_deref()
        .map(str::parse)
        .transpose()
        .map_err(|_| Error::Corrupt { what: "run", detail: "its place".to_owned() })?;
    let before = progress.sent;
    let next = loop {
        let page = history::page(&deps.store, org, &span, place.take(), ITEMS).await?;
        let step = Step { deps, org, row: &row, rules: &rules, window_rows };
        let visible = clearance.visible_items(&deps.store, org, page.items).await?;
        step.evaluate(&config, visible, &mut progress).await?;
        if page.next.is_none() || progress.sent - before >= most || is_enough() {
            break page.next;
        }
        place = page.next;
    };
    tidegate_stream::failpoint!("after_retroact_append");
    row.place = next.as_ref().map(ToString::to_string);
    row.progress = text(&progress)?;
    row.finished_at = next.is_none().then(Millis::now);
    match deps.store.replace(&row, row.version).await? {
        Replaced::Yes => Ok(Ok(shown(&row)?)),
        Replaced::No(_) | Replaced::Gone => Ok(Err(Refusal::Overtaken)),
    }
}

fn covers_child_safety(row: &Retroaction) -> bool {
    row.child_safety.unwrap_or(false)
}

fn is_still(config: &Compiled, rule: &RuleId, version: &str) -> bool {
    config.rule(rule).is_some_and(|head| head.version == version && head.status == Status::Live)
}

/// One step of a run.
struct Step<'a> {
    deps: &'a Deps,
    org: &'a OrgId,
    row: &'a Retroaction,
    rules: &'a BTreeMap<RuleId, String>,
    window_rows: usize,
}

impl Step<'_> {
    async fn evaluate(
        &self,
        config: &Arc<Compiled>,
        items: Vec<Item>,
        progress: &mut Progress,
    ) -> Result<(), Error> {
        progress.items += items.len() as u64;
        let own = Arc::clone(config);
        let begun = compute(move || {
            let begin = |row: Item| (PastEvaluation::begin(Arc::clone(&own), &row), row);
            items.into_iter().map(begin).collect::<Vec<_>>()
        })
        .await;
        let nothing = BTreeSet::new();
        let archive = Archive {
            store: &self.deps.store,
            org: self.org,
            uncounted: &nothing,
            window_rows: self.window_rows,
        };
        let mut walks = Vec::with_capacity(begun.len());
        for (walk, row) in begun {
            match walk {
                Ok(mut walk) => {
                    walk.look_up(archive, Moment::from(&row)).await?;
                    walks.push((walk, row));
                }
                Err(Error::Content { .. }) => progress.unfit += 1,
                Err(error) => return Err(error),
            }
        }
        let judged =
            compute(move || walks.into_iter().map(|(walk, row)| (walk.finish(), row)).collect::<Vec<_>>())
                .await;
        let mut again = Vec::new();
        for ((prepared, PastOutcome { mut outcome, .. }), row) in judged {
            restrict(&mut outcome, self.rules);
            if is_idle(config, &outcome) {
                continue;
            }
            progress.matched += 1;
            if self.counts(config, &prepared, &outcome, &row, progress).await? {
                again.push(row);
            }
        }
        progress.sent += again.len() as u64;
        if self.row.dry_run { Ok(()) } else { self.send(config, again).await }
    }

    /// True if an action on the item is left to take.
    async fn counts(
        &self,
        config: &Compiled,
        prepared: &Prepared,
        outcome: &Outcome,
        row: &Item,
        progress: &mut Progress,
    ) -> Result<bool, Error> {
        let newest = stored::newest_place(&self.deps.store, self.org, &prepared.key).await?;
        let own = (row.append_ms, row.offset, row.position);
        if newest.is_some_and(|newest| stored::coordinates(&newest) > own) {
            progress.superseded += 1;
            return Ok(false);
        }
        let taken = taken(&self.deps.store, self.org, &prepared.key).await?;
        let acts = |rule: &RuleId| {
            let life = config.rule(rule).map(|head| &head.enforcement);
            life.is_some_and(|life| life.includes(rule, &prepared.key, prepared.user.as_ref()))
        };
        let acting: Vec<_> = outcome.matched.iter().filter(|found| acts(&found.rule)).collect();
        let actions: BTreeSet<&ActionId> =
            acting.iter().flat_map(|found| &found.actions).map(|action| &action.id).collect();
        let is_outside = acting.is_empty();
        let is_new = |action: &&ActionId| !taken.contains(&event_of(row.submission_id, action));
        let new: Vec<_> = actions.into_iter().filter(is_new).collect();
        for found in &acting {
            *progress.rules.entry(found.rule.clone()).or_default() += 1;
        }
        for action in &new {
            *progress.actions.entry((*action).clone()).or_default() += 1;
        }
        let is_left = !new.is_empty() || !outcome.errored.is_empty();
        progress.outside_rollout += u64::from(!is_left && is_outside);
        progress.done_before += u64::from(!is_left && !is_outside);
        Ok(is_left)
    }

    async fn send(&self, config: &Compiled, again: Vec<Item>) -> Result<(), Error> {
        if again.is_empty() {
            return Ok(());
        }
        let now = Millis::now();
        let (mut rows, mut sent) = (Batch::new(), Vec::with_capacity(again.len()));
        for row in again {
            let submission_id = repeated_id(self.org, self.row.run, row.submission_id);
            rows.put_owned(
                WriteTime::of(now, 0),
                Repeated {
                    org: self.org.clone(),
                    submission_id,
                    run: self.row.run,
                    original: row.submission_id,
                    source: row.source.clone(),
                    append_ms: row.append_ms,
                    offset: row.offset,
                    position: row.position,
                },
            );
            sent.push(record(self.org, config, self.row.run, submission_id, row, now)?);
        }
        rows.durable();
        self.deps.store.write(rows).await?;
        let data: Vec<_> =
            sent.iter().map(|record| (record.items[0].key().log_key(self.org), record.to_datum())).collect();
        let records: Vec<_> = data
            .iter()
            .map(|(key, datum)| {
                (self.deps.log.partition(Topic::Items, key), Record::new(key, datum.as_slice()))
            })
            .collect();
        Ok(self.deps.log.append(&records).await?)
    }
}

fn repeated_id(org: &OrgId, run: Uuid, original: SubmissionId) -> SubmissionId {
    derive(Kind::Retroaction, &[org.as_str().as_bytes(), run.as_bytes(), original.as_bytes()])
}

fn record(
    org: &OrgId,
    config: &Compiled,
    run: Uuid,
    submission_id: SubmissionId,
    row: Item,
    now: Millis,
) -> Result<records::Items, Error> {
    let variant = row.variant.parse::<Variant>().ok();
    let variant =
        variant.ok_or_else(|| Error::Corrupt { what: "item", detail: "unknown variant".to_owned() })?;
    Ok(records::Items {
        org: org.clone(),
        config_version: config.version(),
        source: Source::Retroact,
        received_at: now,
        request_id: format!("retroact-{run}"),
        report_id: row.report_id,
        items: vec![ItemEntry {
            submission_id,
            type_id: row.type_id,
            id: row.item_id,
            type_version: row.type_version,
            variant,
            data: row.data,
            origin: None,
            // A repeated step sends the item again.
            keyed: true,
        }],
    })
}

/// The original of a repeated submission.
#[derive(Clone, Debug)]
pub struct Repeat {
    pub original: SubmissionId,
    at: Coordinates,
    source: Source,
    rules: BTreeMap<RuleId, String>,
}

/// Reads the original that the step stored before it sent the submission.
pub async fn repeat_of(deps: &Deps, submission: &Submission<'_>) -> Result<Repeat, Error> {
    let corrupt = |detail: &str| Error::Corrupt { what: "repeated item", detail: detail.to_owned() };
    let org = &submission.header.org;
    let key = (org.clone(), submission.entry.submission_id);
    let row = deps.store.get::<Repeated>(&key).await?.ok_or_else(|| corrupt("its row is gone"))?;
    let run = deps.store.get::<Retroaction>(&(org.clone(), row.run)).await?;
    let run = run.ok_or_else(|| corrupt("its run is gone"))?;
    Ok(Repeat {
        original: row.original,
        at: Coordinates {
            append_ms: row.append_ms,
            offset: row.offset,
            position: i32::try_from(row.position).map_err(|_| corrupt("its place"))?,
        },
        source: row.source.parse::<Source>().ok().ok_or_else(|| corrupt("unknown source"))?,
        rules: read(&run.rules)?,
    })
}

/// Evaluates the item with those rules of the run whose version is unchanged.
pub async fn evaluate(
    deps: &Deps,
    config: Arc<Compiled>,
    submission: &Submission<'_>,
    repeat: &Repeat,
    window_rows: usize,
) -> Result<(Prepared, Outcome), Error> {
    let (entry, source, now) = (submission.entry.clone(), repeat.source, repeat.at.append_ms);
    let media = original(&deps.store, submission, repeat).await?.media;
    let own = Arc::clone(&config);
    let mut walk = compute(move || PastEvaluation::of(own, source, &entry, now, media)).await?;
    let nothing = BTreeSet::new();
    let archive =
        Archive { store: &deps.store, org: &submission.header.org, uncounted: &nothing, window_rows };
    walk.look_up(archive, Moment::new(repeat.at, repeat.original)).await?;
    let (prepared, PastOutcome { mut outcome, .. }) = compute(move || walk.finish()).await;
    let still = repeat.rules.iter().filter(|(rule, version)| is_still(&config, rule, version));
    restrict(&mut outcome, &still.map(|(rule, version)| (rule.clone(), version.clone())).collect());
    Ok((prepared, outcome))
}

/// Returns the row of the original submission.
async fn original(store: &Store, submission: &Submission<'_>, repeat: &Repeat) -> Result<Item, Error> {
    let (org, entry, at) = (&submission.header.org, submission.entry, repeat.at);
    let key = (
        org.clone(),
        entry.type_id.clone(),
        entry.id.clone(),
        at.append_ms,
        at.offset,
        i64::from(at.position),
    );
    let row = store.get::<Item>(&key).await?;
    row.ok_or_else(|| Error::Corrupt {
        what: "repeated item",
        detail: "its first version is gone".to_owned(),
    })
}

/// True if a newer version of the item is stored than the repeated one.
pub async fn is_superseded(
    store: &Store,
    org: &OrgId,
    item: &ItemKey,
    repeat: &Repeat,
) -> Result<bool, Error> {
    let newest = stored::newest_place(store, org, item).await?;
    let own = (repeat.at.append_ms, repeat.at.offset, i64::from(repeat.at.position));
    Ok(newest.is_some_and(|newest| stored::coordinates(&newest) > own))
}

/// Returns the events of all actions that were taken on an item.
pub async fn taken(store: &Store, org: &OrgId, item: &ItemKey) -> Result<HashSet<EventId>, Error> {
    let partition = (org.clone(), item.type_id.clone(), item.id.clone());
    let rows = store.scan::<ActionByItem>(&partition, At::all()).all().await?;
    Ok(rows.into_iter().map(|row| row.event_id).collect())
}

fn restrict(outcome: &mut Outcome, rules: &BTreeMap<RuleId, String>) {
    outcome.matched.retain(|found| rules.contains_key(&found.rule));
    outcome.errored.retain(|failed| rules.contains_key(&failed.rule));
    (outcome.matched_more, outcome.errored_more) = (0, 0);
}

/// True if the outcome has no effects.
fn is_idle(config: &Compiled, outcome: &Outcome) -> bool {
    let counts = |rule: &RuleId| {
        config.rule(rule).is_some_and(|head| head.enforcement.on_error != OnError::NotMatched)
    };
    outcome.matched.is_empty() && !outcome.errored.iter().any(|failed| counts(&failed.rule))
}

fn shown(row: &Retroaction) -> Result<Run, Error> {
    let place: Option<HistoryCursor> = row.place.as_deref().and_then(|place| place.parse().ok());
    let through = match (&place, row.finished_at) {
        (_, Some(_)) => row.until,
        (Some(place), None) => place.at().max(row.since),
        (None, None) => row.since,
    };
    Ok(Run {
        id: row.run,
        rules: read(&row.rules)?,
        since: row.since.iso(),
        until: row.until.iso(),
        dry_run: row.dry_run,
        child_safety: covers_child_safety(row),
        begun_at: row.begun_at.iso(),
        begun_by: row.begun_by.clone(),
        finished_at: row.finished_at.map(Millis::iso),
        progress: read(&row.progress)?,
        through: through.iso(),
    })
}

fn text(value: &impl Serialize) -> Result<String, Error> {
    serde_json::to_string(value).map_err(Error::corrupt("run"))
}

fn read<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, Error> {
    serde_json::from_str(text).map_err(Error::corrupt("run"))
}

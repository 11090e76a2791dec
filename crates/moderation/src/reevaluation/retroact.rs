//! Retroaction: a run finds past items that match rules, and submits them again. Processors apply limits and effects,
//! as for every submission.
//!
//! A run is a row with its rules, their versions and its position. A step evaluates some stored items. For each match
//! it stores a reference to the original submission, appends the item as submission H(org, run, original submission),
//! then stores the new position. After a crash the step is repeated with the same ids. Events of a repeated
//! submission have the ids of the original, so no action is taken twice, even by several runs.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
};

use async_recursion::async_recursion as boxed;
use serde::{Deserialize, Serialize};
use tidegate_catalog::Compiled;
use tidegate_rules::{OnError, Outcome, Status};
use tidegate_schemas::{
    ids::{ActionId, EventId, ItemKey, Kind, Millis, OrgId, RuleId, SubmissionId, derive},
    records::{self, Coordinates, ItemEntry, Record as _, Source},
};
use tidegate_store::{
    Batch, InsertOutcome, ReplaceOutcome, RowRange, Store, WriteTime,
    tables::items::{
        items::Item,
        retroactions::{RetroactedItem, Retroaction},
        strikes::ActionByItem,
    },
};
use tidegate_stream::{Record, Topic};
use uuid::Uuid;

use super::stored_evaluation::{Archive, PastEvaluation, PastOutcome, run_blocking};
use crate::{
    Deps, Error,
    child_safety::Clearance,
    effects::derive_event_id,
    items::{
        evaluate::PreparedItem,
        history::{self, HistoryCursor, Sample, SampledPeriod},
        stored::{self, Submission},
    },
    rules::windows::SubmissionPosition,
};

/// Request for a run.
#[derive(Clone, Debug)]
pub struct RunRequest {
    pub rules: Vec<RuleId>,
    pub since: Millis,
    pub until: Millis,
    /// Counts the effects without submitting the items.
    pub dry_run: bool,
    /// States whether the run covers child-safety items.
    pub clearance: Clearance,
    pub by: String,
}

/// Reason why a run cannot start or continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunRefusal {
    NoSuchRun,
    NoRules,
    NoSuchRule(RuleId),
    /// A rule that is not live would have no effects.
    NotLive(RuleId),
    /// The rule's document has changed since the start of the run.
    Changed(RuleId),
    /// Another step of the run was faster.
    Overtaken,
    /// The run covers child-safety items, but the caller's clearance does not.
    ChildSafety,
}

/// Numbers of items by result.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Progress {
    pub items: u64,
    /// Items that no longer fit their type.
    pub unfit: u64,
    /// Items with a newer stored version.
    pub superseded: u64,
    /// Items that match at least one of the rules.
    pub matched: u64,
    /// Matched items with all actions taken before.
    pub done_before: u64,
    /// Matched items outside the rollouts of all matching rules.
    pub outside_rollout: u64,
    /// Items submitted again; in a dry run, items to be submitted.
    pub sent: u64,
    pub rules: BTreeMap<RuleId, u64>,
    /// Actions to take, before limits.
    pub actions: BTreeMap<ActionId, u64>,
}

/// Run in an answer.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RetroactionResponse {
    pub id: Uuid,
    pub rules: BTreeMap<RuleId, String>,
    pub since: String,
    pub until: String,
    pub dry_run: bool,
    /// True if the run covers child-safety items.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub child_safety: bool,
    pub begun_at: String,
    pub begun_by: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<String>,
    pub progress: Progress,
    /// All items before this time are evaluated.
    pub through: String,
}

/// Stores a new run without evaluating items.
#[boxed]
pub async fn begin(
    deps: &Deps,
    org: &OrgId,
    request: RunRequest,
    now: Millis,
) -> Result<Result<RetroactionResponse, RunRefusal>, Error> {
    if request.rules.is_empty() {
        return Ok(Err(RunRefusal::NoRules));
    }
    let config = deps.live.load_latest(org).await?;
    let mut rules = BTreeMap::new();
    for rule in request.rules {
        let Some(head) = config.rule(&rule) else { return Ok(Err(RunRefusal::NoSuchRule(rule))) };
        // Other rules take no actions, so a run with them would have no effects.
        if head.status != Status::Live {
            return Ok(Err(RunRefusal::NotLive(rule)));
        }
        rules.insert(rule, head.version.clone());
    }
    let row = Retroaction {
        org: org.clone(),
        // Random: a repeated request starts another run, and no action is taken twice.
        run: tidegate_schemas::ids::CauseId::random().0,
        rules: to_json(&rules)?,
        since: request.since,
        until: request.until,
        dry_run: request.dry_run,
        begun_at: now,
        begun_by: request.by,
        place: None,
        progress: to_json(&Progress::default())?,
        finished_at: None,
        child_safety: Some(request.clearance.covers_child_safety()),
        version: 1,
    };
    match deps.store.insert_new(&row).await? {
        InsertOutcome::New => Ok(Ok(run_view(&row)?)),
        InsertOutcome::Existing(_) => Ok(Err(RunRefusal::Overtaken)),
    }
}

/// Lists the runs of an org, newest first. Runs on child-safety items are omitted for readers without clearance,
/// because their counts would reveal such items.
#[boxed]
pub async fn list_runs(
    store: &Store,
    org: &OrgId,
    clearance: Clearance,
) -> Result<Vec<RetroactionResponse>, Error> {
    let rows = store.scan::<Retroaction>(&(org.clone(),), RowRange::all()).all().await?;
    let visible = rows.iter().filter(|row| clearance.covers_child_safety() || !covers_child_safety(row));
    let mut runs: Vec<_> = visible.map(run_view).collect::<Result<_, _>>()?;
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
) -> Result<Result<RetroactionResponse, RunRefusal>, Error> {
    /// Number of stored items per read; each can have a megabyte.
    const ITEMS: usize = 64;
    let Some(mut row) = deps.store.get::<Retroaction>(&(org.clone(), run)).await? else {
        return Ok(Err(RunRefusal::NoSuchRun));
    };
    if covers_child_safety(&row) && !clearance.covers_child_safety() {
        return Ok(Err(RunRefusal::ChildSafety));
    }
    // The run's own flag decides from here on, so that all steps cover the same items.
    let clearance = Clearance::from_flag(covers_child_safety(&row));
    if row.finished_at.is_some() {
        return Ok(Ok(run_view(&row)?));
    }
    let config = deps.live.load_latest(org).await?;
    let rules: BTreeMap<RuleId, String> = from_json(&row.rules)?;
    let changed_rule = rules.iter().find(|(rule, version)| !is_unchanged(&config, rule, version));
    if let Some((rule, _)) = changed_rule {
        // The progress so far belongs to the old version of the rule.
        return Ok(Err(RunRefusal::Changed(rule.clone())));
    }
    let mut progress: Progress = from_json(&row.progress)?;
    let span = SampledPeriod { time: row.since..row.until, sample: Sample::ALL };
    let mut position: Option<HistoryCursor> = row
        .place
        .as_deref()
        .map(str::parse)
        .transpose()
        .map_err(|_| Error::Corrupt { what: "run", detail: "invalid position".to_owned() })?;
    let sent_before = progress.sent;
    let next = loop {
        let page = history::load_page(&deps.store, org, &span, position.take(), ITEMS).await?;
        let step = Step { deps, org, row: &row, rules: &rules, window_rows };
        let visible = clearance.visible_items(&deps.store, org, page.items).await?;
        step.evaluate(&config, visible, &mut progress).await?;
        if page.next.is_none() || progress.sent - sent_before >= most || is_enough() {
            break page.next;
        }
        position = page.next;
    };
    tidegate_stream::failpoint!("after_retroact_append");
    row.place = next.as_ref().map(ToString::to_string);
    row.progress = to_json(&progress)?;
    row.finished_at = next.is_none().then(Millis::now);
    match deps.store.replace(&row, row.version).await? {
        ReplaceOutcome::Done => Ok(Ok(run_view(&row)?)),
        // The concurrent step has sent the same ids, so no item is processed twice.
        ReplaceOutcome::Conflict(_) | ReplaceOutcome::Missing => Ok(Err(RunRefusal::Overtaken)),
    }
}

fn covers_child_safety(row: &Retroaction) -> bool {
    row.child_safety.unwrap_or(false)
}

fn is_unchanged(config: &Compiled, rule: &RuleId, version: &str) -> bool {
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
        let own_config = Arc::clone(config);
        let evaluations = run_blocking(move || {
            let begin = |row: Item| (PastEvaluation::begin(Arc::clone(&own_config), &row), row);
            items.into_iter().map(begin).collect::<Vec<_>>()
        })
        .await;
        let no_windows = BTreeSet::new();
        let archive = Archive {
            store: &self.deps.store,
            org: self.org,
            uncounted: &no_windows,
            window_rows: self.window_rows,
        };
        let mut walks = Vec::with_capacity(evaluations.len());
        for (walk, row) in evaluations {
            match walk {
                Ok(mut walk) => {
                    walk.look_up(archive, SubmissionPosition::from(&row)).await?;
                    walks.push((walk, row));
                }
                // The type may have changed since the item was stored.
                Err(Error::Content { .. }) => progress.unfit += 1,
                Err(error) => return Err(error),
            }
        }
        let outcomes = run_blocking(move || {
            walks.into_iter().map(|(walk, row)| (walk.finish(), row)).collect::<Vec<_>>()
        })
        .await;
        let mut items_to_send = Vec::new();
        for ((prepared, PastOutcome { mut outcome, .. }), row) in outcomes {
            // All live rules were evaluated, but only those of the run may act.
            retain_rules(&mut outcome, self.rules);
            if is_without_effects(config, &outcome) {
                continue;
            }
            progress.matched += 1;
            if self.count_item(config, &prepared, &outcome, &row, progress).await? {
                items_to_send.push(row);
            }
        }
        progress.sent += items_to_send.len() as u64;
        if self.row.dry_run { Ok(()) } else { self.submit_again(config, items_to_send).await }
    }

    /// Counts the item in the progress. Returns true if an action remains to be taken.
    async fn count_item(
        &self,
        config: &Compiled,
        prepared: &PreparedItem,
        outcome: &Outcome,
        row: &Item,
        progress: &mut Progress,
    ) -> Result<bool, Error> {
        let newest = stored::find_newest_place(&self.deps.store, self.org, &prepared.key).await?;
        let coordinates = (row.append_ms, row.offset, row.position);
        // The item was changed since. Only its newest version is acted on.
        if newest.is_some_and(|newest| stored::coordinates(&newest) > coordinates) {
            progress.superseded += 1;
            return Ok(false);
        }
        let taken_events = load_taken_events(&self.deps.store, self.org, &prepared.key).await?;
        let acts = |rule: &RuleId| {
            let enforcement = config.rule(rule).map(|head| &head.enforcement);
            enforcement
                .is_some_and(|enforcement| enforcement.includes(rule, &prepared.key, prepared.user.as_ref()))
        };
        let acting: Vec<_> = outcome.matched.iter().filter(|rule_match| acts(&rule_match.rule)).collect();
        let actions: BTreeSet<&ActionId> =
            acting.iter().flat_map(|rule_match| &rule_match.actions).map(|action| &action.id).collect();
        let is_outside = acting.is_empty();
        let is_new = |action: &&ActionId| !taken_events.contains(&derive_event_id(row.submission_id, action));
        let new_actions: Vec<_> = actions.into_iter().filter(is_new).collect();
        for rule_match in &acting {
            *progress.rules.entry(rule_match.rule.clone()).or_default() += 1;
        }
        for action in &new_actions {
            *progress.actions.entry((*action).clone()).or_default() += 1;
        }
        let has_effects = !new_actions.is_empty() || !outcome.errored.is_empty();
        progress.outside_rollout += u64::from(!has_effects && is_outside);
        progress.done_before += u64::from(!has_effects && !is_outside);
        Ok(has_effects)
    }

    async fn submit_again(&self, config: &Compiled, items: Vec<Item>) -> Result<(), Error> {
        if items.is_empty() {
            return Ok(());
        }
        let now = Millis::now();
        let (mut rows, mut records_sent) = (Batch::new(), Vec::with_capacity(items.len()));
        for row in items {
            let submission_id = derive_repeated_id(self.org, self.row.run, row.submission_id);
            rows.put_owned(
                WriteTime::from_append(now, 0),
                RetroactedItem {
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
            records_sent.push(build_record(self.org, config, self.row.run, submission_id, row, now)?);
        }
        // Before the append: the processor reads the original's reference.
        rows.require_sync();
        self.deps.store.write(rows).await?;
        let data: Vec<_> = records_sent
            .iter()
            .map(|record| (record.items[0].key().log_key(self.org), record.to_datum()))
            .collect();
        let records: Vec<_> = data
            .iter()
            .map(|(key, datum)| {
                (self.deps.log.partition(Topic::Items, key), Record::new(key, datum.as_slice()))
            })
            .collect();
        Ok(self.deps.log.append(&records).await?)
    }
}

fn derive_repeated_id(org: &OrgId, run: Uuid, original: SubmissionId) -> SubmissionId {
    derive(Kind::Retroaction, &[org.as_str().as_bytes(), run.as_bytes(), original.as_bytes()])
}

fn build_record(
    org: &OrgId,
    config: &Compiled,
    run: Uuid,
    submission_id: SubmissionId,
    row: Item,
    now: Millis,
) -> Result<records::Items, Error> {
    let unknown_variant = || Error::Corrupt { what: "item", detail: "unknown variant".to_owned() };
    let variant = row.variant.as_known().ok_or_else(unknown_variant)?;
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
            // A repeated step sends the item again; with `keyed` the first submission is kept.
            keyed: true,
        }],
    })
}

/// Original of a repeated submission.
#[derive(Clone, Debug)]
pub struct RepeatedSubmission {
    pub original: SubmissionId,
    at: Coordinates,
    source: Source,
    rules: BTreeMap<RuleId, String>,
}

/// Loads the original of a repeated submission.
#[boxed]
pub async fn load_repeat(deps: &Deps, submission: &Submission<'_>) -> Result<RepeatedSubmission, Error> {
    let corrupt = |detail: &str| Error::Corrupt { what: "repeated item", detail: detail.to_owned() };
    let org = &submission.header.org;
    let key = (org.clone(), submission.entry.submission_id);
    let row = deps.store.get::<RetroactedItem>(&key).await?.ok_or_else(|| corrupt("its row is missing"))?;
    let run = deps.store.get::<Retroaction>(&(org.clone(), row.run)).await?;
    let run = run.ok_or_else(|| corrupt("its run is missing"))?;
    Ok(RepeatedSubmission {
        original: row.original,
        at: Coordinates {
            append_ms: row.append_ms,
            offset: row.offset,
            position: i32::try_from(row.position).map_err(|_| corrupt("invalid position"))?,
        },
        source: row.source.as_known().ok_or_else(|| corrupt("unknown source"))?,
        rules: from_json(&run.rules)?,
    })
}

/// Evaluates the item with the run's rules, except those with another version by now.
#[boxed]
pub async fn evaluate(
    deps: &Deps,
    config: Arc<Compiled>,
    submission: &Submission<'_>,
    repeat: &RepeatedSubmission,
    window_rows: usize,
) -> Result<(PreparedItem, Outcome), Error> {
    let (entry, source, now) = (submission.entry.clone(), repeat.source, repeat.at.append_ms);
    let media = load_original(&deps.store, submission, repeat).await?.media;
    let own_config = Arc::clone(&config);
    let mut walk =
        run_blocking(move || PastEvaluation::begin_repeated(own_config, source, &entry, now, media)).await?;
    let no_windows = BTreeSet::new();
    let archive =
        Archive { store: &deps.store, org: &submission.header.org, uncounted: &no_windows, window_rows };
    walk.look_up(archive, SubmissionPosition::new(repeat.at, repeat.original)).await?;
    let (prepared, PastOutcome { mut outcome, .. }) = run_blocking(move || walk.finish()).await;
    let unchanged = repeat.rules.iter().filter(|(rule, version)| is_unchanged(&config, rule, version));
    retain_rules(&mut outcome, &unchanged.map(|(rule, version)| (rule.clone(), version.clone())).collect());
    Ok((prepared, outcome))
}

/// Loads the original submission.
async fn load_original(
    store: &Store,
    submission: &Submission<'_>,
    repeat: &RepeatedSubmission,
) -> Result<Item, Error> {
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
    row.ok_or_else(|| Error::Corrupt { what: "repeated item", detail: "its original is missing".to_owned() })
}

/// True if a newer version than the repeated one is stored.
#[boxed]
pub async fn is_superseded(
    store: &Store,
    org: &OrgId,
    item: &ItemKey,
    repeat: &RepeatedSubmission,
) -> Result<bool, Error> {
    let newest = stored::find_newest_place(store, org, item).await?;
    let coordinates = (repeat.at.append_ms, repeat.at.offset, i64::from(repeat.at.position));
    Ok(newest.is_some_and(|newest| stored::coordinates(&newest) > coordinates))
}

/// Returns the events of all actions on an item.
#[boxed]
pub async fn load_taken_events(
    store: &Store,
    org: &OrgId,
    item: &ItemKey,
) -> Result<HashSet<EventId>, Error> {
    let partition = (org.clone(), item.type_id.clone(), item.id.clone());
    let rows = store.scan::<ActionByItem>(&partition, RowRange::all()).all().await?;
    Ok(rows.into_iter().map(|row| row.event_id).collect())
}

fn retain_rules(outcome: &mut Outcome, rules: &BTreeMap<RuleId, String>) {
    outcome.matched.retain(|rule_match| rules.contains_key(&rule_match.rule));
    outcome.errored.retain(|failure| rules.contains_key(&failure.rule));
    // The omitted entries may belong to rules outside the run.
    (outcome.matched_more, outcome.errored_more) = (0, 0);
}

/// True if the outcome has no effects.
fn is_without_effects(config: &Compiled, outcome: &Outcome) -> bool {
    let has_consequence = |rule: &RuleId| {
        config.rule(rule).is_some_and(|head| head.enforcement.on_error != OnError::NotMatched)
    };
    outcome.matched.is_empty() && !outcome.errored.iter().any(|failure| has_consequence(&failure.rule))
}

fn run_view(row: &Retroaction) -> Result<RetroactionResponse, Error> {
    let position: Option<HistoryCursor> = row.place.as_deref().and_then(|place| place.parse().ok());
    let through = match (&position, row.finished_at) {
        (_, Some(_)) => row.until,
        (Some(place), None) => place.partition.at().max(row.since),
        (None, None) => row.since,
    };
    Ok(RetroactionResponse {
        id: row.run,
        rules: from_json(&row.rules)?,
        since: row.since.iso(),
        until: row.until.iso(),
        dry_run: row.dry_run,
        child_safety: covers_child_safety(row),
        begun_at: row.begun_at.iso(),
        begun_by: row.begun_by.clone(),
        finished_at: row.finished_at.map(Millis::iso),
        progress: from_json(&row.progress)?,
        through: through.iso(),
    })
}

fn to_json(value: &impl Serialize) -> Result<String, Error> {
    serde_json::to_string(value).map_err(Error::corrupt("run"))
}

fn from_json<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, Error> {
    serde_json::from_str(text).map_err(Error::corrupt("run"))
}

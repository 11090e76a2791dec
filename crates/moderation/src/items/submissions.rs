//! Submissions from evaluation to effects: replay state, plan, stored rows, and hand-over to `items-slow`.

use std::collections::BTreeSet;

use async_recursion::async_recursion as boxed;
use serde_json::json;
use tidegate_catalog::Compiled;
use tidegate_rules::{Omissions, Outcome};
use tidegate_schemas::{
    documents::RoutingList,
    ids::{ConfigVersion, ItemKey, Millis, SubmissionId},
    records::{self, ItemEntry, Record as _},
    wire::answers::Media,
};
use tidegate_store::{
    Batch, WriteTime,
    tables::{
        items::{
            by_user::{ItemOfUser, stretch},
            history::ItemOfHour,
            items::{Item, ItemPlace, Stage, SubmissionPlace, SubmissionState, write_time},
        },
        review::reports::Report,
    },
};
use tidegate_stream::{Record, Topic, error::AppendError};

use crate::{
    Deps, Error,
    effects::{
        self, EvaluatedSubmission, Findings, LimitRefusals, Plan, PlannedQueue, PlannedReview, Repetition,
        RuleLimitRequest,
    },
    items::{
        evaluate::PreparedItem,
        history,
        stored::{self, RESENT, Submission},
        waiting,
    },
    jobs::{priority, routing},
    metrics,
    rules::stats::RuleOutcome,
};

/// State of a submission that may be a replay, as an earlier run left it.
#[derive(Debug)]
pub enum ReplayState {
    /// The plan is stored, but may be carried out only partly.
    Planned {
        plan: Box<Plan>,
        /// True if the item's row is stored as well, so that part of the plan may be carried out.
        is_begun: bool,
    },
    /// The submission is finished: it had no effects, or another record of it had them.
    Evaluated,
    /// The submission was handed over to `items-slow`. Another evaluation here could have a different result.
    HandedOver,
    /// First run: no row or plan is stored.
    Fresh,
}

/// Determines the replay state from the stored plan and row.
#[boxed]
pub async fn load_replay_state(deps: &Deps, submission: &Submission<'_>) -> Result<ReplayState, Error> {
    let (org, entry) = (&submission.header.org, submission.entry);
    let location = if entry.keyed {
        let first_place = stored::load_place(&deps.store, org, entry.submission_id).await?;
        first_place
            .map(|place| (place.type_id.clone(), place.item_id.clone(), stored::coordinates_of(&place)))
    } else {
        // A random id belongs to one record only.
        Some((entry.type_id.clone(), entry.id.clone(), submission.coordinates()))
    };
    let row = match &location {
        Some((type_id, id, (append_ms, offset, position))) => {
            let key = (org.clone(), type_id.clone(), id.clone(), *append_ms, *offset, *position);
            deps.store.get::<ItemPlace>(&key).await?
        }
        None => None,
    };
    // A record with other coordinates repeats the submission. The log keeps the order of an item, so the first record
    // is finished or waits for media. A second row would become the item's newest version, and effects repeated this
    // late would miss the deliveries that have expired.
    if row.as_ref().is_some_and(|row| stored::coordinates(row) != submission.coordinates()) {
        return Ok(ReplayState::Evaluated);
    }
    let is_evaluated = row.as_ref().is_some_and(|row| row.state == SubmissionState::Evaluated);
    if let Some(plan) = effects::load_plan(&deps.store, org, entry.submission_id.0).await? {
        return Ok(ReplayState::Planned { plan: Box::new(plan), is_begun: is_evaluated });
    }
    Ok(match row {
        Some(_) if is_evaluated => ReplayState::Evaluated,
        // On the slow path an accepted row is the expected state.
        Some(_) if !submission.is_late => ReplayState::HandedOver,
        _ => ReplayState::Fresh,
    })
}

/// Returns the reason why rules open no reviews for the record, if any: a child-safety report opens its own job.
#[boxed]
pub async fn review_suppression(deps: &Deps, header: &records::Items) -> Result<Option<&'static str>, Error> {
    let Some(report_id) = header.report_id else { return Ok(None) };
    let report = deps.store.get::<Report>(&(header.org.clone(), report_id)).await?;
    Ok(report.is_some_and(|report| report.csam).then_some("child_safety"))
}

/// Lists the limit requests that must be answered before planning. `repetition` is set for a submission that repeats
/// an earlier one.
pub fn limit_requests(
    submission: &Submission<'_>,
    prepared: &PreparedItem,
    outcome: &Outcome,
    review_suppression: Option<&'static str>,
    repetition: Option<Repetition<'_>>,
) -> Vec<RuleLimitRequest> {
    let no_refusals = LimitRefusals::new();
    effects::limit_requests(
        &prepared.config,
        &evaluated_submission(submission, prepared, outcome, review_suppression, &no_refusals, repetition),
    )
}

/// Plans the effects of an evaluation. Rules with a refusal in `refusals` do not act.
pub fn plan(
    submission: &Submission<'_>,
    prepared: &PreparedItem,
    outcome: &Outcome,
    review_suppression: Option<&'static str>,
    refusals: &LimitRefusals,
    repetition: Option<Repetition<'_>>,
) -> Plan {
    let config = &prepared.config;
    let evaluation =
        evaluated_submission(submission, prepared, outcome, review_suppression, refusals, repetition);
    let mut plan = effects::plan_item(config, &evaluation);
    for review in &mut plan.reviews {
        if review.is_routable {
            route_review(config, prepared, review);
        }
        review.signals.reach = priority::read_reach(config, review.queue.id(), &submission.entry.data);
    }
    plan
}

/// Plans a fetched item: its media are stored, and there are no effects.
pub fn plan_fetched(submission: &Submission<'_>, prepared: &PreparedItem) -> Result<Plan, Error> {
    let media = serde_json::to_string(&prepared.media.rows).map_err(Error::corrupt("list"))?;
    let (org, version) = (&submission.header.org, prepared.config.version());
    Ok(Plan::without_effects(org, submission.entry.submission_id, submission.at.append_ms, media, version))
}

/// Chooses the queue of a review without a queue.
fn route_review(config: &Compiled, prepared: &PreparedItem, review: &mut PlannedReview) {
    let policies = review.rules.iter().filter_map(|rule| config.rule(rule)).flat_map(|rule| &rule.policies);
    let policies: BTreeSet<_> =
        policies.filter_map(|id| config.policy(id)).map(|policy| &policy.key).collect();
    let banks = routing::matched_banks(&prepared.media.rows);
    let cause_facts =
        json!({"rules": {"matched": review.rules, "policies": policies}, "media": {"banks": banks}});
    let item = (&prepared.key, Some(prepared.fields()));
    let choice = routing::choose_queue(config, RoutingList::Rules, item, &cause_facts, review.at);
    (review.queue, review.routed_by) = (PlannedQueue::Review(choice.queue), choice.routed_by);
}

fn evaluated_submission<'a>(
    submission: &Submission<'a>,
    prepared: &'a PreparedItem,
    outcome: &'a Outcome,
    review_suppression: Option<&'static str>,
    refusals: &'a LimitRefusals,
    repetition: Option<Repetition<'a>>,
) -> EvaluatedSubmission<'a> {
    EvaluatedSubmission {
        org: &submission.header.org,
        submission_id: submission.entry.submission_id,
        item: &prepared.key,
        user: prepared.user.as_ref(),
        append_ms: submission.at.append_ms,
        outcome,
        review_suppression,
        limit_refusals: refusals,
        repetition,
        media: &prepared.media.rows,
    }
}

/// Stores the submission as accepted, then hands it over to `items-slow`. Returns when both are durable.
#[boxed]
pub async fn accept(
    deps: &Deps,
    submission: &Submission<'_>,
    version: ConfigVersion,
    media: &[Media],
    is_resent: bool,
) -> Result<(), Error> {
    let at = write_time(submission.at.append_ms, Stage::Accepted);
    // Before the item's row: readers ignore a row at another place than the submission's.
    if submission.entry.keyed {
        deps.store.put_rows(at, &[submission_place(submission)]).await?;
    }
    deps.store.put_rows(at, &[accepted_row(submission, version, media)?]).await?;
    tidegate_stream::failpoint!("after_accepted");
    hand_over(deps, submission, is_resent).await
}

/// Hands the submission over to `items-slow`, which waits longer for media. `is_resent` is true for a replayed dead
/// letter.
#[boxed]
pub async fn hand_over(deps: &Deps, submission: &Submission<'_>, is_resent: bool) -> Result<(), Error> {
    let Submission { header, entry, at, .. } = *submission;
    let record = header.with(vec![ItemEntry { origin: Some(at), ..entry.clone() }]);
    let key = entry.key().log_key(&header.org);
    let headers: &[(&str, &[u8])] = if is_resent { &[(RESENT, b"1")] } else { &[] };
    let partition = deps.log.partition(Topic::ItemsSlow, &key);
    deps.log.append(&[(partition, Record::new(&key, record.to_datum()).with_headers(headers))]).await?;
    tidegate_stream::failpoint!("after_slow_append");
    Ok(())
}

/// Carries out the plan, or the plan of an earlier run. Returns when all effects are durable. The returned rule
/// outcomes are empty if an earlier run has counted them.
#[boxed]
pub async fn carry_out(
    deps: &Deps,
    submission: &Submission<'_>,
    mut plan: Plan,
) -> Result<Vec<RuleOutcome>, Error> {
    // A plan without effects is not stored: a conditional write costs four round trips in CQL, and most items match
    // no rule.
    let mut plan = if plan.has_effects() {
        plan.recorded_at = Some(submission.recorded_at);
        Box::pin(effects::adopt(&deps.store, plan, Millis::now())).await?
    } else {
        plan
    };
    let rule_outcomes = std::mem::take(&mut plan.rule_outcomes);
    finish(deps, submission, &plan).await?;
    if let Some(findings) = &plan.evaluation {
        count_left_out(&findings.left_out);
    }
    Ok(rule_outcomes)
}

fn count_left_out(left_out: &Omissions) {
    for (part, is_some) in [
        ("matched", left_out.matched_more > 0),
        ("errored", left_out.errored_more > 0),
        ("uncounted", !left_out.uncounted.is_empty()),
        ("truncated", !left_out.truncated.is_empty()),
    ] {
        if is_some {
            metrics::evaluation_left_out(part);
        }
    }
}

/// Carries out a plan that is stored already or has no effects.
#[boxed]
pub async fn finish(deps: &Deps, submission: &Submission<'_>, plan: &Plan) -> Result<(), Error> {
    let Some(findings) = &plan.evaluation else {
        return Err(Error::Corrupt {
            what: "plan",
            detail: "the plan of an item has no findings".to_owned(),
        });
    };
    // Before the row: without effects, an evaluated row marks the submission as finished. Boxed, because few items
    // need it and the future would enlarge every item's task.
    if !findings.is_silent() {
        Box::pin(publish(deps, submission, plan, findings)).await?;
    }
    let rows = [EvaluatedRows::new(submission, plan.config_version, findings)];
    deps.store.write(batch_of(&rows)).await?;
    waiting::wake_waiters(submission.entry.submission_id);
    Box::pin(effects::apply(deps, plan)).await
}

fn submission_place(submission: &Submission<'_>) -> SubmissionPlace {
    let Submission { header, entry, at, .. } = *submission;
    SubmissionPlace {
        org: header.org.clone(),
        submission_id: entry.submission_id,
        type_id: entry.type_id.clone(),
        item_id: entry.id.clone(),
        append_ms: at.append_ms,
        offset: at.offset,
        position: i64::from(at.position),
    }
}

/// Rows of an evaluated submission.
#[derive(Debug)]
pub struct EvaluatedRows {
    written: WriteTime,
    /// Set for a submission that can be sent again.
    place: Option<SubmissionPlace>,
    hour: Option<ItemOfHour>,
    of_user: Option<ItemOfUser>,
    item: Item,
}

impl EvaluatedRows {
    pub fn new(submission: &Submission<'_>, config_version: ConfigVersion, findings: &Findings) -> Self {
        let hour = history::index_row(submission);
        // Both indexes have the same submissions: repeated and fetched ones are in neither.
        let creator = findings.user.as_ref().filter(|_| hour.is_some());
        Self {
            written: write_time(submission.at.append_ms, submission.stage()),
            // A later record of the submission gets here only if the earlier one became a dead letter, so it may
            // overwrite.
            place: submission.entry.keyed.then(|| submission_place(submission)),
            hour,
            of_user: creator.and_then(|user| user_row(submission, user)),
            item: Item {
                state: SubmissionState::Evaluated.into(),
                evaluated_at: Some(findings.evaluated_at),
                matched: findings.matched.clone(),
                errored: findings.errored.clone(),
                actions: findings.actions.clone(),
                media: findings.media.clone(),
                left_out: findings.left_out(),
                ..unevaluated_row(submission, config_version)
            },
        }
    }
}

/// Builds the row in the creator's list. A user item is not listed under itself.
fn user_row(submission: &Submission<'_>, user: &ItemKey) -> Option<ItemOfUser> {
    let Submission { header, entry, at, .. } = submission;
    if entry.key() == *user {
        return None;
    }
    Some(ItemOfUser {
        org: header.org.clone(),
        user: user.clone(),
        stretch: stretch(at.append_ms),
        append_ms: at.append_ms,
        submission_id: entry.submission_id,
        type_id: entry.type_id.clone(),
        item_id: entry.id.clone(),
        offset: at.offset,
        position: i64::from(at.position),
    })
}

/// Stores new submissions in one batch. None of them may have rows already.
#[boxed]
pub async fn store_new(deps: &Deps, submissions: &[EvaluatedRows]) -> Result<(), Error> {
    let mut batch = batch_of(submissions);
    batch.assume_new_rows();
    deps.store.write(batch).await?;
    for rows in submissions {
        waiting::wake_waiters(rows.item.submission_id);
    }
    Ok(())
}

fn batch_of(submissions: &[EvaluatedRows]) -> Batch<'_> {
    let mut batch = Batch::new();
    for EvaluatedRows { written, place, hour, of_user, .. } in submissions {
        batch.put_all(*written, place.as_slice()).put_all(*written, hour.as_slice());
        batch.put_all(*written, of_user.as_slice());
    }
    // The items' rows are last: a replay that finds an evaluated row stops, so the other rows must be stored before.
    batch.begin_step();
    for EvaluatedRows { written, item, .. } in submissions {
        batch.put_row(*written, item);
    }
    batch
}

fn accepted_row(submission: &Submission<'_>, version: ConfigVersion, media: &[Media]) -> Result<Item, Error> {
    let media = serde_json::to_string(media).map_err(Error::corrupt("list"))?;
    Ok(Item { media, ..unevaluated_row(submission, version) })
}

/// Returns the next version of the item in the same record. Records on the slow path have one item.
fn next_version(submission: &Submission<'_>) -> Option<SubmissionId> {
    let Submission { header, entry, at, .. } = *submission;
    let position = usize::try_from(at.position).ok().filter(|_| entry.origin.is_none())?;
    let later_entries = header.items.get(position + 1..)?;
    // The id is compared first: it differs between nearly all items of a request.
    let mut later_entries = later_entries.iter();
    let next_entry = later_entries.find(|later| later.id == entry.id && later.type_id == entry.type_id)?;
    Some(next_entry.submission_id)
}

fn unevaluated_row(submission: &Submission<'_>, config_version: ConfigVersion) -> Item {
    let Submission { header, entry, at, .. } = *submission;
    let empty_list = || "[]".to_owned();
    Item {
        org: header.org.clone(),
        type_id: entry.type_id.clone(),
        item_id: entry.id.clone(),
        append_ms: at.append_ms,
        offset: at.offset,
        position: i64::from(at.position),
        submission_id: entry.submission_id,
        source: header.source.into(),
        variant: entry.variant.into(),
        type_version: entry.type_version.clone(),
        data: entry.data.clone(),
        state: SubmissionState::Accepted.into(),
        config_version,
        request_id: header.request_id.clone(),
        received_at: header.received_at,
        evaluated_at: None,
        report_id: header.report_id,
        matched: empty_list(),
        errored: empty_list(),
        actions: empty_list(),
        media: empty_list(),
        left_out: None,
        followed_by: next_version(submission),
    }
}

/// Publishes matches, failures and omissions to the topic `evaluations`. Effects are not derived from that topic.
async fn publish(
    deps: &Deps,
    submission: &Submission<'_>,
    plan: &Plan,
    findings: &Findings,
) -> Result<(), Error> {
    let evaluation = records::Evaluation {
        org: submission.header.org.clone(),
        submission_id: submission.entry.submission_id,
        item: submission.entry.key(),
        evaluated_at: findings.evaluated_at,
        config_version: plan.config_version,
        matched: findings.matched.clone(),
        errored: findings.errored.clone(),
        left_out: findings.left_out(),
    };
    let key = submission.entry.key().log_key(&submission.header.org);
    let partition = deps.log.partition(Topic::Evaluations, &key);
    match deps.log.append(&[(partition, Record::new(&key, evaluation.to_datum()))]).await {
        // The item's row has the same findings, so an oversized record must not stop the effects.
        Err(error @ AppendError::TooLarge { .. }) => {
            metrics::evaluation_unpublished();
            tracing::warn!(org = %submission.header.org, submission = %submission.entry.submission_id,
                tag = error.tag(), "an evaluation is too large to be published");
            Ok(())
        }
        appended => Ok(appended?),
    }
}

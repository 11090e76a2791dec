//! One submission from its record to its effects: what stands already, and what is carried out now.
//!
//! It evaluates nothing (`evaluate`); a processor brings evaluation and effects together.

use tidegate_rules::{LeftOut, Outcome};
use tidegate_schemas::{
    ids::{ConfigVersion, Millis},
    records::{self, ItemEntry, Record as _},
    wire::answers::Media,
};
use tidegate_store::{
    Batch,
    tables::{
        items::items::{ACCEPTED, EVALUATED, Item, ItemPlace, Stage, SubmissionPlace, write_time},
        review::reports::Report,
    },
};
use tidegate_stream::{Record, Topic, error::AppendError};

use crate::{
    Deps, Error,
    effects::{self, Again, Claim, Evaluated, Findings, Plan, Refused},
    items::{
        evaluate::Prepared,
        history,
        stored::{self, RESENT, Submission},
    },
    metrics,
    rules::stats::RuleOutcome,
};

/// What an earlier run left of a submission that may be a replay.
#[derive(Debug)]
pub enum Standing {
    /// Its plan is stored and may not be carried out yet. `is_begun`: its row is stored, too, so that a part of the
    /// plan may be carried out already.
    Planned {
        plan: Box<Plan>,
        is_begun: bool,
    },
    /// Nothing is left to do: it had no effects, or this record came after the one that had them.
    Evaluated,
    /// It was handed over to whoever waits for its media. Evaluating it here, too, could come to something else.
    HandedOver,
    Fresh,
}

/// Looks for an earlier run: its plan, or its evaluated row.
pub async fn standing(deps: &Deps, submission: &Submission<'_>) -> Result<Standing, Error> {
    let (org, entry) = (&submission.header.org, submission.entry);
    let place = if entry.keyed {
        let first = stored::place_of(&deps.store, org, entry.submission_id).await?;
        first.map(|first| (first.type_id.clone(), first.item_id.clone(), stored::coordinates_of(&first)))
    } else {
        // Its id came into being with the record: there is no other one.
        Some((entry.type_id.clone(), entry.id.clone(), submission.coordinates()))
    };
    let row = match &place {
        Some((type_id, id, (append_ms, offset, position))) => {
            let key = (org.clone(), type_id.clone(), id.clone(), *append_ms, *offset, *position);
            deps.store.get::<ItemPlace>(&key).await?
        }
        None => None,
    };
    // A record with other coordinates is the submission sent again. The log keeps the order of an item, so whoever
    // gets here has left the first record behind: evaluated, or waiting for its media. A second row would stand as the
    // item's newest version, and effects taken again so late would meet deliveries that have expired.
    if row.as_ref().is_some_and(|row| stored::coordinates(row) != submission.coordinates()) {
        return Ok(Standing::Evaluated);
    }
    let is_evaluated = row.as_ref().is_some_and(|row| row.state == EVALUATED);
    if let Some(plan) = effects::stored(&deps.store, org, entry.submission_id.0).await? {
        return Ok(Standing::Planned { plan: Box::new(plan), is_begun: is_evaluated });
    }
    Ok(match row {
        Some(_) if is_evaluated => Standing::Evaluated,
        Some(_) if !submission.is_late => Standing::HandedOver,
        _ => Standing::Fresh,
    })
}

/// Why the reviews that rules ask for are not opened, if they are not.
pub async fn no_reviews(deps: &Deps, header: &records::Items) -> Result<Option<&'static str>, Error> {
    let Some(report_id) = header.report_id else { return Ok(None) };
    let report = deps.store.get::<Report>(&(header.org.clone(), report_id)).await?;
    Ok(report.is_some_and(|report| report.csam).then_some("child_safety"))
}

/// What the limits of rules must be asked for before the plan of an evaluation can be made. `again`: the submission
/// repeats an earlier one.
pub fn claims(
    submission: &Submission<'_>,
    prepared: &Prepared,
    outcome: &Outcome,
    no_reviews: Option<&'static str>,
    again: Option<Again<'_>>,
) -> Vec<Claim> {
    let refused = Refused::new();
    effects::claims(&prepared.config, &evaluated(submission, prepared, outcome, no_reviews, &refused, again))
}

/// The plan of an evaluation, of which the limits of rules refused some.
pub fn plan(
    submission: &Submission<'_>,
    prepared: &Prepared,
    outcome: &Outcome,
    no_reviews: Option<&'static str>,
    refused: &Refused,
    again: Option<Again<'_>>,
) -> Plan {
    effects::plan_item(
        &prepared.config,
        &evaluated(submission, prepared, outcome, no_reviews, refused, again),
    )
}

fn evaluated<'a>(
    submission: &Submission<'a>,
    prepared: &'a Prepared,
    outcome: &'a Outcome,
    no_reviews: Option<&'static str>,
    refused: &'a Refused,
    again: Option<Again<'a>>,
) -> Evaluated<'a> {
    Evaluated {
        org: &submission.header.org,
        submission_id: submission.entry.submission_id,
        item: &prepared.key,
        user: prepared.user.as_ref(),
        append_ms: submission.at.append_ms,
        outcome,
        no_reviews,
        refused,
        again,
        media: &prepared.media.shown,
    }
}

/// Stores that the submission is there and waits for its media, then hands it over. Done when both are durable.
pub async fn accept(
    deps: &Deps,
    submission: &Submission<'_>,
    version: ConfigVersion,
    media: &[Media],
    is_resent: bool,
) -> Result<(), Error> {
    let at = write_time(submission.at.append_ms, Stage::Accepted);
    if submission.entry.keyed {
        deps.store.put(at, &[place(submission)]).await?;
    }
    deps.store.put(at, &[accepted_row(submission, version, media)?]).await?;
    tidegate_stream::failpoint!("after_accepted");
    hand_over(deps, submission, is_resent).await
}

/// Hands the submission over to whoever waits longer for its media. `is_resent`: it was a dead letter.
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

/// Carries the plan out, or the one that an earlier run stored. Done when everything is durable; says what each rule
/// came to, unless an earlier run has said so.
pub async fn carry_out(
    deps: &Deps,
    submission: &Submission<'_>,
    plan: Plan,
) -> Result<Vec<RuleOutcome>, Error> {
    let mut plan = if plan.has_effects() {
        Box::pin(effects::adopt(&deps.store, plan, Millis::now())).await?
    } else {
        plan
    };
    let counted = std::mem::take(&mut plan.counted);
    finish(deps, submission, &plan).await?;
    if let Some(findings) = &plan.evaluation {
        count(&findings.left_out);
    }
    Ok(counted)
}

fn count(left_out: &LeftOut) {
    for (what, is_some) in [
        ("matched", left_out.matched_more > 0),
        ("errored", left_out.errored_more > 0),
        ("uncounted", !left_out.uncounted.is_empty()),
        ("truncated", !left_out.truncated.is_empty()),
    ] {
        if is_some {
            metrics::evaluation_left_out(what);
        }
    }
}

/// Carries out a plan that is stored already, or has no effects.
pub async fn finish(deps: &Deps, submission: &Submission<'_>, plan: &Plan) -> Result<(), Error> {
    let Some(findings) = &plan.evaluation else {
        return Err(Error::Corrupt { what: "plan", detail: "an item's plan without findings".to_owned() });
    };
    // Before the row: without effects, an evaluated row says that nothing is left to do. What few items need is boxed:
    // every item's task would carry it.
    if !findings.is_silent() {
        Box::pin(publish(deps, submission, plan, findings)).await?;
    }
    // Before the row, too, so that none stands without its places: a replay that finds it does nothing more.
    let at = write_time(submission.at.append_ms, submission.stage());
    let mut places = Batch::new();
    if submission.entry.keyed {
        // Of two records the later one fills the place: it comes here only if the earlier one did not, as a dead letter.
        places.put_owned(at, place(submission));
    }
    if let Some(place) = history::row(submission) {
        places.put_owned(at, place);
    }
    if !places.is_empty() {
        deps.store.write(places).await?;
    }
    let row = row(submission, plan, findings);
    deps.store.put(at, &[row]).await?;
    Box::pin(effects::apply(deps, plan)).await
}

fn place(submission: &Submission<'_>) -> SubmissionPlace {
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

fn row(submission: &Submission<'_>, plan: &Plan, findings: &Findings) -> Item {
    Item {
        state: EVALUATED.to_owned(),
        evaluated_at: Some(findings.evaluated_at),
        matched: findings.matched.clone(),
        errored: findings.errored.clone(),
        actions: findings.actions.clone(),
        media: findings.media.clone(),
        left_out: findings.left_out(),
        ..unevaluated(submission, plan.config_version)
    }
}

fn accepted_row(submission: &Submission<'_>, version: ConfigVersion, media: &[Media]) -> Result<Item, Error> {
    let media = serde_json::to_string(media).map_err(Error::corrupt("list"))?;
    Ok(Item { media, ..unevaluated(submission, version) })
}

fn unevaluated(submission: &Submission<'_>, config_version: ConfigVersion) -> Item {
    let Submission { header, entry, at, .. } = *submission;
    let none = || "[]".to_owned();
    Item {
        org: header.org.clone(),
        type_id: entry.type_id.clone(),
        item_id: entry.id.clone(),
        append_ms: at.append_ms,
        offset: at.offset,
        position: i64::from(at.position),
        submission_id: entry.submission_id,
        source: header.source.as_str().to_owned(),
        variant: entry.variant.as_str().to_owned(),
        type_version: entry.type_version.clone(),
        data: entry.data.clone(),
        state: ACCEPTED.to_owned(),
        config_version,
        request_id: header.request_id.clone(),
        received_at: header.received_at,
        evaluated_at: None,
        report_id: header.report_id,
        matched: none(),
        errored: none(),
        actions: none(),
        media: none(),
        left_out: None,
    }
}

/// Matches, failures and what was left out go to the evaluations topic, for whoever listens; it is not what effects are
/// made from.
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
        // The item's row explains as much; its effects must not fail for a listener's sake.
        Err(error @ AppendError::TooLarge { .. }) => {
            metrics::evaluation_unpublished();
            tracing::warn!(org = %submission.header.org, submission = %submission.entry.submission_id,
                tag = error.tag(), "an evaluation is too large to be published");
            Ok(())
        }
        appended => Ok(appended?),
    }
}

//! Plans a decision from the log, and stores its rows.

use async_recursion::async_recursion as boxed;
use serde_json::{Map, Value};
use tidegate_catalog::{ActionKind, Compiled};
use tidegate_schemas::{
    documents::Event,
    ids::{ActionId, EventId, ItemKey, Kind, Millis, PolicyId, derive},
    records::{self, JobClass, Verdict},
};
use tidegate_store::{
    Batch, RowRange, WriteTime,
    tables::{
        items::{plans::PlanKind, rules::Finding},
        review::{decisions::Decision, jobs::JobCause},
    },
};

use super::{appeal_answer, findings, history};
use crate::{
    Deps, Error,
    child_safety::find_restricted,
    effects::{self, ActionInput, Plan, events::DecisionRef},
    items::author,
    jobs::stored_decision::{Parameters, StoredRelated},
    review::{comments, decision_events},
    rules::stats::RuleHit,
    users::reporters,
};

/// Carries out a decision from the log.
#[boxed]
pub async fn accept(deps: &Deps, decision: &records::Decision, written_at: Millis) -> Result<(), Error> {
    let plan = match effects::load_plan(&deps.store, &decision.org, decision.decision_id.0).await? {
        Some(plan) => plan,
        None => {
            effects::adopt(&deps.store, build_plan(deps, decision, written_at).await?, Millis::now()).await?
        }
    };
    let recorded_at = plan.recorded_at.unwrap_or(written_at);
    let history_row = match plan.decision.as_deref() {
        Some(event) => effects::decision_history_row(&plan, &decision.item, event, recorded_at),
        // The plan is of an earlier version.
        None => {
            let event = history::decision_event(decision, None);
            effects::decision_history_row(&plan, &decision.item, &event, recorded_at)
        }
    };
    let mut batch = Batch::new();
    batch.put_owned(WriteTime::from_append(recorded_at, 0), history_row);
    // Before the effects, because the clearance of their events is read from this row.
    batch.put_owned(WriteTime::from_append(decision.decided_at, 0), decision_row(decision, recorded_at)?);
    deps.store.write(batch).await?;
    reporters::record_outcome(&deps.store, decision).await?;
    effects::apply(deps, &plan).await?;
    comment_escalations(deps, decision, &plan).await
}

/// Comments the reason on child-safety jobs that the decision opened: their reviewers do not see the decided job.
async fn comment_escalations(deps: &Deps, decision: &records::Decision, plan: &Plan) -> Result<(), Error> {
    let Some(reason) = decision.reason.as_deref().filter(|reason| !reason.trim().is_empty()) else {
        return Ok(());
    };
    for review in plan.reviews.iter().filter(|review| review.queue.class() == JobClass::ChildSafety) {
        // The job exists already; the cause identifies it.
        let job = effects::open_job(deps, plan, review).await?;
        let (by, at) = (&decision.decided_by, decision.decided_at);
        comments::put_once(&deps.store, &decision.org, job, review.cause, by, reason, at).await?;
    }
    Ok(())
}

fn decision_row(decision: &records::Decision, recorded_at: Millis) -> Result<Decision, Error> {
    Ok(Decision {
        org: decision.org.clone(),
        day: decision.decided_at.day(),
        at: decision.decided_at,
        decision_id: decision.decision_id,
        job_id: decision.job_id,
        class: decision.class,
        item: decision.item.clone(),
        verdict: decision.verdict,
        actions: serde_json::to_string(&decision.actions).map_err(Error::corrupt("decision"))?,
        policies: serde_json::to_string(&decision.policies).map_err(Error::corrupt("decision"))?,
        reason: decision.reason.clone(),
        decided_by: decision.decided_by.clone(),
        decided_at: decision.decided_at,
        related: related_to_json(decision)?,
        recorded_at: Some(recorded_at),
    })
}

/// Serialises the actions on related items for the decision's row.
fn related_to_json(decision: &records::Decision) -> Result<Option<String>, Error> {
    if decision.related.is_empty() {
        return Ok(None);
    }
    let related_actions = decision.related.iter().map(|related| {
        Ok(StoredRelated {
            item: related.item.clone(),
            user: related.user.clone(),
            actions: related.actions.clone(),
            parameters: parse_parameters(related.parameters.as_deref())?,
            policies: related.policies.clone(),
        })
    });
    let related_actions = related_actions.collect::<Result<Vec<_>, Error>>()?;
    serde_json::to_string(&related_actions).map(Some).map_err(Error::corrupt("decision"))
}

async fn build_plan(deps: &Deps, decision: &records::Decision, written_at: Millis) -> Result<Plan, Error> {
    let config =
        effects::load_config(deps, &decision.org, decision.config_version, decision.decided_at).await?;
    let mut plan = Plan::empty(&decision.org, decision.decision_id.0, PlanKind::Decision, config.version());
    let causes = load_causes(deps, decision).await?;
    let job = history::load_decided_job(&deps.store, decision, &causes).await?;
    plan.decision = Some(Box::new(history::decision_event(decision, job)));
    plan.recorded_at = Some(written_at);
    match decision.verdict {
        Verdict::Ignore | Verdict::Act => {
            let is_act = decision.verdict == Verdict::Act;
            let hits = findings::parse_hits(causes.iter().filter_map(|cause| cause.hits.as_deref()))?;
            let user = author::find_struck_user(deps, &config, decision).await?;
            let custom_values =
                decision_events::report_values(&deps.store, &config, decision, &causes).await?;
            let parameter_values = parse_parameters(decision.parameters.as_deref())?;
            let related = decision
                .related
                .iter()
                .map(|related| Ok((related, parse_parameters(related.parameters.as_deref())?)))
                .collect::<Result<Vec<_>, Error>>()?;
            let decision_ref = decision_events::decision_ref(&config, decision, &parameter_values, &related);
            let is_child_safety = is_about_child_safety(deps, &config, decision).await?;
            plan.is_child_safety = is_child_safety;
            let context = DecisionPlanner {
                config: &config,
                decision,
                decision_ref: &decision_ref,
                is_child_safety,
                written_at,
            };
            if is_act {
                let target = ActionTarget {
                    item: &decision.item,
                    user: user.as_ref(),
                    policies: &decision.policies,
                    hits: &hits,
                    custom_values: &custom_values,
                    reported_items: &decision.reported_items,
                };
                context.take_actions(&mut plan, &target, &decision.actions, &parameter_values);
            } else {
                decision_events::add_decision_event(
                    &mut plan,
                    &config,
                    decision,
                    (&decision_ref, &custom_values),
                    user.as_ref(),
                    is_child_safety,
                );
            }
            // Reports and rule hits concern the job's item only.
            for (related, parameter_values) in &related {
                let target = ActionTarget {
                    item: &related.item,
                    user: related.user.as_ref(),
                    policies: &related.policies,
                    hits: &[],
                    custom_values: &Map::new(),
                    reported_items: &[],
                };
                context.take_actions(&mut plan, &target, &related.actions, parameter_values);
            }
            // Only the verdict on the job's own item counts for the rules, which did not match related items.
            let finding = if is_act { Finding::Confirmed } else { Finding::Rejected };
            findings::add_findings(&mut plan, &decision.item, hits, finding, written_at);
        }
        Verdict::Accept | Verdict::Reject => {
            appeal_answer::plan(&mut plan, deps, &config, decision, written_at).await?;
        }
    }
    Ok(plan)
}

/// True if only cleared endpoints may receive the events: the decision is made on a child-safety job, concerns a
/// child-safety item, or opens a child-safety job.
async fn is_about_child_safety(
    deps: &Deps,
    config: &Compiled,
    decision: &records::Decision,
) -> Result<bool, Error> {
    let actions = decision.related.iter().flat_map(|related| &related.actions).chain(&decision.actions);
    let opens_child_safety_job = |action: &ActionId| {
        let kind = config.action(action).map(|action| &action.kind);
        matches!(kind, Some(ActionKind::EnqueueChildSafety { .. }))
    };
    if decision.class == JobClass::ChildSafety || actions.into_iter().any(opens_child_safety_job) {
        return Ok(true);
    }
    let related = decision.related.iter().map(|related| &related.item);
    let items: Vec<_> = related.chain(&decision.reported_items).chain([&decision.item]).cloned().collect();
    Ok(!find_restricted(&deps.store, &decision.org, &items).await?.is_empty())
}

/// Parses the parameters of a record.
fn parse_parameters(text: Option<&str>) -> Result<Parameters, Error> {
    let parameters_by_action = text.map(serde_json::from_str).transpose();
    Ok(parameters_by_action.map_err(Error::corrupt("decision"))?.unwrap_or_default())
}

async fn load_causes(deps: &Deps, decision: &records::Decision) -> Result<Vec<JobCause>, Error> {
    let partition = (decision.org.clone(), decision.job_id);
    Ok(deps.store.scan::<JobCause>(&partition, RowRange::all()).all().await?)
}

/// Item of the decision's actions: the job's own item or a related one.
struct ActionTarget<'a> {
    item: &'a ItemKey,
    /// Receives the strikes.
    user: Option<&'a ItemKey>,
    policies: &'a [PolicyId],
    hits: &'a [RuleHit],
    /// Further values for `custom`.
    custom_values: &'a Map<String, Value>,
    reported_items: &'a [ItemKey],
}

/// Decision of the planned actions.
struct DecisionPlanner<'a> {
    config: &'a Compiled,
    decision: &'a records::Decision,
    decision_ref: &'a DecisionRef,
    is_child_safety: bool,
    /// Append time of the decision.
    written_at: Millis,
}

impl DecisionPlanner<'_> {
    fn take_actions(
        &self,
        plan: &mut Plan,
        target: &ActionTarget<'_>,
        actions: &[ActionId],
        parameter_values: &Parameters,
    ) {
        for action in actions {
            plan.add_action(
                self.config,
                &ActionInput {
                    action,
                    event_id: self.derive_event_id(target.item, action),
                    event_type: Event::ModeratorDecision,
                    item: target.item,
                    user: target.user,
                    at: self.written_at,
                    occurred_at: self.decision.decided_at,
                    policies: target.policies,
                    rules: Vec::new(),
                    rules_more: 0,
                    hits: target.hits.to_vec(),
                    reason: self.decision.reason.clone(),
                    parameters: parameter_values.get(action).cloned().unwrap_or_default(),
                    conflicts: Vec::new(),
                    decision: Some(self.decision_ref),
                    actor: Some(&self.decision.decided_by),
                    is_child_safety: self.is_child_safety,
                    custom_values: target.custom_values,
                    reported_items: target.reported_items,
                },
            );
        }
    }

    /// Derives the event id of an action. The id for a related item includes the item, so that it differs from the
    /// event of the same action on the job's own item.
    fn derive_event_id(&self, item: &ItemKey, action: &ActionId) -> EventId {
        let (decision, action) = (self.decision.decision_id.as_bytes(), action.as_str().as_bytes());
        if *item == self.decision.item {
            return derive(Kind::DecisionEvent, &[decision, action]);
        }
        let (type_id, id) = (item.type_id.as_str().as_bytes(), item.id.as_str().as_bytes());
        derive(Kind::DecisionEvent, &[decision, b"related", type_id, id, action])
    }
}

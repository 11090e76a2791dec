//! Plan of a decision from the log, and what is stored with it.

use serde_json::{Map, Value};
use tidegate_catalog::{ActionKind, Compiled};
use tidegate_schemas::{
    documents::Event,
    ids::{ActionId, EventId, ItemKey, Kind, Millis, PolicyId, derive},
    records::{self, JobClass, Verdict},
};
use tidegate_store::{
    At, WriteTime,
    tables::{
        items::rules::Finding,
        review::{decisions::Decision, jobs::JobCause},
    },
};

use super::{appeal_answer, findings, related::StoredRelated};
use crate::{
    Deps, Error,
    child_safety::restricted,
    effects::{self, ActionInput, Plan, events::DecisionRef},
    items::author,
    reporters,
    review::{
        comments,
        decision_events::{self, Parameters},
    },
    rules::stats::RuleHit,
};

/// Carries out a decision from the log.
pub async fn accept(deps: &Deps, decision: &records::Decision, written_at: Millis) -> Result<(), Error> {
    let plan = match effects::stored(&deps.store, &decision.org, decision.decision_id.0).await? {
        Some(plan) => plan,
        None => effects::adopt(&deps.store, plan(deps, decision, written_at).await?, Millis::now()).await?,
    };
    deps.store.put(WriteTime::of(decision.decided_at, 0), &[row(decision)?]).await?;
    reporters::record(&deps.store, decision).await?;
    effects::apply(deps, &plan).await?;
    comment_escalations(deps, decision, &plan).await
}

/// Adds the reason of a decision to the child-safety jobs that it opened, because their reviewers do not see the decided job.
async fn comment_escalations(deps: &Deps, decision: &records::Decision, plan: &Plan) -> Result<(), Error> {
    let Some(reason) = decision.reason.as_deref().filter(|reason| !reason.trim().is_empty()) else {
        return Ok(());
    };
    for review in plan.reviews.iter().filter(|review| review.queue.class() == JobClass::ChildSafety) {
        let job = effects::open_job(deps, plan, review).await?;
        let (by, at) = (&decision.decided_by, decision.decided_at);
        comments::put(&deps.store, &decision.org, job, review.cause, by, reason, at).await?;
    }
    Ok(())
}

fn row(decision: &records::Decision) -> Result<Decision, Error> {
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
        related: related_text(decision)?,
    })
}

/// Returns the actions on related items as a JSON list, for the decision's row.
fn related_text(decision: &records::Decision) -> Result<Option<String>, Error> {
    if decision.related.is_empty() {
        return Ok(None);
    }
    let stored = decision.related.iter().map(|related| {
        Ok(StoredRelated {
            item: related.item.clone(),
            user: related.user.clone(),
            actions: related.actions.clone(),
            parameters: parameters(related.parameters.as_deref())?,
            policies: related.policies.clone(),
        })
    });
    let stored = stored.collect::<Result<Vec<_>, Error>>()?;
    serde_json::to_string(&stored).map(Some).map_err(Error::corrupt("decision"))
}

async fn plan(deps: &Deps, decision: &records::Decision, written_at: Millis) -> Result<Plan, Error> {
    let config = effects::config(deps, &decision.org, decision.config_version, decision.decided_at).await?;
    let mut plan =
        Plan::empty(&decision.org, decision.decision_id.0, effects::Kind::Decision, config.version());
    match decision.verdict {
        Verdict::Ignore | Verdict::Act => {
            let acts = decision.verdict == Verdict::Act;
            let causes = causes_of_job(deps, decision).await?;
            let hits = findings::hits(causes.iter().filter_map(|cause| cause.hits.as_deref()))?;
            let user = author::struck_user(deps, &config, decision).await?;
            let about = decision_events::about(&deps.store, &config, decision, &causes).await?;
            let given = parameters(decision.parameters.as_deref())?;
            let related = decision
                .related
                .iter()
                .map(|related| Ok((related, parameters(related.parameters.as_deref())?)))
                .collect::<Result<Vec<_>, Error>>()?;
            let told = decision_events::reference(&config, decision, &given, &related);
            let is_child_safety = is_about_child_safety(deps, &config, decision).await?;
            let context = Context { config: &config, decision, told: &told, is_child_safety, written_at };
            if acts {
                let target = Target {
                    item: &decision.item,
                    user: user.as_ref(),
                    policies: &decision.policies,
                    hits: &hits,
                    about: &about,
                    reported_items: &decision.reported_items,
                };
                context.take_all(&mut plan, &target, &decision.actions, &given);
            } else {
                decision_events::add_decision_event(
                    &mut plan,
                    &config,
                    decision,
                    (&told, &about),
                    user.as_ref(),
                    is_child_safety,
                );
            }
            // Reports and rule hits are about the job's item, so a related one has none.
            for (related, given) in &related {
                let target = Target {
                    item: &related.item,
                    user: related.user.as_ref(),
                    policies: &related.policies,
                    hits: &[],
                    about: &Map::new(),
                    reported_items: &[],
                };
                context.take_all(&mut plan, &target, &related.actions, given);
            }
            let finding = if acts { Finding::Confirmed } else { Finding::Rejected };
            findings::add(&mut plan, &decision.item, hits, finding, written_at);
        }
        Verdict::Accept | Verdict::Reject => {
            appeal_answer::plan(&mut plan, deps, &config, decision, written_at).await?;
        }
    }
    Ok(plan)
}

/// True if the events of a decision are only for endpoints that may have child-safety material: it is made on a child-safety
/// job, names an item of child safety, or hands one over to child safety.
async fn is_about_child_safety(
    deps: &Deps,
    config: &Compiled,
    decision: &records::Decision,
) -> Result<bool, Error> {
    let actions = decision.related.iter().flat_map(|related| &related.actions).chain(&decision.actions);
    let hands_over = |action: &ActionId| {
        let kind = config.action(action).map(|action| &action.kind);
        matches!(kind, Some(ActionKind::EnqueueChildSafety { .. }))
    };
    if decision.class == JobClass::ChildSafety || actions.into_iter().any(hands_over) {
        return Ok(true);
    }
    let related = decision.related.iter().map(|related| &related.item);
    let items: Vec<_> = related.chain(&decision.reported_items).chain([&decision.item]).cloned().collect();
    Ok(!restricted(&deps.store, &decision.org, &items).await?.is_empty())
}

/// Reads the parameters that a record gives to its actions.
fn parameters(text: Option<&str>) -> Result<Parameters, Error> {
    let given = text.map(serde_json::from_str).transpose();
    Ok(given.map_err(Error::corrupt("decision"))?.unwrap_or_default())
}

async fn causes_of_job(deps: &Deps, decision: &records::Decision) -> Result<Vec<JobCause>, Error> {
    let partition = (decision.org.clone(), decision.job_id);
    Ok(deps.store.scan::<JobCause>(&partition, At::all()).all().await?)
}

/// Item that actions of a decision are taken on, with everything that differs between the job's own and a related one.
struct Target<'a> {
    item: &'a ItemKey,
    /// User who receives the strikes.
    user: Option<&'a ItemKey>,
    policies: &'a [PolicyId],
    hits: &'a [RuleHit],
    /// Further values for `custom`.
    about: &'a Map<String, Value>,
    reported_items: &'a [ItemKey],
}

/// Decision whose actions are added to a plan.
struct Context<'a> {
    config: &'a Compiled,
    decision: &'a records::Decision,
    told: &'a DecisionRef,
    is_child_safety: bool,
    /// Append time of the decision.
    written_at: Millis,
}

impl Context<'_> {
    fn take_all(&self, plan: &mut Plan, target: &Target<'_>, actions: &[ActionId], given: &Parameters) {
        for action in actions {
            plan.take(
                self.config,
                &ActionInput {
                    action,
                    event_id: self.event_id(target.item, action),
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
                    parameters: given.get(action).cloned().unwrap_or_default(),
                    conflicts: Vec::new(),
                    decision: Some(self.told),
                    actor: Some(&self.decision.decided_by),
                    is_child_safety: self.is_child_safety,
                    about: target.about,
                    reported_items: target.reported_items,
                },
            );
        }
    }

    /// Returns the id of the event of an action. Those of related items have the item in it, so that they never meet the
    /// event of the same action on the job's own item.
    fn event_id(&self, item: &ItemKey, action: &ActionId) -> EventId {
        let (decision, action) = (self.decision.decision_id.as_bytes(), action.as_str().as_bytes());
        if *item == self.decision.item {
            return derive(Kind::DecisionEvent, &[decision, action]);
        }
        let (type_id, id) = (item.type_id.as_str().as_bytes(), item.id.as_str().as_bytes());
        derive(Kind::DecisionEvent, &[decision, b"related", type_id, id, action])
    }
}

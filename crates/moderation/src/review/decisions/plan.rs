//! Plan of a decision from the log, and what is stored with it.

use serde_json::{Map, Value};
use tidegate_catalog::Compiled;
use tidegate_schemas::{
    documents::Event,
    ids::{ActionId, ItemKey, Kind, Millis, derive},
    records::{self, Verdict},
};
use tidegate_store::{
    At, WriteTime,
    tables::{
        items::rules::Finding,
        review::{decisions::Decision, jobs::JobCause},
    },
};

use super::{appeal_answer, findings};
use crate::{
    Deps, Error,
    effects::{self, ActionInput, Plan, events::DecisionRef},
    items::stored,
    reporters,
    review::decision_events::{self, Parameters},
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
    effects::apply(deps, &plan).await
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
    })
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
            let user = stored::struck_user(deps, &config, decision).await?;
            let about = decision_events::about(&deps.store, &config, decision, &causes).await?;
            let mut parameters = parameters(decision)?;
            let told = decision_events::reference(&config, decision, &parameters);
            if acts {
                for action in &decision.actions {
                    let given = parameters.remove(action).unwrap_or_default();
                    let by = (&told, &about);
                    take(&mut plan, &config, decision, (action, given), by, user.as_ref(), &hits, written_at);
                }
            } else {
                decision_events::tell(&mut plan, &config, decision, (&told, &about), user.as_ref());
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

/// Returns the parameters that the decision gives to its actions.
fn parameters(decision: &records::Decision) -> Result<Parameters, Error> {
    let given = decision.parameters.as_deref().map(serde_json::from_str).transpose();
    Ok(given.map_err(Error::corrupt("decision"))?.unwrap_or_default())
}

async fn causes_of_job(deps: &Deps, decision: &records::Decision) -> Result<Vec<JobCause>, Error> {
    let partition = (decision.org.clone(), decision.job_id);
    Ok(deps.store.scan::<JobCause>(&partition, At::all()).all().await?)
}

#[allow(clippy::too_many_arguments, reason = "the parts of one input")]
fn take(
    plan: &mut Plan,
    config: &Compiled,
    decision: &records::Decision,
    (id, parameters): (&ActionId, Map<String, Value>),
    (told, about): (&DecisionRef, &Map<String, Value>),
    user: Option<&ItemKey>,
    hits: &[RuleHit],
    written_at: Millis,
) {
    plan.take(
        config,
        &ActionInput {
            action: id,
            event_id: derive(Kind::DecisionEvent, &[decision.decision_id.as_bytes(), id.as_str().as_bytes()]),
            event_type: Event::ModeratorDecision,
            item: &decision.item,
            user,
            at: written_at,
            occurred_at: decision.decided_at,
            policies: &decision.policies,
            rules: Vec::new(),
            rules_more: 0,
            hits: hits.to_vec(),
            reason: decision.reason.clone(),
            parameters,
            conflicts: Vec::new(),
            decision: Some(told),
            about,
            reported_items: &decision.reported_items,
        },
    );
}

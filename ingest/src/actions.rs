//! `POST /api/v1/actions`: actions that the platform takes itself, into the log, all of a request or none.
//!
//! The consumer of decisions carries them out, as it does a moderator's decision.

use axum::http::StatusCode;
use serde::Serialize;
use tidegate_catalog::Compiled;
use tidegate_schemas::{
    hint,
    ids::{ActionId, DecisionId, ItemId, JobId, Kind, Millis, OrgId, PolicyId, TypeId, derive},
    json::in_order,
    records::{self, JobClass, Verdict},
    validation_error::{Pointer, ValidationError, ValidationErrors},
    wire::{
        self,
        actions::{ActionRequest, ActionRequests},
    },
};
use tidegate_stream::{Record, Topic};
use tidegate_web::{Json, Problem};

use crate::{
    Api, Shared,
    admission::{Admitted, IdempotencyKey, Received},
    config,
};

type Actions = wire::Request<ActionRequests>;

/// Name of the actor where the request names none.
const UNNAMED: &str = "api";

/// 202: the actions are in the log.
#[derive(Debug, Serialize)]
pub(crate) struct Accepted {
    actions: Vec<AcceptedAction>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct AcceptedAction {
    decision_id: DecisionId,
    action_id: Option<ActionId>,
    item_id: ItemId,
    item_type_id: TypeId,
}

pub(crate) async fn submit(api: Shared, admitted: Admitted) -> Result<(StatusCode, Json<Accepted>), Problem> {
    let received = api.receive(admitted).await?;
    let records = api.checked_actions(&received).await?;
    let keys: Vec<_> = records.iter().map(|record| record.item.log_key(&record.org)).collect();
    let addressed: Vec<_> = keys
        .iter()
        .zip(&records)
        .map(|(key, record)| (api.deps.log.partition(Topic::Decisions, key), Record::of(key, record)))
        .collect();
    api.deps.log.append(&addressed).await.map_err(|error| api.append_problem(&error))?;
    tidegate_stream::failpoint!("after_append");
    let accepted = |record: &records::Decision| AcceptedAction {
        decision_id: record.decision_id,
        action_id: record.actions.first().cloned(),
        item_id: record.item.id.clone(),
        item_type_id: record.item.type_id.clone(),
    };
    Ok((StatusCode::ACCEPTED, Json(Accepted { actions: records.iter().map(accepted).collect() })))
}

impl Api {
    async fn checked_actions(&self, received: &Received) -> Result<Vec<records::Decision>, Problem> {
        let (body, limits) = (received.bytes().clone(), self.settings.limits.clone());
        let size = body.len();
        let parsed = self.work(size, move || wire::actions::parse(&body, &limits)).await?;
        let parsed = parsed.map_err(|refused| Problem::from(refused.into_vec()))?;
        let known = |config: &Compiled| parsed.content.actions.iter().all(|action| is_known(config, action));
        let config = self.config(&received.org, known).await?;
        let ids = decision_ids(&received.org, received.key.as_ref(), &parsed);
        let (org, at) = (received.org.clone(), received.received_at);
        let digest = received.digest(parsed.root());
        let checked = self.work(size, move || {
            check(&config, &parsed)?;
            let actions = parsed.content.actions.into_iter().zip(ids);
            Ok::<_, Vec<ValidationError>>(
                actions.map(|(action, id)| record(&config, &org, action, id, at)).collect(),
            )
        });
        let records = checked.await?.map_err(Problem::from)?;
        self.claim_key(received, "actions", digest.as_ref()).await?;
        Ok(records)
    }
}

fn is_known(config: &Compiled, action: &ActionRequest) -> bool {
    config.action(&action.action_id).is_some()
        && config::knows(config, &action.item.type_id, None)
        && action.policies.iter().all(|id| config::policy(config, id).known)
}

fn check(config: &Compiled, parsed: &Actions) -> Result<(), Vec<ValidationError>> {
    let (root, mut faults) = (parsed.root(), ValidationErrors::default());
    let actions = Pointer::Root.key("actions");
    for (index, action) in parsed.content.actions.iter().enumerate() {
        let member = actions.index(index);
        let at = if parsed.content.is_batch { &member } else { &Pointer::Root };
        check_action(config, action, at, &mut faults);
    }
    in_order(faults, root).or(Some(()))
}

fn check_action(config: &Compiled, request: &ActionRequest, at: &Pointer<'_>, faults: &mut ValidationErrors) {
    let mut refuse = |at: &Pointer<'_>, detail: String| {
        faults.push(ValidationError::invalid(at, "Invalid action", detail));
    };
    match config.action(&request.action_id) {
        None => {
            let known = config.actions().map(|known| known.id.as_str());
            let hint = hint(request.action_id.as_str(), known);
            refuse(&at.key("actionId"), format!("There is no action with this id.{hint}"));
        }
        Some(action) => {
            let given = request.parameters.clone().into_iter().collect();
            for fault in action.check_parameters(&given) {
                refuse(&at.key("parameters"), fault);
            }
        }
    }
    if let Some(fault) = config::unknown(config, &request.item.type_id, None) {
        refuse(&at.key("itemTypeId"), fault.detail());
    }
    let policies = at.key("policyIds");
    for (index, named) in request.policies.iter().enumerate() {
        if !config::policy(config, named).known {
            let policy_names = config.policies().iter().flat_map(|policy| [policy.id.as_str(), &policy.key]);
            let detail = format!("There is no policy with this id or key.{}", hint(named, policy_names));
            refuse(&policies.index(index), detail);
        }
    }
}

/// Random, or with an idempotency key the same for the same action at the same place.
fn decision_ids(org: &OrgId, key: Option<&IdempotencyKey>, parsed: &Actions) -> Vec<DecisionId> {
    let root = parsed.root();
    let id = |(position, action): (u64, &ActionRequest)| match key {
        None => DecisionId::random(),
        Some(key) => {
            let digest = action.node_in(root).digest();
            let cause = [org.as_str().as_bytes(), key.as_bytes(), &position.to_be_bytes(), &digest];
            derive(Kind::ManualAction, &cause)
        }
    };
    (0..).zip(&parsed.content.actions).map(id).collect()
}

/// The action as a decision that closes no job.
fn record(
    config: &Compiled,
    org: &OrgId,
    request: ActionRequest,
    decision_id: DecisionId,
    at: Millis,
) -> records::Decision {
    let by_action = serde_json::json!({ request.action_id.as_str(): request.parameters });
    records::Decision {
        org: org.clone(),
        config_version: config.version(),
        decision_id,
        job_id: JobId::NONE,
        class: JobClass::Review,
        item: request.item,
        appeal_id: None,
        decided_at: at,
        decided_by: request.actor_id.unwrap_or_else(|| UNNAMED.to_owned()),
        verdict: Verdict::Act,
        actions: vec![request.action_id],
        policies: config.policy_ids(&request.policies.into_iter().map(PolicyId::new).collect::<Vec<_>>()),
        reason: request.note,
        parameters: (!request.parameters.is_empty()).then(|| by_action.to_string()),
        reported_items: request.reported_items,
        related: Vec::new(),
    }
}

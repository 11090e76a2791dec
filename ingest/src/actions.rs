//! `POST /api/v1/actions`: appends actions of the platform to the log, all of a request or none.
//!
//! The consumer of decisions carries them out like a moderator's decisions.

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
    admission::{AdmittedRequest, IdempotencyKey, ReceivedRequest},
    config,
};

type Actions = wire::Request<ActionRequests>;

/// Actor of a request without `actorId`.
const DEFAULT_ACTOR: &str = "api";

/// Body of the 202 response: the appended actions.
#[derive(Debug, Serialize)]
pub(crate) struct ActionsResponse {
    actions: Vec<ActionResponse>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ActionResponse {
    decision_id: DecisionId,
    action_id: Option<ActionId>,
    item_id: ItemId,
    item_type_id: TypeId,
}

pub(crate) async fn submit(
    api: Shared,
    admitted: AdmittedRequest,
) -> Result<(StatusCode, Json<ActionsResponse>), Problem> {
    let request = api.receive_request(admitted).await?;
    let records = api.validate_actions(&request).await?;
    let keys: Vec<_> = records.iter().map(|record| record.item.log_key(&record.org)).collect();
    let addressed_records: Vec<_> = keys
        .iter()
        .zip(&records)
        .map(|(key, record)| {
            (api.deps.log.partition(Topic::Decisions, key), Record::from_content(key, record))
        })
        .collect();
    api.deps.log.append(&addressed_records).await.map_err(|error| api.append_problem(&error))?;
    tidegate_stream::failpoint!("after_append");
    let to_response = |record: &records::Decision| ActionResponse {
        decision_id: record.decision_id,
        action_id: record.actions.first().cloned(),
        item_id: record.item.id.clone(),
        item_type_id: record.item.type_id.clone(),
    };
    Ok((StatusCode::ACCEPTED, Json(ActionsResponse { actions: records.iter().map(to_response).collect() })))
}

impl Api {
    async fn validate_actions(&self, request: &ReceivedRequest) -> Result<Vec<records::Decision>, Problem> {
        let (body, limits) = (request.bytes().clone(), self.settings.limits.clone());
        let size = body.len();
        let parse_result = self.offload_if_large(size, move || wire::actions::parse(&body, &limits)).await?;
        let parsed_body = parse_result.map_err(|rejection| Problem::from(rejection.into_vec()))?;
        let has_all_names =
            |config: &Compiled| parsed_body.content.actions.iter().all(|action| is_known(config, action));
        let config = self.load_config(&request.org, has_all_names).await?;
        let ids = decision_ids(&request.org, request.key.as_ref(), &parsed_body);
        let (org, decided_at) = (request.org.clone(), request.received_at);
        let digest = request.digest(parsed_body.root());
        let build_records = self.offload_if_large(size, move || {
            check_actions(&config, &parsed_body)?;
            let actions = parsed_body.content.actions.into_iter().zip(ids);
            Ok::<_, Vec<ValidationError>>(
                actions.map(|(action, id)| build_decision(&config, &org, action, id, decided_at)).collect(),
            )
        });
        let records = build_records.await?.map_err(Problem::from)?;
        // After the validation: an invalid request must not claim its key, so the client can correct it.
        self.claim_key(request, "actions", digest.as_ref()).await?;
        Ok(records)
    }
}

fn is_known(config: &Compiled, action: &ActionRequest) -> bool {
    config.action(&action.action_id).is_some()
        && config::has_item_type(config, &action.item.type_id, None)
        && action.policies.iter().all(|id| config::mention_policy(config, id).known)
}

fn check_actions(config: &Compiled, parsed_body: &Actions) -> Result<(), Vec<ValidationError>> {
    let (root, mut faults) = (parsed_body.root(), ValidationErrors::default());
    let actions = Pointer::Root.key("actions");
    for (index, action) in parsed_body.content.actions.iter().enumerate() {
        let member = actions.index(index);
        // A single action is the body itself; a batch lists its actions under `actions`.
        let pointer = if parsed_body.content.is_batch { &member } else { &Pointer::Root };
        check_action(config, action, pointer, &mut faults);
    }
    in_order(faults, root).or(Some(()))
}

fn check_action(
    config: &Compiled,
    request: &ActionRequest,
    pointer: &Pointer<'_>,
    faults: &mut ValidationErrors,
) {
    let mut reject = |pointer: &Pointer<'_>, detail: String| {
        faults.push(ValidationError::invalid(pointer, "Invalid action", detail));
    };
    match config.action(&request.action_id) {
        None => {
            let action_ids = config.actions().map(|action| action.id.as_str());
            let hint = hint(request.action_id.as_str(), action_ids);
            reject(&pointer.key("actionId"), format!("There is no action with this id.{hint}"));
        }
        Some(action) => {
            let parameters = request.parameters.clone().into_iter().collect();
            for fault in action.check_parameters(&parameters) {
                reject(&pointer.key("parameters"), fault);
            }
        }
    }
    if let Some(fault) = config::find_unknown_reference(config, &request.item.type_id, None) {
        reject(&pointer.key("itemTypeId"), fault.detail());
    }
    let policies = pointer.key("policyIds");
    for (index, policy_reference) in request.policies.iter().enumerate() {
        if !config::mention_policy(config, policy_reference).known {
            // Clients may name a policy by id or by key, so both are suggested.
            let policy_names = config.policies().iter().flat_map(|policy| [policy.id.as_str(), &policy.key]);
            let detail =
                format!("There is no policy with this id or key.{}", hint(policy_reference, policy_names));
            reject(&policies.index(index), detail);
        }
    }
}

/// Returns random ids, or with an idempotency key ids derived from key, position and action. A repeated request then
/// has the same ids.
fn decision_ids(org: &OrgId, key: Option<&IdempotencyKey>, parsed_body: &Actions) -> Vec<DecisionId> {
    let root = parsed_body.root();
    let to_decision_id = |(position, action): (u64, &ActionRequest)| match key {
        None => DecisionId::random(),
        Some(key) => {
            let digest = action.node_in(root).digest();
            let cause = [org.as_str().as_bytes(), key.as_bytes(), &position.to_be_bytes(), &digest];
            derive(Kind::ManualAction, &cause)
        }
    };
    (0..).zip(&parsed_body.content.actions).map(to_decision_id).collect()
}

/// Builds a decision without a job from the action.
fn build_decision(
    config: &Compiled,
    org: &OrgId,
    request: ActionRequest,
    decision_id: DecisionId,
    decided_at: Millis,
) -> records::Decision {
    let parameters_by_action = serde_json::json!({ request.action_id.as_str(): request.parameters });
    records::Decision {
        org: org.clone(),
        config_version: config.version(),
        decision_id,
        job_id: JobId::NONE,
        class: JobClass::Review,
        item: request.item,
        appeal_id: None,
        decided_at,
        decided_by: request.actor_id.unwrap_or_else(|| DEFAULT_ACTOR.to_owned()),
        verdict: Verdict::Act,
        actions: vec![request.action_id],
        policies: config.policy_ids(&request.policies.into_iter().map(PolicyId::new).collect::<Vec<_>>()),
        reason: request.note,
        parameters: (!request.parameters.is_empty()).then(|| parameters_by_action.to_string()),
        reported_items: request.reported_items,
        related: Vec::new(),
    }
}

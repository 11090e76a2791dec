//! Deserializes the body of `POST /admin/v1/jobs/{id}/decisions`.

use serde::Deserialize;
use serde_json::{Map, Value};
use tidegate_moderation::{
    jobs::stored_decision::Parameters,
    review::decisions::{DecisionRequest, RelatedRequest},
};
use tidegate_schemas::{
    ids::{ActionId, ItemId, ItemKey, PolicyId, TypeId},
    records::Verdict,
};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct DecideRequest {
    /// Epoch from the response of the claim.
    epoch: i64,
    pub(super) verdict: String,
    #[serde(default)]
    actions: Vec<ActionRequest>,
    #[serde(default)]
    policies: Vec<PolicyId>,
    /// Actions on items that belong to the job.
    #[serde(default)]
    related: Vec<RelatedActionsRequest>,
    #[serde(default)]
    pub(super) reason: Option<String>,
    #[serde(default)]
    pub(super) reviewer: Option<String>,
}

impl DecideRequest {
    /// Returns the items on which the decision acts beside the job's own.
    pub(super) fn related_items(&self) -> Vec<ItemKey> {
        self.related.iter().map(|related| related.item.clone().into()).collect()
    }

    pub(super) fn into_request(self, verdict: Verdict, decided_by: String) -> DecisionRequest {
        let (actions, parameters) = split_parameters(self.actions);
        let related = self.related.into_iter().map(|related| {
            let (actions, parameters) = split_parameters(related.actions);
            RelatedRequest { item: related.item.into(), actions, parameters, policies: related.policies }
        });
        DecisionRequest {
            verdict,
            actions,
            parameters,
            policies: self.policies,
            related: related.collect(),
            reason: self.reason,
            decided_by,
            epoch: self.epoch,
        }
    }
}

/// Actions on an item that belongs to the job.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RelatedActionsRequest {
    item: ItemReference,
    #[serde(default)]
    actions: Vec<ActionRequest>,
    #[serde(default)]
    policies: Vec<PolicyId>,
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ItemReference {
    id: ItemId,
    type_id: TypeId,
}

impl From<ItemReference> for ItemKey {
    fn from(ItemReference { id, type_id }: ItemReference) -> Self {
        Self { type_id, id }
    }
}

/// Action in a request: its id alone, or its id with parameters.
#[derive(Deserialize)]
#[serde(untagged, expecting = "an action is its id, or an object of `id` and `parameters`")]
enum ActionRequest {
    Plain(ActionId),
    WithParameters(ActionWithParameters),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ActionWithParameters {
    id: ActionId,
    #[serde(default)]
    parameters: Map<String, Value>,
}

/// Separates actions from their parameters. If an action is listed twice, the parameters of the first one count.
fn split_parameters(requested_actions: Vec<ActionRequest>) -> (Vec<ActionId>, Parameters) {
    let (mut actions, mut parameters) = (Vec::with_capacity(requested_actions.len()), Parameters::new());
    for action in requested_actions {
        let (id, action_parameters) = match action {
            ActionRequest::Plain(id) => (id, Map::new()),
            ActionRequest::WithParameters(ActionWithParameters { id, parameters }) => (id, parameters),
        };
        // The parameters of the first mention count, as the action itself is applied once.
        if !action_parameters.is_empty() && !actions.contains(&id) {
            parameters.insert(id.clone(), action_parameters);
        }
        actions.push(id);
    }
    (actions, parameters)
}

//! Body of `POST /admin/v1/jobs/{id}/decisions`.

use serde::Deserialize;
use serde_json::{Map, Value};
use tidegate_moderation::review::decisions::{DecisionRequest, Parameters, RelatedRequest};
use tidegate_schemas::{
    ids::{ActionId, ItemId, ItemKey, PolicyId, TypeId},
    records::Verdict,
};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct DecisionBody {
    /// Epoch of the claim, as its answer named it.
    epoch: i64,
    pub(super) verdict: String,
    #[serde(default)]
    actions: Vec<SaidAction>,
    #[serde(default)]
    policies: Vec<PolicyId>,
    /// Actions on items that belong to the job.
    #[serde(default)]
    related: Vec<SaidRelated>,
    #[serde(default)]
    pub(super) reason: Option<String>,
    #[serde(default)]
    pub(super) reviewer: Option<String>,
}

impl DecisionBody {
    pub(super) fn into_request(self, verdict: Verdict, decided_by: String) -> DecisionRequest {
        let (actions, parameters) = separated(self.actions);
        let related = self.related.into_iter().map(|related| {
            let (actions, parameters) = separated(related.actions);
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
struct SaidRelated {
    item: SaidItem,
    #[serde(default)]
    actions: Vec<SaidAction>,
    #[serde(default)]
    policies: Vec<PolicyId>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SaidItem {
    id: ItemId,
    type_id: TypeId,
}

impl From<SaidItem> for ItemKey {
    fn from(SaidItem { id, type_id }: SaidItem) -> Self {
        Self { type_id, id }
    }
}

/// An action as a moderator names it.
#[derive(Deserialize)]
#[serde(untagged, expecting = "an action is its id, or an object of `id` and `parameters`")]
enum SaidAction {
    Plain(ActionId),
    With(ActionWithParameters),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ActionWithParameters {
    id: ActionId,
    #[serde(default)]
    parameters: Map<String, Value>,
}

/// Separates the actions from their parameters. Of an action that is named twice, the first mention counts.
fn separated(said: Vec<SaidAction>) -> (Vec<ActionId>, Parameters) {
    let (mut actions, mut parameters) = (Vec::with_capacity(said.len()), Parameters::new());
    for action in said {
        let (id, given) = match action {
            SaidAction::Plain(id) => (id, Map::new()),
            SaidAction::With(ActionWithParameters { id, parameters }) => (id, parameters),
        };
        if !given.is_empty() && !actions.contains(&id) {
            parameters.insert(id.clone(), given);
        }
        actions.push(id);
    }
    (actions, parameters)
}

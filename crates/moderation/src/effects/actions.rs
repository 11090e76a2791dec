//! Adds one action to a plan: its callback or review, its row in the item's list of actions, and its strikes.

use serde_json::{Map, Value, json};
use tidegate_catalog::{ActionKind, Compiled};
use tidegate_schemas::{
    documents::Event,
    ids::{ActionId, CauseId, EndpointId, EventId, ItemKey, Kind, Millis, PolicyId, RuleId, derive},
};
use uuid::Uuid;

use super::{
    Plan, PlannedAction, PlannedCallback, PlannedQueue, PlannedReview, PlannedStrike,
    events::{self, ActionEvent, ActionRef, DecisionRef, NamedRef, ParameterConflict},
};
use crate::{
    jobs::priority::{self, PrioritySignals},
    rules::stats::RuleHit,
};

/// An action on an item, by a rule or a moderator.
pub(crate) struct ActionInput<'a> {
    pub(crate) action: &'a ActionId,
    pub(crate) event_id: EventId,
    pub(crate) event_type: Event,
    pub(crate) item: &'a ItemKey,
    /// Receives the action's strikes.
    pub(crate) user: Option<&'a ItemKey>,
    /// Append time of the record that caused the action.
    pub(crate) at: Millis,
    pub(crate) occurred_at: Millis,
    pub(crate) policies: &'a [PolicyId],
    pub(crate) rules: Vec<NamedRef<RuleId>>,
    /// Number of rules that `rules` omits.
    pub(crate) rules_more: usize,
    /// Rule versions that caused the action, directly or through a review.
    pub(crate) hits: Vec<RuleHit>,
    pub(crate) reason: Option<String>,
    /// Values of the action's parameters; the action's document supplies the others.
    pub(crate) parameters: Map<String, Value>,
    /// Values that rules with a lower id override.
    pub(crate) conflicts: Vec<ParameterConflict>,
    /// Decision that takes the action; `None` if a rule takes it.
    pub(crate) decision: Option<&'a DecisionRef>,
    /// Person or system that takes the action; `None` if a rule takes it.
    pub(crate) actor: Option<&'a str>,
    /// True if the decision concerns child-safety material, which only cleared endpoints may receive.
    pub(crate) is_child_safety: bool,
    /// Further values for `custom`. A parameter of the same name wins.
    pub(crate) custom_values: &'a Map<String, Value>,
    /// Other items that the action concerns.
    pub(crate) reported_items: &'a [ItemKey],
}

impl Plan {
    /// Adds the action. If it is no longer configured, its event has no endpoint and is stored as held.
    pub(crate) fn add_action(&mut self, config: &Compiled, input: &ActionInput<'_>) {
        let action = config.action(input.action);
        match action.map(|action| (&action.kind, PlannedQueue::of(&action.kind))) {
            Some((kind, Some(queue))) => {
                self.enqueue(config, input, queue, *kind == ActionKind::EnqueueReview { queue: None });
                // Subscribers receive every decision event, even if the action only opens another review.
                if input.decision.is_some() {
                    self.call_back(config, input, None);
                }
            }
            _ => self.call_back(config, input, action.and_then(|action| action.endpoint().cloned())),
        }
        // Strikes need a user: an item without a creator has none.
        let points = action
            .filter(|_| input.user.is_some())
            .map_or(0, |action| config.strikes(action, input.policies));
        self.taken.push(PlannedAction {
            item: input.item.clone(),
            event_id: input.event_id,
            action: input.action.clone(),
            at: input.at,
            user: input.user.cloned(),
            points,
            hits: input.hits.clone(),
            actor: input.actor.map(str::to_owned),
            policies: input.policies.to_vec(),
        });
        if points != 0
            && let Some(user) = input.user
        {
            self.strikes.push(PlannedStrike {
                user: user.clone(),
                cause: CauseId(input.event_id.0),
                at: input.at,
                points,
                action: input.action.clone(),
                item: input.item.clone(),
                reverses: None,
            });
        }
    }

    fn enqueue(
        &mut self,
        config: &Compiled,
        input: &ActionInput<'_>,
        queue: PlannedQueue,
        is_routable: bool,
    ) {
        self.reviews.push(PlannedReview {
            subject: input.item.clone(),
            user: input.user.cloned(),
            queue,
            // Derived, so that a replay joins its own job.
            cause: derive::<Uuid>(Kind::JobCause, &[self.cause.as_bytes(), input.action.as_str().as_bytes()]),
            at: input.at,
            rules: input.rules.iter().map(|rule| rule.id.clone()).collect(),
            hits: input.hits.clone(),
            policies: input.policies.to_vec(),
            signals: PrioritySignals {
                severity: priority::highest_severity(config, input.policies),
                ..PrioritySignals::default()
            },
            routed_by: None,
            threshold: None,
            is_routable,
        });
    }

    fn call_back(&mut self, config: &Compiled, input: &ActionInput<'_>, endpoint: Option<EndpointId>) {
        let endpoints = match input.decision {
            Some(_) => subscribers(config, input.event_type, endpoint.as_ref(), input.is_child_safety),
            None => vec![endpoint],
        };
        for (nth, endpoint) in endpoints.into_iter().enumerate() {
            let event_id = if nth == 0 { input.event_id } else { copy_of(input.event_id, endpoint.as_ref()) };
            let event = ActionEvent {
                id: event_id,
                event_type: input.event_type,
                occurred_at: input.occurred_at.iso(),
                item: events::item_ref(config, input.item),
                action: Some(ActionRef { id: input.action.clone() }),
                decision: input.decision.cloned(),
                policies: events::policy_refs(config, input.policies),
                rules: input.rules.clone(),
                rules_more: input.rules_more,
                creator: input.user.cloned(),
                threshold: None,
                user_strike_count: None,
                decision_reason: input.reason.clone(),
                custom: build_custom(config, input),
                conflicts: input.conflicts.clone(),
            };
            self.callbacks.push(PlannedCallback {
                event_id,
                event_type: input.event_type,
                endpoint,
                subject: input.item.clone(),
                occurred_at: input.occurred_at,
                body: events::serialize_body(&event),
                strike_user: input.user.cloned(),
            });
        }
    }
}

/// Returns the endpoints of an event: the action's own, then all subscribers of its type. For child-safety material,
/// only cleared endpoints are kept. An empty result becomes `[None]`, so that the event is stored as held instead of
/// lost.
pub(crate) fn subscribers(
    config: &Compiled,
    event_type: Event,
    action_endpoint: Option<&EndpointId>,
    is_child_safety: bool,
) -> Vec<Option<EndpointId>> {
    let is_permitted = |endpoint: &EndpointId| {
        !is_child_safety || config.endpoint(endpoint).is_some_and(|endpoint| endpoint.child_safety)
    };
    let subscribed = config.endpoints_for(event_type).map(|endpoint| endpoint.key.clone());
    // The action's endpoint may subscribe too; it must not receive the event twice.
    let subscribed = subscribed.filter(|endpoint| action_endpoint != Some(endpoint));
    let endpoints: Vec<_> = action_endpoint
        .cloned()
        .into_iter()
        .chain(subscribed)
        .filter(|endpoint| is_permitted(endpoint))
        .map(Some)
        .collect();
    if endpoints.is_empty() { vec![None] } else { endpoints }
}

/// Returns the id of an event's copy for a further endpoint.
pub(crate) fn copy_of(event: EventId, endpoint: Option<&EndpointId>) -> EventId {
    let endpoint = endpoint.map_or("", EndpointId::as_str);
    derive(Kind::DecisionEvent, &[event.as_bytes(), endpoint.as_bytes()])
}

fn build_custom(config: &Compiled, input: &ActionInput<'_>) -> Map<String, Value> {
    let action = config.action(input.action);
    let mut custom = input.custom_values.clone();
    // Later entries overwrite earlier ones: decision values, then the action's document, then the request.
    custom.extend(action.map(|action| action.parameters.clone()).unwrap_or_default());
    custom.extend(input.parameters.clone());
    if !input.reported_items.is_empty() {
        custom.insert("reportedItems".to_owned(), json!(input.reported_items));
    }
    custom
}

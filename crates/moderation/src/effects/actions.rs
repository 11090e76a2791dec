//! What one action adds to a plan, whoever took it: a callback or a review, its listing, and the strikes it carries.
//!
//! It does not decide whether the action is taken.

use tidegate_catalog::{ActionKind, Compiled};
use tidegate_schemas::ids::{
    ActionId, CauseId, EndpointId, EventId, ItemKey, Kind, Millis, PolicyId, QueueId, RuleId, derive,
};
use uuid::Uuid;

use super::{
    Plan, PlannedAction, PlannedCallback, PlannedReview, PlannedStrike,
    events::{self, ActionEvent, ActionRef, Named},
};
use crate::{jobs::built_in, rules::stats::RuleHit};

/// An action that is taken on an item.
pub(crate) struct Taken<'a> {
    pub(crate) action: &'a ActionId,
    pub(crate) event_id: EventId,
    pub(crate) event_type: &'static str,
    pub(crate) item: &'a ItemKey,
    /// Who is struck.
    pub(crate) user: Option<&'a ItemKey>,
    /// The append time of what it was taken for.
    pub(crate) at: Millis,
    pub(crate) occurred_at: Millis,
    pub(crate) policies: &'a [PolicyId],
    pub(crate) rules: Vec<Named<RuleId>>,
    /// The versions of rules that it was taken for, whoever took it.
    pub(crate) hits: Vec<RuleHit>,
    pub(crate) reason: Option<String>,
}

impl Plan {
    /// An action that is no longer configured still has its event: it goes to nobody, and is kept as held.
    pub(crate) fn take(&mut self, config: &Compiled, taken: &Taken<'_>) {
        let action = config.action(taken.action);
        match action.map(|action| &action.kind) {
            Some(ActionKind::EnqueueReview { queue }) => self.enqueue(taken, queue.as_ref()),
            Some(ActionKind::Callback { endpoint }) => self.call_back(config, taken, endpoint.clone()),
            None => self.call_back(config, taken, None),
        }
        let points = action.filter(|_| taken.user.is_some()).map_or(0, |action| action.strikes);
        self.taken.push(PlannedAction {
            item: taken.item.clone(),
            event_id: taken.event_id,
            action: taken.action.clone(),
            at: taken.at,
            user: taken.user.cloned(),
            points,
            hits: taken.hits.clone(),
        });
        if points != 0
            && let Some(user) = taken.user
        {
            self.strikes.push(PlannedStrike {
                user: user.clone(),
                cause: CauseId(taken.event_id.0),
                at: taken.at,
                points,
                action: taken.action.clone(),
                item: taken.item.clone(),
                reverses: None,
            });
        }
    }

    fn enqueue(&mut self, taken: &Taken<'_>, queue: Option<&QueueId>) {
        self.reviews.push(PlannedReview {
            subject: taken.item.clone(),
            queue: queue.cloned().unwrap_or_else(|| QueueId::new(built_in::DEFAULT)),
            cause: derive::<Uuid>(Kind::JobCause, &[self.cause.as_bytes(), taken.action.as_str().as_bytes()]),
            at: taken.at,
            rules: taken.rules.iter().map(|rule| rule.id.clone()).collect(),
            hits: taken.hits.clone(),
        });
    }

    fn call_back(&mut self, config: &Compiled, taken: &Taken<'_>, endpoint: Option<EndpointId>) {
        let event = ActionEvent {
            id: taken.event_id,
            event_type: taken.event_type,
            occurred_at: taken.occurred_at.iso(),
            item: taken.item.clone(),
            action: ActionRef { id: taken.action.clone() },
            policies: events::policies(config, taken.policies),
            rules: taken.rules.clone(),
            creator: taken.user.cloned(),
            user_strike_count: None,
            decision_reason: taken.reason.clone(),
            custom: config.action(taken.action).map(|action| action.parameters.clone()).unwrap_or_default(),
        };
        self.callbacks.push(PlannedCallback {
            event_id: taken.event_id,
            event_type: taken.event_type.to_owned(),
            endpoint,
            subject: taken.item.clone(),
            occurred_at: taken.occurred_at,
            body: events::body(&event),
        });
    }
}

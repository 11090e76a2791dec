//! Route of a call: the endpoint that a delivery goes to, its headers and its secret, as they are configured now.

use tidegate_catalog::{self as catalog, ActionKind, Compiled, Endpoint};
use tidegate_egress::Secret;
use tidegate_moderation::child_safety::{Clearance, HELD_REASON};
use tidegate_schemas::ids::EndpointId;
use tidegate_store::tables::callbacks::deliveries::Delivery;

use super::{body, dispatcher::Dispatcher};
use crate::consumer::error::TaskError;

pub(crate) struct Route {
    pub(crate) endpoint: EndpointId,
    pub(crate) url: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) secret: Secret,
}

pub(crate) enum RouteResult {
    Found(Box<Route>),
    /// Something is missing or unusable: the tag of the error.
    Missing(&'static str),
}

impl Dispatcher {
    /// Returns the endpoint of the next attempt as far as the running configuration knows it, whether or not it may have
    /// the event.
    pub(crate) fn configured_endpoint(&self, row: &Delivery) -> Option<EndpointId> {
        let config = self.live.org(&row.org)?;
        endpoint_of(&config, row, |_| true).map(|endpoint| endpoint.key.clone())
    }

    /// Looks up what a call needs. Fails only while the store is unavailable.
    pub(crate) async fn route(&self, row: &Delivery) -> Result<RouteResult, TaskError> {
        let config = self.live.org(&row.org);
        let loaded_endpoint = match config.as_deref() {
            Some(config) => self.permitted_endpoint(config, row).await?,
            None => Err("endpoint_missing"),
        };
        if let Ok(endpoint) = loaded_endpoint {
            return self.route_to(row, endpoint).await;
        }
        // The event may come from a configuration that this process has not loaded yet.
        let latest = match self.live.latest(&row.org).await {
            Ok(latest) => latest,
            Err(catalog::Error::Store(error)) => return Err(error.into()),
            Err(error) => return Ok(RouteResult::Missing(error.tag())),
        };
        match self.permitted_endpoint(&latest, row).await? {
            Ok(endpoint) => self.route_to(row, endpoint).await,
            Err(tag) => Ok(RouteResult::Missing(tag)),
        }
    }

    /// Returns the endpoint of the next attempt, or the reason why there is none. An event about child-safety material goes
    /// only to endpoints whose documents say that they may have it.
    async fn permitted_endpoint<'a>(
        &self,
        config: &'a Compiled,
        row: &Delivery,
    ) -> Result<Result<&'a Endpoint, &'static str>, TaskError> {
        let Some(endpoint) = endpoint_of(config, row, |_| true) else { return Ok(Err("endpoint_missing")) };
        let clearance = Clearance::from_flag(endpoint.child_safety);
        let withheld = clearance.withheld_events(&self.store, &row.org, std::slice::from_ref(row)).await?;
        if withheld.is_empty() {
            return Ok(Ok(endpoint));
        }
        let permitted = endpoint_of(config, row, |endpoint| endpoint.child_safety);
        Ok(permitted.ok_or(HELD_REASON))
    }

    async fn route_to(&self, row: &Delivery, endpoint: &Endpoint) -> Result<RouteResult, TaskError> {
        let open =
            |header: &str, value: &str| self.secrets.open_header(&row.org, &endpoint.key, header, value);
        let headers = match endpoint.resolve_headers(|name| std::env::var(name).ok(), open) {
            Ok(headers) => headers,
            Err(unresolved) => return Ok(RouteResult::Missing(unresolved.tag())),
        };
        match self.secrets.for_endpoint(&row.org, &endpoint.key).await {
            Ok(Some(secret)) => Ok(RouteResult::Found(Box::new(Route {
                endpoint: endpoint.key.clone(),
                url: endpoint.url.clone(),
                headers,
                secret,
            }))),
            Ok(None) => Ok(RouteResult::Missing("secret_missing")),
            Err(error) if error.is_outage() => {
                Err(tidegate_store::Error::Unreachable(error.to_string()).into())
            }
            Err(error) => Ok(RouteResult::Missing(error.tag())),
        }
    }
}

/// Returns the endpoint of the next attempt.
///
/// Until the first attempt this is the endpoint that a new event of the same action would go to, because naming another
/// endpoint may be how an operator repairs a wrong one. After it, the endpoint that was called is called again as long as it
/// is configured, because it may have the event already.
fn endpoint_of<'a>(
    config: &'a Compiled,
    row: &Delivery,
    is_permitted: impl Fn(&Endpoint) -> bool,
) -> Option<&'a Endpoint> {
    let permitted = |endpoint: &'a Endpoint| is_permitted(endpoint).then_some(endpoint);
    let planned = row.endpoint.as_ref().and_then(|endpoint| config.endpoint(endpoint));
    if row.attempts > 0 && planned.is_some() {
        return planned.and_then(permitted);
    }
    // Each endpoint has its own event of a decision, which must not go where another one goes.
    let action = match body::is_of_decision(&row.body) {
        true => None,
        false => body::action(&row.body).and_then(|action| config.action(&action)),
    };
    let first = || config.endpoints_for(&row.event_type).find_map(permitted);
    match action.map(|action| &action.kind) {
        // An endpoint that the action names is not replaced by another that happens to be permitted.
        Some(ActionKind::Callback { endpoint: Some(by_action) }) => {
            config.endpoint(by_action).or(planned).map_or_else(first, permitted)
        }
        Some(ActionKind::Callback { endpoint: None }) => first().or(planned.and_then(permitted)),
        // Events of appeals and decisions were planned for each endpoint separately, so they go to no other one.
        _ => match planned {
            Some(planned) => permitted(planned),
            None => first().filter(|_| row.endpoint.is_none()),
        },
    }
}

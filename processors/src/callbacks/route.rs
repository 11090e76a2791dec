//! Finds the route of a call: the endpoint of a delivery with its current URL, headers and secret.

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
    /// Tag of the error: endpoint, secret or header variable is missing or unusable.
    Missing(&'static str),
}

impl Dispatcher {
    /// Returns the endpoint of the next attempt by the loaded configuration, without a check of its clearance.
    pub(crate) fn configured_endpoint(&self, row: &Delivery) -> Option<EndpointId> {
        let config = self.live.org(&row.org)?;
        choose_endpoint(&config, row, |_| true).map(|endpoint| endpoint.key.clone())
    }

    /// Looks up endpoint, headers and secret. Fails only while the store is unavailable.
    pub(crate) async fn find_route(&self, row: &Delivery) -> Result<RouteResult, TaskError> {
        let config = self.live.org(&row.org);
        let loaded_endpoint = match config.as_deref() {
            Some(config) => self.permitted_endpoint(config, row).await?,
            None => Err("endpoint_missing"),
        };
        if let Ok(endpoint) = loaded_endpoint {
            return self.build_route(row, endpoint).await;
        }
        // The event may have been planned by a configuration that this process has not loaded yet.
        let latest = match self.live.load_latest(&row.org).await {
            Ok(latest) => latest,
            Err(catalog::Error::Store(error)) => return Err(error.into()),
            Err(error) => return Ok(RouteResult::Missing(error.tag())),
        };
        match self.permitted_endpoint(&latest, row).await? {
            Ok(endpoint) => self.build_route(row, endpoint).await,
            Err(tag) => Ok(RouteResult::Missing(tag)),
        }
    }

    /// Returns the endpoint of the next attempt, or the tag of the reason without one. An event about child-safety
    /// material is sent only to endpoints with `child_safety` in the configuration.
    async fn permitted_endpoint<'a>(
        &self,
        config: &'a Compiled,
        row: &Delivery,
    ) -> Result<Result<&'a Endpoint, &'static str>, TaskError> {
        let Some(endpoint) = choose_endpoint(config, row, |_| true) else {
            return Ok(Err("endpoint_missing"));
        };
        let clearance = Clearance::from_flag(endpoint.child_safety);
        let withheld_events =
            clearance.withheld_events(&self.store, &row.org, std::slice::from_ref(row)).await?;
        if withheld_events.is_empty() {
            return Ok(Ok(endpoint));
        }
        let cleared_endpoint = choose_endpoint(config, row, |endpoint| endpoint.child_safety);
        Ok(cleared_endpoint.ok_or(HELD_REASON))
    }

    async fn build_route(&self, row: &Delivery, endpoint: &Endpoint) -> Result<RouteResult, TaskError> {
        let open_header =
            |header: &str, value: &str| self.secrets.open_header(&row.org, &endpoint.key, header, value);
        let headers = match endpoint.resolve_headers(|name| std::env::var(name).ok(), open_header) {
            Ok(headers) => headers,
            Err(error) => return Ok(RouteResult::Missing(error.tag())),
        };
        match self.secrets.for_endpoint(&row.org, &endpoint.key).await {
            Ok(Some(secret)) => Ok(RouteResult::Found(Box::new(Route {
                endpoint: endpoint.key.clone(),
                url: endpoint.url.clone(),
                headers,
                secret,
            }))),
            Ok(None) => Ok(RouteResult::Missing("secret_missing")),
            // An outage is retried like one of the store. Any other error holds the delivery with its tag.
            Err(error) if error.is_outage() => {
                Err(tidegate_store::Error::Unreachable(error.to_string()).into())
            }
            Err(error) => Ok(RouteResult::Missing(error.tag())),
        }
    }
}

/// Returns the endpoint of the next attempt.
///
/// Before the first attempt, the endpoint is chosen as for a new event of the same action, so an operator can repair a
/// wrong endpoint by naming another one. After it, the same endpoint is called again while it is configured, because it
/// may have the event already.
fn choose_endpoint<'a>(
    config: &'a Compiled,
    row: &Delivery,
    is_permitted: impl Fn(&Endpoint) -> bool,
) -> Option<&'a Endpoint> {
    let if_permitted = |endpoint: &'a Endpoint| is_permitted(endpoint).then_some(endpoint);
    let planned_endpoint = row.endpoint.as_ref().and_then(|endpoint| config.endpoint(endpoint));
    if row.attempts > 0 && planned_endpoint.is_some() {
        return planned_endpoint.and_then(if_permitted);
    }
    // A decision is planned as one event per endpoint. Choosing by action would send two of them to the same endpoint.
    let action = match body::has_decision(&row.body) {
        true => None,
        false => body::parse_action_id(&row.body).and_then(|action| config.action(&action)),
    };
    let first_configured =
        || row.event_type.as_known().and_then(|event| config.endpoints_for(event).find_map(if_permitted));
    match action.map(|action| &action.kind) {
        // The action names its endpoint. Another permitted endpoint may belong to another receiver, so it is no substitute.
        Some(ActionKind::Callback { endpoint: Some(action_endpoint) }) => {
            config.endpoint(action_endpoint).or(planned_endpoint).map_or_else(first_configured, if_permitted)
        }
        Some(ActionKind::Callback { endpoint: None }) => {
            first_configured().or(planned_endpoint.and_then(if_permitted))
        }
        // Events of appeals and decisions are planned for each endpoint separately, so another endpoint has its own event.
        _ => match planned_endpoint {
            Some(endpoint) => if_permitted(endpoint),
            None => first_configured().filter(|_| row.endpoint.is_none()),
        },
    }
}

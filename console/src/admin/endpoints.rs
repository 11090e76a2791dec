//! `/admin/v1/endpoints`: the callback endpoints, and the secrets that receivers verify with.
//!
//! Endpoints are made and changed as documents, in the configuration.

use axum::{
    Json, Router,
    extract::State,
    routing::{get, post},
};
use serde::Serialize;
use tidegate_schemas::ids::EndpointId;
use tidegate_web::{Path, Problem, Query};

use super::{Api, List, caller::Caller, extract::WholeList, faults};

pub(super) fn routes() -> Router<Api> {
    Router::new().route("/endpoints", get(list)).route("/endpoints/{key}/secret/reveal", post(reveal))
}

#[derive(Serialize)]
struct Endpoint {
    id: EndpointId,
    /// URL without its query, which may carry a secret.
    url: String,
    headers: Vec<String>,
    events: Vec<&'static str>,
}

#[derive(Serialize)]
struct Revealed {
    id: EndpointId,
    secret: String,
}

async fn list(
    State(api): State<Api>,
    caller: Caller,
    Query(_): Query<WholeList>,
) -> Result<Json<List<Endpoint>>, Problem> {
    let config = api.deps.moderation.live.latest(&caller.org).await.map_err(faults::catalog)?;
    let endpoints = config.endpoints().map(|endpoint| Endpoint {
        id: endpoint.key.clone(),
        url: endpoint.url.split('?').next().unwrap_or_default().to_owned(),
        headers: endpoint.headers.iter().map(|(name, _)| name.clone()).collect(),
        events: endpoint.events.iter().map(|event| event.name()).collect(),
    });
    Ok(Json(List::whole(endpoints.collect())))
}

async fn reveal(
    State(api): State<Api>,
    caller: Caller,
    Path(endpoint): Path<String>,
) -> Result<Json<Revealed>, Problem> {
    let endpoint = EndpointId::from(endpoint);
    let secret = api.deps.secrets.reveal(&caller.org, &endpoint).await.map_err(faults::secret)?;
    let secret = secret.ok_or_else(|| Problem::not_found("There is no such endpoint."))?;
    Ok(Json(Revealed { id: endpoint, secret }))
}

//! `/admin/v1/endpoints`: lists callback endpoints and reveals their signing secrets. Endpoints are documents of the
//! configuration (`config`).

use axum::{
    Json, Router,
    extract::State,
    routing::{get, post},
};
use serde::Serialize;
use tidegate_schemas::ids::EndpointId;
use tidegate_web::{Path, Problem, Query};

use crate::{
    admin::request::{Caller, UnpagedQuery, faults},
    api::{Api, ListResponse},
};

pub(crate) fn routes() -> Router<Api> {
    Router::new()
        .route("/endpoints", get(list_endpoints))
        .route("/endpoints/{key}/secret/reveal", post(reveal_secret))
}

#[derive(Serialize)]
struct EndpointResponse {
    id: EndpointId,
    /// URL without its query, which may carry a secret.
    url: String,
    headers: Vec<String>,
    events: Vec<&'static str>,
}

#[derive(Serialize)]
struct RevealSecretResponse {
    id: EndpointId,
    secret: String,
}

async fn list_endpoints(
    State(api): State<Api>,
    caller: Caller,
    Query(_): Query<UnpagedQuery>,
) -> Result<Json<ListResponse<EndpointResponse>>, Problem> {
    let config = api.deps.moderation.live.load_latest(&caller.org).await.map_err(faults::catalog_problem)?;
    let endpoints = config.endpoints().map(|endpoint| EndpointResponse {
        id: endpoint.key.clone(),
        url: endpoint.url.split('?').next().unwrap_or_default().to_owned(),
        headers: endpoint.headers.iter().map(|(name, _)| name.clone()).collect(),
        events: endpoint.events.iter().map(|event| event.as_str()).collect(),
    });
    Ok(Json(ListResponse::unpaged(endpoints.collect())))
}

async fn reveal_secret(
    State(api): State<Api>,
    caller: Caller,
    Path(endpoint): Path<String>,
) -> Result<Json<RevealSecretResponse>, Problem> {
    let endpoint = EndpointId::from(endpoint);
    let config = api.deps.moderation.live.load_latest(&caller.org).await.map_err(faults::catalog_problem)?;
    // With the secret, a caller could send callbacks about child-safety items that the receiver takes for genuine.
    if config.endpoint(&endpoint).is_some_and(|endpoint| endpoint.child_safety) {
        caller.require_child_safety()?;
    }
    let secret = api.deps.secrets.reveal(&caller.org, &endpoint).await.map_err(faults::secret_problem)?;
    let secret = secret.ok_or_else(|| Problem::not_found("There is no such endpoint."))?;
    Ok(Json(RevealSecretResponse { id: endpoint, secret }))
}

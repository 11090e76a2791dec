//! `GET /api/v1/policies/`: all policies of the organisation, in the order in which they were created.
//!
//! It sorts nothing; the catalog keeps the order.

use axum::{
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use tidegate_catalog::Compiled;
use tidegate_schemas::wire::policies::{Policies, Policy};
use tidegate_web::{Json, Problem};

use crate::{Shared, admission::Admitted};

/// Bytes of a policy without its name.
const POLICY_BYTES: usize = 100;

pub(crate) async fn list(api: Shared, admitted: Admitted) -> Result<Response, Problem> {
    let config = api.config(&admitted.org, |_| true).await?;
    let tag = format!("\"{}\"", config.version().0);
    let mut response = if is_known(admitted.request.headers(), &tag) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        let bytes = config.policies().iter().map(|policy| POLICY_BYTES + policy.name.len()).sum();
        api.work(bytes, move || Json(Policies { policies: policies(&config) }).into_response()).await?
    };
    let headers = response.headers_mut();
    if let Ok(tag) = HeaderValue::try_from(tag) {
        headers.insert(header::ETAG, tag);
    }
    // The same address answers every organisation its own.
    headers.insert(header::VARY, HeaderValue::from_static("x-api-key"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    Ok(response)
}

fn policies(config: &Compiled) -> Vec<Policy> {
    let policy = |policy: &tidegate_catalog::Policy| Policy {
        id: policy.id.clone(),
        name: policy.name.clone(),
        parent_id: policy.parent_id.clone(),
    };
    config.policies().iter().map(policy).collect()
}

/// True if the client has this version already, by `If-None-Match`.
fn is_known(headers: &HeaderMap, tag: &str) -> bool {
    let listed = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    listed
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .any(|known| known == "*" || known.strip_prefix("W/").unwrap_or(known) == tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_known_if_any_listed_tag_names_it() {
        let sent = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::IF_NONE_MATCH, HeaderValue::from_static(value));
            is_known(&headers, "\"7\"")
        };
        for known in ["\"7\"", "W/\"7\"", "\"6\", \"7\"", "*"] {
            assert!(sent(known), "{known}");
        }
        for other in ["\"8\"", "7", "", "\"77\""] {
            assert!(!sent(other), "{other}");
        }
        assert!(!is_known(&HeaderMap::new(), "\"7\""));
    }
}

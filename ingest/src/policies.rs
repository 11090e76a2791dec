//! `GET /api/v1/policies/`: returns all policies of the organisation in the order of their creation, which the catalog
//! keeps.

use axum::{
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use tidegate_catalog::Compiled;
use tidegate_schemas::wire::policies::{Policies, Policy};
use tidegate_web::{Json, Problem};

use crate::{Shared, admission::AdmittedRequest};

/// Estimated bytes of a policy without its name.
const POLICY_OVERHEAD_BYTES: usize = 100;

pub(crate) async fn list(api: Shared, admitted: AdmittedRequest) -> Result<Response, Problem> {
    let config = api.load_config(&admitted.org, |_| true).await?;
    let etag = format!("\"{}\"", config.version().0);
    let mut response = if has_current_version(admitted.request.headers(), &etag) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        let bytes = config.policies().iter().map(|policy| POLICY_OVERHEAD_BYTES + policy.name.len()).sum();
        api.offload_if_large(bytes, move || {
            Json(Policies { policies: response_policies(&config) }).into_response()
        })
        .await?
    };
    let headers = response.headers_mut();
    if let Ok(tag) = HeaderValue::try_from(etag) {
        headers.insert(header::ETAG, tag);
    }
    // All organisations share this URL, so a cache must distinguish responses by key.
    headers.insert(header::VARY, HeaderValue::from_static("x-api-key"));
    // `no-cache`: clients revalidate with the tag, so they see a changed policy at once.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    Ok(response)
}

fn response_policies(config: &Compiled) -> Vec<Policy> {
    let to_policy = |policy: &tidegate_catalog::Policy| Policy {
        id: policy.id.clone(),
        name: policy.name.clone(),
        parent_id: policy.parent_id.clone(),
    };
    config.policies().iter().map(to_policy).collect()
}

/// True if `If-None-Match` contains the current version.
fn has_current_version(headers: &HeaderMap, etag: &str) -> bool {
    let header_values = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    header_values
        .flat_map(|value| value.split(','))
        .map(str::trim)
        // A proxy that compresses the response may have weakened the tag to `W/`.
        .any(|listed_tag| listed_tag == "*" || listed_tag.strip_prefix("W/").unwrap_or(listed_tag) == etag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn if_none_match_accepts_any_listed_tag() {
        let is_current = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::IF_NONE_MATCH, HeaderValue::from_static(value));
            has_current_version(&headers, "\"7\"")
        };
        for matching_value in ["\"7\"", "W/\"7\"", "\"6\", \"7\"", "*"] {
            assert!(is_current(matching_value), "{matching_value}");
        }
        for other_value in ["\"8\"", "7", "", "\"77\""] {
            assert!(!is_current(other_value), "{other_value}");
        }
        assert!(!has_current_version(&HeaderMap::new(), "\"7\""));
    }
}

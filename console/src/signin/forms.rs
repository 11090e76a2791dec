//! Reads a form after verifying that it was sent by a page of this console.

use axum::{
    extract::Request,
    http::{HeaderMap, HeaderName, Uri, header},
};
use tidegate_schemas::ids::OrgId;
use tidegate_web::{HttpServer, Problem};

use super::cookies::{SessionToken, authority};
use crate::html::TOKEN_FIELD;

/// Greatest size of a form in bytes. The largest form of the console has a few hundred.
const FORM_BYTES: usize = 64 << 10;

/// Fields of a form in their order. A name may occur several times.
#[derive(Clone, Debug, Default)]
pub(crate) struct FormFields(Vec<(String, String)>);

impl FormFields {
    fn parse(body: &[u8]) -> Self {
        Self(form_urlencoded::parse(body).into_owned().collect())
    }

    /// Returns the value of a field, or an empty string if it was not sent.
    pub(crate) fn get(&self, name: &str) -> &str {
        self.values_of(name).next().unwrap_or("")
    }

    pub(crate) fn values_of(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(field_name, _)| field_name == name).map(|(_, value)| value.as_str())
    }
}

/// Reads the form of a request. Refuses it unless it contains the form token of the cookie's token.
pub(super) async fn read_form(
    http: &HttpServer,
    request: Request,
    org: Option<&OrgId>,
    token: Option<&SessionToken>,
) -> Result<FormFields, Problem> {
    // Checked before the body is read: a refused form costs no memory.
    check_origin(request.headers(), request.uri())?;
    let body = http.read_form(request, org, FORM_BYTES).await?;
    let fields = FormFields::parse(&body.bytes);
    // A request without a cookie has no token to compare with, so it is refused as well.
    if token.is_some_and(|token| token.is_form_token(fields.get(TOKEN_FIELD))) {
        return Ok(fields);
    }
    tracing::warn!(target: "audit", "a form without the token of its session was refused");
    Err(Problem::forbidden(
        "The form does not belong to this session. Go back, load the page again, and send the form from there. The browser \
         must keep cookies of this site.",
    ))
}

/// Refuses a form of another site, as far as the browser reports it. Other forgeries lack the form token.
fn check_origin(headers: &HeaderMap, uri: &Uri) -> Result<(), Problem> {
    let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let is_foreign = match text(&HeaderName::from_static("sec-fetch-site")) {
        Some(site) => !matches!(site, "same-origin" | "none"),
        // A page with the policy `no-referrer` sends the origin `null`.
        None => text(&header::ORIGIN)
            .filter(|origin| *origin != "null")
            .is_some_and(|origin| origin.split_once("://").map(|(_, host)| host) != authority(headers, uri)),
    };
    if !is_foreign {
        return Ok(());
    }
    tracing::warn!(target: "audit", "a form of another site was refused");
    Err(Problem::forbidden(
        "The form was sent from another site. Open the console itself. A proxy in front of it must pass the Host header on.",
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn forms_of_other_sites_are_refused() {
        let uri = Uri::from_static("/settings/keys");
        for (pairs, allowed) in [
            (&[("sec-fetch-site", "same-origin")][..], true),
            (&[("sec-fetch-site", "same-origin"), ("origin", "null")], true),
            (&[("sec-fetch-site", "same-site")], false),
            (&[("sec-fetch-site", "cross-site"), ("origin", "https://c.example")], false),
            (&[("origin", "https://c.example")], true),
            (&[("origin", "https://evil.example")], false),
            (&[("origin", "https://c.example.evil.example")], false),
            (&[("origin", "null")], true),
            (&[], true),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert("host", "c.example".parse().unwrap());
            for (name, value) in pairs {
                headers.insert(*name, value.parse().unwrap());
            }
            assert_eq!(check_origin(&headers, &uri).is_ok(), allowed, "{pairs:?}");
        }
    }

    #[test]
    fn fields_are_decoded_and_may_repeat() {
        let fields = FormFields::parse(b"name=a+b%26%3Cc&scopes=x&scopes=y&name=late");
        assert_eq!((fields.get("name"), fields.get("none")), ("a b&<c", ""));
        assert_eq!(fields.values_of("scopes").collect::<Vec<_>>(), ["x", "y"]);
    }
}

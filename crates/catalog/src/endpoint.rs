//! Callback endpoints and the references in their header values. `egress` sends the calls, and `secrets`
//! opens sealed values.

use std::fmt;

use serde_json::{Map, Value};
use tidegate_schemas::{
    documents::{self, Event},
    ids::EndpointId,
};

use crate::secrets::{SecretError, is_sealed};

/// Destination of callbacks.
#[derive(Clone, PartialEq, Eq)]
pub struct Endpoint {
    pub key: EndpointId,
    pub url: String,
    /// Configured headers. A value is sealed, or contains references such as `${CALLBACK_TOKEN}`. See
    /// [`Endpoint::resolve_headers`].
    pub headers: Vec<(String, String)>,
    /// Subscribed events; empty means all.
    pub events: Vec<Event>,
    /// Values of the field `custom` in callbacks about appeals.
    pub custom: Map<String, Value>,
    /// True if the endpoint receives events about child-safety items.
    pub child_safety: bool,
    pub(crate) variable_prefix: String,
}

/// Header value that cannot be resolved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnresolvedHeader {
    #[error("the header `{header}` refers to `{variable}`, which is not set here")]
    NotSet { header: String, variable: String },
    #[error(
        "the header `{header}` refers to `{variable}`: only variables that begin with `{prefix}` may be sent (catalog.header_variable_prefix)"
    )]
    Forbidden { header: String, variable: String, prefix: String },
    #[error("the value of the header `{header}` has a `${{` without the name of a variable and a `}}`")]
    Malformed { header: String },
    #[error("the value of the header `{header}` does not open: {reason}")]
    Sealed { header: String, tag: &'static str, reason: String },
}

impl UnresolvedHeader {
    pub fn tag(&self) -> &'static str {
        match self {
            Self::NotSet { .. } => "header_variable_not_set",
            Self::Forbidden { .. } => "header_variable_forbidden",
            Self::Malformed { .. } => "header_variable_malformed",
            Self::Sealed { tag, .. } => tag,
        }
    }
}

impl Endpoint {
    pub(crate) fn new(document: &documents::Endpoint, variable_prefix: &str) -> Self {
        let pair = |(name, value): (&String, &String)| (name.clone(), value.clone());
        Self {
            key: document.key.clone(),
            url: document.url.clone(),
            headers: document.headers.iter().map(pair).collect(),
            events: document.events.clone(),
            custom: document.custom.clone(),
            child_safety: document.child_safety,
            variable_prefix: variable_prefix.to_owned(),
        }
    }

    /// True if the endpoint receives events of this type that name no endpoint.
    pub fn receives(&self, event: Event) -> bool {
        self.events.is_empty() || self.events.contains(&event)
    }

    /// Returns the headers to send. `variable` looks up a variable of the environment; `open` opens a sealed
    /// value, given the name of its header.
    pub fn resolve_headers(
        &self,
        variable: impl Fn(&str) -> Option<String>,
        open: impl Fn(&str, &str) -> Result<String, SecretError>,
    ) -> Result<Vec<(String, String)>, UnresolvedHeader> {
        resolve_headers(&self.headers, &self.variable_prefix, variable, open)
    }

    /// Checks the form of all references and that their variables may be sent. A variable need not be set here.
    pub(crate) fn check_references(&self) -> Vec<UnresolvedHeader> {
        check_references(&self.headers, &self.variable_prefix)
    }
}

/// Replaces references and opens sealed values of configured headers.
pub(crate) fn resolve_headers(
    headers: &[(String, String)],
    prefix: &str,
    variable: impl Fn(&str) -> Option<String>,
    open: impl Fn(&str, &str) -> Result<String, SecretError>,
) -> Result<Vec<(String, String)>, UnresolvedHeader> {
    let resolve = |(header, value): &(String, String)| {
        // A sealed text is opened as a whole. It could contain `${` by chance, so it is not searched for
        // references.
        if is_sealed(value) {
            return match open(header, value) {
                Ok(value) => Ok((header.clone(), value)),
                Err(error) => Err(UnresolvedHeader::Sealed {
                    header: header.clone(),
                    tag: error.tag(),
                    reason: error.to_string(),
                }),
            };
        }
        let value = replace_references(header, value, prefix, |name| {
            let not_set = || UnresolvedHeader::NotSet { header: header.clone(), variable: name.to_owned() };
            variable(name).ok_or_else(not_set)
        })?;
        Ok((header.clone(), value))
    };
    headers.iter().map(resolve).collect()
}

/// Returns the references that are malformed or name a variable that may not be sent.
pub(crate) fn check_references(headers: &[(String, String)], prefix: &str) -> Vec<UnresolvedHeader> {
    let check = |(header, value): &(String, String)| {
        replace_references(header, value, prefix, |_| Ok(String::new())).err()
    };
    headers.iter().filter_map(check).collect()
}

fn replace_references(
    header: &str,
    value: &str,
    prefix: &str,
    variable: impl Fn(&str) -> Result<String, UnresolvedHeader>,
) -> Result<String, UnresolvedHeader> {
    let malformed = || UnresolvedHeader::Malformed { header: header.to_owned() };
    let mut resolved = String::with_capacity(value.len());
    let mut rest = value;
    while let Some((before, after)) = rest.split_once("${") {
        let (name, tail) = after.split_once('}').ok_or_else(malformed)?;
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            return Err(malformed());
        }
        // Without the prefix, any variable of the process, such as the master key, could be sent to an
        // endpoint.
        if !name.starts_with(prefix) {
            return Err(UnresolvedHeader::Forbidden {
                header: header.to_owned(),
                variable: name.to_owned(),
                prefix: prefix.to_owned(),
            });
        }
        resolved.push_str(before);
        resolved.push_str(&variable(name)?);
        rest = tail;
    }
    resolved.push_str(rest);
    Ok(resolved)
}

// Header values are secrets, and the query of an address may contain one.
impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("key", &self.key)
            .field("events", &self.events)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn endpoint(value: &str) -> Endpoint {
        Endpoint {
            key: EndpointId::new("platform"),
            url: "https://platform.example/?token=abc".to_owned(),
            headers: vec![("Authorization".to_owned(), value.to_owned())],
            events: vec![Event::AppealDecision],
            custom: Map::new(),
            child_safety: false,
            variable_prefix: "CALLBACK_".to_owned(),
        }
    }

    fn resolve(value: &str) -> Result<String, UnresolvedHeader> {
        let known = |name: &str| (name == "CALLBACK_TOKEN").then(|| "t0ken".to_owned());
        let open = |header: &str, value: &str| Ok(format!("{header} {value} opened"));
        endpoint(value).resolve_headers(known, open).map(|headers| headers[0].1.clone())
    }

    #[test]
    fn references_are_replaced_at_any_position() {
        assert_eq!(resolve("Bearer ${CALLBACK_TOKEN}").unwrap(), "Bearer t0ken");
        assert_eq!(resolve("${CALLBACK_TOKEN}:${CALLBACK_TOKEN}").unwrap(), "t0ken:t0ken");
        assert_eq!(resolve("plain $5 }").unwrap(), "plain $5 }");
    }

    #[test]
    fn sealed_value_is_not_searched_for_references() {
        assert_eq!(resolve("sealed:a:${b}").unwrap(), "Authorization sealed:a:${b} opened");
    }

    #[test]
    fn only_variables_with_the_prefix_are_sent() {
        for name in ["TIDEGATE__SECURITY__MASTER_KEY", "PATH", "XCALLBACK_TOKEN"] {
            let value = format!("${{{name}}}");
            assert!(matches!(resolve(&value), Err(UnresolvedHeader::Forbidden { .. })), "{name}");
            assert_eq!(endpoint(&value).check_references().len(), 1);
        }
        assert!(matches!(resolve("${CALLBACK_OTHER}"), Err(UnresolvedHeader::NotSet { .. })));
        assert_eq!(endpoint("${CALLBACK_OTHER}").check_references(), []);
        for value in ["${}", "${CALLBACK_A", "${CALLBACK A}"] {
            assert!(matches!(resolve(value), Err(UnresolvedHeader::Malformed { .. })), "{value}");
        }
    }

    #[test]
    fn endpoint_without_event_list_receives_all_events() {
        let some = endpoint("x");
        assert!(some.receives(Event::AppealDecision) && !some.receives(Event::AutomaticAction));
        let all = Endpoint { events: Vec::new(), ..some };
        assert!(Event::ALL.iter().all(|event| all.receives(*event)));
    }

    #[test]
    fn debug_output_hides_address_and_header_values() {
        let text = format!("{:?}", endpoint("Bearer abc"));
        assert!(!text.contains("abc") && !text.contains("platform.example"), "{text}");
    }
}

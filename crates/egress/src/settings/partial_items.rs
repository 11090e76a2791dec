//! Settings of requests for items: common limits, and the endpoint of each org.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize, Serializer};
use tidegate_schemas::ids::OrgId;

use super::SettingsError;
use crate::headers::{HeaderError, check_headers};
use crate::target::{Target, UrlError};

/// Section `egress.partial_items` of the service's settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PartialItemsSettings {
    /// Time of one request, including a second connection and the whole answer, in milliseconds. Default
    /// 10,000.
    pub total_ms: u64,
    /// Greatest number of items in one request; a longer list is split. Default 100.
    pub items: usize,
    /// Greatest length of an answer, in bytes. Default 8 MiB.
    pub response_bytes: u64,
    /// Bytes of an unreadable answer that are logged and stored with the request, escaped. Default 64.
    pub prefix_bytes: usize,
    /// Bytes of invalid entries that are kept with one request. Default 64 KiB.
    pub kept_invalid_bytes: usize,
    /// Concurrent requests for one org in one process. Default 4.
    pub requests_per_org: usize,
    /// Consecutive failures after which an endpoint rests: its requests wait. Default 5.
    pub failures: u32,
    /// Length of the first rest, in milliseconds; each further one is twice as long. Default 10,000.
    pub rest_ms: u64,
    /// Longest rest, in milliseconds. Default 300,000.
    pub longest_rest_ms: u64,
    /// Time after which a request to an unreachable endpoint is abandoned, in milliseconds. Default 3,600,000.
    pub give_up_after_ms: u64,
}

impl Default for PartialItemsSettings {
    fn default() -> Self {
        Self {
            total_ms: 10_000,
            items: 100,
            response_bytes: 8 << 20,
            prefix_bytes: 64,
            kept_invalid_bytes: 64 << 10,
            requests_per_org: 4,
            failures: 5,
            rest_ms: 10_000,
            longest_rest_ms: 300_000,
            give_up_after_ms: 3_600_000,
        }
    }
}

impl PartialItemsSettings {
    pub(crate) fn validate(&self) -> Result<(), SettingsError> {
        for (name, value, max) in [
            ("partial_items.total_ms", self.total_ms, 600_000),
            ("partial_items.items", self.items as u64, 1_000),
            ("partial_items.response_bytes", self.response_bytes, 256 << 20),
            ("partial_items.kept_invalid_bytes", self.kept_invalid_bytes as u64, 4 << 20),
            ("partial_items.requests_per_org", self.requests_per_org as u64, 1_000),
            ("partial_items.failures", u64::from(self.failures), 1_000),
            ("partial_items.rest_ms", self.rest_ms, 86_400_000),
            ("partial_items.longest_rest_ms", self.longest_rest_ms, 86_400_000),
            ("partial_items.give_up_after_ms", self.give_up_after_ms, 7 * 86_400_000),
        ] {
            if value == 0 || value > max {
                let reason = if value == 0 { "must be at least 1" } else { "is more than can be used" };
                return Err(SettingsError::Unusable { name, value: value.to_string(), reason });
            }
        }
        if self.prefix_bytes > 4_096 {
            let (name, value) = ("partial_items.prefix_bytes", self.prefix_bytes.to_string());
            return Err(SettingsError::Unusable {
                name,
                value,
                reason: "must be at most 4096: it is logged",
            });
        }
        if self.rest_ms > self.longest_rest_ms {
            return Err(SettingsError::Contradiction {
                lesser: "partial_items.rest_ms",
                less: self.rest_ms,
                greater: "partial_items.longest_rest_ms",
                great: self.longest_rest_ms,
            });
        }
        Ok(())
    }

    pub(crate) fn total(&self) -> Duration {
        Duration::from_millis(self.total_ms)
    }
}

/// Section `partial_items`: endpoints by org.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PartialItemsEndpoints(BTreeMap<OrgId, EndpointSettings>);

/// Endpoint of an org as configured. `Debug` shows no value, and the serialised form contains no secret.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndpointSettings {
    /// URL, possibly with references to environment variables such as `${PARTIAL_ITEMS_URL}`.
    pub url: String,
    /// Headers of every request. Values may contain references such as `${PARTIAL_ITEMS_TOKEN}`.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Further headers with values read from files. A trailing line end is removed.
    #[serde(default)]
    pub headers_files: BTreeMap<String, PathBuf>,
}

/// Endpoint of an org with its references replaced. `Debug` shows no value.
#[derive(Clone, PartialEq, Eq)]
pub struct Endpoint {
    pub url: String,
    pub headers: Vec<(String, String)>,
}

/// Error of an org's endpoint. Messages name the setting and show no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    #[error("partial_items.{org}.{place}: the environment variable `{variable}` is not set")]
    NotSet { org: OrgId, place: String, variable: String },
    #[error("partial_items.{org}.{place}: a `${{` must be followed by the name of a variable and a `}}`")]
    Reference { org: OrgId, place: String },
    #[error("partial_items.{org}.headers_files.{header}: the file {} cannot be read: {reason}", path.display())]
    File { org: OrgId, header: String, path: PathBuf, reason: String },
    #[error("partial_items.{org}.url: {error}")]
    Url { org: OrgId, error: UrlError },
    #[error("partial_items.{org}.headers: {error}")]
    Header { org: OrgId, error: HeaderError },
}

impl EndpointError {
    pub fn tag(&self) -> &'static str {
        match self {
            Self::NotSet { .. } => "partial_items_variable_not_set",
            Self::Reference { .. } => "partial_items_reference",
            Self::File { .. } => "partial_items_file",
            Self::Url { error, .. } => error.tag(),
            Self::Header { error, .. } => error.tag(),
        }
    }
}

impl PartialItemsEndpoints {
    pub fn get(&self, org: &OrgId) -> Option<&EndpointSettings> {
        self.0.get(org)
    }

    pub fn has_endpoint(&self, org: &OrgId) -> bool {
        self.0.contains_key(org)
    }

    pub fn insert(&mut self, org: OrgId, endpoint: EndpointSettings) {
        self.0.insert(org, endpoint);
    }

    /// Validates the parts that depend on neither environment nor files.
    pub fn validate(&self) -> Result<(), EndpointError> {
        for (org, endpoint) in &self.0 {
            let placeholder = |_: &str| Some("x".to_owned());
            endpoint.replace_references(org, placeholder)?;
            // A URL with references is validated after they are replaced.
            if !endpoint.url.contains("${") {
                let parsed = Target::parse(&endpoint.url);
                parsed.map_err(|error| EndpointError::Url { org: org.clone(), error })?;
            }
            let names = endpoint.headers.keys().chain(endpoint.headers_files.keys());
            let headers: Vec<_> = names.map(|name| (name.clone(), String::new())).collect();
            check_headers(&headers).map_err(|error| EndpointError::Header { org: org.clone(), error })?;
        }
        Ok(())
    }

    /// Replaces references with the values of `variable` (the environment), and reads the header files.
    pub fn resolve(
        &self,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<BTreeMap<OrgId, Endpoint>, EndpointError> {
        let resolve = |(org, endpoint): (&OrgId, &EndpointSettings)| {
            Ok((org.clone(), endpoint.resolve(org, &variable)?))
        };
        self.0.iter().map(resolve).collect()
    }
}

impl EndpointSettings {
    fn resolve(
        &self,
        org: &OrgId,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Endpoint, EndpointError> {
        let mut endpoint = self.replace_references(org, variable)?;
        for (header, path) in &self.headers_files {
            let text = std::fs::read_to_string(path).map_err(|error| EndpointError::File {
                org: org.clone(),
                header: header.clone(),
                path: path.clone(),
                reason: error.to_string(),
            })?;
            // Editors end files with a line end, which a header cannot contain.
            let value = text.strip_suffix('\n').unwrap_or(&text);
            let value = value.strip_suffix('\r').unwrap_or(value);
            endpoint.headers.push((header.clone(), value.to_owned()));
        }
        let parsed = Target::parse(&endpoint.url);
        parsed.map_err(|error| EndpointError::Url { org: org.clone(), error })?;
        let result = check_headers(&endpoint.headers);
        result.map_err(|error| EndpointError::Header { org: org.clone(), error })?;
        Ok(endpoint)
    }

    /// Replaces the references in URL and headers.
    fn replace_references(
        &self,
        org: &OrgId,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Endpoint, EndpointError> {
        let replace = |place: String, text: &str| replace_variables(org, &place, text, &variable);
        let url = replace("url".to_owned(), &self.url)?;
        let headers = self
            .headers
            .iter()
            .map(|(name, value)| Ok((name.clone(), replace(format!("headers.{name}"), value)?)));
        Ok(Endpoint { url, headers: headers.collect::<Result<_, EndpointError>>()? })
    }

    /// Returns the URL without its query, which may contain a credential. References are not replaced.
    pub fn shown_url(&self) -> &str {
        self.url.split(['?', '#']).next().unwrap_or_default()
    }

    /// Returns the names of all headers.
    pub fn header_names(&self) -> impl Iterator<Item = &str> {
        self.headers.keys().chain(self.headers_files.keys()).map(String::as_str)
    }
}

fn replace_variables(
    org: &OrgId,
    place: &str,
    text: &str,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<String, EndpointError> {
    let malformed = || EndpointError::Reference { org: org.clone(), place: place.to_owned() };
    let (mut replaced, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, after)) = rest.split_once("${") {
        let (name, tail) = after.split_once('}').ok_or_else(malformed)?;
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            return Err(malformed());
        }
        let value = variable(name).ok_or_else(|| EndpointError::NotSet {
            org: org.clone(),
            place: place.to_owned(),
            variable: name.to_owned(),
        })?;
        replaced.push_str(before);
        replaced.push_str(&value);
        rest = tail;
    }
    replaced.push_str(rest);
    Ok(replaced)
}

impl Serialize for EndpointSettings {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Masked<'a> {
            url: &'a str,
            headers: BTreeMap<&'a str, &'static str>,
            headers_files: &'a BTreeMap<String, PathBuf>,
        }
        // Any value may be a credential, so all of them are masked.
        let headers = self.headers.keys().map(|name| (name.as_str(), "***")).collect();
        Masked { url: self.shown_url(), headers, headers_files: &self.headers_files }.serialize(serializer)
    }
}

impl std::fmt::Debug for EndpointSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EndpointSettings(..)")
    }
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Endpoint(..)")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn endpoints(text: &str) -> PartialItemsEndpoints {
        serde_json::from_str(&format!(r#"{{"acme": {text}}}"#)).unwrap()
    }

    fn known(name: &str) -> Option<String> {
        match name {
            "HOST" => Some("items.example".to_owned()),
            "TOKEN" => Some("t0ken".to_owned()),
            _ => None,
        }
    }

    #[test]
    fn references_and_files_are_read_and_never_shown() {
        let file = std::env::temp_dir().join(format!("tidegate-header-{}", std::process::id()));
        std::fs::write(&file, "from a file\r\n").unwrap();
        let endpoints = endpoints(&format!(
            r#"{{"url": "https://${{HOST}}/items?key=secret", "headers": {{"Authorization": "Bearer ${{TOKEN}}"}},
                "headers_files": {{"X-Key": "{}"}}}}"#,
            file.display()
        ));
        endpoints.validate().unwrap();
        let resolved = endpoints.resolve(known);
        std::fs::remove_file(&file).unwrap();
        let resolved = resolved.unwrap();
        let endpoint = &resolved[&OrgId::new("acme")];
        assert_eq!(endpoint.url, "https://items.example/items?key=secret");
        let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            endpoint.headers,
            [header("Authorization", "Bearer t0ken"), header("X-Key", "from a file")]
        );
        let shown = serde_json::to_string(&endpoints).unwrap() + &format!("{endpoints:?} {endpoint:?}");
        assert!(shown.contains("https://${HOST}/items\"") && shown.contains("***"), "{shown}");
        for secret in ["secret", "TOKEN", "t0ken", "from a file"] {
            assert!(!shown.contains(secret), "{shown}");
        }
    }

    #[test]
    fn unusable_endpoint_is_named_by_its_place() {
        for (text, tag, place) in [
            (
                r#"{"url": "https://a/", "headers": {"X-Key": "${OTHER}"}}"#,
                "partial_items_variable_not_set",
                "acme.headers.X-Key",
            ),
            (r#"{"url": "https://${HOST"}"#, "partial_items_reference", "acme.url"),
            (r#"{"url": "ftp://a/"}"#, "url_scheme", "acme.url"),
            (
                r#"{"url": "https://a/", "headers": {"Service-Signature": "x"}}"#,
                "header_forbidden",
                "acme.headers",
            ),
            (
                r#"{"url": "https://a/", "headers_files": {"X-Key": "/nowhere"}}"#,
                "partial_items_file",
                "/nowhere",
            ),
            (
                r#"{"url": "https://a/", "headers": {"X-Key": ""}, "headers_files": {"x-key": "/dev/null"}}"#,
                "header_twice",
                "acme.headers",
            ),
        ] {
            let error = endpoints(text).resolve(known).unwrap_err();
            assert_eq!(error.tag(), tag, "{error}");
            assert!(error.to_string().contains(place), "{error}");
        }
        for text in [r#"{"url": "https://${HOST"}"#, r#"{"url": "ftp://a/"}"#] {
            assert!(endpoints(text).validate().is_err(), "{text}");
        }
        assert!(endpoints(r#"{"url": "${HOST}", "headers": {"X-Key": "${OTHER}"}}"#).validate().is_ok());
        assert!(serde_json::from_str::<PartialItemsEndpoints>(r#"{"acme": {"uri": "https://a/"}}"#).is_err());
    }

    #[test]
    fn invalid_value_is_named() {
        PartialItemsSettings::default().validate().unwrap();
        for (settings, named) in [
            (PartialItemsSettings { items: 0, ..PartialItemsSettings::default() }, "partial_items.items = 0"),
            (PartialItemsSettings { rest_ms: 400_000, ..PartialItemsSettings::default() }, "longest_rest_ms"),
            (PartialItemsSettings { prefix_bytes: 5_000, ..PartialItemsSettings::default() }, "prefix_bytes"),
        ] {
            let text = settings.validate().unwrap_err().to_string();
            assert!(text.contains(named), "{text}");
        }
    }
}

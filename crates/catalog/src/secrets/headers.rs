//! Header values of endpoints and signals in snapshots: values in clear are sealed for their header.
//! References such as `${CALLBACK_TOKEN}` are no secrets and stay as they are.

use std::fmt;

use base64::{Engine, engine::general_purpose::STANDARD_NO_PAD as BASE64};
use tidegate_schemas::ids::{EndpointId, OrgId, SignalId};

use super::{SecretError, Secrets, seal};

/// Prefix of a sealed value, followed by the id of the master key, a colon, and the sealed bytes.
const SEALED_PREFIX: &str = "sealed:";

/// Document that a header value belongs to. A sealed value opens for its owner only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderOwner<'a> {
    Endpoint(&'a EndpointId),
    Signal(&'a SignalId),
}

impl<'a> From<&'a EndpointId> for HeaderOwner<'a> {
    fn from(endpoint: &'a EndpointId) -> Self {
        Self::Endpoint(endpoint)
    }
}

impl<'a> From<&'a SignalId> for HeaderOwner<'a> {
    fn from(signal: &'a SignalId) -> Self {
        Self::Signal(signal)
    }
}

impl fmt::Display for HeaderOwner<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Endpoint(endpoint) => write!(f, "endpoint {endpoint}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
        }
    }
}

pub(crate) fn is_sealed(value: &str) -> bool {
    value.starts_with(SEALED_PREFIX)
}

impl Secrets {
    /// Seals a value for this header of this owner.
    pub(crate) fn seal_header(
        &self,
        org: &OrgId,
        owner: HeaderOwner<'_>,
        header: &str,
        value: &str,
    ) -> Result<String, SecretError> {
        let key = &self.0.key;
        let sealed = seal::seal(key, &sealing_context(org, owner, header), value)?;
        Ok(format!("{SEALED_PREFIX}{}:{}", key.id(), BASE64.encode(sealed)))
    }

    /// Opens a sealed header value.
    pub fn open_header<'a>(
        &self,
        org: &OrgId,
        owner: impl Into<HeaderOwner<'a>>,
        header: &str,
        sealed: &str,
    ) -> Result<String, SecretError> {
        let owner = owner.into();
        let tampered = || SecretError::Tampered { owner: owner.to_string() };
        let rest = sealed.strip_prefix(SEALED_PREFIX).ok_or_else(tampered)?;
        let (id, text) = rest.split_once(':').ok_or_else(tampered)?;
        let key = &self.0.key;
        if id != key.id() {
            return Err(SecretError::OtherMasterKey {
                owner: owner.to_string(),
                sealed_under: id.to_owned(),
                at_hand: key.id().to_owned(),
            });
        }
        let bytes = BASE64.decode(text).map_err(|_| tampered())?;
        seal::open(key, &sealing_context(org, owner, header), &bytes).ok_or_else(tampered)
    }
}

/// Returns the context a header value is sealed for. Header names are case-insensitive.
fn sealing_context(org: &OrgId, owner: HeaderOwner<'_>, header: &str) -> Vec<u8> {
    let header = header.to_ascii_lowercase();
    let (purpose, owner) = match owner {
        HeaderOwner::Endpoint(endpoint) => ("tidegate endpoint header", endpoint.as_str()),
        HeaderOwner::Signal(signal) => ("tidegate signal header", signal.as_str()),
    };
    seal::encode_context(purpose, &[org.as_str(), owner, &header])
}

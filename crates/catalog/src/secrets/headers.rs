//! Header values of endpoints as a snapshot keeps them: those that are written out are sealed to their place.
//!
//! It changes no document (`change` does). References such as `${CALLBACK_TOKEN}` are no secrets and stay as they are.

use base64::{Engine, engine::general_purpose::STANDARD_NO_PAD as BASE64};
use tidegate_schemas::ids::{EndpointId, OrgId};

use super::{SecretError, Secrets, seal};

/// Prefix of a sealed value, followed by the id of the master key, a colon, and the sealed bytes.
const MARK: &str = "sealed:";

pub(crate) fn is_sealed(value: &str) -> bool {
    value.starts_with(MARK)
}

impl Secrets {
    /// A value's sealed text, which opens for this header of this endpoint only.
    pub(crate) fn seal_header(
        &self,
        org: &OrgId,
        endpoint: &EndpointId,
        header: &str,
        value: &str,
    ) -> Result<String, SecretError> {
        let key = &self.0.key;
        let sealed = seal::seal(key, &place(org, endpoint, header), value)?;
        Ok(format!("{MARK}{}:{}", key.id(), BASE64.encode(sealed)))
    }

    /// The value that was sealed.
    pub fn open_header(
        &self,
        org: &OrgId,
        endpoint: &EndpointId,
        header: &str,
        sealed: &str,
    ) -> Result<String, SecretError> {
        let tampered = || SecretError::Tampered { endpoint: endpoint.clone() };
        let rest = sealed.strip_prefix(MARK).ok_or_else(tampered)?;
        let (id, text) = rest.split_once(':').ok_or_else(tampered)?;
        let key = &self.0.key;
        if id != key.id() {
            return Err(SecretError::OtherMasterKey {
                endpoint: endpoint.clone(),
                sealed_under: id.to_owned(),
                at_hand: key.id().to_owned(),
            });
        }
        let bytes = BASE64.decode(text).map_err(|_| tampered())?;
        seal::open(key, &place(org, endpoint, header), &bytes).ok_or_else(tampered)
    }
}

/// Names of headers are the same in any case.
fn place(org: &OrgId, endpoint: &EndpointId, header: &str) -> Vec<u8> {
    let header = header.to_ascii_lowercase();
    seal::place("tidegate endpoint header", &[org.as_str(), endpoint.as_str(), &header])
}

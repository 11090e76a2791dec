//! Seals header values in clear before a snapshot is stored, so that neither the store nor a pull contains
//! them in clear.
//!
//! `secrets` does the sealing.

use std::collections::BTreeMap;

use tidegate_schemas::{
    documents::{DocumentFault, DocumentSet, Origin},
    ids::OrgId,
};

use super::ApplyError;
use crate::secrets::{HeaderOwner, Secrets, is_sealed};

/// Seals all header values. A value equal to the current one keeps its sealed text, so that it is no
/// difference. A sealed text is accepted for the header it was pulled from, and refused for any other.
pub(super) fn seal_all_headers(
    secrets: &Secrets,
    org: &OrgId,
    current: &DocumentSet,
    next: &mut DocumentSet,
) -> Result<(), ApplyError> {
    let mut sealing = Sealing { secrets, org, faults: Vec::new() };
    for (key, (origin, endpoint)) in &mut next.endpoints {
        let old_headers = current.endpoints.get(key).map(|(_, old_endpoint)| &old_endpoint.headers);
        sealing.seal_headers(key.into(), origin, &mut endpoint.headers, old_headers)?;
    }
    for (key, (origin, signal)) in &mut next.signals {
        let old_headers = current.signals.get(key).map(|(_, old_signal)| &old_signal.headers);
        sealing.seal_headers(key.into(), origin, &mut signal.headers, old_headers)?;
    }
    if sealing.faults.is_empty() { Ok(()) } else { Err(ApplyError::Invalid(sealing.faults)) }
}

type Headers = BTreeMap<String, String>;

struct Sealing<'a> {
    secrets: &'a Secrets,
    org: &'a OrgId,
    faults: Vec<DocumentFault>,
}

impl Sealing<'_> {
    fn seal_headers(
        &mut self,
        owner: HeaderOwner<'_>,
        origin: &Origin,
        headers: &mut Headers,
        old_headers: Option<&Headers>,
    ) -> Result<(), ApplyError> {
        for (header, value) in headers {
            let old_value = old_headers.and_then(|headers| headers.get(header));
            // References such as `${CALLBACK_TOKEN}` are no secrets.
            if old_value == Some(value) && is_sealed(value) || value.contains("${") {
                continue;
            }
            if is_sealed(value) {
                if let Err(error) = self.secrets.open_header(self.org, owner, header, value) {
                    let message =
                        format!("The sealed value of `{header}` does not open here ({error}): write it out.");
                    self.faults.push(DocumentFault::new(origin, "headers", message));
                }
                continue;
            }
            *value = match old_value.filter(|sealed_value| self.opens_to(owner, header, sealed_value, value))
            {
                Some(sealed_value) => sealed_value.clone(),
                None => self.secrets.seal_header(self.org, owner, header, value)?,
            };
        }
        Ok(())
    }

    fn opens_to(&self, owner: HeaderOwner<'_>, header: &str, sealed: &str, value: &str) -> bool {
        is_sealed(sealed)
            && self
                .secrets
                .open_header(self.org, owner, header, sealed)
                .is_ok_and(|plain_text| plain_text == value)
    }
}

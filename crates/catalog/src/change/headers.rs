//! Seals the header values that a change writes out, so that no snapshot, and nobody who pulls it, has them in clear.
//!
//! How a value is sealed and opened is `secrets`' concern.

use std::collections::BTreeMap;

use tidegate_schemas::{
    documents::{DocumentFault, Origin, Set},
    ids::OrgId,
};

use super::ApplyError;
use crate::secrets::{HeaderOwner, Secrets, is_sealed};

/// A value that is the same as before keeps its sealed text, so that it is no difference. A sealed text that somebody
/// pulled is taken again at its own place, and refused at any other.
pub(super) fn seal(secrets: &Secrets, org: &OrgId, current: &Set, next: &mut Set) -> Result<(), ApplyError> {
    let mut sealing = Sealing { secrets, org, faults: Vec::new() };
    for (key, (origin, endpoint)) in &mut next.endpoints {
        let before = current.endpoints.get(key).map(|(_, before)| &before.headers);
        sealing.seal(key.into(), origin, &mut endpoint.headers, before)?;
    }
    for (key, (origin, signal)) in &mut next.signals {
        let before = current.signals.get(key).map(|(_, before)| &before.headers);
        sealing.seal(key.into(), origin, &mut signal.headers, before)?;
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
    fn seal(
        &mut self,
        owner: HeaderOwner<'_>,
        origin: &Origin,
        headers: &mut Headers,
        before: Option<&Headers>,
    ) -> Result<(), ApplyError> {
        for (header, value) in headers {
            let before = before.and_then(|headers| headers.get(header));
            if before == Some(value) && is_sealed(value) || value.contains("${") {
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
            *value = match before.filter(|before| self.opens_to(owner, header, before, value)) {
                Some(before) => before.clone(),
                None => self.secrets.seal_header(self.org, owner, header, value)?,
            };
        }
        Ok(())
    }

    fn opens_to(&self, owner: HeaderOwner<'_>, header: &str, sealed: &str, value: &str) -> bool {
        is_sealed(sealed)
            && self.secrets.open_header(self.org, owner, header, sealed).is_ok_and(|before| before == value)
    }
}

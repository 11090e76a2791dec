//! Seals the header values that a change writes out, so that no snapshot, and nobody who pulls it, has them in clear.
//!
//! How a value is sealed and opened is `secrets`' concern.

use tidegate_schemas::{
    documents::{DocumentFault, Set},
    ids::{EndpointId, OrgId},
};

use super::ApplyError;
use crate::secrets::{Secrets, is_sealed};

/// A value that is the same as before keeps its sealed text, so that it is no difference. A sealed text that somebody
/// pulled is taken again at its own place, and refused at any other.
pub(super) fn seal(secrets: &Secrets, org: &OrgId, current: &Set, next: &mut Set) -> Result<(), ApplyError> {
    let mut faults = Vec::<DocumentFault>::new();
    for (key, (origin, endpoint)) in &mut next.endpoints {
        let before = current.endpoints.get(key).map(|(_, before)| &before.headers);
        for (header, value) in &mut endpoint.headers {
            let before = before.and_then(|headers| headers.get(header));
            if before == Some(value) && is_sealed(value) || value.contains("${") {
                continue;
            }
            if is_sealed(value) {
                if let Err(error) = secrets.open_header(org, key, header, value) {
                    let message =
                        format!("The sealed value of `{header}` does not open here ({error}): write it out.");
                    faults.push(DocumentFault::new(origin, "headers", message));
                }
                continue;
            }
            *value = match before.filter(|before| opens_to(secrets, (org, key, header), before, value)) {
                Some(before) => before.clone(),
                None => secrets.seal_header(org, key, header, value)?,
            };
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(ApplyError::Invalid(faults)) }
}

fn opens_to(
    secrets: &Secrets,
    (org, endpoint, header): (&OrgId, &EndpointId, &str),
    sealed: &str,
    value: &str,
) -> bool {
    is_sealed(sealed)
        && secrets.open_header(org, endpoint, header, sealed).is_ok_and(|before| before == value)
}

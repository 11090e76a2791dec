//! Seals a secret to its place: a sealed text that was copied elsewhere, or changed, does not open.
//!
//! It keeps nothing.

use chacha20poly1305::{
    Key, KeyInit, XChaCha20Poly1305, XNonce,
    aead::{Aead, Payload},
};
use tidegate_egress::Secret;
use tidegate_schemas::ids::{EndpointId, OrgId};

use super::{MasterKey, SecretError};

const NONCE_BYTES: usize = 24;

/// A fresh nonce, then what was encrypted. A nonce of 24 random bytes never comes twice.
pub(super) fn seal(
    key: &MasterKey,
    org: &OrgId,
    endpoint: &EndpointId,
    text: &str,
) -> Result<Vec<u8>, SecretError> {
    let mut nonce = [0; NONCE_BYTES];
    getrandom::fill(&mut nonce).map_err(|_| SecretError::NoRandomness)?;
    let place = place(org, endpoint);
    let payload = Payload { msg: text.as_bytes(), aad: &place };
    let encrypted = cipher(key)
        .encrypt(&XNonce::from(nonce), payload)
        .expect("only texts of 256 GiB are too long to encrypt");
    Ok([&nonce[..], &encrypted].concat())
}

pub(super) fn open(
    key: &MasterKey,
    org: &OrgId,
    endpoint: &EndpointId,
    sealed: &[u8],
) -> Result<Secret, SecretError> {
    let tampered = || SecretError::Tampered { endpoint: endpoint.clone() };
    let (nonce, encrypted) = sealed.split_first_chunk::<NONCE_BYTES>().ok_or_else(tampered)?;
    let place = place(org, endpoint);
    let payload = Payload { msg: encrypted, aad: &place };
    let text = cipher(key).decrypt(&XNonce::from(*nonce), payload).map_err(|_| tampered())?;
    let text = String::from_utf8(text).map_err(|_| tampered())?;
    Secret::parse(&text).map_err(|_| tampered())
}

fn cipher(key: &MasterKey) -> XChaCha20Poly1305 {
    XChaCha20Poly1305::new(&Key::from(*key.bytes()))
}

/// Each part is preceded by its length, so that two places never look alike.
fn place(org: &OrgId, endpoint: &EndpointId) -> Vec<u8> {
    let mut place = b"tidegate endpoint secret".to_vec();
    for part in [org.as_str(), endpoint.as_str()] {
        place.extend_from_slice(&(part.len() as u64).to_be_bytes());
        place.extend_from_slice(part.as_bytes());
    }
    place
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn names() -> (OrgId, EndpointId) {
        (OrgId::new("o"), EndpointId::new("platform"))
    }

    #[test]
    fn what_was_sealed_opens_at_its_place_only() {
        let key = MasterKey::new([7; 32]);
        let (org, endpoint) = names();
        let secret = Secret::generate([9; 32]);
        let sealed = seal(&key, &org, &endpoint, secret.expose()).unwrap();
        assert_eq!(open(&key, &org, &endpoint, &sealed).unwrap(), secret);
        for (org, endpoint) in [("p", "platform"), ("o", "other"), ("op", "latform")] {
            let opened = open(&key, &OrgId::new(org), &EndpointId::new(endpoint), &sealed);
            assert!(matches!(opened, Err(SecretError::Tampered { .. })));
        }
        let other = open(&MasterKey::new([8; 32]), &org, &endpoint, &sealed);
        assert!(matches!(other, Err(SecretError::Tampered { .. })));
    }

    #[test]
    fn a_changed_byte_anywhere_is_noticed_and_no_two_sealed_texts_are_equal() {
        let key = MasterKey::new([7; 32]);
        let (org, endpoint) = names();
        let text = Secret::generate([9; 32]);
        let sealed = seal(&key, &org, &endpoint, text.expose()).unwrap();
        assert_ne!(sealed, seal(&key, &org, &endpoint, text.expose()).unwrap());
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(open(&key, &org, &endpoint, &changed).is_err(), "{at}");
            assert!(open(&key, &org, &endpoint, &sealed[..at]).is_err(), "{at}");
        }
    }
}

//! Encrypts a secret for a context: a sealed text that was changed or copied to another context does not open.

use chacha20poly1305::{
    Key, KeyInit, XChaCha20Poly1305, XNonce,
    aead::{Aead, Payload},
};

use super::{MasterKey, SecretError};

const NONCE_BYTES: usize = 24;

/// Encrypts a text. The result is a random nonce followed by the ciphertext; 24 random bytes do not repeat in
/// practice.
pub(super) fn seal(key: &MasterKey, place: &[u8], text: &str) -> Result<Vec<u8>, SecretError> {
    let mut nonce = [0; NONCE_BYTES];
    getrandom::fill(&mut nonce).map_err(|_| SecretError::NoRandomness)?;
    let payload = Payload { msg: text.as_bytes(), aad: place };
    let encrypted = cipher(key)
        .encrypt(&XNonce::from(nonce), payload)
        .expect("only texts of 256 GiB are too long to encrypt");
    Ok([&nonce[..], &encrypted].concat())
}

/// Decrypts a sealed value; `None` if it was changed, or sealed under another key or for another context.
pub(super) fn open(key: &MasterKey, place: &[u8], sealed: &[u8]) -> Option<String> {
    let (nonce, encrypted) = sealed.split_first_chunk::<NONCE_BYTES>()?;
    let payload = Payload { msg: encrypted, aad: place };
    let text = cipher(key).decrypt(&XNonce::from(*nonce), payload).ok()?;
    String::from_utf8(text).ok()
}

fn cipher(key: &MasterKey) -> XChaCha20Poly1305 {
    XChaCha20Poly1305::new(&Key::from(*key.bytes()))
}

/// Encodes a context. Each part is preceded by its length, so that no two contexts have the same bytes.
pub(super) fn encode_context(purpose: &str, parts: &[&str]) -> Vec<u8> {
    let mut place = purpose.as_bytes().to_vec();
    for part in parts {
        place.extend_from_slice(&(part.len() as u64).to_be_bytes());
        place.extend_from_slice(part.as_bytes());
    }
    place
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn sealed_text_opens_in_its_own_context_only() {
        let key = MasterKey::new([7; 32]);
        let at = encode_context("secret", &["o", "platform"]);
        let sealed = seal(&key, &at, "text").unwrap();
        assert_eq!(open(&key, &at, &sealed).unwrap(), "text");
        for parts in [["p", "platform"], ["o", "other"], ["op", "latform"]] {
            assert_eq!(open(&key, &encode_context("secret", &parts), &sealed), None);
        }
        assert_eq!(open(&key, &encode_context("other", &["o", "platform"]), &sealed), None);
        assert_eq!(open(&MasterKey::new([8; 32]), &at, &sealed), None);
    }

    #[test]
    fn any_changed_byte_prevents_opening() {
        let key = MasterKey::new([7; 32]);
        let at = encode_context("secret", &["o", "platform"]);
        let sealed = seal(&key, &at, "text").unwrap();
        assert_ne!(sealed, seal(&key, &at, "text").unwrap());
        for byte in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[byte] ^= 1;
            assert!(open(&key, &at, &changed).is_none(), "{byte}");
            assert!(open(&key, &at, &sealed[..byte]).is_none(), "{byte}");
        }
    }
}

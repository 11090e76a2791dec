//! Text form of an API key: `tg_<env>_<id>_<secret>_<checksum>`.
//!
//! The checksum allows a typo or a truncated paste to be refused without a lookup, and lets secret scanners
//! tell a real key from a similar string.

use std::fmt;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tidegate_schemas::{hex, ids::ApiKeyId};
use uuid::Uuid;

use crate::settings::is_env;

const PREFIX: &str = "tg";
const SECRET_BYTES: usize = 32;
const CHECKSUM_BYTES: usize = 4;

/// API key as its holder has it. Its `Debug` output hides the secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    pub env: String,
    pub id: ApiKeyId,
    secret: [u8; SECRET_BYTES],
}

/// Text that is no API key: it has the wrong form or a wrong checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an API key")]
pub struct NotAToken;

impl Token {
    pub fn new(env: &str, id: ApiKeyId, secret: [u8; SECRET_BYTES]) -> Self {
        Self { env: env.to_owned(), id, secret }
    }

    pub fn parse(text: &str) -> Result<Self, NotAToken> {
        let mut parts = text.split('_');
        let mut part = || parts.next().ok_or(NotAToken);
        let (prefix, env, id, secret, checksum) = (part()?, part()?, part()?, part()?, part()?);
        let shape = prefix == PREFIX && parts.next().is_none() && is_env(env);
        // The checksum covers the text before its own separator.
        let body = &text[..text.len() - checksum.len() - 1];
        if !shape || from_hex::<CHECKSUM_BYTES>(checksum) != Some(checksum_of(body)) {
            return Err(NotAToken);
        }
        let id = Uuid::try_parse(id).map_err(|_| NotAToken)?;
        Ok(Self { env: env.to_owned(), id: ApiKeyId(id), secret: from_hex(secret).ok_or(NotAToken)? })
    }

    /// Returns the full text, to show once to the holder.
    pub fn reveal(&self) -> String {
        let body = format!("{}_{}", public_prefix(&self.env, self.id), hex(&self.secret));
        let checksum = hex(&checksum_of(&body));
        format!("{body}_{checksum}")
    }

    /// Hashes the secret for the store. The secret has 256 random bits, so that a fast hash is safe.
    pub fn hash(&self) -> [u8; 32] {
        Sha256::digest(self.secret).into()
    }

    /// Compares hashes in constant time.
    pub fn has_hash(&self, hash: &[u8]) -> bool {
        self.hash().ct_eq(hash).into()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({})", public_prefix(&self.env, self.id))
    }
}

/// Returns the public beginning of a token, which identifies the key and grants no access.
pub fn public_prefix(env: &str, id: ApiKeyId) -> String {
    format!("{PREFIX}_{env}_{}", id.0.simple())
}

fn checksum_of(body: &str) -> [u8; CHECKSUM_BYTES] {
    let [a, b, c, d, ..]: [u8; 32] = Sha256::digest(body.as_bytes()).into();
    [a, b, c, d]
}

/// Decodes lower-case digits only, so that each key has exactly one text form.
fn from_hex<const BYTES: usize>(digits: &str) -> Option<[u8; BYTES]> {
    if digits.bytes().any(|digit| digit.is_ascii_uppercase()) { None } else { hex::decode(digits) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn token() -> Token {
        Token::new("live", ApiKeyId::random(), [7; SECRET_BYTES])
    }

    #[test]
    fn revealed_token_can_be_parsed() {
        let token = token();
        assert_eq!(Token::parse(&token.reveal()).unwrap(), token);
    }

    #[test]
    fn token_with_a_changed_character_is_refused() {
        let text = token().reveal();
        for at in 0..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[at] = if changed[at] == b'0' { b'1' } else { b'0' };
            let changed = String::from_utf8(changed).unwrap();
            assert!(Token::parse(&changed).is_err(), "{at}");
        }
        for end in 0..text.len() {
            assert!(Token::parse(&text[..end]).is_err(), "{end}");
        }
        assert!(Token::parse(&format!("{text}_")).is_err());
        assert!(Token::parse("").is_err());
    }

    #[test]
    fn token_has_exactly_one_text_form() {
        let text = Token::new("live", ApiKeyId(Uuid::from_u128(7)), [0xab; SECRET_BYTES]).reveal();
        let (body, checksum) = text.rsplit_once('_').unwrap();
        let loud = checksum.to_uppercase();
        assert_ne!(loud, checksum);
        assert_eq!(Token::parse(&format!("{body}_{loud}")), Err(NotAToken));
        let (start, secret) = body.rsplit_once('_').unwrap();
        let body = format!("{start}_{}", secret.to_uppercase());
        let checksum = hex(&checksum_of(&body));
        assert_eq!(Token::parse(&format!("{body}_{checksum}")), Err(NotAToken));
    }

    #[test]
    fn debug_output_does_not_hold_the_secret() {
        let token = token();
        assert!(!format!("{token:?}").contains(&hex(&token.secret)));
    }
}

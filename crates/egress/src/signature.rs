//! Signs callbacks, and verifies signatures like a receiver.
//!
//! One secret serves two schemes. `Service-Signature` uses the whole `whsec_...` text as its key (like
//! Stripe), and `webhook-signature` the decoded bytes after the prefix (Standard Webhooks), so that receivers
//! can use ready-made verifiers for either.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, KeyInit, Mac};
use http::HeaderMap;
use sha2::Sha256;
use subtle::ConstantTimeEq;
use tidegate_schemas::hex;

/// Header of the service's own signature scheme.
pub const SERVICE_SIGNATURE: &str = "service-signature";
/// Headers of Standard Webhooks.
pub const WEBHOOK_ID: &str = "webhook-id";
pub const WEBHOOK_TIMESTAMP: &str = "webhook-timestamp";
pub const WEBHOOK_SIGNATURE: &str = "webhook-signature";

const SECRET_PREFIX: &str = "whsec_";

/// Signing secret: `whsec_` and the standard base64 of its bytes. `Debug` hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    text: String,
    key: Vec<u8>,
}

/// Text that is no signing secret. The message contains no part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a signing secret is `whsec_` followed by the base64 of 24 to 64 bytes")]
pub struct SecretError;

impl SecretError {
    pub fn tag(&self) -> &'static str {
        "not_a_secret"
    }
}

impl Secret {
    /// Creates a secret from random bytes.
    pub fn generate(random: [u8; 32]) -> Self {
        Self { text: format!("{SECRET_PREFIX}{}", BASE64.encode(random)), key: random.to_vec() }
    }

    /// Parses a secret.
    pub fn parse(text: &str) -> Result<Self, SecretError> {
        let tail = text.strip_prefix(SECRET_PREFIX).ok_or(SecretError)?;
        let key = BASE64.decode(tail).map_err(|_| SecretError)?;
        if !(24..=64).contains(&key.len()) {
            return Err(SecretError);
        }
        Ok(Self { text: text.to_owned(), key })
    }

    /// Returns the text, to show it once or to encrypt it.
    pub fn expose(&self) -> &str {
        &self.text
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(****)")
    }
}

/// Values of the signature headers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signatures {
    /// `Service-Signature`.
    pub service: String,
    /// `webhook-signature`.
    pub webhook: String,
}

/// Signs the body of the callback `id`, sent at `sent_at` (unix seconds), with all of the secrets, the newest first.
pub fn sign(secrets: &[Secret], id: &str, sent_at: u64, body: &[u8]) -> Signatures {
    let time = sent_at.to_string();
    let mut service = format!("t={time}");
    let mut webhook = String::new();
    // One signature for each secret: receivers must accept the callback while a secret is replaced.
    for secret in secrets {
        service.push_str(",v1=");
        service.push_str(&compute_service_v1(secret, &time, body));
        if !webhook.is_empty() {
            webhook.push(' ');
        }
        webhook.push_str("v1,");
        let mac = compute_hmac(&secret.key, &[id.as_bytes(), b".", time.as_bytes(), b".", body]);
        webhook.push_str(&BASE64.encode(mac));
    }
    Signatures { service, webhook }
}

/// Reason for rejecting a signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum VerificationError {
    #[error("there is no Service-Signature header")]
    Missing,
    #[error("the Service-Signature header is not of the form t=<unix seconds>,v1=<hex>")]
    Malformed,
    #[error("the signature's time is too far from now")]
    Stale,
    #[error("no signature fits the body and the secret")]
    Mismatch,
}

impl VerificationError {
    pub fn tag(&self) -> &'static str {
        match self {
            Self::Missing => "signature_missing",
            Self::Malformed => "signature_malformed",
            Self::Stale => "signature_stale",
            Self::Mismatch => "signature_mismatch",
        }
    }
}

/// Accepts a body if one `v1` of its `Service-Signature` was made with one of the secrets, at most
/// `tolerance` seconds before or after `now`. The form of the header is checked as strictly as by the
/// strictest public verifier, so that a header accepted here is accepted by all of them.
pub fn verify(
    headers: &HeaderMap,
    body: &[u8],
    secrets: &[Secret],
    now: u64,
    tolerance: u64,
) -> Result<(), VerificationError> {
    let mut values = headers.get_all(SERVICE_SIGNATURE).iter();
    let header = values.next().ok_or(VerificationError::Missing)?;
    // Verifiers differ in the header that they choose of several.
    if values.next().is_some() {
        return Err(VerificationError::Malformed);
    }
    let (time, signatures) = parse_header(header.to_str().map_err(|_| VerificationError::Malformed)?)
        .ok_or(VerificationError::Malformed)?;
    let sent_at: u64 = time.parse().map_err(|_| VerificationError::Malformed)?;
    if sent_at.abs_diff(now) > tolerance {
        return Err(VerificationError::Stale);
    }
    // All pairs are compared, so that the duration does not reveal the matching one.
    let mut matches = subtle::Choice::from(0);
    for secret in secrets {
        let expected_signature = compute_service_v1(secret, time, body);
        for signature in &signatures {
            matches |= expected_signature.as_bytes().ct_eq(signature.as_bytes());
        }
    }
    if matches.into() { Ok(()) } else { Err(VerificationError::Mismatch) }
}

/// Returns the time as written, which is the text that was signed, and all `v1`. Unknown schemes are ignored.
fn parse_header(header: &str) -> Option<(&str, Vec<&str>)> {
    let mut time = None;
    let mut signatures = Vec::new();
    for part in header.split(',') {
        match part.split_once('=')? {
            ("t", value) => {
                let is_canonical =
                    value.bytes().all(|b| b.is_ascii_digit()) && !value.starts_with('0') && value.len() <= 12;
                // Strict verifiers refuse a repeated time and leading zeros.
                if value.is_empty() || !is_canonical || time.replace(value).is_some() {
                    return None;
                }
            }
            ("v1", value) => {
                let is_hex = value.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
                if value.len() != 64 || !is_hex {
                    return None;
                }
                signatures.push(value);
            }
            _ => {}
        }
    }
    if signatures.is_empty() { None } else { Some((time?, signatures)) }
}

fn compute_service_v1(secret: &Secret, time: &str, body: &[u8]) -> String {
    hex(&compute_hmac(secret.text.as_bytes(), &[time.as_bytes(), b".", body]))
}

fn compute_hmac(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes a key of any length");
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

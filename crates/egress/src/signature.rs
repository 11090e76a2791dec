//! Signs what we send and verifies it the way a receiver must.
//! Not responsible for where secrets are kept or which of them are valid.
//!
//! One secret serves two schemes: `Service-Signature` takes the whole `whsec_...` text as the key (the Stripe form),
//! `webhook-signature` the decoded bytes behind the prefix (Standard Webhooks), so receivers can use ready-made
//! verifiers of either kind.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, KeyInit, Mac};
use http::HeaderMap;
use sha2::Sha256;
use subtle::ConstantTimeEq;

/// Header of our own scheme.
pub const SERVICE_SIGNATURE: &str = "service-signature";
/// Headers of Standard Webhooks.
pub const WEBHOOK_ID: &str = "webhook-id";
pub const WEBHOOK_TIMESTAMP: &str = "webhook-timestamp";
pub const WEBHOOK_SIGNATURE: &str = "webhook-signature";

const PREFIX: &str = "whsec_";

/// A signing secret, `whsec_` and the standard base64 of its bytes. `Debug` shows none of it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    text: String,
    key: Vec<u8>,
}

/// The text is no signing secret. It says nothing about the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a signing secret is `whsec_` followed by the base64 of 24 to 64 bytes")]
pub struct NotASecret;

impl NotASecret {
    pub fn tag(&self) -> &'static str {
        "not_a_secret"
    }
}

impl Secret {
    /// Makes a secret of random bytes.
    pub fn generate(random: [u8; 32]) -> Self {
        Self { text: format!("{PREFIX}{}", BASE64.encode(random)), key: random.to_vec() }
    }

    /// Reads a secret back.
    pub fn parse(text: &str) -> Result<Self, NotASecret> {
        let tail = text.strip_prefix(PREFIX).ok_or(NotASecret)?;
        let key = BASE64.decode(tail).map_err(|_| NotASecret)?;
        if !(24..=64).contains(&key.len()) {
            return Err(NotASecret);
        }
        Ok(Self { text: text.to_owned(), key })
    }

    /// The text, to be shown once or sealed.
    pub fn expose(&self) -> &str {
        &self.text
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(****)")
    }
}

/// The headers that prove where a body comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signatures {
    /// Value of `Service-Signature`.
    pub service: String,
    /// Value of `webhook-signature`.
    pub webhook: String,
}

/// Signs a body sent at `t` (unix seconds) with each of the secrets, the newest first.
pub fn sign(secrets: &[Secret], id: &str, t: u64, body: &[u8]) -> Signatures {
    let mut service = format!("t={t}");
    let mut webhook = String::new();
    for secret in secrets {
        service.push_str(",v1=");
        service.push_str(&service_v1(secret, &t.to_string(), body));
        if !webhook.is_empty() {
            webhook.push(' ');
        }
        webhook.push_str("v1,");
        let tag = hmac(&secret.key, &[id.as_bytes(), b".", t.to_string().as_bytes(), b".", body]);
        webhook.push_str(&BASE64.encode(tag));
    }
    Signatures { service, webhook }
}

/// Why a received body is not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Rejected {
    #[error("there is no Service-Signature header")]
    Missing,
    #[error("the Service-Signature header is not of the form t=<unix seconds>,v1=<hex>")]
    Malformed,
    #[error("the signature's time is too far from now")]
    Stale,
    #[error("no signature fits the body and the secret")]
    Mismatch,
}

impl Rejected {
    pub fn tag(&self) -> &'static str {
        match self {
            Self::Missing => "signature_missing",
            Self::Malformed => "signature_malformed",
            Self::Stale => "signature_stale",
            Self::Mismatch => "signature_mismatch",
        }
    }
}

/// Believes a body if one `v1` of its `Service-Signature` was made with one of the secrets, at most `tolerance` seconds
/// before or after `now`. As strict about the header's form as the strictest public verifier, so that whatever passes
/// here passes there.
pub fn verify(
    headers: &HeaderMap,
    body: &[u8],
    secrets: &[Secret],
    now: u64,
    tolerance: u64,
) -> Result<(), Rejected> {
    let mut values = headers.get_all(SERVICE_SIGNATURE).iter();
    let header = values.next().ok_or(Rejected::Missing)?;
    if values.next().is_some() {
        return Err(Rejected::Malformed);
    }
    let (t, signatures) =
        parse(header.to_str().map_err(|_| Rejected::Malformed)?).ok_or(Rejected::Malformed)?;
    let at: u64 = t.parse().map_err(|_| Rejected::Malformed)?;
    if at.abs_diff(now) > tolerance {
        return Err(Rejected::Stale);
    }
    // Every pair is compared, whatever the earlier ones gave, so that time tells nothing about which one fits.
    let mut fits = subtle::Choice::from(0);
    for secret in secrets {
        let wanted = service_v1(secret, t, body);
        for signature in &signatures {
            fits |= wanted.as_bytes().ct_eq(signature.as_bytes());
        }
    }
    if fits.into() { Ok(()) } else { Err(Rejected::Mismatch) }
}

/// The time as it was written, and every `v1`. Schemes that are not known yet are passed over.
fn parse(header: &str) -> Option<(&str, Vec<&str>)> {
    let mut t = None;
    let mut signatures = Vec::new();
    for part in header.split(',') {
        match part.split_once('=')? {
            ("t", value) => {
                let canonical =
                    value.bytes().all(|b| b.is_ascii_digit()) && !value.starts_with('0') && value.len() <= 12;
                if value.is_empty() || !canonical || t.replace(value).is_some() {
                    return None;
                }
            }
            ("v1", value) => {
                let hex = value.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
                if value.len() != 64 || !hex {
                    return None;
                }
                signatures.push(value);
            }
            _ => {}
        }
    }
    if signatures.is_empty() { None } else { Some((t?, signatures)) }
}

fn service_v1(secret: &Secret, t: &str, body: &[u8]) -> String {
    let tag = hmac(secret.text.as_bytes(), &[t.as_bytes(), b".", body]);
    tag.iter().fold(String::with_capacity(64), |mut hex, byte| {
        for nibble in [byte >> 4, byte & 15] {
            hex.push(char::from_digit(nibble.into(), 16).expect("a nibble is a hexadecimal digit"));
        }
        hex
    })
}

fn hmac(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes a key of any length");
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

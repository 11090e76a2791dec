//! Signatures against values that other implementations computed, and against every kind of tampering. The
//! vectors were made with Python's `hmac` and checked with OpenSSL; each language's snippet is held to the
//! same file.
#![allow(clippy::unwrap_used)]

use http::HeaderMap;
use proptest::prelude::{Just, Strategy, any, proptest};
use serde::Deserialize;
use tidegate_egress::signature::{Secret, VerificationError, sign, verify};

#[derive(Deserialize)]
struct Vector {
    name: String,
    secrets: Vec<String>,
    id: String,
    t: u64,
    body: String,
    service_signature: String,
    webhook_signature: String,
}

fn vectors() -> Vec<Vector> {
    serde_json::from_str(include_str!("../../../../docs/guides/verify/vectors.json")).unwrap()
}

fn secrets(texts: &[String]) -> Vec<Secret> {
    texts.iter().map(|text| Secret::parse(text).unwrap()).collect()
}

fn secret(byte: u8) -> Secret {
    Secret::generate([byte; 32])
}

fn headers(value: &str) -> HeaderMap {
    HeaderMap::from_iter([("service-signature".parse().unwrap(), value.parse().unwrap())])
}

const NOW: u64 = 1_795_255_200;

#[test]
fn every_golden_vector_is_signed_and_verified_alike() {
    let vectors = vectors();
    assert_eq!(vectors.len(), 20);
    for vector in vectors {
        let secrets = secrets(&vector.secrets);
        let signed = sign(&secrets, &vector.id, vector.t, vector.body.as_bytes());
        assert_eq!(signed.service, vector.service_signature, "{}", vector.name);
        assert_eq!(signed.webhook, vector.webhook_signature, "{}", vector.name);
        for secret in secrets {
            let headers = headers(&vector.service_signature);
            assert_eq!(
                verify(&headers, vector.body.as_bytes(), &[secret], vector.t, 0),
                Ok(()),
                "{}",
                vector.name
            );
        }
    }
}

#[test]
fn either_secret_verifies_during_a_rotation() {
    let (old, new) = (secret(1), secret(2));
    let header = sign(&[new.clone(), old.clone()], "id", NOW, b"{}").service;
    assert_eq!(header.matches(",v1=").count(), 2);
    for receiver in [vec![old.clone()], vec![new.clone()], vec![old, new]] {
        assert_eq!(verify(&headers(&header), b"{}", &receiver, NOW, 300), Ok(()));
    }
    assert_eq!(verify(&headers(&header), b"{}", &[secret(3)], NOW, 300), Err(VerificationError::Mismatch));
    assert_eq!(verify(&headers(&header), b"{}", &[], NOW, 300), Err(VerificationError::Mismatch));
}

#[test]
fn signature_header_has_the_form_of_public_verifiers() {
    let header = sign(&[secret(1), secret(2)], "id", NOW, b"{}").service;
    assert!(header.starts_with(&format!("t={NOW},v1=")), "{header}");
    assert!(!header.contains(char::is_whitespace) && !header.contains(char::is_uppercase), "{header}");
    assert_eq!(header.len(), "t=1795255200".len() + 2 * (",v1=".len() + 64));
}

#[test]
fn headers_refused_by_public_verifiers_are_refused() {
    let valid_header = sign(&[secret(1)], "id", NOW, b"{}").service;
    let v1 = valid_header.split_once(",v1=").unwrap().1.to_owned();
    let check = |value: &str| verify(&headers(value), b"{}", &[secret(1)], NOW, 300);
    assert_eq!(check(&valid_header), Ok(()));
    for extended in [
        format!("{valid_header},v1a=AAAA=="),
        format!("{valid_header},kid=k1"),
        format!("{valid_header},v0=0"),
    ] {
        assert_eq!(check(&extended), Ok(()), "an unknown scheme is ignored: {extended}");
    }
    for (malformed, reason) in [
        (String::new(), "empty"),
        (format!("t={NOW}, v1={v1}"), "space after the comma"),
        (format!("t={NOW},v1= {v1}"), "space before the value"),
        (format!("t={NOW},v1={}", v1.to_uppercase()), "upper-case hex"),
        (format!("t={NOW},v1={}", &v1[..62]), "short"),
        (format!("t={NOW},v1={v1}00"), "long"),
        (format!("t={NOW},v1=3q2+7w=="), "base64"),
        (format!("t={NOW}"), "no v1"),
        (format!("v1={v1}"), "no t"),
        (format!("t=,v1={v1}"), "empty t"),
        (format!("t=0{NOW},v1={v1}"), "leading zero"),
        (format!("t=+{NOW},v1={v1}"), "sign"),
        (format!("t=2026-11-21T10:00:00Z,v1={v1}"), "ISO 8601"),
        (format!("t={NOW},t={NOW},v1={v1}"), "two times"),
        (format!("t=18446744073709551616,v1={v1}"), "time out of range"),
        (format!("{valid_header},"), "empty part"),
        (v1.clone(), "no keys"),
    ] {
        assert_eq!(check(&malformed), Err(VerificationError::Malformed), "{reason}");
    }
    assert_eq!(verify(&HeaderMap::new(), b"{}", &[secret(1)], NOW, 300), Err(VerificationError::Missing));
    let mut twice = headers(&valid_header);
    twice.append("service-signature", valid_header.parse().unwrap());
    assert_eq!(verify(&twice, b"{}", &[secret(1)], NOW, 300), Err(VerificationError::Malformed));
}

#[test]
fn signature_is_valid_only_near_its_time() {
    let header = headers(&sign(&[secret(1)], "id", NOW, b"{}").service);
    for (now, believed) in [
        (NOW - 300, true),
        (NOW, true),
        (NOW + 300, true),
        (NOW - 301, false),
        (NOW + 301, false),
        (0, false),
    ] {
        let expected_result = if believed { Ok(()) } else { Err(VerificationError::Stale) };
        assert_eq!(verify(&header, b"{}", &[secret(1)], now, 300), expected_result, "{now}");
    }
    let in_milliseconds = headers(&sign(&[secret(1)], "id", NOW * 100, b"{}").service);
    assert_eq!(verify(&in_milliseconds, b"{}", &[secret(1)], NOW, 300), Err(VerificationError::Stale));
}

#[test]
fn reserialised_body_is_refused() {
    let header = headers(&sign(&[secret(1)], "id", NOW, br#"{ "a" : 1.0 }"#).service);
    assert_eq!(verify(&header, br#"{"a":1.0}"#, &[secret(1)], NOW, 300), Err(VerificationError::Mismatch));
}

#[test]
fn secret_can_be_parsed_and_debug_output_hides_it() {
    let new_secret = Secret::generate([7; 32]);
    assert!(new_secret.expose().starts_with("whsec_"));
    assert_eq!(Secret::parse(new_secret.expose()).unwrap(), new_secret);
    assert!(!format!("{new_secret:?}").contains(&new_secret.expose()[6..12]));
    let tail = &new_secret.expose()[6..];
    for text in
        ["", "whsec_", tail, "whsec_AAAA", "whsec_****", &format!("WHSEC_{tail}"), &format!("whsec_{tail}=")]
    {
        let error = Secret::parse(text).unwrap_err();
        assert!(text.is_empty() || !error.to_string().contains(tail));
    }
}

/// Returns the text with one bit flipped, if the result is a valid header value.
fn flipped(text: &str, at: usize, bit: u8) -> Option<String> {
    let mut bytes = text.as_bytes().to_vec();
    bytes[at] ^= 1 << bit;
    String::from_utf8(bytes).ok().filter(|text| text.bytes().all(|b| b == b'\t' || (32..127).contains(&b)))
}

proptest! {
    #[test]
    fn any_flipped_bit_is_rejected(
        key in any::<[u8; 32]>(),
        (body, at) in proptest::collection::vec(any::<u8>(), 1..300)
            .prop_flat_map(|body| { let len = body.len(); (Just(body), 0..len) }),
        in_header in 0_usize..77,
        bit in 0_u8..8,
    ) {
        let secrets = [Secret::generate(key)];
        let header = sign(&secrets, "id", NOW, &body).service;
        // The tolerance is unlimited, so only the signature protects the time.
        let check = |header: &str, body: &[u8]| verify(&headers(header), body, &secrets, NOW, u64::MAX);
        assert_eq!(check(&header, &body), Ok(()));

        let mut tampered = body.clone();
        tampered[at] ^= 1 << bit;
        assert_eq!(check(&header, &tampered), Err(VerificationError::Mismatch));

        // `t=`, ten digits, `,v1=`, 64 digits.
        let at = in_header.min(header.len() - 1);
        if let Some(tampered) = flipped(&header, at, bit) {
            assert!(check(&tampered, &body).is_err(), "{at} {bit}");
        }
    }
}

//! Which of librdkafka's keys need OpenSSL, which is there only in builds with the feature `tls`, and which of its faults
//! are a certificate's.

use std::{fmt, path::Path};

use rdkafka::{ClientConfig, error::RDKafkaErrorCode};

/// Has librdkafka look for the system's authorities.
const PROBE: &str = "probe";
const PEM: &[u8] = b"-----BEGIN";

/// Refuses what verifies nothing, and what this program was built without. The value may be a secret, so only the key is
/// named.
pub(super) fn may_pass(section: &str, key: &str, value: Option<&str>) -> Result<(), String> {
    let is_none = value.is_some_and(|value| value.eq_ignore_ascii_case("none"));
    if key == "ssl.endpoint.identification.algorithm" && is_none {
        return Err(format!(
            "stream.kafka.{section}: {key} = none cannot be set: host names are always verified"
        ));
    }
    if cfg!(feature = "tls") || !needs_openssl(key, value) {
        return Ok(());
    }
    Err(format!(
        "stream.kafka.{section}: {key}, as it is set, needs a program that was built with the feature `tls`"
    ))
}

fn needs_openssl(key: &str, value: Option<&str>) -> bool {
    let is = |sign: &str| value.is_some_and(|value| value.to_ascii_uppercase().contains(sign));
    match key {
        "security.protocol" => is("SSL"),
        "sasl.mechanism" | "sasl.mechanisms" => is("SCRAM") || is("OAUTHBEARER"),
        _ => key.starts_with("ssl."),
    }
}

/// Has the system's authorities looked for where no others are named: an OpenSSL of our own knows no place of them.
pub(super) fn find_authorities(config: &mut ClientConfig) {
    let is_named = ["ssl.ca.location", "ssl.ca.pem"].iter().any(|key| config.get(key).is_some());
    if cfg!(feature = "tls") && !is_named {
        config.set("ssl.ca.location", PROBE);
    }
}

/// Refuses files that cannot be used, by name: of one that is no PEM, librdkafka would not say which it is.
pub(super) fn check_files(config: &ClientConfig) -> Result<(), String> {
    for key in ["ssl.ca.location", "ssl.certificate.location", "ssl.key.location"] {
        let Some(path) = config.get(key).filter(|path| *path != PROBE && !Path::new(path).is_dir()) else {
            continue;
        };
        let fault = |why: &dyn fmt::Display| format!("stream.kafka: {key}: {path}: {why}");
        let pem = std::fs::read(path).map_err(|why| fault(&why))?;
        if !pem.windows(PEM.len()).any(|bytes| bytes == PEM) {
            return Err(fault(&"there is no PEM in it"));
        }
    }
    Ok(())
}

/// Whether what librdkafka reports is a certificate that one of both sides does not take: waiting does not mend that.
pub(super) fn is_distrust(code: Option<RDKafkaErrorCode>, reason: &str) -> bool {
    const SIGNS: [&str; 7] = [
        "certificate verify failed",
        "verify broker certificate",
        "not provide a certificate",
        // What a broker says about ours; with TLS 1.3 it does when the link seems to stand.
        "alert bad certificate",
        "alert unsupported certificate",
        "alert certificate ",
        "alert unknown ca",
    ];
    let is_of_the_link =
        matches!(code, Some(RDKafkaErrorCode::SSL | RDKafkaErrorCode::BrokerTransportFailure));
    is_of_the_link && SIGNS.iter().any(|sign| reason.contains(sign))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_openssl_does_is_told_from_what_goes_without() {
        for (key, value) in [
            ("security.protocol", "sasl_ssl"),
            ("security.protocol", "SSL"),
            ("sasl.mechanism", "SCRAM-SHA-512"),
            ("ssl.ca.location", "/ca.pem"),
        ] {
            assert!(needs_openssl(key, Some(value)), "{key}");
            let refused = may_pass("librdkafka", key, Some(value));
            assert_eq!(refused.is_ok(), cfg!(feature = "tls"), "{key}");
            let named = |why: String| why.contains(key) && why.contains("the feature `tls`");
            assert!(refused.err().is_none_or(named), "{key}");
        }
        for (key, value) in [("security.protocol", "SASL_PLAINTEXT"), ("sasl.mechanism", "PLAIN")] {
            assert!(!needs_openssl(key, Some(value)), "{key}");
        }
    }
}

//! Checks of the librdkafka keys that need OpenSSL, which is part of builds with the feature `tls`.

use std::{fmt, path::Path};

use rdkafka::ClientConfig;

/// Value that makes librdkafka search for the system's authorities.
const PROBE: &str = "probe";
const PEM: &[u8] = b"-----BEGIN";

/// Refuses keys that disable verification, and keys that need another build. The value may be a secret, so the error names
/// only the key.
pub(super) fn check_key(section: &str, key: &str, value: Option<&str>) -> Result<(), String> {
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
    let names = |part: &str| value.is_some_and(|value| value.to_ascii_uppercase().contains(part));
    match key {
        "security.protocol" => names("SSL"),
        "sasl.mechanism" | "sasl.mechanisms" => names("SCRAM") || names("OAUTHBEARER"),
        _ => key.starts_with("ssl."),
    }
}

/// Makes librdkafka search for the system's authorities if none are configured: the bundled OpenSSL does not know their
/// location.
pub(super) fn find_authorities(config: &mut ClientConfig) {
    let is_named = ["ssl.ca.location", "ssl.ca.pem"].iter().any(|key| config.get(key).is_some());
    if cfg!(feature = "tls") && !is_named {
        config.set("ssl.ca.location", PROBE);
    }
}

/// Refuses unusable files by name, because librdkafka would not report which of them is no PEM file.
pub(super) fn check_files(config: &ClientConfig) -> Result<(), String> {
    for key in ["ssl.ca.location", "ssl.certificate.location", "ssl.key.location"] {
        let Some(path) = config.get(key).filter(|path| *path != PROBE && !Path::new(path).is_dir()) else {
            continue;
        };
        let to_error = |error: &dyn fmt::Display| format!("stream.kafka: {key}: {path}: {error}");
        let pem = std::fs::read(path).map_err(|error| to_error(&error))?;
        if !pem.windows(PEM.len()).any(|bytes| bytes == PEM) {
            return Err(to_error(&"there is no PEM in it"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_need_openssl_are_recognised() {
        for (key, value) in [
            ("security.protocol", "sasl_ssl"),
            ("security.protocol", "SSL"),
            ("sasl.mechanism", "SCRAM-SHA-512"),
            ("ssl.ca.location", "/ca.pem"),
        ] {
            assert!(needs_openssl(key, Some(value)), "{key}");
            let refused = check_key("librdkafka", key, Some(value));
            assert_eq!(refused.is_ok(), cfg!(feature = "tls"), "{key}");
            let named = |why: String| why.contains(key) && why.contains("the feature `tls`");
            assert!(refused.err().is_none_or(named), "{key}");
        }
        for (key, value) in [("security.protocol", "SASL_PLAINTEXT"), ("sasl.mechanism", "PLAIN")] {
            assert!(!needs_openssl(key, Some(value)), "{key}");
        }
    }
}

//! Settings of media fetches.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_schemas::ids::OrgId;

use super::SettingsError;

/// Section `egress.media` of the service's settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MediaSettings {
    /// Allowed ports of media URLs. Default 80 and 443.
    pub ports: Vec<u16>,
    /// Further allowed ports, by org. Default none.
    pub ports_by_org: BTreeMap<OrgId, Vec<u16>>,
    /// Greatest number of redirects. Each target is checked like the first address. Default 3.
    pub redirects: u32,
    /// Time from the connection to the head of the response, in milliseconds. Default 5,000.
    pub first_byte_ms: u64,
    /// Longest pause between two chunks of a body, in milliseconds. Default 5,000.
    pub idle_ms: u64,
    /// Time of one attempt with all of its redirects, in milliseconds. Default 20,000.
    pub total_ms: u64,
    /// Lowest rate of a body after the grace time, in bytes per second; 0 accepts any rate. Default 8,192.
    pub min_rate: u64,
    /// Time before the rate of a body is enforced, in milliseconds. Default 3,000.
    pub min_rate_grace_ms: u64,
    /// Greatest length of a body, in bytes. Default 100 MiB.
    pub max_bytes: u64,
}

impl Default for MediaSettings {
    fn default() -> Self {
        Self {
            ports: vec![80, 443],
            ports_by_org: BTreeMap::new(),
            redirects: 3,
            first_byte_ms: 5_000,
            idle_ms: 5_000,
            total_ms: 20_000,
            min_rate: 8_192,
            min_rate_grace_ms: 3_000,
            max_bytes: 100 << 20,
        }
    }
}

impl MediaSettings {
    pub(crate) fn validate(&self) -> Result<(), SettingsError> {
        for (name, value) in [
            ("media.first_byte_ms", self.first_byte_ms),
            ("media.idle_ms", self.idle_ms),
            ("media.total_ms", self.total_ms),
            ("media.max_bytes", self.max_bytes),
        ] {
            if value == 0 {
                let reason = "must be at least 1";
                return Err(SettingsError::Unusable { name, value: value.to_string(), reason });
            }
        }
        if self.redirects > 20 {
            return Err(SettingsError::Unusable {
                name: "media.redirects",
                value: self.redirects.to_string(),
                reason: "must be at most 20",
            });
        }
        for (lesser, less) in [
            ("media.first_byte_ms", self.first_byte_ms),
            ("media.idle_ms", self.idle_ms),
            ("media.min_rate_grace_ms", self.min_rate_grace_ms),
        ] {
            if less > self.total_ms {
                return Err(SettingsError::Contradiction {
                    lesser,
                    less,
                    greater: "media.total_ms",
                    great: self.total_ms,
                });
            }
        }
        Ok(())
    }

    pub(crate) fn may_call(&self, org: &OrgId, port: u16) -> bool {
        self.ports.contains(&port) || self.ports_by_org.get(org).is_some_and(|ports| ports.contains(&port))
    }

    pub(crate) fn first_byte(&self) -> Duration {
        Duration::from_millis(self.first_byte_ms)
    }

    pub(crate) fn idle(&self) -> Duration {
        Duration::from_millis(self.idle_ms)
    }

    pub(crate) fn total(&self) -> Duration {
        Duration::from_millis(self.total_ms)
    }

    pub(crate) fn min_rate_grace(&self) -> Duration {
        Duration::from_millis(self.min_rate_grace_ms)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn invalid_value_is_named() {
        MediaSettings::default().validate().unwrap();
        for (settings, named) in [
            (MediaSettings { idle_ms: 0, ..MediaSettings::default() }, "media.idle_ms"),
            (MediaSettings { max_bytes: 0, ..MediaSettings::default() }, "media.max_bytes"),
            (MediaSettings { redirects: 21, ..MediaSettings::default() }, "media.redirects"),
            (MediaSettings { first_byte_ms: 30_000, ..MediaSettings::default() }, "media.total_ms = 20000"),
        ] {
            let text = settings.validate().unwrap_err().to_string();
            assert!(text.contains(named), "{text}");
        }
    }

    #[test]
    fn extra_port_is_open_for_its_org_only() {
        let (acme, other) = (OrgId::new("acme"), OrgId::new("other"));
        let settings: MediaSettings = serde_json::from_str(r#"{"ports_by_org": {"acme": [8443]}}"#).unwrap();
        assert!(settings.may_call(&acme, 8443) && settings.may_call(&acme, 443));
        assert!(!settings.may_call(&other, 8443) && settings.may_call(&other, 80));
    }
}

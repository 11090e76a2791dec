//! What an operator may set about a single fetch of a medium, with the defaults.
//! Not responsible for how many run at once, which belongs to whoever asks for them.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_schemas::ids::OrgId;

use crate::settings::SettingsError;

/// The section `egress.media` of the service's settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The ports that media are fetched from. Default 80 and 443.
    pub ports: Vec<u16>,
    /// Further ports, each list for one organisation only. Default none.
    pub ports_by_org: BTreeMap<OrgId, Vec<u16>>,
    /// How many redirects are followed; each is checked like the address itself. Default 3.
    pub redirects: u32,
    /// Time from the connection to the head of the answer, in milliseconds. Default 5,000.
    pub first_byte_ms: u64,
    /// The longest pause between two pieces of a body, in milliseconds. Default 5,000.
    pub idle_ms: u64,
    /// Time for one attempt with all its redirects, in milliseconds. Default 20,000.
    pub total_ms: u64,
    /// A body slower than this, in bytes per second after the grace, is given up; 0 accepts any rate. Default 8,192.
    pub min_rate: u64,
    /// How long a body may take before the rate counts, in milliseconds. Default 3,000.
    pub min_rate_grace_ms: u64,
    /// The largest body that is taken, in bytes. Default 100 MiB.
    pub max_bytes: u64,
}

impl Default for Settings {
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

impl Settings {
    pub(crate) fn validate(&self) -> Result<(), SettingsError> {
        for (name, value) in [
            ("media.first_byte_ms", self.first_byte_ms),
            ("media.idle_ms", self.idle_ms),
            ("media.total_ms", self.total_ms),
            ("media.max_bytes", self.max_bytes),
        ] {
            if value == 0 {
                let why = "must be at least 1";
                return Err(SettingsError::Unusable { name, value: value.to_string(), why });
            }
        }
        if self.redirects > 20 {
            return Err(SettingsError::Unusable {
                name: "media.redirects",
                value: self.redirects.to_string(),
                why: "must be at most 20",
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

    pub(super) fn may_call(&self, org: &OrgId, port: u16) -> bool {
        self.ports.contains(&port) || self.ports_by_org.get(org).is_some_and(|ports| ports.contains(&port))
    }

    pub(super) fn first_byte(&self) -> Duration {
        Duration::from_millis(self.first_byte_ms)
    }

    pub(super) fn idle(&self) -> Duration {
        Duration::from_millis(self.idle_ms)
    }

    pub(super) fn total(&self) -> Duration {
        Duration::from_millis(self.total_ms)
    }

    pub(super) fn min_rate_grace(&self) -> Duration {
        Duration::from_millis(self.min_rate_grace_ms)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn what_cannot_work_is_refused_by_name() {
        Settings::default().validate().unwrap();
        for (settings, named) in [
            (Settings { idle_ms: 0, ..Settings::default() }, "media.idle_ms"),
            (Settings { max_bytes: 0, ..Settings::default() }, "media.max_bytes"),
            (Settings { redirects: 21, ..Settings::default() }, "media.redirects"),
            (Settings { first_byte_ms: 30_000, ..Settings::default() }, "media.total_ms = 20000"),
        ] {
            let text = settings.validate().unwrap_err().to_string();
            assert!(text.contains(named), "{text}");
        }
    }

    #[test]
    fn a_port_that_one_organisation_may_use_stays_shut_for_others() {
        let (acme, other) = (OrgId::new("acme"), OrgId::new("other"));
        let settings: Settings = serde_json::from_str(r#"{"ports_by_org": {"acme": [8443]}}"#).unwrap();
        assert!(settings.may_call(&acme, 8443) && settings.may_call(&acme, 443));
        assert!(!settings.may_call(&other, 8443) && settings.may_call(&other, 80));
    }
}

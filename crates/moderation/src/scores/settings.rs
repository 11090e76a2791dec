//! Settings of the section `scores`, with their defaults. The documents of signals configure the models.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::outbound::host_breaker::BreakerSettings;

/// The section `scores` of the service's settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Maximum number of concurrent calls to models for one organisation in one process; further calls wait. Default
    /// 16.
    pub calls_per_org: usize,
    /// Maximum number of inputs of one item for one model, such as pictures; an item with more is `errored`, reason
    /// `too_many_inputs`. Default 8.
    pub inputs_per_item: usize,
    /// Maximum size of a request, in bytes; a larger one is `errored`, reason `input_too_long`. It is not cut, because
    /// the end of a text could contain the violation. Default 256 KiB.
    pub request_bytes: usize,
    /// Longest wait of an input for others of its organisation, if the model accepts batches, in milliseconds. Default
    /// 5.
    pub batch_wait_ms: u64,
    /// Maximum number of attempts of a call, all within the signal's `timeout`. The statuses 429, 502, 503 and 504 are
    /// retried after a backoff or the model's `Retry-After`. Default 3.
    pub attempts: u32,
    /// Consecutive failures after which a model rests; meanwhile its scores are `errored`, reason `resting`. Default
    /// 5.
    pub failures: u32,
    /// Duration of the first rest of a model, in milliseconds; it doubles with each further rest. Default 5,000.
    pub rest_ms: u64,
    /// Longest rest, in milliseconds. Default 300,000.
    pub longest_rest_ms: u64,
    /// Maximum number of remembered failing models. Default 10,000.
    pub models: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            calls_per_org: 16,
            inputs_per_item: 8,
            request_bytes: 256 << 10,
            batch_wait_ms: 5,
            attempts: 3,
            failures: 5,
            rest_ms: 5_000,
            longest_rest_ms: 300_000,
            models: 10_000,
        }
    }
}

/// Setting with an unusable value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    #[error("scores.{0} must be above 0")]
    Zero(&'static str),
    #[error("scores.rest_ms = {rest} must not be above scores.longest_rest_ms = {longest}")]
    Rests { rest: u64, longest: u64 },
}

impl SettingsError {
    pub const fn tag(&self) -> &'static str {
        "setting_unusable"
    }
}

impl Settings {
    /// Rejects unusable values.
    pub fn validate(&self) -> Result<(), SettingsError> {
        for (name, value) in [
            ("calls_per_org", self.calls_per_org as u64),
            ("inputs_per_item", self.inputs_per_item as u64),
            ("request_bytes", self.request_bytes as u64),
            ("attempts", self.attempts.into()),
            ("failures", self.failures.into()),
            ("rest_ms", self.rest_ms),
            ("models", self.models as u64),
        ] {
            if value == 0 {
                return Err(SettingsError::Zero(name));
            }
        }
        if self.rest_ms > self.longest_rest_ms {
            return Err(SettingsError::Rests { rest: self.rest_ms, longest: self.longest_rest_ms });
        }
        Ok(())
    }

    pub(super) fn breakers(&self) -> BreakerSettings {
        BreakerSettings {
            failures: self.failures,
            rest: Duration::from_millis(self.rest_ms),
            longest_rest: Duration::from_millis(self.longest_rest_ms),
            // The longest timeout of a call. A probe without a result by then is lost.
            probe: Duration::from_secs(120),
            // Calls fail at once while a model rests, so a limit of waited rests is not needed.
            rests: u32::MAX,
            hosts: self.models,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn unusable_values_are_rejected_by_name() {
        Settings::default().validate().unwrap();
        let zero = Settings { failures: 0, ..Settings::default() };
        assert_eq!(zero.validate().unwrap_err().to_string(), "scores.failures must be above 0");
        let turned = Settings { rest_ms: 9, longest_rest_ms: 8, ..Settings::default() };
        assert!(turned.validate().unwrap_err().to_string().contains("scores.longest_rest_ms = 8"));
    }
}

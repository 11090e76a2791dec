//! Settings of reviewing, with their defaults. Queues and policies belong to an org (`catalog`).

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Section `review` of the service's settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Milliseconds in which a decision can be undone before its effects begin. Default 10,000.
    pub undo_ms: u64,
    /// Milliseconds after which a claim expires unless renewed. Default 600,000 (10 minutes).
    pub lease_ms: u64,
    /// Number of entries in a list if the request sets no limit. Default 50.
    pub page: usize,
    /// Greatest number of entries that a request can ask for. Default 500.
    pub page_most: usize,
    /// Number of rows that one page of a filtered list may read. Such a page may be short; its cursor continues the list.
    /// Default 5,000.
    pub rows_per_page: usize,
    /// Bytes of context in one answer about a job; a cursor continues it. One report or appeal is always complete. Default 4 MiB.
    pub cause_bytes: usize,
    /// Greatest length of a decision's reason in bytes; each of its callbacks contains it. Default 16 KiB.
    pub reason_bytes: usize,
    /// Age in milliseconds at which newer data of a claimed job's item is requested from the platform. Default 600,000.
    pub refresh_after_ms: u64,
    /// Milliseconds that a request waits for its turn to evaluate stored items: a backtest, an explanation with other documents, a
    /// step of a retroaction. Default 20,000.
    pub turn_wait_ms: u64,
    /// Milliseconds after which a console session ends, active or not. Default 43,200,000 (12 hours).
    pub session_ms: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            undo_ms: 10_000,
            lease_ms: 600_000,
            page: 50,
            page_most: 500,
            rows_per_page: 5_000,
            cause_bytes: 4 << 20,
            reason_bytes: 16 << 10,
            refresh_after_ms: 600_000,
            turn_wait_ms: 20_000,
            session_ms: 43_200_000,
        }
    }
}

/// Value that is invalid, alone or in combination with another.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    #[error("review.{name} = {value}: {reason}")]
    Unusable { name: &'static str, value: u64, reason: &'static str },
    #[error("review.{lesser_name} = {lesser} is above review.{greater_name} = {greater}")]
    Contradiction { lesser_name: &'static str, lesser: usize, greater_name: &'static str, greater: usize },
}

impl SettingsError {
    pub fn tag(&self) -> &'static str {
        match self {
            Self::Unusable { .. } => "setting_unusable",
            Self::Contradiction { .. } => "settings_contradict",
        }
    }
}

/// The rows of due decisions are written with the decision; longer times are of no practical use.
const MAX_UNDO_MS: u64 = 86_400_000;

/// Below the lifetime of session rows by one day.
const MAX_SESSION_MS: u64 = 7 * 86_400_000;

impl Settings {
    pub(crate) const fn refresh_after(&self) -> Duration {
        Duration::from_millis(self.refresh_after_ms)
    }

    pub(crate) const fn turn_wait(&self) -> Duration {
        Duration::from_millis(self.turn_wait_ms)
    }

    /// Refuses invalid values. A contradiction names both settings.
    pub fn validate(&self) -> Result<(), SettingsError> {
        let unusable = |name, value, reason| Err(SettingsError::Unusable { name, value, reason });
        if self.undo_ms > MAX_UNDO_MS {
            return unusable("undo_ms", self.undo_ms, "must be at most 86400000, a day");
        }
        // A shorter claim would end before a moderator sees the job.
        if self.lease_ms < 1_000 {
            return unusable("lease_ms", self.lease_ms, "must be at least 1000");
        }
        if self.refresh_after_ms < 1_000 {
            let reason = "must be at least 1000: every claim would send a request to the platform";
            return unusable("refresh_after_ms", self.refresh_after_ms, reason);
        }
        if !(1_000..=MAX_SESSION_MS).contains(&self.session_ms) {
            return unusable("session_ms", self.session_ms, "must be between 1000 and 604800000, a week");
        }
        if self.page == 0 {
            return unusable("page", 0, "must be at least 1");
        }
        // A page must be able to reach its limit, and its limit must be readable within the row budget.
        for (lesser_name, lesser, greater_name, greater) in [
            ("page", self.page, "page_most", self.page_most),
            ("page_most", self.page_most, "rows_per_page", self.rows_per_page),
        ] {
            if lesser > greater {
                return Err(SettingsError::Contradiction { lesser_name, lesser, greater_name, greater });
            }
        }
        Ok(())
    }

    pub(crate) const fn undo(&self) -> Duration {
        Duration::from_millis(self.undo_ms)
    }

    pub(crate) const fn session(&self) -> Duration {
        Duration::from_millis(self.session_ms)
    }

    pub(crate) const fn lease(&self) -> Duration {
        Duration::from_millis(self.lease_ms)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn defaults_are_valid_and_contradictions_name_both() {
        Settings::default().validate().unwrap();
        assert!(serde_json::from_str::<Settings>(r#"{"undo":1}"#).is_err());
        for (settings, named) in [
            (Settings { lease_ms: 0, ..Settings::default() }, "lease_ms = 0"),
            (Settings { page: 900, ..Settings::default() }, "page = 900 is above review.page_most = 500"),
            (Settings { undo_ms: u64::MAX, ..Settings::default() }, "undo_ms"),
            (Settings { session_ms: 0, ..Settings::default() }, "session_ms = 0"),
        ] {
            let fault = settings.validate().unwrap_err().to_string();
            assert!(fault.contains(named), "{fault}");
        }
    }
}

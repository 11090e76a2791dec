//! Period of an export on the command line.

use anyhow::bail;
use clap::Args;
use tidegate_schemas::{ids::Millis, item_types::datetime};

use crate::commands::rules::backtest::parse_time_or_age;

#[derive(Clone, Debug, Args)]
pub(crate) struct Period {
    /// First instant: a day such as 2026-11-01 (UTC), an instant such as 2026-11-01T12:00:00Z, or an age such as 7d
    #[arg(long, value_name = "TIME")]
    since: String,
    /// End, exclusive, in the same forms; default: the newest time whose events are all stored
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
}

impl Period {
    pub(crate) fn parse_since(&self, now: Millis) -> anyhow::Result<Millis> {
        parse_day_time_or_age("--since", &self.since, now)
    }

    pub(crate) fn parse_until(&self, now: Millis) -> anyhow::Result<Option<Millis>> {
        self.until.as_deref().map(|until| parse_day_time_or_age("--until", until, now)).transpose()
    }
}

fn parse_day_time_or_age(option: &str, text: &str, now: Millis) -> anyhow::Result<Millis> {
    if let Some(day_start) = datetime::midnight(text) {
        return Ok(day_start);
    }
    match parse_time_or_age(text, now) {
        Ok(at) => Ok(at),
        Err(_) => bail!(
            "{option} {text} is no time: give a day such as 2026-11-01, an instant such as 2026-11-01T12:00:00Z, or an \
             age such as 7d"
        ),
    }
}

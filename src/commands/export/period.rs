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

    /// Returns the given end. It must be later than `since`.
    pub(crate) fn parse_until(&self, since: Millis, now: Millis) -> anyhow::Result<Option<Millis>> {
        let until = self.until.as_deref().map(|until| parse_day_time_or_age("--until", until, now));
        let until = until.transpose()?;
        if let Some(until) = until.filter(|until| since >= *until) {
            bail!(
                "--since {} is not before --until {}: swap them, or choose a later end",
                since.iso(),
                until.iso()
            );
        }
        Ok(until)
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

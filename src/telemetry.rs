//! Log lines on standard error, and the build information.

use std::fmt;

use serde::{Deserialize, Serialize};
use tidegate_schemas::names::OneLine;
use tracing_subscriber::{
    EnvFilter,
    field::RecordFields,
    fmt::{
        FormatFields,
        format::{DefaultFields, Writer},
    },
};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    #[default]
    Text,
    Json,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Telemetry {
    /// Format of log lines on standard error: `text` or `json`.
    pub(crate) format: LogFormat,
    /// Filter of log lines: a level, or directives such as `info,tidegate_stream=debug`.
    pub(crate) filter: String,
}

impl Default for Telemetry {
    fn default() -> Self {
        Self { format: LogFormat::Text, filter: "info".to_owned() }
    }
}

/// Build information of `/buildinfo` and of the metric of the same name.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Build {
    pub(crate) version: &'static str,
    /// The commit, where the build was told it (`TIDEGATE_COMMIT`).
    pub(crate) commit: &'static str,
    pub(crate) profile: &'static str,
}

pub(crate) const BUILD: Build = Build {
    version: env!("CARGO_PKG_VERSION"),
    commit: match option_env!("TIDEGATE_COMMIT") {
        Some(commit) => commit,
        None => "unknown",
    },
    profile: if cfg!(debug_assertions) { "debug" } else { "release" },
};

fn filter(settings: &Telemetry) -> Result<EnvFilter, String> {
    EnvFilter::try_new(&settings.filter)
        .map_err(|error| format!("telemetry.filter = {:?}: {error}", settings.filter))
}

/// Checks that log lines can be filtered so.
pub(crate) fn check(settings: &Telemetry) -> Result<(), String> {
    filter(settings).map(drop)
}

pub(crate) fn log(settings: &Telemetry) -> anyhow::Result<()> {
    let filter = filter(settings).map_err(anyhow::Error::msg)?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let is_terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let set = match settings.format {
        LogFormat::Text => lines.fmt_fields(OneLineFields).with_ansi(is_terminal).try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
    set.map_err(|error| anyhow::anyhow!("log lines cannot be set up: {error}"))
}

/// Keeps an event on its line, whatever somebody made its values of. JSON escapes them by itself.
struct OneLineFields;

impl<'writer> FormatFields<'writer> for OneLineFields {
    fn format_fields<R: RecordFields>(&self, mut writer: Writer<'writer>, fields: R) -> fmt::Result {
        let mut text = String::new();
        DefaultFields::new().format_fields(Writer::new(&mut text), fields)?;
        write!(writer, "{}", OneLine(format_args!("{text}")))
    }
}

#[cfg(test)]
mod tests {
    use tidegate_test_support::Written;

    use super::*;

    #[test]
    fn no_value_makes_a_line_of_its_own_or_steers_a_terminal() {
        let written = Written::default();
        let to = written.clone();
        let lines = tracing_subscriber::fmt()
            .with_writer(move || to.clone())
            .fmt_fields(OneLineFields)
            .with_ansi(false)
            .finish();
        let name = "x\n2026-01-01T00:00:00Z ERROR fake\u{1b}[31m";
        tracing::subscriber::with_default(lines, || {
            let span = tracing::info_span!("within", name);
            let _entered = span.enter();
            tracing::info!(by = %name, also = ?name, "made {name}");
        });
        let text = written.text();
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(!text.trim_end().contains(char::is_control), "{text}");
        let escaped = r"x\n2026-01-01T00:00:00Z ERROR fake";
        assert!(
            text.contains(&format!("made {escaped}")) && text.contains(&format!("by={escaped}")),
            "{text}"
        );
    }
}

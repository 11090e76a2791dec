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
    /// Commit of the build, if `TIDEGATE_COMMIT` was set during the build.
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

fn parse_filter(settings: &Telemetry) -> Result<EnvFilter, String> {
    EnvFilter::try_new(&settings.filter)
        .map_err(|error| format!("telemetry.filter = {:?}: {error}", settings.filter))
}

/// Checks the filter of log lines.
pub(crate) fn check(settings: &Telemetry) -> Result<(), String> {
    parse_filter(settings).map(drop)
}

pub(crate) fn init_logging(settings: &Telemetry) -> anyhow::Result<()> {
    let filter = parse_filter(settings).map_err(anyhow::Error::msg)?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // Log collectors would store the escape sequences of colours.
    let is_terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let init_result = match settings.format {
        LogFormat::Text => lines.fmt_fields(OneLineFields).with_ansi(is_terminal).try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
    init_result.map_err(|error| anyhow::anyhow!("log lines cannot be set up: {error}"))
}

/// Keeps an event on one line by escaping its values. The JSON format does this itself.
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
    fn values_stay_on_one_line_without_control_characters() {
        let output = Written::default();
        let writer = output.clone();
        let lines = tracing_subscriber::fmt()
            .with_writer(move || writer.clone())
            .fmt_fields(OneLineFields)
            .with_ansi(false)
            .finish();
        let name = "x\n2026-01-01T00:00:00Z ERROR fake\u{1b}[31m";
        tracing::subscriber::with_default(lines, || {
            let span = tracing::info_span!("within", name);
            let _entered = span.enter();
            tracing::info!(by = %name, also = ?name, "made {name}");
        });
        let text = output.text();
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(!text.trim_end().contains(char::is_control), "{text}");
        let escaped = r"x\n2026-01-01T00:00:00Z ERROR fake";
        assert!(
            text.contains(&format!("made {escaped}")) && text.contains(&format!("by={escaped}")),
            "{text}"
        );
    }
}

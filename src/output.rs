//! What commands print: answers on standard output, faults on standard error.
//!
//! Log lines are `telemetry`'s.

use std::{
    fmt::Display,
    io::{self, Write as _},
    process::ExitCode,
};

/// A line on standard output. A reader that has gone away is no fault of ours.
pub(crate) fn say(line: impl Display) {
    let _reader_gone = writeln!(io::stdout().lock(), "{line}");
}

pub(crate) fn complain(line: impl Display) {
    let _reader_gone = writeln!(io::stderr().lock(), "{line}");
}

/// `1 fault`, `2 faults`.
pub(crate) fn counted(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// Prints an error with its causes. A fault of the settings is told apart, for it is repaired elsewhere.
pub(crate) fn failed(error: &anyhow::Error) -> ExitCode {
    complain(format!("error: {error:#}"));
    if error.is::<crate::settings::SettingsError>() { ExitCode::from(REFUSED) } else { ExitCode::FAILURE }
}

/// The command line or the settings are refused; clap uses the same code.
pub(crate) const REFUSED: u8 = 2;
/// What was compared is different.
pub(crate) const DIFFERENT: u8 = 2;

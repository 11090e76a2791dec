//! Output of commands: answers on standard output, errors on standard error.
//!
//! Log lines are `telemetry`'s.

use std::{
    fmt::Display,
    io::{self, Write as _},
    process::ExitCode,
    sync::atomic::{AtomicBool, Ordering},
};

use tidegate_schemas::names::Lines;

/// Something that was to be printed is not, and nobody has chosen that.
static LOST: AtomicBool = AtomicBool::new(false);

/// A line on standard output, without what steers a terminal: much of it was written by others. A reader that has gone away is no fault of ours.
pub(crate) fn print_line(line: impl Display) {
    if let Err(error) = writeln!(io::stdout().lock(), "{}", Lines(format_args!("{line}")))
        && error.kind() != io::ErrorKind::BrokenPipe
        && !LOST.swap(true, Ordering::Relaxed)
    {
        print_error(format!("error: standard output: {error}"));
    }
}

/// Returns the exit code of a process whose command ended with `code`.
pub(crate) fn ended(code: ExitCode) -> ExitCode {
    if LOST.load(Ordering::Relaxed) { ExitCode::from(REFUSED) } else { code }
}

pub(crate) fn print_error(line: impl Display) {
    let _reader_gone = writeln!(io::stderr().lock(), "{}", Lines(format_args!("{line}")));
}

/// `1 fault`, `2 faults`.
pub(crate) fn counted(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// Prints an error with its causes. A fault of the settings is told apart, for it is repaired elsewhere.
pub(crate) fn failed(error: &anyhow::Error) -> ExitCode {
    print_error(format!("error: {error:#}"));
    if error.is::<crate::settings::SettingsError>() { ExitCode::from(REFUSED) } else { ExitCode::FAILURE }
}

/// The command line or the settings are refused, or the output is lost; clap uses the same code.
pub(crate) const REFUSED: u8 = 2;
/// Exit code of a comparison that found a difference.
pub(crate) const DIFFERENT: u8 = 2;

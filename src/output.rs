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

/// True once output could not be written for another reason than a closed pipe.
static OUTPUT_FAILED: AtomicBool = AtomicBool::new(false);

/// Prints a line on standard output without terminal control sequences, since many texts are written by others. A closed pipe is
/// no error.
pub(crate) fn print_line(line: impl Display) {
    if let Err(error) = writeln!(io::stdout().lock(), "{}", Lines(format_args!("{line}")))
        && error.kind() != io::ErrorKind::BrokenPipe
        // Reported once: each further line would fail as well.
        && !OUTPUT_FAILED.swap(true, Ordering::Relaxed)
    {
        print_error(format!("error: standard output: {error}"));
    }
}

/// Returns the exit code of the process: that of its command, unless output was lost.
pub(crate) fn exit_code(code: ExitCode) -> ExitCode {
    if OUTPUT_FAILED.load(Ordering::Relaxed) { ExitCode::from(REFUSED) } else { code }
}

pub(crate) fn print_error(line: impl Display) {
    // A failure on standard error cannot be reported anywhere else.
    let _reader_gone = writeln!(io::stderr().lock(), "{}", Lines(format_args!("{line}")));
}

/// Formats a count with its noun: `1 fault`, `2 faults`.
pub(crate) fn format_count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Prints an error with its causes. Errors of the settings have an exit code of their own, because they are repaired elsewhere.
pub(crate) fn report_error(error: &anyhow::Error) -> ExitCode {
    print_error(format!("error: {error:#}"));
    if error.is::<crate::settings::SettingsError>() { ExitCode::from(REFUSED) } else { ExitCode::FAILURE }
}

/// Exit code if the command line or the settings are refused, or output is lost; clap uses the same one.
pub(crate) const REFUSED: u8 = 2;
/// Exit code of a comparison that found a difference.
pub(crate) const DIFFERENT: u8 = 2;

//! `tidegate bundle ...`: reads and writes data bundles in files, without a server.

mod convert;
mod diff;
mod digest;
mod export;
mod inspect;
mod report;
mod schema;
mod validate;

use std::{borrow::Cow, path::PathBuf, process::ExitCode};

use clap::{Args, Subcommand};
use tidegate_exporter::{
    bundle::validate::Limits, plural::format_count, storage::spill::SpillOptions, unpack::File,
};

use crate::output::{REFUSED, print_error};

#[derive(Debug, Subcommand)]
pub(crate) enum Bundle {
    /// Convert another tool's export to a bundle, or a bundle to tables
    Convert(Box<convert::Convert>),
    /// Write a bundle of the service's own reports, decisions and appeals
    Export(Box<export::Export>),
    /// Check a bundle: syntax and schema, references, totals, and the promises of its data card
    Validate(validate::Validate),
    /// Show the content of a bundle: head, totals, data card and items, without free text by default
    Inspect(inspect::Inspect),
    /// Write an HTML page about a bundle that opens offline: data card, participation, agreement and opinion map
    Report(report::Report),
    /// Compare two bundles by the ids of their elements (exit code 1: they differ)
    Diff(diff::Diff),
    /// Print the SHA-256 of a bundle
    Digest(digest::Digest),
    /// Print the JSON Schema of bundles (draft 2020-12)
    Schema(schema::Schema),
}

impl Bundle {
    /// Returns the exit code: 0 for success, 1 for invalid or different content, 2 for all other errors.
    pub(crate) fn run(self) -> ExitCode {
        let result = match self {
            Self::Convert(command) => command.run(),
            Self::Export(command) => command.run(),
            Self::Validate(command) => command.run(),
            Self::Inspect(command) => command.run(),
            Self::Report(command) => command.run(),
            Self::Diff(command) => command.run(),
            Self::Digest(command) => command.run(),
            Self::Schema(command) => command.run(),
        };
        result.unwrap_or_else(|error: anyhow::Error| {
            print_error(format!("error: {error:#}"));
            ExitCode::from(REFUSED)
        })
    }
}

/// Input bundle of a command.
#[derive(Debug, Args)]
struct Input {
    /// Bundle to read; `-` reads standard input; gzip and zstd are unpacked
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

impl Input {
    /// Returns the name of the input for messages.
    fn name(&self) -> String {
        self.file.display().to_string()
    }

    fn open(&self) -> File {
        File::new(&self.file)
    }
}

/// Returns a text, cut off after `max_bytes` with its length added if it is longer.
fn shorten(text: &str, max_bytes: usize) -> Cow<'_, str> {
    if text.len() <= max_bytes {
        return Cow::Borrowed(text);
    }
    let start = &text[..text.floor_char_boundary(max_bytes)];
    Cow::Owned(format!("{start}… ({})", format_count(text.len() as u64, "byte")))
}

/// Limits on reading.
#[derive(Debug, Args)]
struct ReadLimits {
    /// Memory for ids and references; beyond it, unnamed files in the folder for temporary files are used
    #[arg(long, value_name = "MIB", default_value_t = 128)]
    memory: usize,
    /// Maximum nesting depth of values
    #[arg(long, value_name = "LEVELS", default_value_t = 64, value_parser = clap::value_parser!(u16).range(6..=500))]
    max_depth: u16,
    /// Maximum length of a string
    #[arg(long, value_name = "BYTES", default_value_t = Limits::default().string)]
    max_string: usize,
    /// Maximum number of unknown members of an object
    #[arg(long, value_name = "COUNT", default_value_t = Limits::default().members)]
    max_members: usize,
}

impl ReadLimits {
    fn spill_options(&self) -> SpillOptions {
        SpillOptions { memory: self.memory.saturating_mul(1 << 20), folder: std::env::temp_dir() }
    }

    fn limits(&self) -> Limits {
        Limits { depth: self.max_depth.into(), string: self.max_string, members: self.max_members }
    }
}

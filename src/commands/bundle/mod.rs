//! `tidegate bundle ...`: data bundles from and to files; no server, no store.
//!
//! What a bundle is and whether one is in order is the exporter's to say.

mod convert;
mod schema;

use std::process::ExitCode;

use clap::Subcommand;

use crate::output::{REFUSED, complain};

#[derive(Debug, Subcommand)]
pub(crate) enum Bundle {
    /// Make a bundle from another tool's export, or something else from a bundle
    Convert(Box<convert::Convert>),
    /// Print the JSON Schema of bundles (draft 2020-12)
    Schema(schema::Schema),
}

impl Bundle {
    /// Exit codes are those of all bundle commands: 0 for well, 1 for a content that is not, 2 for all other faults.
    pub(crate) fn run(self) -> ExitCode {
        let result = match self {
            Self::Convert(command) => command.run(),
            Self::Schema(command) => Ok(command.run()),
        };
        result.unwrap_or_else(|error: anyhow::Error| {
            complain(format!("error: {error:#}"));
            ExitCode::from(REFUSED)
        })
    }
}

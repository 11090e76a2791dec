//! `tidegate media`: what the service would make of a picture, without a service.
//!
//! Banks are another matter.

mod compare;
mod hash;
mod read;

use std::process::ExitCode;

use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum Media {
    /// Print the state, the hashes and the digests of files
    Hash(hash::Hash),
    /// Print how far two pictures are apart, by each kind of hash
    Compare(compare::Compare),
}

impl Media {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Hash(command) => command.run(),
            Self::Compare(command) => command.run(),
        }
    }
}

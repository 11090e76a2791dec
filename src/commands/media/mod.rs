//! `tidegate media`: hashes pictures, compares them, and looks them up in banks.
//!
//! `tidegate banks` changes the entries of banks.

mod compare;
mod hash;
mod look_up;
mod read;

use std::process::ExitCode;

use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum Media {
    /// Print state, perceptual hashes and digests of files
    Hash(hash::Hash),
    /// Print the distance between two pictures for each kind of hash
    Compare(compare::Compare),
    /// Hash files and look them up in the banks of a running service
    Match(look_up::Match),
}

impl Media {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Hash(command) => command.run(),
            Self::Compare(command) => command.run(),
            Self::Match(command) => command.run(),
        }
    }
}

//! The binary `tidegate`: reads the command line and runs one command.
//!
//! Wires the crates together. Decisions about content are made in the crates.

mod client;
mod commands;
mod demo;
mod exports;
mod first_key;
mod health;
mod history_source;
mod metrics;
mod open;
mod open_files;
mod operations;
mod output;
mod retry_open;
mod roles;
mod run_exports;
mod runtime;
mod serve;
mod server_file;
mod settings;
mod sigxfsz;
mod telemetry;

use std::process::ExitCode;

use clap::Parser as _;

// Items cause many small short-lived allocations on many threads. The system's allocator keeps memory that another thread
// freed, so resident memory would grow.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let command = commands::Cli::parse();
    // One provider for all users of rustls. Only a second installation could fail, and this is the first.
    let _first = rustls::crypto::ring::default_provider().install_default();
    // SIGXFSZ is ignored before any file is written: a limit of file sizes must not kill the process.
    output::exit_code(
        sigxfsz::ignore().and_then(|()| command.run()).unwrap_or_else(|error| output::report_error(&error)),
    )
}

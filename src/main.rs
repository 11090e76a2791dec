//! The binary `tidegate`: reads the command line and runs one command.
//!
//! It wires what the crates offer and decides nothing about content.

mod client;
mod commands;
mod database;
mod demo;
mod first_key;
mod health;
mod metrics;
mod open;
mod open_files;
mod operations;
mod output;
mod retry_open;
mod roles;
mod runtime;
mod serve;
mod server_file;
mod settings;
mod sigxfsz;
mod telemetry;

use std::process::ExitCode;

use clap::Parser as _;

// Items are many small short-lived allocations on many threads; the system's allocator keeps what other threads
// freed, and resident memory grows with it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let command = commands::Cli::parse();
    // One provider for all of rustls' users; a second installation would be refused, and there is none.
    let _first = rustls::crypto::ring::default_provider().install_default();
    output::ended(
        sigxfsz::ignore().and_then(|()| command.run()).unwrap_or_else(|error| output::failed(&error)),
    )
}

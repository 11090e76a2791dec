//! The binary `tidegate`: reads the command line and runs one command.
//!
//! It wires what the crates offer and decides nothing about content.

mod client;
mod commands;
mod demo;
mod health;
mod open;
mod operations;
mod output;
mod roles;
mod serve;
mod server_file;
mod settings;
mod telemetry;
mod waiting;

use std::{process::ExitCode, time::Duration};

use clap::Parser as _;

// Items are many small short-lived allocations on many threads; the system's allocator keeps what other threads
// freed, and resident memory grows with it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Blocking work of a forced end is not waited for longer.
const LEAVE: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    let command = commands::Cli::parse();
    // One provider for all of rustls' users; a second installation would be refused, and there is none.
    let _first = rustls::crypto::ring::default_provider().install_default();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return output::failed(&anyhow::anyhow!("the runtime cannot start: {error}")),
    };
    let end = runtime.block_on(command.run());
    runtime.shutdown_timeout(LEAVE);
    end.unwrap_or_else(|error| output::failed(&error))
}

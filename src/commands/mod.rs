//! The command line, one file per subcommand.
//!
//! Commands that need data call the admin API; only `store`, `topics` and the roles open engines themselves.

mod apply;
mod audit;
mod banks;
mod bundle;
mod check_config;
mod dead_letters;
mod demo;
mod diff;
mod documents;
mod encoding;
mod export;
mod keys;
mod lint;
mod list;
mod media;
mod org;
mod pull;
mod pull_state;
mod role;
mod routing;
mod rules;
mod run_exports;
mod store;
mod topics;
mod up;
mod users;

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, Parser, Subcommand};

use crate::{
    runtime,
    settings::{self, LoadedSettings, Override},
};

/// Content governance: receives content, evaluates rules, opens review jobs and sends callbacks.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, about, propagate_version = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run all roles in one process
    Up(up::Up),
    /// Run the API for platforms
    Ingest(role::Role),
    /// Run the processors, which evaluate items, open review jobs and count strikes
    Process(role::Role),
    /// Run the delivery of callbacks
    Deliver(role::Role),
    /// Run the console and the admin API
    Console(role::Role),
    /// Run the scheduled exports
    RunExports(run_exports::RunExports),
    /// Print the effective settings and where each one was set
    CheckConfig(check_config::CheckConfig),
    /// Create or check the tables of the store
    #[command(subcommand)]
    Store(store::Store),
    /// Create the topics of the log
    #[command(subcommand)]
    Topics(topics::Topics),
    /// Make the documents in a folder the live configuration
    Apply(apply::Apply),
    /// Write the live configuration into a folder
    Pull(pull::Pull),
    /// Compare the documents in a folder with the live configuration (exit code 2: they differ)
    Diff(diff::Diff),
    /// Check the documents in a folder, without a server
    Lint(lint::Lint),
    /// Check, run, test, measure and compare rules
    #[command(subcommand)]
    Rules(rules::Rules),
    /// Explain to which queue a routing list sends a job
    #[command(subcommand)]
    Routing(routing::Routing),
    /// Add, list and remove entries of banks
    #[command(subcommand)]
    Banks(banks::Banks),
    /// Write a dataset of the history to files: decisions, reports, actions and others
    #[command(subcommand)]
    Export(export::ExportCommand),
    /// Convert, check, inspect and compare data bundles
    #[command(subcommand)]
    Bundle(bundle::Bundle),
    /// Hash and compare pictures, without a server
    #[command(subcommand)]
    Media(media::Media),
    /// Create, list, rotate and revoke API keys
    #[command(subcommand)]
    Keys(keys::Keys),
    /// Create organisations
    #[command(subcommand)]
    Org(org::Org),
    /// Show strikes, jobs, items and reports of a user of the platform
    #[command(subcommand)]
    Users(users::Users),
    /// List requests to the admin API with author and result
    #[command(subcommand)]
    Audit(audit::Audit),
    /// List records that could not be processed, and replay them
    #[command(subcommand)]
    DeadLetters(dead_letters::DeadLetters),
    /// Send sample content to a running `tidegate up --demo`
    #[command(subcommand)]
    Demo(demo::Demo),
}

impl Cli {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        use crate::serve::RoleKind;
        match self.command {
            Command::Up(command) => command.run(),
            Command::Ingest(command) => command.run(RoleKind::Ingest),
            Command::Process(command) => command.run(RoleKind::Process),
            Command::Deliver(command) => command.run(RoleKind::Deliver),
            Command::Console(command) => command.run(RoleKind::Console),
            Command::RunExports(command) => command.run(),
            Command::CheckConfig(command) => command.run(),
            Command::Store(command) => run_single_threaded(command.run()),
            Command::Topics(command) => run_single_threaded(command.run()),
            Command::Apply(command) => run_single_threaded(command.run()),
            Command::Pull(command) => run_single_threaded(command.run()),
            Command::Diff(command) => run_single_threaded(command.run()),
            Command::Lint(command) => command.run(),
            Command::Rules(command) => command.run(),
            Command::Routing(command) => run_single_threaded(command.run()),
            Command::Banks(command) => run_single_threaded(command.run()),
            Command::Export(command) => run_single_threaded(command.run()),
            Command::Bundle(command) => Ok(command.run()),
            Command::Media(command) => command.run(),
            Command::Keys(command) => run_single_threaded(command.run()),
            Command::Org(command) => run_single_threaded(command.run()),
            Command::Users(command) => run_single_threaded(command.run()),
            Command::Audit(command) => run_single_threaded(command.run()),
            Command::DeadLetters(command) => run_single_threaded(command.run()),
            Command::Demo(command) => run_single_threaded(command.run()),
        }
    }
}

/// Runs a command on a runtime with one worker thread.
fn run_single_threaded(command: impl Future<Output = anyhow::Result<ExitCode>>) -> anyhow::Result<ExitCode> {
    // These commands wait for one request at a time, so more workers would be idle.
    runtime::run(runtime::Settings { workers: 1, ..runtime::Settings::default() }, command)
}

/// Exit codes of the commands that run roles.
const EXIT_CODES: &str = "\
SIGTERM and SIGINT drain and stop the process; a second signal, more than a second later, ends the drain.

Exit codes:
  0  drained: no work was interrupted; work that waited for a server or for media, or whose rules take more than two
     seconds, is read again at the next start
  1  the start failed, or another error
  2  invalid command line or settings
  3  stopped with work in progress, which is repeated at the next start
  4  a role failed; the message names it";

/// Settings file to read.
#[derive(Debug, Args)]
struct SettingsFile {
    /// Settings file; default: ./tidegate.toml if it exists
    #[arg(long, env = "TIDEGATE_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
}

impl SettingsFile {
    fn load(&self, overrides: Vec<Override>) -> anyhow::Result<LoadedSettings> {
        Ok(settings::load(self.config.as_deref(), overrides)?)
    }

    /// Loads the settings and checks those that a service needs to start.
    fn load_to_start(&self, overrides: Vec<Override>) -> anyhow::Result<LoadedSettings> {
        Ok(self.load(overrides)?.check_start()?)
    }
}

/// Addresses and folders that the command line sets; they take precedence over all other sources.
#[derive(Debug, Args)]
struct Places {
    /// Folder for embedded data and server.json
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Address of the API for platforms; port 0 picks a free port
    #[arg(long, value_name = "ADDRESS")]
    api_listen: Option<String>,
    /// Address of the console and the admin API
    #[arg(long, value_name = "ADDRESS")]
    console_listen: Option<String>,
    /// Address of /livez, /readyz, /metrics and /buildinfo
    #[arg(long, value_name = "ADDRESS")]
    ops_listen: Option<String>,
}

impl Places {
    fn overrides(&self) -> Vec<Override> {
        let data = self.data.as_ref().map(|folder| folder.display().to_string());
        let overrides = [
            create_override(&["data", "folder"], "--data", data),
            create_override(&["api", "listen"], "--api-listen", self.api_listen.clone()),
            create_override(&["console", "listen"], "--console-listen", self.console_listen.clone()),
            create_override(&["ops", "listen"], "--ops-listen", self.ops_listen.clone()),
        ];
        overrides.into_iter().flatten().collect()
    }
}

/// Returns the override of a setting by a flag; `None` if the flag is absent.
fn create_override(
    path: &'static [&'static str],
    flag: &'static str,
    value: Option<String>,
) -> Option<Override> {
    Some(Override { path, flag, value: value?.into() })
}

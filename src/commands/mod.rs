//! The command line. One file a subcommand.
//!
//! Commands that need data talk to the admin API; only `store`, `topics` and the roles open engines themselves.

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
mod keys;
mod lint;
mod media;
mod org;
mod pull;
mod pulled;
mod role;
mod routing;
mod rules;
mod store;
mod topics;
mod up;

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, Parser, Subcommand};

use crate::{
    runtime,
    settings::{self, Loaded, Override},
};

/// Takes platforms' content, evaluates rules, opens review jobs, and calls the platform back.
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
    /// Run the API that platforms call
    Ingest(role::Role),
    /// Run the consumers that evaluate, open jobs and count strikes
    Process(role::Role),
    /// Run the delivery of callbacks
    Deliver(role::Role),
    /// Run the console and the admin API
    Console(role::Role),
    /// Print the effective settings, and where each was set
    CheckConfig(check_config::CheckConfig),
    /// Look after the store's tables
    #[command(subcommand)]
    Store(store::Store),
    /// Look after the log's topics
    #[command(subcommand)]
    Topics(topics::Topics),
    /// Make the documents in a folder the configuration
    Apply(apply::Apply),
    /// Write the configuration into a folder
    Pull(pull::Pull),
    /// Compare the documents in a folder with the configuration (exit code 2: they differ)
    Diff(diff::Diff),
    /// Check the documents in a folder, without a server
    Lint(lint::Lint),
    /// Run, test, measure and compare rules
    #[command(subcommand)]
    Rules(rules::Rules),
    /// Say where routing lists send jobs
    #[command(subcommand)]
    Routing(routing::Routing),
    /// Add, list and remove entries of banks
    #[command(subcommand)]
    Banks(banks::Banks),
    /// Check, compare and describe data bundles
    #[command(subcommand)]
    Bundle(bundle::Bundle),
    /// Hash and compare pictures, without a server
    #[command(subcommand)]
    Media(media::Media),
    /// Make, list and end API keys
    #[command(subcommand)]
    Keys(keys::Keys),
    /// Make organisations
    #[command(subcommand)]
    Org(org::Org),
    /// List what was asked of the admin API, by whom, and how it ended
    #[command(subcommand)]
    Audit(audit::Audit),
    /// List what could not be processed, and send it back
    #[command(subcommand)]
    DeadLetters(dead_letters::DeadLetters),
    /// Play with a running `tidegate up --demo`
    #[command(subcommand)]
    Demo(demo::Demo),
}

impl Cli {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        use crate::serve::Which;
        match self.command {
            Command::Up(command) => command.run(),
            Command::Ingest(command) => command.run(Which::Ingest),
            Command::Process(command) => command.run(Which::Process),
            Command::Deliver(command) => command.run(Which::Deliver),
            Command::Console(command) => command.run(Which::Console),
            Command::CheckConfig(command) => command.run(),
            Command::Store(command) => alone(command.run()),
            Command::Topics(command) => alone(command.run()),
            Command::Apply(command) => alone(command.run()),
            Command::Pull(command) => alone(command.run()),
            Command::Diff(command) => alone(command.run()),
            Command::Lint(command) => command.run(),
            Command::Rules(command) => command.run(),
            Command::Routing(command) => alone(command.run()),
            Command::Banks(command) => alone(command.run()),
            Command::Bundle(command) => Ok(command.run()),
            Command::Media(command) => command.run(),
            Command::Keys(command) => alone(command.run()),
            Command::Org(command) => alone(command.run()),
            Command::Audit(command) => alone(command.run()),
            Command::DeadLetters(command) => alone(command.run()),
            Command::Demo(command) => alone(command.run()),
        }
    }
}

/// Runs a command that does one thing at a time.
fn alone(command: impl Future<Output = anyhow::Result<ExitCode>>) -> anyhow::Result<ExitCode> {
    runtime::run(runtime::Settings { workers: 1, ..runtime::Settings::default() }, command)
}

/// Exit codes of the commands that run roles.
const EXIT_CODES: &str = "\
SIGTERM and SIGINT drain; a second signal, more than a second later, does not wait for it.

Exit codes:
  0  drained: nothing was cut off; what waited for a server or for media is read again at the next start
  1  it could not start, or another fault
  2  the command line or the settings are refused
  3  ended with work under way; it is done again at the next start
  4  a role failed, and is named";

/// Settings file to read.
#[derive(Debug, Args)]
struct SettingsFile {
    /// The settings file; ./tidegate.toml if it is there and none is named
    #[arg(long, env = "TIDEGATE_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
}

impl SettingsFile {
    fn load(&self, overrides: Vec<Override>) -> anyhow::Result<Loaded> {
        Ok(settings::load(self.config.as_deref(), overrides)?)
    }

    /// Loads like `load`, for commands that start a service.
    fn load_to_start(&self, overrides: Vec<Override>) -> anyhow::Result<Loaded> {
        Ok(self.load(overrides)?.check_start()?)
    }
}

/// Addresses and folders that the command line may set over everything else.
#[derive(Debug, Args)]
struct Places {
    /// The folder of embedded data and of server.json
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Address of the API for platforms; port 0 takes a free one
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
        let all: [(&'static [&'static str], &'static str, Option<String>); 4] = [
            (&["data", "folder"], "--data", data),
            (&["api", "listen"], "--api-listen", self.api_listen.clone()),
            (&["console", "listen"], "--console-listen", self.console_listen.clone()),
            (&["ops", "listen"], "--ops-listen", self.ops_listen.clone()),
        ];
        let set = all
            .into_iter()
            .filter_map(|(path, flag, value)| Some(Override { path, flag, value: value?.into() }));
        set.collect()
    }
}

//! `tidegate up`: runs all roles in one process, on embedded data unless the settings choose servers.
//!
//! With `--demo`, `demo` adds sample data and the platform's side.

use std::process::ExitCode;

use clap::Args;

use super::{Places, SettingsFile};
use crate::{
    demo, runtime,
    serve::{self, RoleKind},
};

#[derive(Debug, Args)]
#[command(after_help = super::EXIT_CODES)]
pub(crate) struct Up {
    #[command(flatten)]
    file: SettingsFile,
    #[command(flatten)]
    places: Places,
    /// Start with sample types, rules and policies, and a sample platform that verifies and prints callbacks; data in
    /// ./tidegate-demo
    #[arg(long)]
    demo: bool,
    /// Start even if durable data is missing, and log the loss
    #[arg(long)]
    accept_loss: bool,
    /// Address of the sample platform
    #[arg(long, value_name = "ADDRESS", requires = "demo", default_value = "127.0.0.1:8090")]
    receiver_listen: std::net::SocketAddr,
}

impl Up {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let mut overrides = self.places.overrides();
        let demo = if self.demo {
            overrides.extend(demo::overrides(self.places.data.is_none()));
            Some(demo::Demo { receiver: self.receiver_listen })
        } else {
            None
        };
        let mut loaded = self.file.load_to_start(overrides)?;
        // No override of the settings: a loss is accepted for this start only.
        loaded.settings.data.accepts_loss = self.accept_loss;
        let mut kinds = RoleKind::ALWAYS.to_vec();
        if !loaded.settings.export.schedules.is_empty() {
            kinds.push(RoleKind::Export);
        }
        runtime::run(loaded.settings.runtime, async move { serve::run(loaded, &kinds, demo).await })
    }
}

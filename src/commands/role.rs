//! `tidegate ingest`, `process`, `deliver`, `console`: runs one role, as one of several processes.
//!
//! The four commands differ only in the role.

use std::process::ExitCode;

use clap::Args;

use super::{Places, SettingsFile};
use crate::{
    runtime,
    serve::{self, RoleKind},
    settings::SettingsError,
};

#[derive(Debug, Args)]
#[command(after_help = super::EXIT_CODES)]
pub(crate) struct Role {
    #[command(flatten)]
    file: SettingsFile,
    #[command(flatten)]
    places: Places,
}

impl Role {
    pub(crate) fn run(self, kind: RoleKind) -> anyhow::Result<ExitCode> {
        let loaded = self.file.load_to_start(self.places.overrides())?;
        let embedded_parts = loaded.settings.embedded_parts();
        // Only one process can open embedded data, so the other roles could not start.
        if !embedded_parts.is_empty() {
            let message = format!(
                "`tidegate {}` is one of several processes, and embedded data is opened by one process only, but {}: \
                 run `tidegate up`, or set stream.engine = \"kafka\" and store.engine = \"cql\"",
                kind.name(),
                embedded_parts.join(" and ")
            );
            return Err(SettingsError::Contradiction(message).into());
        }
        runtime::run(loaded.settings.runtime, serve::run(loaded, &[kind], None))
    }
}

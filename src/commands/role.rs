//! `tidegate ingest`, `process`, `deliver`, `console`: one role, as one of several processes.
//!
//! All four are the same but for their name.

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
        let embedded = loaded.settings.embedded_parts();
        if !embedded.is_empty() {
            let why = format!(
                "`tidegate {}` is one of several processes, and embedded data is opened by one process only, but {}: \
                 run `tidegate up`, or set stream.engine = \"kafka\" and store.engine = \"cql\"",
                kind.name(),
                embedded.join(" and ")
            );
            return Err(SettingsError::Contradiction(why).into());
        }
        runtime::run(loaded.settings.runtime, serve::run(loaded, &[kind], None))
    }
}

//! `tidegate ingest`, `process`, `deliver`, `console`: one role, as one of several processes.
//!
//! All four are the same but for their name.

use std::process::ExitCode;

use anyhow::bail;
use clap::Args;

use super::{Places, SettingsFile};
use crate::serve::{self, Which};

/// Exit codes: 0 drained, 3 ended with work under way (it is done again by whoever takes over), 4 the role failed,
/// 2 refused to start, 1 another fault.
#[derive(Debug, Args)]
pub(crate) struct Role {
    #[command(flatten)]
    file: SettingsFile,
    #[command(flatten)]
    places: Places,
}

impl Role {
    pub(crate) async fn run(self, which: Which) -> anyhow::Result<ExitCode> {
        let loaded = self.file.load(self.places.overrides())?;
        let embedded = loaded.settings.embedded_parts();
        if !embedded.is_empty() {
            bail!(
                "`tidegate {}` is one of several processes, and embedded data is opened by one process only, but {}: \
                 run `tidegate up`, or set stream.engine = \"kafka\" and store.engine = \"cql\"",
                which.name(),
                embedded.join(" and ")
            );
        }
        Box::pin(serve::run(loaded, &[which], None)).await
    }
}

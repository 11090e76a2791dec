//! `tidegate topics create`: creates the topics of the log on Kafka, and compares existing ones with the settings.
//!
//! Existing topics are not changed.

use std::process::ExitCode;

use clap::Subcommand;
use tidegate_stream::{kafka, settings::EngineKind};

use super::SettingsFile;
use crate::output::{print_error, print_line};

#[derive(Debug, Subcommand)]
pub(crate) enum Topics {
    /// Create missing topics
    Create {
        #[command(flatten)]
        file: SettingsFile,
    },
}

impl Topics {
    pub(crate) async fn run(self) -> anyhow::Result<ExitCode> {
        let Self::Create { file } = self;
        let settings = file.load(Vec::new())?.settings.stream;
        // The embedded log creates its topics itself, and is locked while the service runs.
        if settings.engine == EngineKind::Embedded {
            print_line("stream.engine = embedded: its topics are created when it is opened");
            return Ok(ExitCode::SUCCESS);
        }
        let report = kafka::create_topics(&settings).await?;
        report.created.iter().for_each(|name| print_line(format!("created {name}")));
        report.existing.iter().for_each(|name| print_line(format!("{name} exists")));
        report.warnings.iter().for_each(|warning| print_error(format!("warning: {warning}")));
        Ok(ExitCode::SUCCESS)
    }
}

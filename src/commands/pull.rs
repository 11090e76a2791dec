//! `tidegate pull DIR`: writes the configuration into a folder, one file a kind, in its canonical form.
//!
//! Comments and file layouts of whoever applied it are not kept by the service.

use std::{fs, path::PathBuf, process::ExitCode};

use anyhow::{Context as _, bail};
use clap::Args;
use serde::Deserialize;

use super::documents::{self, File, Pulled};
use crate::{client::Connection, output::say};

#[derive(Debug, Args)]
pub(crate) struct Pull {
    /// The folder to write to
    folder: PathBuf,
    /// Write over files that are there
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Deserialize)]
struct Configuration {
    version: i64,
    files: Vec<File>,
}

impl Pull {
    pub(crate) async fn run(self) -> anyhow::Result<ExitCode> {
        let client = self.connection.open()?;
        let pulled: Configuration = client.get("/config", &[]).await?;
        fs::create_dir_all(&self.folder)
            .with_context(|| format!("the folder {} cannot be made", self.folder.display()))?;
        let first = Pulled::read(&self.folder)?.is_none();
        if first && !self.force && documents::read(&self.folder).is_ok() {
            bail!(
                "{} holds documents that were not pulled: name another folder, or --force",
                self.folder.display()
            );
        }
        for file in &pulled.files {
            let path = self.folder.join(&file.name);
            fs::write(&path, &file.text).with_context(|| format!("cannot write {}", path.display()))?;
            say(path.display());
        }
        Pulled { version: pulled.version }.write(&self.folder)?;
        say(format!("version {}", pulled.version));
        Ok(ExitCode::SUCCESS)
    }
}

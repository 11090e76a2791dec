//! `tidegate media match FILE...`: what files are like in the banks of a running service.
//!
//! Hashes are made here; the service only sees those.

use std::{iter, path::PathBuf, process::ExitCode};

use clap::Args;
use serde_json::{Value, json};
use tidegate_media::{Decoders, Fingerprint, Limits, State, hashes::hex::Hex};

use super::read::fingerprint;
use crate::{
    client::Connection,
    commands::{alone, banks::look_up},
    output::{complain, say},
};

#[derive(Debug, Args)]
pub(crate) struct Match {
    /// Pictures, or any files
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Only in these banks
    #[arg(long = "bank", value_name = "BANK")]
    banks: Vec<String>,
    #[command(flatten)]
    connection: Connection,
}

impl Match {
    /// A file that cannot be read is named, and the others are looked up all the same.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let Self { files, banks, connection } = self;
        alone(async move {
            let decoders = Decoders::new(Limits::default())?;
            let client = connection.open()?;
            let (mut code, mut found) = (ExitCode::SUCCESS, 0);
            for path in &files {
                match fingerprint(path, &decoders) {
                    Ok(print) => {
                        let name = path.display().to_string();
                        if print.state != State::Ok {
                            let why = print.reason.map_or(String::new(), |reason| format!(", {reason}"));
                            complain(format!("{name}: {}{why}: only its digests are looked up", print.state));
                        }
                        found += look_up(&client, &name, &asked(&print), &banks).await?;
                    }
                    Err(error) => {
                        complain(format!("error: {error:#}"));
                        code = ExitCode::FAILURE;
                    }
                }
            }
            say(format!("{found} matches"));
            Ok(code)
        })
    }
}

/// What the service would compare: the file, and each of its frames that says something.
fn asked(print: &Fingerprint) -> Value {
    let hex = |bytes: &[u8]| Hex(bytes).to_string();
    let digests = &print.digests;
    let mut whole =
        json!({"md5": hex(&digests.md5), "sha1": hex(&digests.sha1), "sha256": hex(&digests.sha256)});
    if let Some(gradient) = print.gradient8.filter(|_| print.state == State::Ok) {
        whole["gradient"] = json!(hex(&gradient));
    }
    let telling = print.frames.iter().filter(|frame| frame.is_telling());
    let pictures = telling.flat_map(|frame| iter::once(&frame.pdq).chain(&frame.turned));
    whole["pdq"] = pictures.map(ToString::to_string).collect();
    whole
}

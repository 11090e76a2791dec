//! `tidegate media match FILE...`: what files are like in the banks of a running service.
//!
//! Hashes are made here, as the settings that are found here say; the service only sees those.

use std::{fmt::Write as _, path::PathBuf, process::ExitCode};

use clap::Args;
use serde_json::{Value, json};
use tidegate_media::{
    Decoders, Fingerprint,
    banks::{MediaHashes, Settings},
};
use tidegate_schemas::hex;

use super::read::fingerprint;
use crate::{
    client::Connection,
    commands::{banks::look_up, run_single_threaded},
    output::{print_error, print_line},
};

#[derive(Debug, Args)]
pub(crate) struct Match {
    /// Pictures, or any files
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Search only these banks
    #[arg(long = "bank", value_name = "BANK")]
    banks: Vec<String>,
    /// Also look up turned and mirrored pictures; default: the setting `catalog.hash_banks.turned`
    #[arg(long, value_name = "BOOL")]
    turned: Option<bool>,
    #[command(flatten)]
    connection: Connection,
}

impl Match {
    /// Looks up all readable files; unreadable ones are reported.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let Self { files, banks, turned, connection } = self;
        run_single_threaded(async move {
            let settings = connection.settings()?;
            let compared = settings.catalog.hash_banks;
            let compared = Settings { turned: turned.unwrap_or(compared.turned), ..compared };
            let decoders = Decoders::new(settings.media)?;
            let client = connection.open()?;
            let (mut code, mut found) = (ExitCode::SUCCESS, 0);
            for path in &files {
                match fingerprint(path, &decoders) {
                    Ok(print) => {
                        let name = path.display().to_string();
                        let hashes = asked(&print, &compared);
                        if hashes.pictures.is_empty() {
                            print_error(format!("{name}: {}", left_out(&print, &hashes, &compared)));
                        }
                        found += look_up(&client, &name, &digits(&hashes), &banks).await?;
                    }
                    Err(error) => {
                        print_error(format!("error: {error:#}"));
                        code = ExitCode::FAILURE;
                    }
                }
            }
            print_line(format!("{found} matches"));
            Ok(code)
        })
    }
}

/// Returns the hashes that a service with these settings would compare.
fn asked(print: &Fingerprint, settings: &Settings) -> MediaHashes {
    let mut hashes = MediaHashes::from_fingerprint(print, settings.turned);
    hashes.pictures.retain(|picture| picture.quality >= settings.least_quality);
    hashes
}

/// Describes which hashes are missing and why.
fn left_out(print: &Fingerprint, hashes: &MediaHashes, settings: &Settings) -> String {
    let mut why = print.state.to_string();
    let told = match (print.reason, print.frames.iter().map(|frame| frame.quality).max()) {
        (Some(reason), _) => write!(why, ", {reason}"),
        (None, Some(quality)) => {
            let least = settings.least_quality;
            write!(why, ", quality {quality} is below catalog.hash_banks.least_quality = {least}")
        }
        (None, None) => Ok(()),
    };
    told.expect("writing to a string does not fail");
    let kept = if hashes.gradient.is_some() { "gradient and digests" } else { "digests" };
    format!("{why}: only its {kept} are looked up")
}

fn digits(hashes: &MediaHashes) -> Value {
    let mut all = json!({
        "pdq": hashes.pictures.iter().map(|picture| hex(&picture.pdq)).collect::<Vec<_>>(),
    });
    for (kind, digits) in [
        ("gradient", hashes.gradient.map(|hash| hex(&hash))),
        ("md5", hashes.md5.map(|hash| hex(&hash))),
        ("sha1", hashes.sha1.map(|hash| hex(&hash))),
        ("sha256", hashes.sha256.map(|hash| hex(&hash))),
    ] {
        if let Some(digits) = digits {
            all[kind] = digits.into();
        }
    }
    all
}

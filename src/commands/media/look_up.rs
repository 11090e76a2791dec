//! `tidegate media match FILE...`: looks up the hashes of files in the banks of a running service.
//!
//! Hashes are computed here with the local settings; the service only receives hashes.

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
            let configured = settings.catalog.hash_banks;
            let settings_of_banks = Settings { turned: turned.unwrap_or(configured.turned), ..configured };
            let decoders = Decoders::new(settings.media)?;
            let client = connection.open()?;
            let (mut code, mut match_count) = (ExitCode::SUCCESS, 0);
            for path in &files {
                match fingerprint(path, &decoders) {
                    Ok(print) => {
                        let name = path.display().to_string();
                        let hashes = select_hashes(&print, &settings_of_banks);
                        if hashes.pictures.is_empty() {
                            print_error(format!(
                                "{name}: {}",
                                describe_missing_hashes(&print, &hashes, &settings_of_banks)
                            ));
                        }
                        match_count += look_up(&client, &name, &hashes_json(&hashes), &banks).await?;
                    }
                    Err(error) => {
                        print_error(format!("error: {error:#}"));
                        code = ExitCode::FAILURE;
                    }
                }
            }
            print_line(format!("{match_count} matches"));
            Ok(code)
        })
    }
}

/// Returns the hashes that a service with these settings would compare.
fn select_hashes(print: &Fingerprint, settings: &Settings) -> MediaHashes {
    let mut hashes = MediaHashes::from_fingerprint(print, settings.turned);
    // The service does not compare hashes below this quality.
    hashes.pictures.retain(|picture| picture.quality >= settings.least_quality);
    hashes
}

/// Describes which hashes are missing and why.
fn describe_missing_hashes(print: &Fingerprint, hashes: &MediaHashes, settings: &Settings) -> String {
    let mut reason = print.state.to_string();
    let write_result = match (print.reason, print.frames.iter().map(|frame| frame.quality).max()) {
        (Some(fingerprint_reason), _) => write!(reason, ", {fingerprint_reason}"),
        (None, Some(quality)) => {
            let least_quality = settings.least_quality;
            write!(reason, ", quality {quality} is below catalog.hash_banks.least_quality = {least_quality}")
        }
        (None, None) => Ok(()),
    };
    write_result.expect("writing to a string does not fail");
    let remaining_kinds = if hashes.gradient.is_some() { "gradient and digests" } else { "digests" };
    format!("{reason}: only its {remaining_kinds} are looked up")
}

fn hashes_json(hashes: &MediaHashes) -> Value {
    let mut hashes_by_kind = json!({
        "pdq": hashes.pictures.iter().map(|picture| hex(&picture.pdq)).collect::<Vec<_>>(),
    });
    for (kind, digits) in [
        ("gradient", hashes.gradient.map(|hash| hex(&hash))),
        ("md5", hashes.md5.map(|hash| hex(&hash))),
        ("sha1", hashes.sha1.map(|hash| hex(&hash))),
        ("sha256", hashes.sha256.map(|hash| hex(&hash))),
    ] {
        if let Some(digits) = digits {
            hashes_by_kind[kind] = digits.into();
        }
    }
    hashes_by_kind
}

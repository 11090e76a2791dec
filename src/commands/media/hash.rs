//! `tidegate media hash FILE...`: prints the hashes of each file in order, with `--json` as one line of JSON each.

use std::{fmt::Write as _, path::PathBuf, process::ExitCode};

use clap::Args;
use serde_json::json;
use tidegate_media::{Decoders, Fingerprint};
use tidegate_schemas::hex;

use super::read::fingerprint;
use crate::{
    commands::SettingsFile,
    output::{print_error, print_line},
};

#[derive(Debug, Args)]
pub(crate) struct Hash {
    /// Pictures, or any files
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Print one line of JSON per file
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: SettingsFile,
}

impl Hash {
    /// Hashes all readable files; unreadable ones are reported.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let decoders = Decoders::new(self.settings.load(Vec::new())?.settings.media)?;
        let mut code = ExitCode::SUCCESS;
        for path in self.files {
            match fingerprint(&path, &decoders) {
                Ok(print) if self.json => print_line(render_json(&path.display().to_string(), &print)),
                Ok(print) => print_line(render_text(&path.display().to_string(), &print)),
                Err(error) => {
                    print_error(format!("error: {error:#}"));
                    code = ExitCode::FAILURE;
                }
            }
        }
        Ok(code)
    }
}

fn render_json(path: &str, print: &Fingerprint) -> String {
    let first = print.frames.first();
    json!({
        "path": path,
        "state": print.state,
        "reason": print.reason,
        "format": print.format,
        "width": print.width,
        "height": print.height,
        "pdq": first.map(|frame| frame.pdq),
        "quality": first.map(|frame| frame.quality),
        "frames": print.frames.iter()
            .map(|frame| json!({"at": frame.at, "pdq": frame.pdq, "quality": frame.quality}))
            .collect::<Vec<_>>(),
        "gradient8": print.gradient8.map(|hash| hex(&hash)),
        "dct16": print.dct16.map(|hash| hex(&hash)),
        "md5": hex(&print.digests.md5),
        "sha1": hex(&print.digests.sha1),
        "sha256": hex(&print.digests.sha256),
        "pipeline": print.pipeline,
    })
    .to_string()
}

fn render_text(path: &str, print: &Fingerprint) -> String {
    let mut text = format!("{path}: {}", print.state);
    let mut add = |name: &str, value: &dyn std::fmt::Display| {
        write!(text, "\n  {name:<10} {value}").expect("writing to a string does not fail");
    };
    if let Some(reason) = print.reason {
        add("reason", &reason);
    }
    if let Some(format) = print.format {
        add("format", &format_args!("{format}, {} x {}", print.width, print.height));
    }
    for frame in &print.frames {
        let place = if frame.at == 0 { String::new() } else { format!(", frame {}", frame.at) };
        add("pdq", &format_args!("{} (quality {}{place})", frame.pdq, frame.quality));
    }
    if let (Some(gradient8), Some(dct16)) = (&print.gradient8, &print.dct16) {
        add("gradient8", &hex(gradient8));
        add("dct16", &hex(dct16));
    }
    add("md5", &hex(&print.digests.md5));
    add("sha1", &hex(&print.digests.sha1));
    add("sha256", &hex(&print.digests.sha256));
    text
}

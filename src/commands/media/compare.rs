//! `tidegate media compare A B`: prints the distance of two pictures for each kind of hash that both have.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;
use tidegate_media::{
    Comparison, Decoders, Fingerprint, PdqDistance, State,
    hashes::pdq::{MATCH_DISTANCE, Orientation},
};

use super::read::fingerprint;
use crate::{
    commands::SettingsFile,
    output::{print_error, print_line},
};

#[derive(Debug, Args)]
pub(crate) struct Compare {
    /// First picture
    one: PathBuf,
    /// Second picture
    other: PathBuf,
    /// Print one line of JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: SettingsFile,
}

impl Compare {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let decoders = Decoders::new(self.settings.load(Vec::new())?.settings.media)?;
        let (one, other) = (fingerprint(&self.one, &decoders)?, fingerprint(&self.other, &decoders)?);
        let comparison = Comparison::of(&one, &other);
        if self.json {
            print_line(serde_json::to_string(&comparison)?);
        } else {
            print_line(render(&comparison));
        }
        for (path, print) in [(&self.one, &one), (&self.other, &other)] {
            if print.frames.is_empty() {
                print_error(format!("{} has no hashes: {}", path.display(), describe_state(print)));
            } else if print.state == State::LowQuality {
                print_error(format!("{} has too little detail for a meaningful hash", path.display()));
            }
        }
        // Without PDQ hashes of both files, there is no verdict.
        Ok(if comparison.pdq.is_some() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

fn describe_state(print: &Fingerprint) -> String {
    print.reason.map_or_else(|| print.state.to_string(), |reason| format!("{}, {reason}", print.state))
}

fn render(comparison: &Comparison) -> String {
    let mut lines =
        vec![format!("bytes      {}", if comparison.same_bytes { "the same" } else { "different" })];
    if let Some(pdq) = comparison.pdq {
        lines.push(format!("pdq        {} of 256 bits: {}", pdq.distance, verdict(&pdq)));
    }
    for (name, distance, bits) in [("gradient8", comparison.gradient8, 64), ("dct16", comparison.dct16, 256)]
    {
        lines.extend(distance.map(|distance| format!("{name:<10} {distance} of {bits} bits")));
    }
    lines.join("\n")
}

fn verdict(pdq: &PdqDistance) -> String {
    let match_text = if pdq.distance <= MATCH_DISTANCE { "a match" } else { "no match" };
    let orientation_text =
        pdq.turned.map(|orientation| format!(", the first one {}", describe_orientation(orientation)));
    let frames = match pdq.frames {
        (0, 0) => String::new(),
        (one, other) => format!(", frames {one} and {other}"),
    };
    format!("{match_text}{}{frames}", orientation_text.unwrap_or_default())
}

const fn describe_orientation(orientation: Orientation) -> &'static str {
    match orientation {
        Orientation::Left => "turned left",
        Orientation::Around => "turned around",
        Orientation::Right => "turned right",
        Orientation::MirrorLeftRight => "mirrored left to right",
        Orientation::MirrorTopBottom => "mirrored top to bottom",
        Orientation::MirrorDiagonal => "mirrored along the diagonal",
        Orientation::MirrorAntiDiagonal => "mirrored along the other diagonal",
    }
}

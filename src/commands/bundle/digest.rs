//! `tidegate bundle digest`: prints a bundle's SHA-256, of its unpacked bytes or of its content.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use tidegate_exporter::bundle::{digest, invalid_json::InvalidJson};
use tidegate_schemas::hex;

use super::{Input, ReadLimits};
use crate::output::{print_error, print_line};

#[derive(Debug, Args)]
pub(crate) struct Digest {
    #[command(flatten)]
    input: Input,
    /// Hash the canonical form (RFC 8785), which is equal for all spellings of the same content
    #[arg(long)]
    jcs: bool,
    #[command(flatten)]
    costs: ReadLimits,
}

impl Digest {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let name = self.input.name();
        let mut file = self.input.open();
        let (kind, digest) = if self.jcs {
            match digest::of_content(&mut file, self.costs.limits(), &self.costs.spill_options()) {
                Ok(digest) => ("sha256-jcs", digest),
                Err(InvalidJson::Io(error)) => {
                    return Err(error).with_context(|| format!("{name} cannot be read"));
                }
                Err(invalid_json) => {
                    print_error(format!("error: {name}: {invalid_json}"));
                    return Ok(ExitCode::FAILURE);
                }
            }
        } else {
            let digest = digest::of_bytes(&mut file).with_context(|| format!("{name} cannot be read"))?;
            ("sha256", digest)
        };
        print_line(format!("{kind}:{}  {name}", hex(&digest)));
        Ok(ExitCode::SUCCESS)
    }
}

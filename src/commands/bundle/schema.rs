//! `tidegate bundle schema`: prints the JSON Schema of bundles, `schemas/data-bundle/v1.json` by default.

use std::process::ExitCode;

use anyhow::bail;
use clap::{Args, ValueEnum};
use tidegate_exporter::{
    bundle::validate::is_uri,
    form::{Naming, SCHEMA_URL, schema},
};

use crate::output::print_line;

#[derive(Debug, Args)]
pub(crate) struct Schema {
    #[command(flatten)]
    constants: Constants,
}

/// Constants in a bundle.
#[derive(Debug, Args)]
pub(super) struct Constants {
    /// Value of the bundle's `schema`
    #[arg(long, value_name = "URL")]
    pub(super) schema_url: Option<String>,
    /// Use the constants and the branded field of another tool
    #[arg(long, value_name = "TOOL")]
    pub(super) rename_constants: Option<Tool>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Tool {
    Delib,
}

impl Constants {
    pub(super) fn naming(&self) -> Naming {
        match self.rename_constants {
            None => Naming::Service,
            Some(Tool::Delib) => Naming::Delib,
        }
    }

    pub(super) fn schema_url(&self) -> anyhow::Result<Option<&str>> {
        require_uri(self.schema_url.as_deref())
    }
}

/// Requires a URI, since bundles cannot contain another address. The message does not repeat the address, because it may contain
/// secrets.
pub(super) fn require_uri(url: Option<&str>) -> anyhow::Result<Option<&str>> {
    if url.is_some_and(|url| !is_uri(url)) {
        bail!("--schema-url is not a URI (RFC 3986), such as {SCHEMA_URL}");
    }
    Ok(url)
}

impl Schema {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        print_line(schema::text(self.constants.naming(), self.constants.schema_url()?).trim_end());
        Ok(ExitCode::SUCCESS)
    }
}

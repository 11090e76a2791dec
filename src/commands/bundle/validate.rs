//! `tidegate bundle validate`: checks that a file is a valid bundle.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use tidegate_exporter::{
    bundle::validate::{self, Level, Options},
    form::{K_FLOOR, Naming},
};

use super::{
    Input, ReadLimits,
    schema::{Tool, require_uri},
};
use crate::output::print_line;

#[derive(Debug, Args)]
pub(crate) struct Validate {
    #[command(flatten)]
    input: Input,
    /// Last level of checks; each level includes those before it
    #[arg(long, value_enum, default_value_t = UpTo::Privacy)]
    level: UpTo,
    /// Also check that another tool accepts the bundle, with that tool's constants
    #[arg(long, value_name = "TOOL")]
    compat: Option<Tool>,
    /// Required value of the bundle's `schema`
    #[arg(long, value_name = "URL")]
    schema_url: Option<String>,
    /// Minimum number of responses behind each figure of a bundle marked for sharing
    #[arg(long, value_name = "COUNT", default_value_t = K_FLOOR, value_parser = clap::value_parser!(u64).range(K_FLOOR..))]
    k: u64,
    /// Maximum number of findings to list, as far as a quarter of --memory holds them; all are counted
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    max_errors: usize,
    /// Show the value at each finding; it may be personal data
    #[arg(long)]
    show_values: bool,
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    #[command(flatten)]
    costs: ReadLimits,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum UpTo {
    /// Lexical rules and the JSON Schema
    Schema,
    /// Also ids, references and contradictions between fields
    Refs,
    /// Also the totals
    Summary,
    /// Also the promises of the data card
    Privacy,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    Text,
    Json,
    Sarif,
}

impl Validate {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        require_uri(self.schema_url.as_deref())?;
        let options = Options {
            level: match self.level {
                UpTo::Schema => Level::Schema,
                UpTo::Refs => Level::Refs,
                UpTo::Summary => Level::Summary,
                UpTo::Privacy => Level::Privacy,
            },
            naming: if self.compat.is_some() { Naming::Delib } else { Naming::Service },
            schema_url: self.schema_url,
            delib: self.compat.is_some(),
            k: self.k,
            max_findings: self.max_errors,
            with_values: self.show_values,
            limits: self.costs.limits(),
            spill_options: self.costs.spill_options(),
        };
        let name = self.input.name();
        let report = validate::validate(&mut self.input.open(), &options)
            .with_context(|| format!("{name} cannot be checked"))?;
        match self.format {
            Format::Text => print_line(validate::text(&report, &name)),
            Format::Json => print_line(validate::json(&report, &name)),
            Format::Sarif => print_line(validate::sarif(&report, &name)),
        }
        Ok(if report.is_valid() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

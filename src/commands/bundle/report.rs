//! `tidegate bundle report`: writes one HTML page about a bundle.

use std::{
    fs,
    io::{self, Write as _},
    path::PathBuf,
    process::ExitCode,
};

use anyhow::{Context as _, bail};
use clap::Args;
use tidegate_exporter::{
    bundle::invalid_json::InvalidJson,
    plural::format_count,
    report_page::{DEFAULT_MAX_ITEMS, PageError, PageOptions, build_page},
};

use super::{Input, schema::Constants};
use crate::output::{print_error, print_line};

#[derive(Debug, Args)]
pub(crate) struct Report {
    #[command(flatten)]
    input: Input,
    /// Page to write; `-` writes to standard output
    #[arg(short, long, value_name = "FILE")]
    out: PathBuf,
    /// Maximum number of items to list for each phase
    #[arg(long, value_name = "COUNT", default_value_t = DEFAULT_MAX_ITEMS)]
    items: usize,
    /// Overwrite an existing file
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    constants: Constants,
}

impl Report {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let name = self.input.name();
        let is_stream = self.out.as_os_str() == "-";
        if !is_stream {
            // Checked before the bundle is read, which can take minutes.
            self.check_output()?;
        }
        let options = PageOptions {
            naming: self.constants.naming(),
            schema_url: self.constants.schema_url()?.map(str::to_owned),
            max_items: self.items,
            ..PageOptions::default()
        };
        let page = match build_page(&mut self.input.open(), &options) {
            Ok(page) => page,
            Err(PageError::Invalid(InvalidJson::Io(error))) => {
                return Err(error).with_context(|| format!("{name} cannot be read"));
            }
            Err(error) => {
                print_error(format!("error: {name}: {error}"));
                return Ok(ExitCode::FAILURE);
            }
        };
        if page.findings > 0 {
            let places = format_count(page.findings, "place");
            print_error(format!(
                "warning: {name}: not valid in {places}, so figures of the page may be wrong: `tidegate bundle validate` lists them"
            ));
        }
        if is_stream {
            let mut stream = io::stdout().lock();
            match stream.write_all(page.html.as_bytes()).and_then(|()| stream.flush()) {
                Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                    return Err(error).context("writing to standard output");
                }
                _ => return Ok(ExitCode::SUCCESS),
            }
        }
        page.save(&self.out)?;
        print_line(format!("{}: {}", self.out.display(), format_count(page.html.len() as u64, "byte")));
        Ok(ExitCode::SUCCESS)
    }

    fn check_output(&self) -> anyhow::Result<()> {
        let Ok(existing_file) = fs::canonicalize(&self.out) else { return Ok(()) };
        if fs::canonicalize(&self.input.file).is_ok_and(|input| input == existing_file) {
            bail!("{} is the bundle itself: name another file for the page", self.out.display());
        }
        if existing_file.is_dir() {
            bail!("{} is a folder: name a file for the page", self.out.display());
        }
        if !self.force {
            bail!("{} exists already: replace it with --force", self.out.display());
        }
        Ok(())
    }
}

//! Validates a bundle in one streaming pass, and reports each violation of a rule with its position. Only values that
//! have to be compared are kept.

mod content;
mod data_card;
mod findings;
pub(crate) mod formats;
mod groups;
mod locations;
mod member_names;
mod participants;
mod repeated_hashes;
mod report;
mod row;
mod rules;
mod second_pass;
mod sink;
mod spool;
mod totals;
mod unique;
mod unknown_members;
mod value_rules;
mod walk;

use std::io;

pub use findings::Finding;
pub use report::{json, sarif, text};
pub use rules::{Level, Rule, Severity};
pub use totals::BundleCounts;

pub use crate::json::Limits;
pub(crate) use findings::Findings;
pub(crate) use locations::{outcome, response};
pub(crate) use row::Row;
pub(crate) use sink::{Part, Sink};
pub(crate) use unique::KeySet;
pub(crate) use walk::{Walk, WalkEnd};

use crate::{
    form::{DELIB_MAX_BYTES, K_FLOOR, Naming},
    json::{Position, Reader, Stop},
    storage::spill::SpillOptions,
    unpack::Source,
};
use content::Content;
use second_pass::{RereadMode, SecondPass};

/// Lower bound of the memory for findings, in bytes. Enough for the default number of findings.
const MIN_FINDINGS_MEMORY: usize = 1 << 20;

/// Options of a validation.
#[derive(Clone, Debug)]
pub struct Options {
    pub level: Level,
    pub naming: Naming,
    /// Required value of `schema`; the naming's own URL by default.
    pub schema_url: Option<String>,
    /// Also checks the requirements of Delib.
    pub delib: bool,
    /// Minimum number of responses for each figure of a bundle marked for sharing.
    pub k: u64,
    /// Maximum number of findings to list, up to a quarter of the memory. All findings are counted.
    pub max_findings: usize,
    /// Includes the value at each finding, which can be personal data.
    pub with_values: bool,
    pub limits: Limits,
    pub spill_options: SpillOptions,
}

impl Options {
    pub fn new(room: SpillOptions) -> Self {
        Self {
            level: Level::default(),
            naming: Naming::default(),
            schema_url: None,
            delib: false,
            k: K_FLOOR,
            max_findings: 100,
            with_values: false,
            limits: Limits::default(),
            spill_options: room,
        }
    }
}

/// True if the schema accepts the text in a field of the format `uri`.
pub fn is_uri(text: &str) -> bool {
    formats::is_uri(text.as_bytes())
}

/// Result of a validation.
#[derive(Clone, Debug)]
pub struct Report {
    pub level: Level,
    /// Violated rules, with the number of violations.
    pub totals: Vec<(Rule, u64)>,
    /// First violations, in the order of the file.
    pub findings: Vec<Finding>,
    pub counts: BundleCounts,
    /// Number of bytes read of the unpacked document.
    pub bytes: u64,
    /// True if the document was read to its end.
    pub is_complete: bool,
}

impl Report {
    pub fn count_findings(&self, severity: Severity) -> u64 {
        self.totals.iter().filter(|(rule, _)| rule.severity() == severity).map(|(_, total)| total).sum()
    }

    /// Number of findings that are counted but not listed.
    pub fn count_unlisted(&self) -> u64 {
        self.totals.iter().map(|(_, total)| total).sum::<u64>() - self.findings.len() as u64
    }

    pub fn is_valid(&self) -> bool {
        self.count_findings(Severity::Error) == 0
    }
}

/// Validates a document in one pass. A second pass over its beginning follows if ids were ascending at first but not to
/// the end, and a pass over the whole document if hashes of ids are equal.
///
/// # Errors
///
/// If the document cannot be read or changes between the passes, or if temporary files cannot be written.
pub fn validate(source: &mut dyn Source, options: &Options) -> io::Result<Report> {
    // The other three quarters are for the checks of `Content`.
    let memory = (options.spill_options.memory / 4).max(MIN_FINDINGS_MEMORY);
    let mut findings = Findings::new(options.max_findings, options.with_values, memory);
    let is_rereadable = source.can_reopen();
    let mut content =
        Content::new(options.level, options.delib, options.k, &options.spill_options, is_rereadable);
    let end = walk(source, options, &mut findings, &mut content)?
        .ok_or_else(|| io::Error::other("reading stopped before the end of the document"))?;
    let (bytes, complete) = (end.bytes, end.stop.is_none());
    if options.delib && bytes > DELIB_MAX_BYTES {
        findings.add(Rule::DelibSize, Position { offset: DELIB_MAX_BYTES, line: 1 }, &[], None);
    }
    if complete {
        content.check_deferred_rows(&mut findings).map_err(into_io_error)?;
    } else {
        // Targets of references, the rest of each total and the data card can be in the missing part of a truncated
        // bundle, so only ids and the references that could be resolved are checked.
        content.level = content.level.min(Level::Refs);
    }
    let skipped_keys = content.skipped_keys();
    let file_changed = || io::Error::other("the file changed while it was read: validate it again");
    // The second pass meets the same violations, which are already reported.
    let mut discarded_findings = Findings::new(0, false, 0);
    if !skipped_keys.is_empty() {
        let mut second_pass =
            SecondPass { content: &mut content, mode: RereadMode::SkippedKeys(skipped_keys) };
        // A pass over skipped keys stops after the last of them. An unchanged file always has them.
        if walk(source, options, &mut discarded_findings, &mut second_pass)?.is_some() {
            return Err(file_changed());
        }
    }
    if content.needs_second_pass()? {
        let mut second_pass = SecondPass { content: &mut content, mode: RereadMode::Candidates };
        if walk(source, options, &mut discarded_findings, &mut second_pass)? != Some(end) {
            return Err(file_changed());
        }
    }
    let counts = content.finish(&mut findings)?;
    if !complete {
        // These rules depend on the data card, which a truncated document may lack.
        for rule in [Rule::Again, Rule::HidesIdentifiers].into_iter().chain(data_card::SHARED_ROW_BY_ROW) {
            findings.discard(rule);
        }
    }
    let (totals, findings) = findings.into_parts();
    Ok(Report { level: options.level, totals, findings, counts, bytes, is_complete: complete })
}

/// Walks the document once; returns `None` if the sink stopped early.
fn walk(
    source: &mut dyn Source,
    options: &Options,
    findings: &mut Findings,
    sink: &mut impl Sink,
) -> io::Result<Option<WalkEnd>> {
    let schema = options.schema_url.as_deref().unwrap_or(options.naming.schema());
    let reader = Reader::new(source.open()?, options.limits);
    match Walk::new(reader, options.naming.bundle(), schema, findings, sink).run() {
        Ok(end) => Ok(Some(end)),
        Err(Stop::StoppedByCaller) => Ok(None),
        Err(stop) => Err(into_io_error(stop)),
    }
}

fn into_io_error(stop: Stop) -> io::Error {
    match stop {
        Stop::Io(error) => error,
        Stop::Invalid(..) | Stop::StoppedByCaller => {
            io::Error::other("reading stopped before the end of the document")
        }
    }
}

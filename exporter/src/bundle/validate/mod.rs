//! Validates a bundle while it streams by, and reports every place that violates a rule.
//!
//! The file is not changed, and only values that must be compared are kept.

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
pub use totals::Counted;

pub use crate::json::Limits;
pub(crate) use findings::Findings;
pub(crate) use locations::{outcome, response};
pub(crate) use row::Row;
pub(crate) use sink::{Part, Sink};
pub(crate) use unique::Set;
pub(crate) use walk::{End, Walk};

use crate::{
    form::{DELIB_MOST_BYTES, K_FLOOR, Naming},
    json::{Position, Reader, Stop},
    storage::spill::SpillOptions,
    unpack::Source,
};
use content::Content;
use second_pass::{SecondPass, Wanted};

/// Bytes that findings may take however small the room is: enough for the usual list.
const LEAST_MEMORY_OF_FINDINGS: usize = 1 << 20;

/// Options of a validation.
#[derive(Clone, Debug)]
pub struct Options {
    pub level: Level,
    pub naming: Naming,
    /// Required value of `schema`; the naming's own by default.
    pub schema_url: Option<String>,
    /// Also checks what Delib requires.
    pub delib: bool,
    /// Number of responses required behind a shared figure.
    pub k: u64,
    /// Number of findings to list, as far as a quarter of `room`'s memory holds them; all are counted.
    pub most: usize,
    /// Shows the values at findings.
    pub values: bool,
    pub limits: Limits,
    pub room: SpillOptions,
}

impl Options {
    pub fn new(room: SpillOptions) -> Self {
        Self {
            level: Level::default(),
            naming: Naming::default(),
            schema_url: None,
            delib: false,
            k: K_FLOOR,
            most: 100,
            values: false,
            limits: Limits::default(),
            room,
        }
    }
}

/// True if the schema accepts the text as a `uri`.
pub fn is_uri(text: &str) -> bool {
    formats::uri(text.as_bytes())
}

/// Result of a validation.
#[derive(Clone, Debug)]
pub struct Report {
    pub level: Level,
    /// Each rule that does not hold, and at how many places.
    pub totals: Vec<(Rule, u64)>,
    /// The first places, in the order of the file.
    pub findings: Vec<Finding>,
    pub counted: Counted,
    /// Bytes of the unpacked document, as far as it was read.
    pub bytes: u64,
    /// It was read to its end.
    pub complete: bool,
}

impl Report {
    pub fn total(&self, severity: Severity) -> u64 {
        self.totals.iter().filter(|(rule, _)| rule.severity() == severity).map(|(_, total)| total).sum()
    }

    /// Number of findings that are counted and not listed.
    pub fn unlisted(&self) -> u64 {
        self.totals.iter().map(|(_, total)| total).sum::<u64>() - self.findings.len() as u64
    }

    pub fn is_valid(&self) -> bool {
        self.total(Severity::Error) == 0
    }
}

/// Reads a document once; its beginning once more if ids come in order at first but not to the end; and all of it
/// once more if some ids seem to be repeated.
///
/// # Errors
///
/// If it cannot be read, or temporary data cannot be written.
pub fn validate(source: &mut dyn Source, options: &Options) -> io::Result<Report> {
    // The sets of ids have their own share of the memory.
    let memory = (options.room.memory / 4).max(LEAST_MEMORY_OF_FINDINGS);
    let mut findings = Findings::new(options.most, options.values, memory);
    let again = source.opens_again();
    let mut content = Content::new(options.level, options.delib, options.k, &options.room, again);
    let end = walk(source, options, &mut findings, &mut content)?
        .ok_or_else(|| io::Error::other("the reading ended early"))?;
    let (bytes, complete) = (end.bytes, end.stopped.is_none());
    if options.delib && bytes > DELIB_MOST_BYTES {
        findings.add(Rule::DelibSize, Position { offset: DELIB_MOST_BYTES, line: 1 }, &[], None);
    }
    if complete {
        content.settle(&mut findings).map_err(into_io)?;
    } else {
        // What half a bundle refers to, adds up to and says of itself may stand in the other half.
        content.level = content.level.min(Level::Refs);
    }
    let lost = content.lost();
    let changed = || io::Error::other("the file has changed while it was read");
    // What is wrong there is known already.
    let mut known = Findings::new(0, false, 0);
    if !lost.is_nothing() {
        let mut bringing = SecondPass { content: &mut content, wanted: Wanted::Reread(lost) };
        if walk(source, options, &mut known, &mut bringing)?.is_some() {
            return Err(changed());
        }
    }
    if content.wants()? {
        let mut bringing = SecondPass { content: &mut content, wanted: Wanted::Equal };
        if walk(source, options, &mut known, &mut bringing)? != Some(end) {
            return Err(changed());
        }
    }
    let counted = content.finish(&mut findings)?;
    if !complete {
        for rule in [Rule::Again, Rule::HidesIdentifiers].into_iter().chain(data_card::SHARED_ROW_BY_ROW) {
            findings.forget(rule);
        }
    }
    let (totals, findings) = findings.into_parts();
    Ok(Report { level: options.level, totals, findings, counted, bytes, complete })
}

/// Walks the document once; returns `None` if the sink stopped early.
fn walk(
    source: &mut dyn Source,
    options: &Options,
    findings: &mut Findings,
    sink: &mut impl Sink,
) -> io::Result<Option<End>> {
    let schema = options.schema_url.as_deref().unwrap_or(options.naming.schema());
    let reader = Reader::new(source.open()?, options.limits);
    match Walk::new(reader, options.naming.bundle(), schema, findings, sink).run() {
        Ok(end) => Ok(Some(end)),
        Err(Stop::Enough) => Ok(None),
        Err(stop) => Err(into_io(stop)),
    }
}

fn into_io(stop: Stop) -> io::Error {
    match stop {
        Stop::Io(error) => error,
        Stop::Invalid(..) | Stop::Enough => io::Error::other("the reading ended early"),
    }
}

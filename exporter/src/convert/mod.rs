//! Converts another tool's export to a bundle, or a bundle to tables.
//!
//! `sources` reads the formats, `privacy` decides suppression, and `bundle::write` writes the bundle.

mod adapter;
mod aggregates;
mod bench_lines;
mod input_files;
mod item_texts;
mod job;
mod output_paths;
mod outputs;
mod overlap;
mod read_rows;
mod workspace;

use std::{
    path::Path,
    sync::{Arc, atomic::Ordering},
};

#[doc(hidden)]
pub use self::bench_lines::lines;
pub use self::job::{Format, Job, Overrides, Report, Sidecar, Target};
use self::{
    adapter::Adapter,
    input_files::{
        assign_roles, describe_artifacts, note_broken_files, note_skipped_folders, note_unused_files,
        public_name,
    },
    item_texts::ItemTexts,
    read_rows::{RowsRead, read_rows, rows_are_in_order},
    workspace::Workspace,
};
pub use crate::input::Limits;
use crate::{
    bundle::{
        validate::formats::is_uri,
        write::{
            document::{self, Beginning, Constants, Summary},
            output::{Mark, Output},
            pipeline::{CountingSink, Pipeline},
            row_lines::RowFormatter,
        },
    },
    error::ConvertError,
    form::{K_DEFAULT, K_FLOOR, MAX_ID_CHARS},
    input::{Input, Member, Role, note_dropped_columns},
    json::write::encode_hex,
    meter::Meter,
    model::BundleHeader,
    privacy::{
        Profile,
        data_card::{Card, Content, compute_card},
        participants::{Key, ParticipantRegistry},
    },
    storage::rows::spool::SpooledRows,
    tables,
    tally::Tally,
    timestamp::Timestamp,
};

/// Runs a conversion. The meter reports its progress and can stop it.
pub fn convert(job: &Job, meter: &Arc<Meter>) -> Result<Report, ConvertError> {
    // All checks precede the workspace, which creates files.
    check_options(job)?;
    overlap::refuse_overlap(job)?;
    let workspace = Workspace::open(job)?;
    let mut input =
        Input::open(&job.inputs, &workspace.folder, &workspace::working_files(job), &job.limits, meter)?;
    let files = assign_roles(&mut input, job)?;
    run(job, meter, workspace, &input, &files)
}

fn run(
    job: &Job,
    meter: &Arc<Meter>,
    workspace: Workspace,
    input: &Input,
    files: &[(Member, Role)],
) -> Result<Report, ConvertError> {
    let exported = job.exported_at.unwrap_or_else(Timestamp::now);
    let format = adapter::choose_format(files, job)?;
    if format == Format::Bundle {
        return outputs::from_bundle(job, &workspace, files, meter);
    }
    if let Some((tool, option)) = job.options_for_tools().find(|(tool, _)| *tool != format) {
        let (tool, format) = (tool.name(), format.name());
        return Err(ConvertError::Refused(format!(
            "{option} applies to --from {tool} only, and the input is {format}"
        )));
    }
    let constants =
        Constants { naming: job.naming, schema_url: job.schema_url.clone(), exported_at: exported };
    convert_export(job, meter, workspace, input, files, format, constants)
}

fn convert_export(
    job: &Job,
    meter: &Arc<Meter>,
    workspace: Workspace,
    input: &Input,
    files: &[(Member, Role)],
    format: Format,
    constants: Constants,
) -> Result<Report, ConvertError> {
    let key = job.key.clone().map_or_else(Key::generate, Ok)?;
    let mut registry_for = |source: Option<&str>| {
        // Public bundles contain no pseudonyms, so they need no scope.
        if job.key.is_some() && source.is_none() && job.profile == Profile::Private {
            return Err(ConvertError::Refused(KEY_NEEDS_SOURCE_ID.to_owned()));
        }
        Ok(ParticipantRegistry::new(&key, source.unwrap_or_default(), job.participants)
            .hiding_below(job.hidden_below()))
    };
    let (adapter, mut head, mut people) = Adapter::open(format, files, job, &mut registry_for)?;
    outputs::check_shape(job, &head, adapter.format(), files)?;
    job.overrides.apply(&mut head.source, job.truncate_metadata, &mut head.notes)?;
    if job.profile == Profile::Public {
        head.notes.extend(item_texts::replace_identifying_ids(&mut head.items, meter)?);
    }
    head.artifacts = describe_artifacts(input, files, adapter.rows_file(), &head.rows, job)?;
    head.notes.extend(note_unused_files(files));
    head.notes.extend(note_broken_files(files));
    head.notes.extend(note_dropped_columns(files, &job.limits, job.profile == Profile::Public)?);
    head.notes.extend(note_skipped_folders(&input.skipped, job));
    let texts = item_texts::prepare_texts(&head, job, meter)?;
    head.notes.extend(item_texts::notes(&texts, job));
    // Progress refers to the response file; the other files were read above.
    meter.bytes_expected.store(adapter.rows_file().map_or(0, Member::stored_bytes), Ordering::Relaxed);
    Conversion { job, meter, workspace, adapter, head, people: &mut people, texts, constants }.run()
}

/// Source whose items and rows were prepared without input files.
pub(crate) struct PreparedSource {
    pub(crate) rows: SpooledRows,
    pub(crate) head: BundleHeader,
    pub(crate) people: ParticipantRegistry,
}

/// Open output of a bundle that is not made of input files.
pub(crate) struct PreparedConversion {
    workspace: Workspace,
    /// Given key of the pseudonyms, or a random one.
    pub(crate) key: Key,
}

impl PreparedConversion {
    /// Checks the options and opens the output.
    pub(crate) fn open(job: &Job) -> Result<Self, ConvertError> {
        check_options(job)?;
        overlap::refuse_overlap(job)?;
        let key = job.key.clone().map_or_else(Key::generate, Ok)?;
        Ok(Self { workspace: Workspace::open(job)?, key })
    }

    /// Folder for temporary files.
    pub(crate) fn folder(&self) -> &Path {
        &self.workspace.folder
    }

    /// Writes the bundle with its sidecars.
    pub(crate) fn write(
        self,
        job: &Job,
        source: PreparedSource,
        meter: &Arc<Meter>,
    ) -> Result<Report, ConvertError> {
        let PreparedSource { rows, mut head, mut people } = source;
        job.overrides.apply(&mut head.source, job.truncate_metadata, &mut head.notes)?;
        if job.profile == Profile::Public {
            head.notes.extend(item_texts::replace_identifying_ids(&mut head.items, meter)?);
        }
        let texts = item_texts::prepare_texts(&head, job, meter)?;
        let exported_at = job.exported_at.unwrap_or_else(Timestamp::now);
        let constants = Constants { naming: job.naming, schema_url: job.schema_url.clone(), exported_at };
        let (workspace, adapter) = (self.workspace, Adapter::Spooled(rows));
        Conversion { job, meter, workspace, adapter, head, people: &mut people, texts, constants }.run()
    }
}

/// A given key needs a source id: equal participant ids of two conversations would otherwise get one pseudonym.
const KEY_NEEDS_SOURCE_ID: &str = "--linkage-key-file needs --source-id: the input does not identify its \
    conversation, and pseudonyms of one key have to differ between conversations";

fn check_options(job: &Job) -> Result<(), ConvertError> {
    let refuse = |detail: &str| Err(ConvertError::Refused(detail.to_owned()));
    let public = job.profile == Profile::Public;
    if public && job.k < K_FLOOR {
        return Err(ConvertError::Refused(format!("--k {}: the minimum is {K_FLOOR}", job.k)));
    }
    if !public && job.k != K_DEFAULT {
        return refuse("--k applies to --profile public only: a private bundle lists every answer");
    }
    if public && job.events {
        return refuse("--events applies to --profile private only: a public bundle counts latest answers");
    }
    if public && job.participants.identifies() {
        return refuse("--participants: a public bundle contains no participant ids");
    }
    if job.table_format.is_some() && (job.target.is_stream() || job.package || job.sidecars.is_some()) {
        return refuse("--to writes tables to a folder: set it with -o, without --sidecar and --package");
    }
    if public && job.table_format == Some(tables::TableFormat::PolisCsv) {
        return refuse("--to polis-csv lists votes, which --profile public removes");
    }
    if job.target.is_stream()
        && (job.package || job.sidecars.as_ref().is_some_and(|sidecars| !sidecars.is_empty()))
    {
        return refuse("standard output takes the bundle only: --sidecar and --package need an output file");
    }
    let sidecars = job.sidecars.as_deref().unwrap_or_default();
    if let Some((_, duplicate)) =
        sidecars.iter().enumerate().find(|(index, form)| sidecars[..*index].contains(form))
    {
        return refuse(&format!("--sidecar: {} is named twice", duplicate.name()));
    }
    if let Some(license) = &job.license {
        if !job.package {
            return refuse("--license applies to --package frictionless only");
        }
        // Checked early, since the package is written last.
        tables::license::license_value(license).map_err(ConvertError::Refused)?;
    }
    if job.schema_url.as_deref().is_some_and(|url| !is_uri(url.as_bytes())) {
        return refuse("--schema-url is not a URI (RFC 3986)");
    }
    let Overrides { id, title, url, .. } = &job.overrides;
    for (option, value) in [
        ("--source-id", id),
        ("--title", title),
        ("--source-url", url),
        ("--text-reviewed-by", &job.text_reviewed_by),
    ] {
        if value.as_ref().is_some_and(|text| text.trim().is_empty()) {
            return Err(ConvertError::Refused(format!("{option} is empty")));
        }
    }
    if let Some(id) = &job.bundle_id
        && !(1..=MAX_ID_CHARS).contains(&id.chars().count())
    {
        return Err(ConvertError::Refused(format!("--bundle-id must have 1 to {MAX_ID_CHARS} characters")));
    }
    Ok(())
}

/// Conversion with its input opened.
struct Conversion<'w> {
    job: &'w Job,
    meter: &'w Arc<Meter>,
    workspace: Workspace,
    adapter: Adapter,
    head: BundleHeader,
    people: &'w mut ParticipantRegistry,
    texts: ItemTexts,
    constants: Constants,
}

impl Conversion<'_> {
    /// Writes the bundle of counts or of individual answers.
    fn run(mut self) -> Result<Report, ConvertError> {
        let report = if self.has_counts_only() { self.write_counts()? } else { self.write_individual()? };
        self.finish(report)
    }

    fn has_counts_only(&self) -> bool {
        self.job.profile == Profile::Public || self.adapter.tallies().is_some()
    }

    fn new_tally(&self) -> Tally {
        Tally::new(self.head.question_count(), self.head.groups.len(), self.head.pairwise)
    }

    fn row_formatter(&self) -> RowFormatter {
        RowFormatter::new(&self.head, self.job.events)
    }

    fn finish(self, mut report: Report) -> Result<Report, ConvertError> {
        if self.is_preview() {
            // Removes the working files.
            drop(self.workspace);
        } else {
            report = outputs::publish(self.job, self.workspace, report, self.meter)?;
        }
        if self.job.dry_run {
            report.dry_run = true;
            // The previewed file is discarded, so its id and digest identify no file.
            (report.bundle_id, report.bytes, report.content_sha256) = (None, 0, None);
        }
        Ok(report)
    }

    /// True if the preview can skip writing. Tables report omissions only while they are written, so their preview
    /// writes to a temporary folder.
    fn is_preview(&self) -> bool {
        self.job.dry_run && self.job.table_format.is_none()
    }

    /// Writes a bundle of individual answers.
    fn write_individual(&mut self) -> Result<Report, ConvertError> {
        let mut tally = self.new_tally();
        let mut needs_sorting = !self.adapter.is_sorted_by_item();
        let formatter = self.row_formatter();
        let beginning = self.format_beginning();
        if self.is_preview() {
            let counting = CountingSink::new(&mut tally, self.meter);
            let mut sink =
                counting.with_measurement(&formatter, self.people.names(), outputs::LARGE_BUNDLE_BYTES);
            let rows_read = read_rows(
                &self.adapter,
                self.job,
                self.meter,
                self.people,
                &self.workspace,
                needs_sorting,
                &mut sink,
            )?;
            let byte_count = sink.measured_bytes() + beginning.bytes.len() as u64;
            let (end, mut report, outcomes) = self.finish_individual(&tally, &rows_read)?;
            outputs::preview(self.job, &mut report, byte_count + end.len() as u64, outcomes);
            return Ok(report);
        }
        let is_streamed = self.job.stream().is_some();
        // A stream cannot be rewound if the rows turn out unsorted, so their order is checked first.
        if is_streamed && !needs_sorting {
            let mut preview_tally = self.new_tally();
            // The rows are read once to check their order and once to write them.
            self.meter
                .bytes_expected
                .fetch_add(self.meter.bytes_expected.load(Ordering::Relaxed), Ordering::Relaxed);
            needs_sorting = !rows_are_in_order(
                &self.adapter,
                self.job,
                self.meter,
                self.people,
                &self.workspace,
                &mut preview_tally,
            )?;
        }
        let (mut out, responses_start) = self.open_output(&beginning)?;
        let pipeline = Pipeline {
            formatter: &formatter,
            names: self.people.names(),
            output: &mut out,
            responses_start,
            uses_writer_thread: self.job.threads > 1,
            meter: self.meter,
        };
        let (adapter, job, meter, workspace) = (&self.adapter, self.job, self.meter, &self.workspace);
        let people = &mut *self.people;
        let rows_read = pipeline
            .run(&mut tally, |pipe| read_rows(adapter, job, meter, people, workspace, needs_sorting, pipe))?;
        let (end, mut report, _) = self.finish_individual(&tally, &rows_read)?;
        out.write(&end)?;
        self.seal(out, &beginning, &mut report)?;
        Ok(report)
    }

    /// Writes a bundle of counts.
    fn write_counts(&mut self) -> Result<Report, ConvertError> {
        let mut tally = self.new_tally();
        let (tables, rows_read) = match self.adapter.tallies() {
            Some(tallies) => (tallies.to_vec(), None),
            None => {
                let needs_sorting = !self.adapter.is_sorted_by_item();
                let mut sink = CountingSink::new(&mut tally, self.meter);
                let rows_read = read_rows(
                    &self.adapter,
                    self.job,
                    self.meter,
                    self.people,
                    &self.workspace,
                    needs_sorting,
                    &mut sink,
                )?;
                (tally.tables(), Some(rows_read))
            }
        };
        let public = self.job.profile == Profile::Public;
        let public_counts =
            aggregates::select_public_counts(&tables, &self.head, public.then_some(self.job.k));
        for (line, is_shown) in self.texts.lines.iter_mut().zip(&public_counts.shown_items) {
            line.is_published &= is_shown;
            line.created_at = if public { line.created_at.map(Timestamp::day) } else { line.created_at };
        }
        if let Some(read) = &rows_read {
            self.note_rows(read);
        }
        self.head.notes.extend(public_counts.notes());
        if public {
            self.remove_source_details();
        }
        // Exports of counts register no participants, so their number is unknown.
        let participants = public_counts.participants(self.people.count());
        if participants.is_none() {
            let k = self.job.k;
            self.head.notes.push(format!(
                "The number of participants is withheld (shown as 0), and so is coverage: they would \
                    reveal missing answers of fewer than {k} people."
            ));
        }
        let summary = public_counts.summary(&self.head, &self.texts.lines, participants);
        let content = Content {
            responses: summary.responses > 0,
            suppressed: public,
            pairwise: self.head.pairwise,
            ..self.texts.describe_content(&self.head, self.job, self.meter)?
        };
        let card = compute_card(content, self.job.not_for_sharing, &self.job.limitations);
        let mut report = self.report(summary, &card);
        // A small number of changed answers must not be disclosed by the report either.
        let superseded = rows_read.as_ref().map(|read| read.superseded);
        report.superseded =
            superseded.filter(|count| self.job.hidden_below().hidden_phrase(*count).is_none());
        let (beginning, lines) = (self.format_beginning(), public_counts.lines(&self.row_formatter()));
        let outcomes = public_counts.outcomes(&self.head, !public);
        let has_responses = summary.responses > 0;
        let end = document::format_end(has_responses, &outcomes, summary, &self.head, &self.constants, &card);
        if self.is_preview() {
            let bytes = beginning.bytes.len() + lines.len() + end.len();
            outputs::preview(self.job, &mut report, bytes as u64, outcomes.count);
            return Ok(report);
        }
        let (mut out, _) = self.open_output(&beginning)?;
        out.write(&lines)?;
        out.write(&end)?;
        self.seal(out, &beginning, &mut report)?;
        Ok(report)
    }

    /// Removes digests, sizes and row counts of the input files: a reader could use them to test guesses at hidden
    /// values.
    fn remove_source_details(&mut self) {
        for artifact in &mut self.head.artifacts {
            (artifact.file_digest, artifact.rows) = (None, None);
            artifact.name = public_name(&artifact.name, artifact.role);
            artifact.archive_name = artifact.archive_name.take().map(|name| public_name(&name, "archive"));
        }
        let note = "Digests, sizes and row counts of the sources are left out: they could confirm guesses \
            at hidden values.";
        self.head.notes.push(note.to_owned());
    }

    fn note_rows(&mut self, read: &RowsRead) {
        if let (Some(digest), Some(file)) = (read.summary.file_digest, self.adapter.rows_file()) {
            let (name, archive) = (file.name.clone(), file.archive_name());
            let artifact = self
                .head
                .artifacts
                .iter_mut()
                .find(|artifact| artifact.name == name && artifact.archive_name == archive);
            if let Some(artifact) = artifact {
                (artifact.file_digest, artifact.rows) = (Some(digest), Some(read.summary.rows));
            }
        }
        let replaced = read.superseded;
        // The counts of two recurring public bundles could be subtracted.
        let hides_counts = self.head.is_recurring && self.job.profile == Profile::Public;
        if replaced > 0 && !hides_counts {
            let (phrase, were) = self.people.hidden_below.format_count(replaced, "answer");
            let note =
                format!("{phrase} {were} replaced by a later one of the same participant and left out.");
            self.head.notes.push(note);
        }
        let silent = self.people.count_silent().without_stated_answers;
        if silent > 0 {
            let (phrase, were) = self.people.hidden_below.format_count(silent, "participant");
            self.head.notes.push(format!("{phrase} without an answer {were} left out."));
        }
        self.head.notes.extend(read.notes.iter().cloned());
    }

    /// Builds the part of the document behind the responses, and the report.
    fn finish_individual(
        &mut self,
        tally: &Tally,
        read: &RowsRead,
    ) -> Result<(Vec<u8>, Report, u64), ConvertError> {
        self.note_rows(read);
        let participants = self.people.count();
        let summary = Summary {
            participants,
            items: self.head.items.len() as u64,
            responses: tally.rows(),
            coverage: tally.coverage(&self.head, participants),
        };
        let has_responses = tally.rows() > 0;
        let content = Content {
            responses: has_responses,
            linked: has_responses,
            named: has_responses && self.job.participants.identifies(),
            events: self.job.events,
            pairwise: self.head.pairwise,
            ..self.texts.describe_content(&self.head, self.job, self.meter)?
        };
        let card = compute_card(content, self.job.not_for_sharing, &self.job.limitations);
        let mut report = self.report(summary, &card);
        report.superseded = Some(read.superseded);
        let outcomes =
            aggregates::individual_outcomes(&self.head, tally, &self.people.members(self.head.groups.len()));
        let end = document::format_end(has_responses, &outcomes, summary, &self.head, &self.constants, &card);
        Ok((end, report, outcomes.count))
    }

    fn report(&self, summary: Summary, card: &Card) -> Report {
        Report {
            format: self.adapter.format().name(),
            variant: self.adapter.variant(),
            participants: summary.participants,
            items: summary.items,
            responses: summary.responses,
            coverage: summary.coverage,
            superseded: None,
            suitable: card.suitable,
            publication: card.publication,
            notes: self.head.notes.clone(),
            redacted: self.texts.redacted,
            bundle_id: None,
            bytes: 0,
            content_sha256: None,
            files: Vec::new(),
            dry_run: false,
        }
    }

    /// Start of the document. A derived id has placeholder digits, which `seal` replaces.
    fn format_beginning(&self) -> Beginning {
        let id = self
            .job
            .bundle_id
            .clone()
            .unwrap_or_else(|| make_bundle_id(&self.head.source, &"0".repeat(DIGEST_DIGITS)));
        document::format_beginning(&self.constants, &id, &self.head, &self.texts.lines)
    }

    /// Opens the output, writes the start of the document, and marks where the responses begin.
    fn open_output(&self, beginning: &Beginning) -> Result<(Output, Mark), ConvertError> {
        let mut out = match self.job.stream() {
            Some(stream) => Output::to_stream(stream)?,
            None => self.workspace.output()?,
        };
        let at = usize::try_from(beginning.id_end).unwrap_or_default();
        out.write(&beginning.bytes[..at])?;
        // The id is excluded from the digest, since it is derived from it.
        out.hash_from_here();
        out.write(&beginning.bytes[at..])?;
        let start = out.mark();
        Ok((out, start))
    }

    /// Replaces the id's placeholder and syncs the file to disk.
    fn seal(&self, mut out: Output, beginning: &Beginning, report: &mut Report) -> Result<(), ConvertError> {
        let digest = encode_hex(&out.digest());
        let id = match &self.job.bundle_id {
            Some(id) => id.clone(),
            None => {
                let id = make_bundle_id(&self.head.source, &digest[..DIGEST_DIGITS]);
                let mut text = Vec::new();
                crate::json::write::write_string(&mut text, &id);
                // Without quotes, which already surround the placeholder.
                out.patch(beginning.id_start, &text[1..text.len() - 1])?;
                id
            }
        };
        report.bytes = out.bytes();
        // Sidecars and tables are made from the finished file, which is read again.
        self.meter.expect(outputs::bytes_to_reread(self.job, report.bytes));
        out.sync()?;
        report.bundle_id = Some(id);
        report.content_sha256 = Some(digest);
        Ok(())
    }
}

/// Hexadecimal digits of the digest in a derived bundle id.
const DIGEST_DIGITS: usize = 32;

fn make_bundle_id(source: &crate::model::Source, digest: &str) -> String {
    let start = format!("{}:{}", source.tool, source.id);
    // Leaves space for the colon and the digest.
    let start: String = start.chars().take(MAX_ID_CHARS - DIGEST_DIGITS - 1).collect();
    format!("{start}:{digest}")
}

//! Converts another tool's export to a bundle.
//!
//! Formats are read by `sources`, suppression is decided in `privacy`, and `bundle::write` writes.

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

use std::sync::{Arc, atomic::Ordering};

#[doc(hidden)]
pub use self::bench_lines::lines;
pub use self::job::{Format, Job, Overrides, Report, Sidecar, Target};
use self::{
    adapter::Adapter,
    input_files::{artifacts, broken, roles, shared_name, skipped, unused},
    item_texts::ItemTexts,
    read_rows::{RowsRead, rows, rows_are_in_order},
    workspace::Workspace,
};
pub use crate::input::Limits;
use crate::{
    bundle::{
        validate::formats::uri,
        write::{
            document::{self, Beginning, Constants, Summary},
            output::{Mark, Output},
            pipeline::{Counting, Pipeline},
            row_lines::RowFormatter,
        },
    },
    error::ConvertError,
    form::{K_DEFAULT, K_FLOOR, LONGEST_ID},
    input::{Input, Member, Role, unread},
    json::write::hex_of,
    meter::Meter,
    privacy::{
        Profile,
        data_card::{Card, Content, card},
        participants::{Key, ParticipantRegistry},
    },
    tables,
    tally::Tally,
    timestamp::Timestamp,
};

/// Runs a conversion. The meter can be watched, and can ask it to stop.
pub fn convert(job: &Job, meter: &Arc<Meter>) -> Result<Report, ConvertError> {
    check(job)?;
    overlap::refuse(job)?;
    let workspace = Workspace::open(job)?;
    let mut input =
        Input::open(&job.inputs, &workspace.folder, &workspace::working_files(job), &job.limits, meter)?;
    let files = roles(&mut input, job)?;
    run(job, meter, workspace, &input, &files)
}

fn run(
    job: &Job,
    meter: &Arc<Meter>,
    workspace: Workspace,
    input: &Input,
    files: &[(Member, Role)],
) -> Result<Report, ConvertError> {
    let exported = job.exported.unwrap_or_else(Timestamp::now);
    let format = adapter::format(files, job)?;
    if format == Format::Bundle {
        return outputs::from_bundle(job, &workspace, files, meter);
    }
    if let Some((tool, option)) = job.options_for_tools().find(|(tool, _)| *tool != format) {
        let (tool, format) = (tool.name(), format.name());
        return Err(ConvertError::Refused(format!("{option}: of --from {tool} only, and this is {format}")));
    }
    let constants = Constants { naming: job.naming, schema_url: job.schema_url.clone(), exported };
    from_export(job, meter, workspace, input, files, format, constants)
}

fn from_export(
    job: &Job,
    meter: &Arc<Meter>,
    workspace: Workspace,
    input: &Input,
    files: &[(Member, Role)],
    format: Format,
    constants: Constants,
) -> Result<Report, ConvertError> {
    let key = job.key.clone().map_or_else(Key::fresh, Ok)?;
    let mut people_of = |source: Option<&str>| {
        if job.key.is_some() && source.is_none() && job.profile == Profile::Private {
            return Err(ConvertError::Refused(UNNAMED.to_owned()));
        }
        Ok(ParticipantRegistry::new(&key, source.unwrap_or_default(), job.participants)
            .hiding_below(job.hidden_below()))
    };
    let (adapter, mut head, mut people) = Adapter::open(format, files, job, &mut people_of)?;
    outputs::check_shape(job, &head, adapter.format(), files)?;
    job.overrides.apply(&mut head.source, job.truncate_metadata, &mut head.notes)?;
    if job.profile == Profile::Public {
        head.notes.extend(item_texts::hide_ids(&mut head.items, meter)?);
    }
    head.artifacts = artifacts(input, files, adapter.rows_file(), &head.rows, job)?;
    head.notes.extend(unused(files));
    head.notes.extend(broken(files));
    head.notes.extend(unread(files, &job.limits, job.profile == Profile::Public)?);
    head.notes.extend(skipped(&input.skipped, job));
    let prepared = item_texts::texts(&head, job, meter)?;
    head.notes.extend(item_texts::notes(&prepared, job));
    meter.total.store(adapter.rows_file().map_or(0, Member::stored_bytes), Ordering::Relaxed);
    let mut work = Work { job, meter, workspace, adapter, head, people: &mut people, prepared, constants };
    let report = if work.counts_only() { work.counted()? } else { work.individual()? };
    work.end(report)
}

/// Error for a kept key without a source id: equal ids of two conversations would become one participant.
const UNNAMED: &str = "--linkage-key-file: the input does not say which conversation it is, and pseudonyms of one key have to \
    differ from conversation to conversation: --source-id says it";

fn check(job: &Job) -> Result<(), ConvertError> {
    let refused = |detail: &str| Err(ConvertError::Refused(detail.to_owned()));
    let public = job.profile == Profile::Public;
    if public && job.k < K_FLOOR {
        return Err(ConvertError::Refused(format!("--k {}: {K_FLOOR} is the least", job.k)));
    }
    if !public && job.k != K_DEFAULT {
        return refused("--k: a private bundle has each answer; --profile public has counts");
    }
    if public && job.events {
        return refused("--events: a public bundle holds counts of latest answers only");
    }
    if public && job.participants.identifies() {
        return refused("--participants: a public bundle names nobody");
    }
    if job.to.is_some() && (job.target.is_stream() || job.package || job.sidecars.is_some()) {
        return refused(
            "--to writes a folder without a bundle: give it with -o, and neither sidecars nor a package",
        );
    }
    if public && job.to == Some(tables::TableFormat::PolisCsv) {
        return refused("--to polis-csv lists votes, and --profile public keeps counts only");
    }
    if job.target.is_stream()
        && (job.package || job.sidecars.as_ref().is_some_and(|wanted| !wanted.is_empty()))
    {
        return refused("standard output has room for the bundle only, not for sidecars or a package");
    }
    let sidecars = job.sidecars.as_deref().unwrap_or_default();
    if let Some((_, twice)) = sidecars.iter().enumerate().find(|(at, form)| sidecars[..*at].contains(form)) {
        return refused(&format!("--sidecar: {} is named twice", twice.name()));
    }
    if let Some(license) = &job.license {
        if !job.package {
            return refused("--license: only a package has a workspace for it (--package frictionless)");
        }
        tables::license::named(license).map_err(ConvertError::Refused)?;
    }
    if job.schema_url.as_deref().is_some_and(|url| !uri(url.as_bytes())) {
        return refused("--schema-url is not a URI (RFC 3986)");
    }
    let Overrides { id, title, url, .. } = &job.overrides;
    for (option, told) in [
        ("--source-id", id),
        ("--title", title),
        ("--source-url", url),
        ("--text-reviewed-by", &job.text_reviewed_by),
    ] {
        if told.as_ref().is_some_and(|told| told.trim().is_empty()) {
            return Err(ConvertError::Refused(format!("{option} says nothing")));
        }
    }
    if let Some(id) = &job.bundle_id
        && !(1..=LONGEST_ID).contains(&id.chars().count())
    {
        return Err(ConvertError::Refused(format!(
            "--bundle-id has one character at least and {LONGEST_ID} at most"
        )));
    }
    Ok(())
}

/// A conversion whose input is open.
struct Work<'w> {
    job: &'w Job,
    meter: &'w Arc<Meter>,
    workspace: Workspace,
    adapter: Adapter,
    head: crate::model::BundleHeader,
    people: &'w mut ParticipantRegistry,
    prepared: ItemTexts,
    constants: Constants,
}

impl Work<'_> {
    fn counts_only(&self) -> bool {
        self.job.profile == Profile::Public || self.adapter.tallies().is_some()
    }

    fn tally(&self) -> Tally {
        Tally::new(self.head.items.len(), self.head.groups.len(), self.head.pairwise)
    }

    fn shape(&self) -> RowFormatter {
        let items = self.head.items.iter().map(|item| (item.key.as_str(), item.id.as_str()));
        RowFormatter::new(items, self.head.phase.id, self.job.events)
    }

    fn end(self, mut report: Report) -> Result<Report, ConvertError> {
        if self.previews() {
            drop(self.workspace);
        } else {
            report = outputs::publish(self.job, self.workspace, report, self.meter)?;
        }
        if self.job.dry_run {
            report.dry_run = true;
            (report.bundle_id, report.bytes, report.content_sha256) = (None, 0, None);
        }
        Ok(report)
    }

    /// True if nothing is written. What other shapes leave out is known only by writing them, so their preview writes
    /// to a temporary folder.
    fn previews(&self) -> bool {
        self.job.dry_run && self.job.to.is_none()
    }

    /// Every answer of every participant.
    fn individual(&mut self) -> Result<Report, ConvertError> {
        let mut tally = self.tally();
        let mut sorted = !self.adapter.by_item();
        let shape = self.shape();
        let beginning = self.beginning();
        if self.previews() {
            let counting = Counting::new(&mut tally, self.meter);
            let mut sink = counting.measuring(&shape, self.people.names(), outputs::LARGE);
            let read =
                rows(&self.adapter, self.job, self.meter, self.people, &self.workspace, sorted, &mut sink)?;
            let measured = sink.measured() + beginning.bytes.len() as u64;
            let (end, mut report, outcomes) = self.finish_individual(&tally, &read)?;
            outputs::preview(self.job, &mut report, measured + end.len() as u64, outcomes);
            return Ok(report);
        }
        let streams = self.job.stream().is_some();
        if streams && !sorted {
            let mut ahead = self.tally();
            // The rows are read twice.
            self.meter.total.fetch_add(self.meter.total.load(Ordering::Relaxed), Ordering::Relaxed);
            sorted = !rows_are_in_order(
                &self.adapter,
                self.job,
                self.meter,
                self.people,
                &self.workspace,
                &mut ahead,
            )?;
        }
        let (mut out, start) = self.open_out(&beginning)?;
        let pipeline = Pipeline {
            shape: &shape,
            names: self.people.names(),
            out: &mut out,
            start,
            apart: self.job.threads > 1,
            meter: self.meter,
        };
        let (adapter, job, meter, workspace) = (&self.adapter, self.job, self.meter, &self.workspace);
        let people = &mut *self.people;
        let read =
            pipeline.run(&mut tally, |pipe| rows(adapter, job, meter, people, workspace, sorted, pipe))?;
        let (end, mut report, _) = self.finish_individual(&tally, &read)?;
        out.write(&end)?;
        self.seal(out, &beginning, &mut report)?;
        Ok(report)
    }

    /// Writes a bundle of counts.
    fn counted(&mut self) -> Result<Report, ConvertError> {
        let mut tally = self.tally();
        let (tables, read) = match self.adapter.tallies() {
            Some(tallies) => (tallies.to_vec(), None),
            None => {
                let sorted = !self.adapter.by_item();
                let mut sink = Counting::new(&mut tally, self.meter);
                let read = rows(
                    &self.adapter,
                    self.job,
                    self.meter,
                    self.people,
                    &self.workspace,
                    sorted,
                    &mut sink,
                )?;
                (tally.tables(), Some(read))
            }
        };
        let public = self.job.profile == Profile::Public;
        let shown = aggregates::shown(&tables, &self.head, public.then_some(self.job.k));
        for (line, keep) in self.prepared.lines.iter_mut().zip(&shown.items) {
            line.kept &= keep;
            line.created = if public { line.created.map(Timestamp::day) } else { line.created };
        }
        if let Some(read) = &read {
            self.note_rows(read);
        }
        self.head.notes.extend(shown.notes());
        if public {
            self.hide_sources();
        }
        // Of tallies it is not known: nobody has been seen.
        let participants = shown.participants(self.people.count());
        if participants.is_none() {
            let few = self.job.k;
            self.head.notes.push(format!(
                "How many took part is not told (0 stands for it), nor is coverage: it would tell of fewer than {few} people \
                 what they have not answered."
            ));
        }
        let summary = shown.summary(&self.head, &self.prepared.lines, participants);
        let content = Content {
            responses: summary.responses > 0,
            suppressed: public,
            pairwise: self.head.pairwise,
            ..self.prepared.content(&self.head, self.job, self.meter)?
        };
        let card = card(content, self.job.withheld, &self.job.limitations);
        let mut report = self.report(summary, &card);
        let replaced = read.as_ref().map(|read| read.superseded);
        report.superseded =
            replaced.filter(|replaced| self.job.hidden_below().hidden_phrase(*replaced).is_none());
        let (beginning, lines) = (self.beginning(), shown.lines(&self.shape()));
        let outcomes = shown.outcomes(&self.head, !public);
        let any = summary.responses > 0;
        let end = document::end(any, &outcomes, summary, &self.head, &self.constants, &card);
        if self.previews() {
            let bytes = beginning.bytes.len() + lines.len() + end.len();
            outputs::preview(self.job, &mut report, bytes as u64, outcomes.count);
            return Ok(report);
        }
        let (mut out, _) = self.open_out(&beginning)?;
        out.write(&lines)?;
        out.write(&end)?;
        self.seal(out, &beginning, &mut report)?;
        Ok(report)
    }

    /// Removes digests, sizes and rows of the sources, against which a guess at hidden values could be checked.
    fn hide_sources(&mut self) {
        for artifact in &mut self.head.artifacts {
            (artifact.ended, artifact.rows) = (None, None);
            artifact.name = shared_name(&artifact.name, artifact.role);
            artifact.within = artifact.within.take().map(|name| shared_name(&name, "archive"));
        }
        let note = "Digests, sizes and rows of the sources are left out: they would tell a right guess from a wrong one.";
        self.head.notes.push(note.to_owned());
    }

    fn note_rows(&mut self, read: &RowsRead) {
        if let (Some(ended), Some(file)) = (read.read.ended, self.adapter.rows_file()) {
            let (name, within) = (file.name.clone(), file.archive_name());
            let found =
                self.head.artifacts.iter_mut().find(|found| found.name == name && found.within == within);
            if let Some(artifact) = found {
                (artifact.ended, artifact.rows) = (Some(ended), Some(read.read.rows));
            }
        }
        let replaced = read.superseded;
        if replaced > 0 {
            let (told, were) = self.people.hidden_below.counted(replaced, "answer");
            let note = format!("{told} {were} replaced by a later one of the same participant and left out.");
            self.head.notes.push(note);
        }
        let silent = self.people.silent().others;
        if silent > 0 {
            let (told, were) = self.people.hidden_below.counted(silent, "participant");
            self.head.notes.push(format!("{told} without an answer {were} left out."));
        }
        self.head.notes.extend(read.notes.iter().cloned());
    }

    /// Builds everything behind the rows.
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
            coverage: tally.coverage(&self.head.items, participants),
        };
        let any = tally.rows() > 0;
        let content = Content {
            responses: any,
            linked: any,
            named: any && self.job.participants.identifies(),
            events: self.job.events,
            pairwise: self.head.pairwise,
            ..self.prepared.content(&self.head, self.job, self.meter)?
        };
        let card = card(content, self.job.withheld, &self.job.limitations);
        let mut report = self.report(summary, &card);
        report.superseded = Some(read.superseded);
        let outcomes =
            aggregates::individual(&self.head, tally, &self.people.members(self.head.groups.len()));
        let end = document::end(any, &outcomes, summary, &self.head, &self.constants, &card);
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
            redacted: self.prepared.redacted,
            bundle_id: None,
            bytes: 0,
            content_sha256: None,
            files: Vec::new(),
            dry_run: false,
        }
    }

    /// The id with room for the digest that it will be made of.
    fn beginning(&self) -> Beginning {
        let id = self.job.bundle_id.clone().unwrap_or_else(|| id_of(&self.head.source, &"0".repeat(DIGEST)));
        document::beginning(&self.constants, &id, &self.head, &self.prepared.lines)
    }

    /// The output with its beginning, and the mark where the responses begin.
    fn open_out(&self, beginning: &Beginning) -> Result<(Output, Mark), ConvertError> {
        let mut out = match self.job.stream() {
            Some(stream) => Output::stream(stream)?,
            None => self.workspace.output()?,
        };
        let at = usize::try_from(beginning.id_end).unwrap_or_default();
        out.write(&beginning.bytes[..at])?;
        out.hash_from_here();
        out.write(&beginning.bytes[at..])?;
        let start = out.mark();
        Ok((out, start))
    }

    /// Fills in the id and makes the file durable.
    fn seal(&self, mut out: Output, beginning: &Beginning, report: &mut Report) -> Result<(), ConvertError> {
        let digest = hex_of(&out.digest());
        let id = match &self.job.bundle_id {
            Some(id) => id.clone(),
            None => {
                let id = id_of(&self.head.source, &digest[..DIGEST]);
                let mut text = Vec::new();
                crate::json::write::text(&mut text, &id);
                out.patch(beginning.id_at, &text[1..text.len() - 1])?;
                id
            }
        };
        report.bytes = out.bytes();
        self.meter.expect(outputs::bytes_to_reread(self.job, report.bytes));
        out.sync()?;
        report.bundle_id = Some(id);
        report.content_sha256 = Some(digest);
        Ok(())
    }
}

/// Digits of the digest in an id.
const DIGEST: usize = 32;

fn id_of(source: &crate::model::Source, digest: &str) -> String {
    let start = format!("{}:{}", source.tool, source.id);
    let start: String = start.chars().take(LONGEST_ID - DIGEST - 1).collect();
    format!("{start}:{digest}")
}

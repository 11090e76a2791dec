//! Writes sidecars and packages beside a bundle, or tables instead of one.
//!
//! The formats are implemented in `tables`.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    Format, Job, Report, Sidecar, Target,
    input_files::note_broken_files,
    output_paths::{sidecar_path, sidecar_paths},
    workspace::Workspace,
};
use crate::{
    error::{ConvertError, ErrorKind},
    input::{Member, Role, find_single, missing_file_error, name_of},
    meter::Meter,
    model::BundleHeader,
    tables::{self, FinishedFile, TableFormat, export, ndjson, package, parquet},
};

/// Size in bytes above which common JSON readers fail, so that a Parquet sidecar is written by default.
pub(super) const LARGE_BUNDLE_BYTES: u64 = 16 << 20;

/// Renames the finished files to their final names. The bundle follows its sidecars, so it never exists without them.
pub(super) fn publish(
    job: &Job,
    workspace: Workspace,
    mut report: Report,
    meter: &Meter,
) -> Result<Report, ConvertError> {
    if let Some(shape) = job.table_format {
        let tables::Exported { files, notes } = export(
            workspace.partial(),
            &workspace.out,
            shape,
            job.cells,
            job.voter_ids,
            job.limits.sort_memory,
            meter,
        )?;
        report.files = names(&files);
        report.notes.extend(notes);
        return Ok(report);
    }
    let Sidecars { data_files, package_files, notes } =
        write_sidecars(job, workspace.partial(), &workspace.out, report.bytes, meter)?;
    report.notes.extend(notes);
    // Last stop: from here on only renames follow, and a stop would leave some of the files in place.
    meter.check_stop()?;
    let mut files = tables::publish(data_files)?;
    workspace.publish(job)?;
    files.extend(tables::publish(package_files)?);
    workspace.finish()?;
    report.files = names(&files);
    Ok(report)
}

/// Finished files that belong beside a bundle.
pub(super) struct Sidecars {
    pub(super) data_files: Vec<FinishedFile>,
    /// Package files, renamed after the bundle that they describe.
    pub(super) package_files: Vec<FinishedFile>,
    /// Notes about omitted content.
    pub(super) notes: Vec<String>,
}

/// Writes the sidecars of the bundle `out`, of `bytes` bytes, with its content still at `bundle_path`.
pub(super) fn write_sidecars(
    job: &Job,
    bundle_path: &Path,
    out: &Path,
    bytes: u64,
    meter: &Meter,
) -> Result<Sidecars, ConvertError> {
    let (mut data_files, mut notes) = (Vec::new(), Vec::new());
    for sidecar in chosen_sidecars(job, bytes) {
        let path_of = |name: &str| sidecar_path(out, name);
        data_files.extend(match sidecar {
            Sidecar::Parquet => {
                let (files, parquet_notes) = parquet::write(bundle_path, path_of, meter)?;
                notes.extend(parquet_notes);
                files
            }
            Sidecar::Ndjson => ndjson::write(bundle_path, path_of, meter)?,
        });
    }
    // After the sidecars: the package lists their digests.
    let package_files = if job.package {
        package::write(bundle_path, out, &data_files, job.license.as_deref(), meter)?
    } else {
        Vec::new()
    };
    Ok(Sidecars { data_files, package_files, notes })
}

/// Chosen sidecars, or the default ones for a bundle of this size.
pub(super) fn chosen_sidecars(job: &Job, bytes: u64) -> &[Sidecar] {
    // Standard output has no folder for sidecars.
    let is_large = bytes > LARGE_BUNDLE_BYTES && !job.target.is_stream();
    job.sidecars.as_deref().unwrap_or(if is_large { &[Sidecar::Parquet] } else { &[] })
}

/// Number of bytes that the outputs made from a bundle of this size will read again.
pub(super) fn bytes_to_reread(job: &Job, bytes: u64) -> u64 {
    let readings = match job.table_format {
        Some(shape) => tables::count_readings(shape),
        None => chosen_sidecars(job, bytes).len() as u64 + if job.package { 2 } else { 0 },
    };
    bytes * readings
}

/// Adds the files and notes that a real run would report for a bundle of this size.
pub(super) fn preview(job: &Job, report: &mut Report, bytes: u64, outcomes: u64) {
    let sidecars = chosen_sidecars(job, bytes);
    if sidecars.contains(&Sidecar::Parquet) {
        report.notes.extend(parquet::outcomes_note(outcomes));
    }
    if let Target::File(out) = &job.target {
        report.files = names(&sidecar_paths(job, out, sidecars));
    }
}

/// Refuses a table format that this kind of export cannot fill.
pub(super) fn check_shape(
    job: &Job,
    head: &BundleHeader,
    format: Format,
    files: &[(Member, Role)],
) -> Result<(), ConvertError> {
    let (role, detail) = match job.table_format {
        Some(TableFormat::PolisCsv | TableFormat::SensemakingCsv) if head.pairwise => {
            (Role::IdeasVotes, COMPARISONS_ONLY)
        }
        Some(TableFormat::PolisCsv) if format == Format::Sensemaking => (Role::Tallies, tables::NO_VOTES),
        _ => return Ok(()),
    };
    // Row 1 is the header, which shows the kind of export.
    find_single(files, role)?
        .map_or(Ok(()), |file| Err(ConvertError::content(&file.name, 1, ErrorKind::Format, detail)))
}

const COMPARISONS_ONLY: &str =
    "it holds comparisons, not votes on statements: --to ndjson and parquet keep them";

fn names(files: &[PathBuf]) -> Vec<String> {
    files.iter().map(|file| name_of(file)).collect()
}

/// Converts a bundle to tables.
pub(super) fn from_bundle(
    job: &Job,
    workspace: &Workspace,
    members: &[(Member, Role)],
    meter: &Arc<Meter>,
) -> Result<Report, ConvertError> {
    let member = find_single(members, Role::Bundle)?.ok_or_else(|| missing_file_error("a bundle"))?;
    let Some(shape) = job.table_format else {
        return Err(ConvertError::Refused(
            "the input is already a bundle: choose an output format with --to".to_owned(),
        ));
    };
    let inapplicable_options = job.options_for_exports();
    // Refused instead of ignored: some of these options protect participants.
    if !inapplicable_options.is_empty() {
        return Err(ConvertError::Refused(format!(
            "{} cannot be used here: these options apply to exports, and the input is already a bundle",
            inapplicable_options.join(", ")
        )));
    }
    // Tables read the bundle several times, so a compressed bundle or a stream is unpacked to a file first.
    let path = match member.plain_path()? {
        Some(path) => path,
        None => {
            let path = workspace.partial().to_owned();
            let failed = |error| ConvertError::io("unpacking to", &path, error);
            let mut into = workspace.partial_file();
            let stored = member.stored_bytes();
            meter.expect(stored + bytes_to_reread(job, stored));
            let content = member.open(&job.limits, Some(meter))?;
            content.for_each_block(|block| into.write_all(block).map_err(failed))?;
            path
        }
    };
    meter.expect(bytes_to_reread(job, fs::metadata(&path).map_or(0, |metadata| metadata.len())));
    let tables::Exported { files, notes } =
        export(&path, &workspace.out, shape, job.cells, job.voter_ids, job.limits.sort_memory, meter)?;
    let notes = note_broken_files(members).into_iter().chain(notes).collect();
    let (files, dry_run) = (names(&files), job.dry_run);
    Ok(Report { format: "bundle", files, notes, dry_run, ..Report::default() })
}

//! Writes sidecars and packages beside a bundle, or tables instead of one.
//!
//! The formats themselves are in `tables`.

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

/// Common readers take no larger document.
pub(super) const LARGE_BUNDLE_BYTES: u64 = 16 << 20;

/// Gives everything its name; the bundle itself comes after its sidecars, so that it is never without them.
pub(super) fn publish(
    job: &Job,
    workspace: Workspace,
    mut report: Report,
    meter: &Meter,
) -> Result<Report, ConvertError> {
    if let Some(shape) = job.to {
        let tables::Exported { files, notes } = export(
            workspace.partial(),
            &workspace.out,
            shape,
            job.cells,
            job.voter_ids,
            job.limits.memory,
            meter,
        )?;
        report.files = names(&files);
        report.notes.extend(notes);
        return Ok(report);
    }
    let Sidecars { data_files: whole, package_files: described, notes } =
        write_sidecars(job, workspace.partial(), &workspace.out, report.bytes, meter)?;
    report.notes.extend(notes);
    // All that takes long is done: a stop now would only leave half of the names.
    meter.check_stop()?;
    let mut files = tables::publish(whole)?;
    workspace.publish(job)?;
    files.extend(tables::publish(described)?);
    workspace.finish()?;
    report.files = names(&files);
    Ok(report)
}

/// Files to be placed beside a bundle.
pub(super) struct Sidecars {
    pub(super) data_files: Vec<FinishedFile>,
    /// The package: it gets its names behind the bundle.
    pub(super) package_files: Vec<FinishedFile>,
    /// Notes about content that the files leave out.
    pub(super) notes: Vec<String>,
}

/// Writes the files that belong beside the bundle `out`, whose content is at `from` and has this size.
pub(super) fn write_sidecars(
    job: &Job,
    from: &Path,
    out: &Path,
    bytes: u64,
    meter: &Meter,
) -> Result<Sidecars, ConvertError> {
    let (mut data_files, mut notes) = (Vec::new(), Vec::new());
    for sidecar in chosen_sidecars(job, bytes) {
        let path_of = |name: &str| sidecar_path(out, name);
        data_files.extend(match sidecar {
            Sidecar::Parquet => {
                let (files, parquet_notes) = parquet::write(from, path_of, meter)?;
                notes.extend(parquet_notes);
                files
            }
            Sidecar::Ndjson => ndjson::write(from, path_of, meter)?,
        });
    }
    let package_files = if job.package {
        package::write(from, out, &data_files, job.license.as_deref(), meter)?
    } else {
        Vec::new()
    };
    Ok(Sidecars { data_files, package_files, notes })
}

/// Sidecars that were asked for, or that a bundle of this size has by default.
pub(super) fn chosen_sidecars(job: &Job, bytes: u64) -> &[Sidecar] {
    let is_large = bytes > LARGE_BUNDLE_BYTES && !job.target.is_stream();
    job.sidecars.as_deref().unwrap_or(if is_large { &[Sidecar::Parquet] } else { &[] })
}

/// Returns how many bytes of a bundle of this size will be read again for the other outputs.
pub(super) fn bytes_to_reread(job: &Job, bytes: u64) -> u64 {
    let readings = match job.to {
        Some(shape) => tables::count_readings(shape),
        None => chosen_sidecars(job, bytes).len() as u64 + if job.package { 2 } else { 0 },
    };
    bytes * readings
}

/// Fills in the files and notes that a real run would have for a bundle of this size.
pub(super) fn preview(job: &Job, report: &mut Report, bytes: u64, outcomes: u64) {
    let sidecars = chosen_sidecars(job, bytes);
    if sidecars.contains(&Sidecar::Parquet) {
        report.notes.extend(parquet::outcomes_note(outcomes));
    }
    if let Target::File(out) = &job.target {
        report.files = names(&sidecar_paths(job, out, sidecars));
    }
}

/// Refuses a shape that this kind of export can never have.
pub(super) fn check_shape(
    job: &Job,
    head: &BundleHeader,
    format: Format,
    files: &[(Member, Role)],
) -> Result<(), ConvertError> {
    let (role, detail) = match job.to {
        Some(TableFormat::PolisCsv | TableFormat::SensemakingCsv) if head.pairwise => {
            (Role::IdeasVotes, COMPARISONS_ONLY)
        }
        Some(TableFormat::PolisCsv) if format == Format::Sensemaking => (Role::Tallies, tables::NO_VOTES),
        _ => return Ok(()),
    };
    // Its columns say so.
    find_single(files, role)?
        .map_or(Ok(()), |file| Err(ConvertError::content(&file.name, 1, ErrorKind::Format, detail)))
}

const COMPARISONS_ONLY: &str =
    "it holds comparisons, which are no votes on statements: --to ndjson and parquet keep them";

fn names(files: &[PathBuf]) -> Vec<String> {
    files.iter().map(|file| name_of(file)).collect()
}

/// A bundle becomes something else.
pub(super) fn from_bundle(
    job: &Job,
    workspace: &Workspace,
    members: &[(Member, Role)],
    meter: &Arc<Meter>,
) -> Result<Report, ConvertError> {
    let member = find_single(members, Role::Bundle)?.ok_or_else(|| missing_file_error("a bundle"))?;
    let Some(shape) = job.to else {
        return Err(ConvertError::Refused(
            "the input is a bundle already: --to says what it is to become".to_owned(),
        ));
    };
    let inapplicable_options = job.options_for_exports();
    if !inapplicable_options.is_empty() {
        return Err(ConvertError::Refused(format!(
            "{} would have to be told where an export becomes a bundle; this is a bundle already, and --to turns it into \
             something else as it is",
            inapplicable_options.join(", ")
        )));
    }
    // It is read several times, and from the beginning each time.
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
        export(&path, &workspace.out, shape, job.cells, job.voter_ids, job.limits.memory, meter)?;
    let notes = note_broken_files(members).into_iter().chain(notes).collect();
    let (files, dry_run) = (names(&files), job.dry_run);
    Ok(Report { format: "bundle", files, notes, dry_run, ..Report::default() })
}

//! Paths of the files that a conversion writes.

use std::path::{Path, PathBuf};

use super::job::{Job, Sidecar};
use crate::tables::{self, ndjson, package, parquet};

/// Paths of all files that may be written, for checks before the conversion starts.
pub(super) fn output_paths(job: &Job, out: &Path) -> Vec<PathBuf> {
    match job.table_format {
        Some(shape) => tables::file_names(shape).iter().map(|name| out.join(name)).collect(),
        None => [out.to_owned()].into_iter().chain(sidecar_paths(job, out, AUTOMATIC_SIDECARS)).collect(),
    }
}

/// Returns an existing file that a sidecar or the package would replace.
pub(super) fn existing_sidecar(job: &Job, out: &Path) -> Option<PathBuf> {
    // Tables have no sidecars, and a stream has no folder for them.
    if job.table_format.is_some() || job.target.is_stream() {
        return None;
    }
    sidecar_paths(job, out, AUTOMATIC_SIDECARS).into_iter().find(|path| path.exists())
}

/// Sidecars that may be written by default. The size of the bundle decides only at its end, too late to refuse
/// existing files.
pub(super) const AUTOMATIC_SIDECARS: &[Sidecar] = &[Sidecar::Parquet];

/// Paths of sidecars and package files. `default_sidecars` applies if none were chosen.
pub(super) fn sidecar_paths(job: &Job, out: &Path, default_sidecars: &[Sidecar]) -> Vec<PathBuf> {
    let sidecars = job.sidecars.as_deref().unwrap_or(default_sidecars);
    let names = sidecars.iter().flat_map(|sidecar| match sidecar {
        Sidecar::Parquet => &parquet::FILES[..],
        Sidecar::Ndjson => &ndjson::FILES[..],
    });
    let package_paths = package::FILES.iter().filter(|_| job.package).map(|name| out.with_file_name(name));
    names.map(|name| sidecar_path(out, name)).chain(package_paths).collect()
}

/// Path of a sidecar: `bundle.items.parquet` for `bundle.json`.
pub(super) fn sidecar_path(out: &Path, name: &str) -> PathBuf {
    let stem = out.file_stem().unwrap_or_default().to_string_lossy();
    out.with_file_name(format!("{stem}.{name}"))
}

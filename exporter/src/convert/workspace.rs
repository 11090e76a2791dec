//! Working files of a conversion: `<out>.partial` until the output is complete, and the copy to standard output.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::fs::OFlags;

use super::{Job, Target, output_paths};
use crate::{
    bundle::write::output::{Output, append_to_name, publish},
    error::ConvertError,
    input::name_of,
};

const PARTIAL: &str = ".partial";

/// Working files of a conversion until the output has its final name.
pub(super) struct Workspace {
    partial: Partial,
    pub(super) out: PathBuf,
    /// Folder for sorted runs and for copies of input that can be read only once.
    pub(super) folder: PathBuf,
    /// Temporary folder that holds the output of a stream or a preview.
    spool: Option<tempfile::TempDir>,
    /// Standard output, if it receives a copy of the finished bundle.
    copy_target: Option<Arc<File>>,
}

/// Locked file `<out>.partial`, removed on drop unless it was renamed to the output.
struct Partial {
    path: PathBuf,
    file: File,
}

impl Workspace {
    pub(super) fn open(job: &Job) -> Result<Self, ConvertError> {
        let (out, spool) = match &job.target {
            Target::File(path) => (path.clone(), None),
            Target::Stream(_) => temporary_output()?,
        };
        if job.table_format.is_none() && out.is_dir() {
            return Err(ConvertError::Refused(format!("{} is a folder", name_of(&out))));
        }
        if spool.is_none() {
            refuse_non_files(job, &out)?;
        }
        // Checked early: a long conversion should not fail at its last step.
        if !job.force
            && let Some(existing_path) = has_output(&out, job)
                .then(|| out.clone())
                .or_else(|| output_paths::existing_sidecar(job, &out))
        {
            let name = name_of(&existing_path);
            return Err(ConvertError::Refused(format!("{name} exists already: replace it with --force")));
        }
        // A preview must not create files beside the output.
        let (out, spool) = match (job.dry_run, spool) {
            (true, None) => temporary_output()?,
            (_, spool) => (out, spool),
        };
        let folder = out.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs::create_dir_all(folder).map_err(|error| ConvertError::io("making the folder", folder, error))?;
        let folder = folder.to_owned();
        let partial = Partial::create(append_to_name(&out, PARTIAL))?;
        let copy_target = match &job.target {
            Target::Stream(stream) if job.stream().is_none() => Some(Arc::clone(stream)),
            Target::Stream(_) | Target::File(_) => None,
        };
        Ok(Self { partial, out, folder, spool, copy_target })
    }

    /// Path of the unfinished bundle.
    pub(super) fn partial(&self) -> &Path {
        &self.partial.path
    }

    pub(super) fn partial_file(&self) -> &File {
        &self.partial.file
    }

    /// Opens the unfinished bundle for writing.
    pub(super) fn output(&self) -> Result<Output, ConvertError> {
        Output::to_file(&self.partial.path, &self.partial.file)
    }

    /// Renames the bundle to its final name. A streamed bundle has none.
    pub(super) fn publish(&self, job: &Job) -> Result<(), ConvertError> {
        if job.stream().is_some() {
            return Ok(());
        }
        publish(&self.partial.path, &self.out)
    }

    /// Copies the finished bundle to standard output if requested, and removes temporary files.
    pub(super) fn finish(self) -> Result<(), ConvertError> {
        if let Some(stream) = self.copy_target {
            copy(&self.out, &stream)?;
        }
        match self.spool {
            Some(spool) => spool.close().map_err(|error| ConvertError::Io {
                action: "removing a temporary folder".to_owned(),
                error,
            }),
            None => Ok(()),
        }
    }
}

impl Partial {
    /// Creates and locks the file. Replaces a file that a killed process left; refuses one locked by a running
    /// process.
    fn create(path: PathBuf) -> Result<Self, ConvertError> {
        let io_error = |error| ConvertError::io("writing", &path, error);
        loop {
            match fs::symlink_metadata(&path) {
                Ok(metadata) if metadata.is_file() => remove_abandoned(&path)?,
                // Another user of the folder could have planted a link: following it would overwrite its target.
                Ok(_) => {
                    let name = name_of(&path);
                    return Err(ConvertError::Refused(format!("{name} exists and is not a file: remove it")));
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(io_error(error)),
            }
            match File::options().read(true).write(true).create_new(true).open(&path) {
                Ok(file) => {
                    lock(&file)?;
                    // Another process may have removed the file as abandoned between creation and locking.
                    if is_at(&file, &path) {
                        return Ok(Self { path, file });
                    }
                }
                // Another process created the file in between: check again.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(io_error(error)),
            }
        }
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // After publication the path no longer names this file.
        if is_at(&self.file, &self.path) {
            let _result = fs::remove_file(&self.path);
        }
    }
}

fn remove_abandoned(path: &Path) -> Result<(), ConvertError> {
    let io_error = |error| ConvertError::io("replacing", path, error);
    // A link planted after the check must not be followed.
    let nofollow = OFlags::NOFOLLOW.bits().cast_signed();
    let file = match File::options().write(true).custom_flags(nofollow).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened.map_err(io_error)?,
    };
    lock(&file)?;
    // Another process may have replaced the file before the lock was acquired.
    if is_at(&file, path) { fs::remove_file(path).map_err(io_error) } else { Ok(()) }
}

/// Locks the file until it is closed or the process ends.
fn lock(file: &File) -> Result<(), ConvertError> {
    let busy = |_| ConvertError::Refused("another process is writing the same output".to_owned());
    file.try_lock().map_err(busy)
}

/// True if the path still names the file.
fn is_at(file: &File, path: &Path) -> bool {
    let (Ok(file), Ok(path_metadata)) = (file.metadata(), path.symlink_metadata()) else { return false };
    (file.dev(), file.ino()) == (path_metadata.dev(), path_metadata.ino())
}

/// Working files beside the output, which must not be read as input.
pub(super) fn working_files(job: &Job) -> Vec<PathBuf> {
    match &job.target {
        Target::File(out) => vec![append_to_name(out, PARTIAL)],
        Target::Stream(_) => Vec::new(),
    }
}

/// Refuses existing outputs that are not files, such as devices. A link to a file is replaced, not its target.
fn refuse_non_files(job: &Job, out: &Path) -> Result<(), ConvertError> {
    let is_folder = job.table_format.is_some() && out.is_dir();
    let folder = job.table_format.map(|_| out.to_owned()).filter(|_| !is_folder);
    let is_below_a_file = |error: &io::Error| error.kind() == io::ErrorKind::NotADirectory;
    if out.symlink_metadata().is_err_and(|error| is_below_a_file(&error)) {
        let detail = "a part of its path is a file, not a folder";
        return Err(ConvertError::Refused(format!("{} cannot be written: {detail}", name_of(out))));
    }
    for path in folder.into_iter().chain(output_paths::output_paths(job, out)) {
        if let Some(kind) = describe_non_file(&path) {
            return Err(ConvertError::Refused(format!("{} {kind}: only files are replaced", name_of(&path))));
        }
    }
    Ok(())
}

/// Describes an existing path that is neither a file nor a link to one.
fn describe_non_file(path: &Path) -> Option<String> {
    let file_type = path.symlink_metadata().ok()?.file_type();
    let (verb, file_type) = match path.metadata() {
        Ok(target) if file_type.is_symlink() => ("leads to", target.file_type()),
        Err(_) if file_type.is_symlink() => return Some("is a broken link".to_owned()),
        _ => ("is", file_type),
    };
    let kind = if file_type.is_file() {
        return None;
    } else if file_type.is_dir() {
        "a folder"
    } else if file_type.is_fifo() {
        "a pipe"
    } else if file_type.is_socket() {
        "a socket"
    } else {
        "a device"
    };
    Some(format!("{verb} {kind}"))
}

/// True if the output exists: a bundle file, or a folder with content.
fn has_output(out: &Path, job: &Job) -> bool {
    match job.table_format {
        None => out.exists(),
        Some(_) => out.is_file() || out.read_dir().is_ok_and(|mut entries| entries.next().is_some()),
    }
}

fn temporary_output() -> Result<(PathBuf, Option<tempfile::TempDir>), ConvertError> {
    let spool = tempfile::tempdir()
        .map_err(|error| ConvertError::Io { action: "making a temporary folder".to_owned(), error })?;
    Ok((spool.path().join("bundle.json"), Some(spool)))
}

fn copy(path: &Path, mut stream: &File) -> Result<(), ConvertError> {
    let copied = File::open(path).and_then(|mut file| io::copy(&mut file, &mut stream));
    copied.map(drop).map_err(ConvertError::stream)
}

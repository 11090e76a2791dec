//! Where a conversion works: the output, what lies beside it until it is whole, and the way to standard output.
//!
//! What is written is not known here.

use std::{
    fs::File,
    io::{self, BufRead as _, BufReader},
    os::unix::fs::FileTypeExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{Job, Target, outputs, overlap};
use crate::{
    bundle::write::{
        output::publish,
        parts::{self, Parts, beside, clear_ended, left_over},
    },
    error::Fault,
    input::name_of,
    meter::Meter,
};

const PARTIAL: &str = ".partial";

/// Where a conversion works until its output has its name.
pub(super) struct Place {
    pub(super) parts: Parts,
    pub(super) partial: PathBuf,
    pub(super) out: PathBuf,
    /// Holds all of it if the output is no file.
    spool: Option<tempfile::TempDir>,
    /// Where the finished bundle is copied to.
    copied_to: Option<Arc<File>>,
}

impl Place {
    pub(super) fn open(job: &Job) -> Result<Self, Fault> {
        let (out, spool) = match &job.target {
            Target::File(path) => (path.clone(), None),
            Target::Stream(_) => apart()?,
        };
        if job.to.is_none() && out.is_dir() {
            return Err(Fault::Refused(format!("{} is a folder", name_of(&out))));
        }
        if spool.is_none() {
            only_files(job, &out)?;
            clear_ended(&out)?;
        }
        if !job.force {
            // An interrupted conversion may have begun a folder, or given names to sidecars, and to the bundle.
            let goes_on = job.resume && Parts::left(&out);
            let own = goes_on && (job.to.is_some() || Parts::named(&out));
            let sidecar = if goes_on { None } else { outputs::taken(job, &out) };
            if let Some(there) = (!own && taken(&out, job)).then(|| out.clone()).or(sidecar) {
                if Parts::left(&out) && !job.resume {
                    return Err(left_over());
                }
                let name = name_of(&there);
                return Err(Fault::Refused(format!("{name} is there already: --force replaces it")));
            }
            let partial = beside(&out, PARTIAL);
            if !Parts::left(&out) && partial.symlink_metadata().is_ok() {
                let name = name_of(&partial);
                return Err(Fault::Refused(format!(
                    "{name} is there, and no conversion's: --force replaces it"
                )));
            }
        }
        // A preview leaves what an interrupted conversion has left, and goes on with nothing.
        let (out, spool) = match (job.dry_run, spool) {
            (true, None) => {
                if Parts::left(&out) && !job.resume && !job.force {
                    return Err(left_over());
                }
                apart()?
            }
            (_, spool) => (out, spool),
        };
        let parts = Parts::open(&out, job.resume, job.force && !job.resume)?;
        let copied_to = match &job.target {
            Target::Stream(stream) if job.stream().is_none() => Some(Arc::clone(stream)),
            Target::Stream(_) | Target::File(_) => None,
        };
        Ok(Self { parts, partial: beside(&out, PARTIAL), out, spool, copied_to })
    }

    /// Whether the bundle has its name already. Something else that has it is replaced if that was said, not otherwise.
    pub(super) fn is_there(&self, job: &Job, meter: &Meter) -> Result<bool, Fault> {
        if job.force || self.spool.is_some() || self.out.symlink_metadata().is_err() {
            return Ok(false);
        }
        let failed = |error| Fault::from_io(&name_of(&self.out), error);
        if are_equal(&self.partial, &self.out, meter).map_err(failed)? {
            return Ok(true);
        }
        let name = name_of(&self.out);
        Err(Fault::Refused(format!(
            "{name} is there already, and is not what the interrupted conversion makes: --force replaces it"
        )))
    }

    /// Gives the bundle its name, unless it has gone where it belongs already.
    pub(super) fn publish(&self, job: &Job) -> Result<(), Fault> {
        if job.stream().is_some() {
            return Ok(());
        }
        self.parts.name()?;
        publish(&self.partial, &self.out)
    }

    /// Everything is there: nothing is kept to go on with.
    pub(super) fn finish(self) -> Result<(), Fault> {
        self.parts.remove()?;
        if let Some(stream) = self.copied_to {
            copy(&self.out, &stream)?;
        }
        match self.spool {
            Some(spool) => spool
                .close()
                .map_err(|error| Fault::Io { doing: "removing a temporary folder".to_owned(), error }),
            None => Ok(()),
        }
    }

    pub(super) fn abandon(self) -> Result<(), Fault> {
        self.parts.remove()
    }
}

/// What a conversion to the same output leaves beside it until it is whole, be it this one or one before.
pub(super) fn own(job: &Job) -> Vec<PathBuf> {
    match &job.target {
        Target::File(out) => vec![beside(out, PARTIAL), parts::folder(out)],
        Target::Stream(_) => Vec::new(),
    }
}

/// What is no file, such as a device, is not replaced, for whoever named it wanted to write to it. A link to a file is
/// replaced, not the file.
fn only_files(job: &Job, out: &Path) -> Result<(), Fault> {
    let is_folder = job.to.is_some() && out.is_dir();
    let folder = job.to.map(|_| out.to_owned()).filter(|_| !is_folder);
    let missing = |error: &io::Error| error.kind() == io::ErrorKind::NotADirectory;
    if out.symlink_metadata().is_err_and(|error| missing(&error)) {
        let detail = "its folder is none: a file has the name, or that of a folder before it";
        return Err(Fault::Refused(format!("{} cannot be written: {detail}", name_of(out))));
    }
    for path in folder.into_iter().chain(overlap::written(job, out)) {
        if let Some(kind) = no_file(&path) {
            return Err(Fault::Refused(format!("{} {kind}: only files are replaced", name_of(&path))));
        }
    }
    Ok(())
}

/// What is there, if it is neither a file nor a link to one.
fn no_file(path: &Path) -> Option<String> {
    let there = path.symlink_metadata().ok()?.file_type();
    let (verb, there) = match path.metadata() {
        Ok(found) if there.is_symlink() => ("leads to", found.file_type()),
        Err(_) if there.is_symlink() => return Some("is a link that leads nowhere".to_owned()),
        _ => ("is", there),
    };
    let kind = if there.is_file() {
        return None;
    } else if there.is_dir() {
        "a folder"
    } else if there.is_fifo() {
        "a pipe"
    } else if there.is_socket() {
        "a socket"
    } else {
        "a device"
    };
    Some(format!("{verb} {kind}"))
}

/// A folder may be there, but not what will be written into it.
fn taken(out: &Path, job: &Job) -> bool {
    match job.to {
        None => out.exists(),
        Some(_) => out.is_file() || out.read_dir().is_ok_and(|mut found| found.next().is_some()),
    }
}

fn apart() -> Result<(PathBuf, Option<tempfile::TempDir>), Fault> {
    let spool = tempfile::tempdir()
        .map_err(|error| Fault::Io { doing: "making a temporary folder".to_owned(), error })?;
    Ok((spool.path().join("bundle.json"), Some(spool)))
}

pub(super) fn are_equal(one: &Path, other: &Path, meter: &Meter) -> io::Result<bool> {
    let (one, other) = (File::open(one)?, File::open(other)?);
    if one.metadata()?.len() != other.metadata()?.len() {
        return Ok(false);
    }
    let (mut one, mut other) = (BufReader::new(one), BufReader::new(other));
    loop {
        meter.go_on().map_err(Fault::into_io)?;
        let (left, right) = (one.fill_buf()?, other.fill_buf()?);
        let count = left.len().min(right.len());
        if count == 0 || left[..count] != right[..count] {
            return Ok(left.is_empty() && right.is_empty());
        }
        one.consume(count);
        other.consume(count);
    }
}

fn copy(path: &Path, mut stream: &File) -> Result<(), Fault> {
    let copied = File::open(path).and_then(|mut file| io::copy(&mut file, &mut stream));
    copied.map(drop).map_err(Fault::stream)
}

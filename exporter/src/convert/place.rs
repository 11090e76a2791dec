//! Where a conversion works: the output, what lies beside it until it is whole, and the way to standard output.
//!
//! What is written is not known here.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
};

use super::{Job, Target, others};
use crate::{
    fault::Fault,
    input::name_of,
    write::{
        out::publish,
        parts::{Parts, beside},
    },
};

/// Where a conversion works until its output has its name.
pub(super) struct Place {
    pub(super) parts: Parts,
    pub(super) partial: PathBuf,
    pub(super) out: PathBuf,
    /// Holds all of it if the bundle goes to standard output.
    spool: Option<tempfile::TempDir>,
}

impl Place {
    pub(super) fn open(job: &Job) -> Result<Self, Fault> {
        let (out, spool) = match &job.target {
            Target::File(path) => (path.clone(), None),
            Target::Stdout => {
                let spool = tempfile::tempdir()
                    .map_err(|error| Fault::Io { doing: "making a temporary folder".to_owned(), error })?;
                (spool.path().join("bundle.json"), Some(spool))
            }
        };
        if !job.force && !job.dry_run {
            // An interrupted conversion may have given names to its own sidecars.
            let goes_on = job.resume && Parts::left(&out);
            let beside = if goes_on { None } else { others::taken(job, &out) };
            if let Some(there) = taken(&out, job).then(|| out.clone()).or(beside) {
                let name = name_of(&there);
                return Err(Fault::Refused(format!("{name} is there already: --force replaces it")));
            }
        }
        // A preview leaves what an interrupted conversion has left.
        let (out, spool) = match (job.dry_run, spool) {
            (true, None) => {
                let spool = tempfile::tempdir()
                    .map_err(|error| Fault::Io { doing: "making a temporary folder".to_owned(), error })?;
                (spool.path().join("bundle.json"), Some(spool))
            }
            (_, spool) => (out, spool),
        };
        let parts = Parts::open(&out, job.resume, job.force && !job.resume)?;
        Ok(Self { parts, partial: beside(&out, ".partial"), out, spool })
    }

    pub(super) fn publish(self) -> Result<(), Fault> {
        publish(&self.partial, &self.out)?;
        self.parts.remove()?;
        if let Some(spool) = self.spool {
            to_stdout(&self.out)?;
            spool
                .close()
                .map_err(|error| Fault::Io { doing: "removing a temporary folder".to_owned(), error })?;
        }
        Ok(())
    }

    pub(super) fn abandon(self) -> Result<(), Fault> {
        self.parts.remove()
    }
}

/// A folder may be there, but not what will be written into it.
fn taken(out: &Path, job: &Job) -> bool {
    match job.to {
        None => out.exists(),
        Some(_) => out.is_file() || out.read_dir().is_ok_and(|mut found| found.next().is_some()),
    }
}

fn to_stdout(path: &Path) -> Result<(), Fault> {
    let failed = |error| Fault::Io { doing: "writing to standard output".to_owned(), error };
    let mut file = std::fs::File::open(path).map_err(failed)?;
    let mut stdout = std::io::stdout().lock();
    std::io::copy(&mut file, &mut stdout).map_err(failed)?;
    stdout.flush().map_err(failed)
}

//! Refuses to write over the input, under whatever name.
//!
//! Files are compared by device and inode.

use std::{
    fs::{self, File, Metadata},
    io,
    os::{fd::AsFd as _, unix::fs::MetadataExt as _},
    path::PathBuf,
};

use super::{Job, Target, output_paths::written};
use crate::{error::ConvertError, input::name_of};

/// Two names of one file have this in common.
type Identity = (u64, u64);

fn identity(found: &Metadata) -> Identity {
    (found.dev(), found.ino())
}

/// Refuses to write over the input.
pub(super) fn refuse(job: &Job) -> Result<(), ConvertError> {
    let read = inputs(job);
    let hit = |identity: Identity| read.iter().find(|(_, read)| *read == identity).map(|(name, _)| name);
    let (written, read) = match &job.target {
        Target::Stream(stream) => {
            let file = stream.metadata().ok().filter(Metadata::is_file);
            match file.and_then(|file| hit(identity(&file))) {
                Some(read) => ("standard output".to_owned(), read),
                None => return Ok(()),
            }
        }
        Target::File(out) => {
            let there = |path: PathBuf| Some((name_of(&path), hit(identity(&fs::metadata(&path).ok()?))?));
            match written(job, out).into_iter().find_map(there) {
                Some(found) => found,
                None => return Ok(()),
            }
        }
    };
    Err(ConvertError::Refused(format!(
        "{written} would be written, and is the same file as {read}, which is to be read"
    )))
}

/// Every file that may be read, by name. Files that cannot be examined are reported when they are opened.
fn inputs(job: &Job) -> Vec<(String, Identity)> {
    let mut found = Vec::new();
    for path in job.inputs.iter().chain(&job.key_file) {
        if path.as_os_str() == "-" {
            let stdin = io::stdin().as_fd().try_clone_to_owned().map(File::from);
            if let Ok(file) = stdin.and_then(|stdin| stdin.metadata())
                && file.is_file()
            {
                found.push(("standard input".to_owned(), identity(&file)));
            }
            continue;
        }
        let of_folder = fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
        for path in of_folder.chain([path.clone()]) {
            if let Ok(file) = fs::metadata(&path)
                && file.is_file()
            {
                found.push((name_of(&path), identity(&file)));
            }
        }
    }
    found
}

//! Refuses to overwrite an input file.
//!
//! Files are compared by device and inode, since links give one file several names.

use std::{
    fs::{self, File, Metadata},
    io,
    os::{fd::AsFd as _, unix::fs::MetadataExt as _},
    path::PathBuf,
};

use super::{Job, Target, output_paths::output_paths};
use crate::{error::ConvertError, input::name_of};

/// Device and inode, equal for all names of a file.
type Identity = (u64, u64);

fn identity(metadata: &Metadata) -> Identity {
    (metadata.dev(), metadata.ino())
}

/// Fails if an output file is one of the input files or the key file.
pub(super) fn refuse_overlap(job: &Job) -> Result<(), ConvertError> {
    let input_files = list_input_files(job);
    let find_input =
        |identity: Identity| input_files.iter().find(|(_, entry)| *entry == identity).map(|(name, _)| name);
    let (output_name, input_name) = match &job.target {
        Target::Stream(stream) => {
            // Standard output may be redirected to an input file.
            let file = stream.metadata().ok().filter(Metadata::is_file);
            match file.and_then(|file| find_input(identity(&file))) {
                Some(input_name) => ("standard output".to_owned(), input_name),
                None => return Ok(()),
            }
        }
        Target::File(out) => {
            let overlapping_names =
                |path: PathBuf| Some((name_of(&path), find_input(identity(&fs::metadata(&path).ok()?))?));
            match output_paths(job, out).into_iter().find_map(overlapping_names) {
                Some(names) => names,
                None => return Ok(()),
            }
        }
    };
    Err(ConvertError::Refused(format!("the output {output_name} is the same file as the input {input_name}")))
}

/// All input files by name. Files without metadata are skipped here; opening them reports the error.
fn list_input_files(job: &Job) -> Vec<(String, Identity)> {
    let mut files = Vec::new();
    for path in job.inputs.iter().chain(&job.key_file) {
        if path.as_os_str() == "-" {
            let stdin = io::stdin().as_fd().try_clone_to_owned().map(File::from);
            if let Ok(file) = stdin.and_then(|stdin| stdin.metadata())
                && file.is_file()
            {
                files.push(("standard input".to_owned(), identity(&file)));
            }
            continue;
        }
        let folder_entries = fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
        // Files of an input folder are inputs as well.
        for path in folder_entries.chain([path.clone()]) {
            if let Ok(file) = fs::metadata(&path)
                && file.is_file()
            {
                files.push((name_of(&path), identity(&file)));
            }
        }
    }
    files
}

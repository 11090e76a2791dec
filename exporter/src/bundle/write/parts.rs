//! What an interrupted conversion leaves beside its output, so that it can go on: `<out>.parts`.
//!
//! It holds the fresh key, readable by its owner only, and a line for each finished segment; the bytes are in
//! `<out>.partial`. The bytes get their name, and the rest vanishes once everything beside them has its own. Whoever may
//! write to the folder could plant links there: none is followed, and what is written is always a new file.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use crate::{error::Fault, input::name_of, privacy::participants::Key, timestamp::Moment};

/// A place from which a conversion can go on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Segment {
    /// Rows written, and a sum over them by which a changed input is noticed.
    pub(crate) rows: u64,
    pub(crate) sum: u64,
    /// Bytes written, and the digest of what is behind the id.
    pub(crate) bytes: u64,
    pub(crate) sha256: [u8; 32],
}

/// What the segments belong to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Run {
    /// Of everything that has an influence on the bytes, but for the rows.
    pub(crate) beginning: [u8; 32],
    /// Of the key: with another one, rows would look like those of another input.
    pub(crate) key: [u8; 16],
    /// The input was found to be out of order.
    pub(crate) sorted: bool,
}

#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) folder: PathBuf,
    /// Nobody else works on the same output; the lock ends with the process.
    _lock: File,
}

const KEY: &str = "key";
const SEGMENTS: &str = "segments";
const BEGAN: &str = "began";
const NAMED: &str = "named";
const LOCK: &str = "lock";
const JOB: &str = "job";
const KEY_BYTES: usize = 32;

/// The name of the output with an ending.
pub(crate) fn beside(out: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(out);
    name.push(ending);
    PathBuf::from(name)
}

/// Where an interrupted conversion leaves what it needs to go on.
pub(crate) fn folder(out: &Path) -> PathBuf {
    beside(out, ".parts")
}

pub(crate) fn left_over() -> Fault {
    let detail = "an interrupted conversion has left its parts: --resume goes on, --force begins anew";
    Fault::Refused(detail.to_owned())
}

impl Parts {
    /// Whether an interrupted conversion has left something to go on with.
    pub(crate) fn left(out: &Path) -> bool {
        folder(out).join(LOCK).symlink_metadata().is_ok()
    }

    /// Whether it was about to give the bundle its name, or has.
    pub(crate) fn named(out: &Path) -> bool {
        folder(out).join(NAMED).symlink_metadata().is_ok()
    }

    /// The bundle is about to get its name.
    pub(crate) fn name(&self) -> Result<(), Fault> {
        let path = self.folder.join(NAMED);
        fresh(&path).map(drop).map_err(|error| Fault::io("writing", &path, error))
    }

    /// `resume`: go on with what is there; `again`: forget it.
    pub(crate) fn open(out: &Path, resume: bool, again: bool) -> Result<Self, Fault> {
        let folder = folder(out);
        let failed = |error| Fault::io("using", &folder, error);
        let left = Self::left(out);
        fs::create_dir_all(&folder).map_err(failed)?;
        refuse_links(&folder)?;
        let mut options = File::options();
        let lock = own(options.write(true).create(true), &folder.join(LOCK)).map_err(failed)?;
        if lock.try_lock().is_err() {
            return Err(Fault::Refused("another process is writing the same output".to_owned()));
        }
        if left && again {
            for name in [KEY, SEGMENTS, BEGAN, NAMED, JOB] {
                remove(&folder.join(name))?;
            }
        } else if left && !resume {
            return Err(left_over());
        }
        Ok(Self { folder, _lock: lock })
    }

    /// What an earlier process has begun with; if none has, it is `now`.
    pub(crate) fn begun_with(
        &self,
        now: &BTreeMap<String, String>,
    ) -> Result<Option<BTreeMap<String, String>>, Fault> {
        let path = self.folder.join(JOB);
        let failed = |error| Fault::io("using", &path, error);
        match read(&path) {
            Ok(bytes) => {
                if let Ok(before) = serde_json::from_slice(&bytes) {
                    return Ok(Some(before));
                }
                remove(&path)?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
        let bytes = serde_json::to_vec(now).expect("texts are JSON");
        private(&path).and_then(|mut file| file.write_all(&bytes)).map_err(failed)?;
        Ok(None)
    }

    /// The key of this run, made when it is first asked for.
    pub(crate) fn key(&self) -> Result<Key, Fault> {
        let path = self.folder.join(KEY);
        let failed = |error| Fault::io("keeping the key in", &path, error);
        let lost = match read(&path) {
            Ok(bytes) if bytes.len() == KEY_BYTES => return Ok(Key(bytes)),
            Ok(_) => "is damaged",
            Err(error) if error.kind() == io::ErrorKind::NotFound => "is missing",
            Err(error) => return Err(failed(error)),
        };
        // A process that died before it had written the key has written nothing with it.
        if self.segments()?.is_some_and(|(_, segments)| !segments.is_empty()) {
            let name = name_of(&self.folder);
            return Err(Fault::Refused(format!(
                "{name}/{KEY} {lost}: it is the key that the pseudonyms so far were made with, and without it the same bytes \
                 cannot be made again. Put it back for --resume to go on; --force without --resume begins anew with another"
            )));
        }
        remove(&path)?;
        let mut bytes = vec![0; KEY_BYTES];
        getrandom::fill(&mut bytes).map_err(|error| failed(io::Error::other(error)))?;
        let mut file = private(&path).map_err(failed)?;
        file.write_all(&bytes).and_then(|()| file.sync_all()).map_err(failed)?;
        Ok(Key(bytes))
    }

    /// The key is not the one that rows were written with; it may be `told`, or lie here.
    pub(crate) fn another_key(&self, told: bool) -> Fault {
        let name =
            if told { "--linkage-key-file".to_owned() } else { format!("{}/{KEY}", name_of(&self.folder)) };
        Fault::Refused(format!(
            "{name} is another key than the one that the pseudonyms so far were made with. With that one --resume goes on; \
             --force without --resume begins anew"
        ))
    }

    /// When the run began: going on does not make it a later one, or the one that is `told` now.
    pub(crate) fn moment(&self, told: Option<Moment>) -> Result<Moment, Fault> {
        let path = self.folder.join(BEGAN);
        let failed = |error| Fault::io("using", &path, error);
        match read(&path) {
            Ok(text) => {
                if let Some(began) = std::str::from_utf8(&text).ok().and_then(Moment::parse) {
                    if told.is_some_and(|told| told != began) {
                        return Err(Fault::Refused(format!(
                            "what is to be gone on with was begun as of {began}, and another moment is told now: \
                             --as-of {began} goes on, --force begins anew"
                        )));
                    }
                    return Ok(began);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
        let now = told.unwrap_or_else(now);
        fresh(&path).and_then(|mut file| file.write_all(now.to_string().as_bytes())).map_err(failed)?;
        Ok(now)
    }

    /// The segments of an earlier process, if they belong to the same conversion.
    pub(crate) fn segments(&self) -> Result<Option<(Run, Vec<Segment>)>, Fault> {
        let path = self.folder.join(SEGMENTS);
        let failed = |error| Fault::io("reading", &path, error);
        let file = match own(File::options().read(true), &path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let mut lines = BufReader::new(file).lines();
        let Some(first) = lines.next() else { return Ok(None) };
        let Ok(run) = serde_json::from_str(&first.map_err(failed)?) else { return Ok(None) };
        let mut segments = Vec::new();
        for line in lines {
            // The last line may be half of one.
            let Ok(segment) = serde_json::from_str(&line.map_err(failed)?) else { break };
            segments.push(segment);
        }
        Ok(Some((run, segments)))
    }

    /// Begins the list of segments with those that are kept.
    pub(crate) fn journal(&self, run: &Run, kept: &[Segment]) -> Result<Journal, Fault> {
        let path = self.folder.join(SEGMENTS);
        let file = fresh(&path).map_err(|error| Fault::io("writing", &path, error))?;
        let mut journal = Journal { path, file };
        journal.line(run)?;
        kept.iter().try_for_each(|segment| journal.line(segment))?;
        Ok(journal)
    }

    /// The conversion is done.
    pub(crate) fn remove(self) -> Result<(), Fault> {
        end(&self.folder)
    }
}

/// Takes the folder away at once: of a folder that is half there nothing could be told.
pub(crate) fn end(folder: &Path) -> Result<(), Fault> {
    let over = over(folder);
    clear(&over)?;
    fs::rename(folder, &over).map_err(|error| Fault::io("removing", folder, error))?;
    clear(&over)
}

/// What a process that was killed right then has left of it.
pub(crate) fn clear_ended(out: &Path) -> Result<(), Fault> {
    clear(&over(&folder(out)))
}

fn over(folder: &Path) -> PathBuf {
    beside(folder, ".over")
}

fn clear(over: &Path) -> Result<(), Fault> {
    match fs::remove_dir_all(over) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Fault::io("removing", over, error)),
        _ => Ok(()),
    }
}

#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    file: File,
}

impl Journal {
    pub(crate) fn add(&mut self, segment: &Segment) -> Result<(), Fault> {
        self.line(segment)
    }

    /// Forgets all segments: the rows will come again, sorted.
    pub(crate) fn again(&mut self, run: &Run) -> Result<(), Fault> {
        self.file = fresh(&self.path).map_err(|error| Fault::io("writing", &self.path, error))?;
        self.line(run)
    }

    fn line(&mut self, value: &impl Serialize) -> Result<(), Fault> {
        let mut line = serde_json::to_vec(value).expect("numbers are JSON");
        line.push(b'\n');
        self.file.write_all(&line).map_err(|error| Fault::io("writing", &self.path, error))
    }
}

fn now() -> Moment {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Moment { millis: i64::try_from(since.as_millis()).unwrap_or(i64::MAX), fine: true }
}

pub(super) fn remove(path: &Path) -> Result<(), Fault> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Fault::io("removing", path, error)),
        _ => Ok(()),
    }
}

/// A file of ours, never one that a link names.
pub(super) fn own(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed()).open(path)
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    own(File::options().read(true), path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// In place of what is there: that may have another name, too.
pub(crate) fn fresh(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    File::options().write(true).create_new(true).open(path)
}

fn private(path: &Path) -> io::Result<File> {
    File::options().write(true).create_new(true).mode(0o600).open(path)
}

/// Nobody but somebody else puts a link there.
fn refuse_links(folder: &Path) -> Result<(), Fault> {
    let failed = |error| Fault::io("using", folder, error);
    let mut linked = folder.symlink_metadata().map_err(failed)?.is_symlink();
    for entry in fs::read_dir(folder).map_err(failed)? {
        linked |= entry.and_then(|entry| entry.file_type()).map_err(failed)?.is_symlink();
    }
    if linked {
        let name = name_of(folder);
        return Err(Fault::Refused(format!("{name} is or holds a link, and is no conversion's: remove it")));
    }
    Ok(())
}

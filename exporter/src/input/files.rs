//! Lists the input files and opens them, as often as needed.

use std::{
    fs::{self, File},
    io::{self, Read, Write as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{RecvTimeoutError, sync_channel},
    },
    thread,
    time::Duration,
};

use tempfile::NamedTempFile;

use super::{
    Limits,
    stream::{MemberLocation, ReadOptions, Stream},
    zip_archive,
};
use crate::{
    error::ConvertError,
    meter::Meter,
    unpack::{Packed, unpack},
};

/// Everything that was given to be read.
#[derive(Debug, Default)]
pub(crate) struct Input {
    pub(crate) members: Vec<Member>,
    /// The archives that members come from; they are listed as artifacts, too.
    pub(crate) archives: Vec<Member>,
    /// Entries of a folder that are not files, by name.
    pub(crate) skipped: Vec<String>,
    /// Files that cannot be unpacked, with the error.
    pub(crate) broken: Vec<(Member, ConvertError)>,
    /// Kept until the end: standard input can be read only once, and an archive not while it is unpacked.
    _spooled: Vec<NamedTempFile>,
}

/// One file, or one file of an archive.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) name: String,
    whence: MemberLocation,
    hashed: bool,
    /// It is not unpacked.
    as_it_lies: bool,
    /// It is damaged, and its beginning is wanted all the same.
    pub(super) in_part: bool,
    /// Meter that may ask the reader to stop.
    meter: Arc<Meter>,
}

/// Settings for opening files.
struct OpenContext<'o> {
    spool: &'o Path,
    own: &'o [PathBuf],
    limits: &'o Limits,
    /// Meter that may ask to stop while input is awaited.
    meter: &'o Arc<Meter>,
}

impl OpenContext<'_> {
    /// A folder may be given by another name than that of the output in it.
    fn is_own(&self, path: &Path) -> bool {
        let mut own = self.own.iter().filter(|own| own.file_name() == path.file_name());
        let number = |path: &Path| fs::metadata(path).map(|found| (found.dev(), found.ino())).ok();
        own.any(|own| number(own).is_some() && number(own) == number(path))
    }
}

impl Input {
    /// Lists and opens the input. Copies of what can be read only once go to the folder `spool`; the files `own` are
    /// no input.
    pub(crate) fn open(
        paths: &[PathBuf],
        spool: &Path,
        own: &[PathBuf],
        limits: &Limits,
        meter: &Arc<Meter>,
    ) -> Result<Self, ConvertError> {
        let opening = &OpenContext { spool, own, limits, meter };
        let mut input = Self::default();
        for path in paths {
            if path.as_os_str() == "-" {
                let kept = spooled(io::stdin(), opening)?;
                input.add("stdin".to_owned(), kept.path(), true, opening)?;
                input._spooled.push(kept);
            } else if fs::metadata(path).map_err(|error| ConvertError::io("opening", path, error))?.is_dir() {
                input.add_folder(path, opening)?;
            } else {
                input.add(name_of(path), path, true, opening)?;
            }
        }
        if input.members.is_empty() && input.broken.is_empty() {
            let folders = match input.skipped.as_slice() {
                [] => String::new(),
                folders => format!("; folders in it have to be given by themselves: {}", folders.join(", ")),
            };
            return Err(ConvertError::Refused(format!("there is no file in the input{folders}")));
        }
        Ok(input)
    }

    fn add_folder(&mut self, folder: &Path, opening: &OpenContext<'_>) -> Result<(), ConvertError> {
        let unread = |error| ConvertError::io("reading the folder", folder, error);
        let mut files = Vec::new();
        for entry in fs::read_dir(folder).map_err(unread)? {
            let path = entry.map_err(unread)?.path();
            let hidden = name_of(&path).starts_with('.');
            if hidden || opening.is_own(&path) {
                continue;
            }
            if fs::metadata(&path).map_err(|error| ConvertError::io("opening", &path, error))?.is_file() {
                files.push(path);
            } else {
                self.skipped.push(name_of(&path));
            }
        }
        self.skipped.sort();
        // A folder lists its files in no order, and equal input has to give equal bytes.
        files.sort();
        opening.limits.check_file_count(&name_of(folder), files.len())?;
        files.iter().try_for_each(|path| self.add(name_of(path), path, false, opening))
    }

    /// Adds a file, and the files in it if it is an archive. Files of a folder may be unrelated to the export.
    fn add(
        &mut self,
        name: String,
        path: &Path,
        is_alone: bool,
        opening: &OpenContext<'_>,
    ) -> Result<(), ConvertError> {
        let path: Arc<Path> = Arc::from(path);
        let within: Arc<str> = name.as_str().into();
        let whence = MemberLocation::File { path: Arc::clone(&path) };
        let meter = Arc::clone(opening.meter);
        let file = Member { name, whence, hashed: true, as_it_lies: false, in_part: false, meter };
        let packed = match packed(&path)? {
            Packed::No if is_alone && zip_archive::follows(&path) => Packed::Zip,
            packed => packed,
        };
        let kept = match packed {
            Packed::Zip => None,
            // An archive is read from its end.
            Packed::Gzip | Packed::Zstd if holds_archive(&path) => match unpacked(&file, opening) {
                Err(error) if error.is_damage() => return self.set_aside(file, error),
                kept => Some(kept?),
            },
            _ => {
                self.members.push(file);
                return Ok(());
            }
        };
        let archive_path = kept.as_ref().map_or(&*path, NamedTempFile::path);
        let (archive, entries) =
            match zip_archive::open(archive_path, &within, file.stored_bytes(), opening.limits) {
                Err(error) if error.is_damage() => return self.set_aside(file, error),
                opened => opened?,
            };
        self._spooled.extend(kept);
        self.members.extend(entries.into_iter().map(|entry| Member {
            name: entry.name.clone(),
            whence: MemberLocation::Zip { within: Arc::clone(&within), archive: archive.clone(), entry },
            ..file.clone()
        }));
        self.archives.push(file);
        Ok(())
    }

    /// Keeps a broken file apart: whether it is needed is known once all files are listed.
    fn set_aside(&mut self, file: Member, error: ConvertError) -> Result<(), ConvertError> {
        self.broken.push((file, error));
        Ok(())
    }
}

impl Member {
    /// Reads from the beginning. Bytes are counted in the meter only if one is given.
    pub(crate) fn open(&self, limits: &Limits, counted: Option<&Arc<Meter>>) -> Result<Stream, ConvertError> {
        let Self { hashed, as_it_lies, in_part, .. } = *self;
        let how = ReadOptions { counted: counted.is_some(), hashed, as_it_lies, in_part };
        Stream::start(&self.name, &self.whence, limits, &self.meter, how)
    }

    /// Stops long work on this file if asked to.
    pub(crate) fn check_stop(&self) -> Result<(), ConvertError> {
        self.meter.check_stop()
    }

    /// Same file, read without a digest.
    pub(crate) fn without_digest(&self) -> Self {
        Self { hashed: false, ..self.clone() }
    }

    /// Same file, without unpacking it. Files of an archive are still extracted.
    pub(crate) fn as_it_lies(&self) -> Self {
        Self { as_it_lies: true, ..self.clone() }
    }

    /// Same file, of which the beginning is read even if it is damaged.
    pub(crate) fn in_part(&self) -> Self {
        Self { in_part: true, ..self.without_digest() }
    }

    /// Same file under another name.
    pub(crate) fn called(&self, name: String) -> Self {
        Self { name, ..self.clone() }
    }

    /// Path of the file, if it can be read there as it is.
    pub(crate) fn plain_path(&self) -> Result<Option<PathBuf>, ConvertError> {
        let MemberLocation::File { path } = &self.whence else { return Ok(None) };
        Ok((packed(path)? == Packed::No).then(|| path.to_path_buf()))
    }

    /// The bytes as they lie on disk, packed or not.
    pub(crate) fn stored_bytes(&self) -> u64 {
        match &self.whence {
            MemberLocation::File { path } => fs::metadata(path).map_or(0, |found| found.len()),
            MemberLocation::Zip { entry, .. } => entry.packed,
        }
    }

    /// The name without folders and endings, as a title of last resort.
    pub(crate) fn stem(&self) -> String {
        let name = self.name.rsplit('/').next().unwrap_or(&self.name);
        name.split('.').find(|part| !part.is_empty()).unwrap_or("input").to_owned()
    }

    /// Name of the archive that it is in.
    pub(crate) fn archive_name(&self) -> Option<String> {
        match &self.whence {
            MemberLocation::File { .. } => None,
            MemberLocation::Zip { within, .. } => Some(within.to_string()),
        }
    }
}

fn packed(path: &Path) -> Result<Packed, ConvertError> {
    let looked = File::open(path).and_then(|mut file| Packed::of(&mut file));
    let (packed, _) = looked.map_err(|error| ConvertError::io("opening", path, error))?;
    Ok(packed)
}

/// True if the packed file holds an archive. Errors in it are reported when it is read.
fn holds_archive(path: &Path) -> bool {
    let looked = File::open(path).and_then(unpack).and_then(|mut within| Packed::of(&mut within));
    looked.is_ok_and(|(packed, _)| packed == Packed::Zip)
}

fn unpacked(file: &Member, opening: &OpenContext<'_>) -> Result<NamedTempFile, ConvertError> {
    let failed = |error| ConvertError::io("keeping an unpacked archive in", opening.spool, error);
    let mut kept = NamedTempFile::new_in(opening.spool).map_err(failed)?;
    file.without_digest()
        .open(opening.limits, None)?
        .each(|block| kept.as_file_mut().write_all(block).map_err(failed))?;
    Ok(kept)
}

pub(crate) fn name_of(path: &Path) -> String {
    path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

const BLOCK: usize = 256 << 10;
/// Longest wait for a stop request while no input comes.
const LOOK: Duration = Duration::from_millis(50);

/// It is read on a thread of its own, for a read that waits cannot be called off; the thread ends with its input, or with
/// the process.
fn spooled(
    mut from: impl Read + Send + 'static,
    opening: &OpenContext<'_>,
) -> Result<NamedTempFile, ConvertError> {
    let failed = |error| ConvertError::io("keeping standard input in", opening.spool, error);
    let mut kept = NamedTempFile::new_in(opening.spool).map_err(failed)?;
    let (send, blocks) = sync_channel::<io::Result<Vec<u8>>>(2);
    let read = move || loop {
        let mut block = vec![0; BLOCK];
        let read = match from.read(&mut block) {
            Ok(0) => return,
            Ok(count) => {
                block.truncate(count);
                Ok(block)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => Err(error),
        };
        if read.is_err() | send.send(read).is_err() {
            return;
        }
    };
    thread::Builder::new().name("stdin".to_owned()).spawn(read).map_err(failed)?;
    loop {
        opening.meter.check_stop()?;
        match blocks.recv_timeout(LOOK) {
            Ok(block) => block.and_then(|block| kept.as_file_mut().write_all(&block)).map_err(failed)?,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(kept),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::{
        io::{Cursor, Read as _, Write as _},
        sync::mpsc,
    };

    use zip::{ZipWriter, write::SimpleFileOptions};

    use super::*;

    fn archive(files: usize) -> Vec<u8> {
        let mut zipped = ZipWriter::new(Cursor::new(Vec::new()));
        for at in 0..files {
            zipped.start_file(format!("{at}.csv"), SimpleFileOptions::default()).unwrap();
            write!(zipped, "{at}").unwrap();
        }
        zipped.finish().unwrap().into_inner()
    }

    #[test]
    fn the_directory_of_an_archive_is_read_once_whatever_it_holds() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("many.zip");
        fs::write(&path, archive(300)).unwrap();
        let limits = Limits::default();
        let input =
            Input::open(std::slice::from_ref(&path), folder.path(), &[], &limits, &Arc::default()).unwrap();
        // Who read it again now would find none.
        let data = fs::read(&path).unwrap();
        let directory = memchr::memmem::find(&data, b"PK\x01\x02").unwrap();
        File::options().write(true).open(&path).unwrap().set_len(directory as u64).unwrap();
        assert_eq!(input.members.len(), 300);
        for (at, member) in input.members.iter().enumerate() {
            let mut text = String::new();
            member.open(&limits, None).unwrap().read_to_string(&mut text).unwrap();
            assert_eq!(text, at.to_string());
        }
    }

    #[test]
    fn whoever_waits_for_standard_input_can_be_told_to_stop() {
        for packed in [&b"half a table"[..], b"PK\x03\x04"] {
            let folder = tempfile::tempdir().unwrap();
            let (reader, mut writer) = io::pipe().unwrap();
            writer.write_all(packed).unwrap();
            let (meter, spool) = (Arc::new(Meter::default()), folder.path().to_owned());
            let (end, ended) = mpsc::channel();
            let waiting = Arc::clone(&meter);
            thread::spawn(move || {
                let limits = Limits::default();
                let opening = OpenContext { spool: &spool, own: &[], limits: &limits, meter: &waiting };
                end.send(spooled(reader, &opening).map(drop)).unwrap();
            });
            meter.stop();
            let error = ended.recv_timeout(Duration::from_secs(60)).unwrap().unwrap_err();
            assert_eq!(error.tag(), "stopped");
            // Until here it could have come.
            drop(writer);
            assert_eq!(folder.path().read_dir().unwrap().count(), 0);
        }
        let folder = tempfile::tempdir().unwrap();
        let (limits, meter) = (Limits::default(), Arc::default());
        let opening = OpenContext { spool: folder.path(), own: &[], limits: &limits, meter: &meter };
        let text = vec![7; 3 * BLOCK + 1];
        let kept = spooled(Cursor::new(text.clone()), &opening).unwrap();
        assert!(fs::read(kept.path()).unwrap() == text);
    }

    #[test]
    fn more_files_than_allowed_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("many.zip");
        fs::write(&path, archive(4)).unwrap();
        let open = |path: &Path, files| {
            let limits = Limits { files, ..Limits::default() };
            let meter = Arc::default();
            Input::open(&[path.to_owned()], folder.path(), &[], &limits, &meter)
                .map(|input| input.members.len())
        };
        assert_eq!(open(&path, 4).unwrap(), 4);
        let error = open(&path, 3).unwrap_err();
        assert_eq!(error.to_string(), "many.zip: it holds 4 files, 3 are allowed (--max-files allows more)");
        fs::write(folder.path().join("beside.csv"), "").unwrap();
        assert!(open(folder.path(), 1).is_err());
        assert_eq!(open(folder.path(), 4).unwrap(), 5);
    }

    #[test]
    fn an_archive_is_bounded_as_a_whole_and_held_to_what_it_says() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.zip");
        let limits = Limits::default();
        let open = || Input::open(std::slice::from_ref(&path), folder.path(), &[], &limits, &Arc::default());
        // Each of them is harmless.
        let mut zipped = ZipWriter::new(Cursor::new(Vec::new()));
        for at in 0..3 {
            zipped.start_file(format!("{at}.csv"), SimpleFileOptions::default()).unwrap();
            zipped.write_all(&vec![0; 30 << 20]).unwrap();
        }
        let bytes = zipped.finish().unwrap().into_inner();
        fs::write(&path, &bytes).unwrap();
        assert_eq!(open().unwrap_err().tag(), "bomb");
        // The directory says that the files are small.
        let mut lying = bytes;
        let (size, said) = ((30_u32 << 20).to_le_bytes(), 7_u32.to_le_bytes());
        while let Some(at) = memchr::memmem::find(&lying, &size) {
            lying[at..at + 4].copy_from_slice(&said);
        }
        fs::write(&path, &lying).unwrap();
        let mut read = Vec::new();
        let mut stream = open().unwrap().members[0].open(&limits, None).unwrap();
        let error = ConvertError::from_io("0.csv", stream.read_to_end(&mut read).unwrap_err());
        assert_eq!(error.tag(), "compressed");
        assert!(read.len() < 1 << 20, "{}", read.len());
    }
}

//! Lists the input files and opens them for one or more readings.

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
    unpack::{Compression, unpack},
};

/// Files of a conversion's input.
#[derive(Debug, Default)]
pub(crate) struct Input {
    pub(crate) members: Vec<Member>,
    /// Archives of the members, listed as artifacts of their own.
    pub(crate) archives: Vec<Member>,
    /// Names of skipped folder entries that are not files.
    pub(crate) skipped: Vec<String>,
    /// Damaged archives, with their errors.
    pub(crate) broken: Vec<(Member, ConvertError)>,
    /// Spooled copies, kept until the end: standard input can be read only once, and a compressed archive has no
    /// random access.
    _spooled: Vec<NamedTempFile>,
}

/// Input file, or one file of an archive.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) name: String,
    location: MemberLocation,
    with_digest: bool,
    /// Reads the stored bytes without decompressing them.
    keep_packed: bool,
    /// Returns the readable beginning of a damaged file instead of an error alone.
    pub(super) allows_damage: bool,
    /// Meter that can stop the reader.
    meter: Arc<Meter>,
}

/// Settings for opening files.
struct OpenContext<'o> {
    spool: &'o Path,
    working_files: &'o [PathBuf],
    limits: &'o Limits,
    /// Meter that can stop the wait for input.
    meter: &'o Arc<Meter>,
}

impl OpenContext<'_> {
    /// Compares inodes too: the output folder may be given under another name as input.
    fn is_working_file(&self, path: &Path) -> bool {
        let mut same_named = self.working_files.iter().filter(|file| file.file_name() == path.file_name());
        let inode_of = |path: &Path| fs::metadata(path).map(|metadata| (metadata.dev(), metadata.ino())).ok();
        same_named.any(|file| inode_of(file).is_some() && inode_of(file) == inode_of(path))
    }
}

impl Input {
    /// Lists and opens the input. Copies of single-use input are created in the folder `spool`; `working_files` are
    /// skipped.
    pub(crate) fn open(
        paths: &[PathBuf],
        spool: &Path,
        working_files: &[PathBuf],
        limits: &Limits,
        meter: &Arc<Meter>,
    ) -> Result<Self, ConvertError> {
        let context = &OpenContext { spool, working_files, limits, meter };
        let mut input = Self::default();
        for path in paths {
            if path.as_os_str() == "-" {
                let spooled_file = spool_stream(io::stdin(), context)?;
                input.add("stdin".to_owned(), spooled_file.path(), true, context)?;
                input._spooled.push(spooled_file);
            } else if fs::metadata(path).map_err(|error| ConvertError::io("opening", path, error))?.is_dir() {
                input.add_folder(path, context)?;
            } else {
                input.add(name_of(path), path, true, context)?;
            }
        }
        if input.members.is_empty() && input.broken.is_empty() {
            let folders = match input.skipped.as_slice() {
                [] => String::new(),
                folders => format!("; pass folders within it separately: {}", folders.join(", ")),
            };
            return Err(ConvertError::Refused(format!("the input contains no file{folders}")));
        }
        Ok(input)
    }

    fn add_folder(&mut self, folder: &Path, context: &OpenContext<'_>) -> Result<(), ConvertError> {
        let io_error = |error| ConvertError::io("reading the folder", folder, error);
        let mut files = Vec::new();
        for entry in fs::read_dir(folder).map_err(io_error)? {
            let path = entry.map_err(io_error)?.path();
            let is_hidden = name_of(&path).starts_with('.');
            // Hidden files belong to the desktop system, and the output may be written to the input folder.
            if is_hidden || context.is_working_file(&path) {
                continue;
            }
            if fs::metadata(&path).map_err(|error| ConvertError::io("opening", &path, error))?.is_file() {
                files.push(path);
            } else {
                self.skipped.push(name_of(&path));
            }
        }
        self.skipped.sort();
        // Directory order is arbitrary, and equal input must give an identical bundle.
        files.sort();
        context.limits.check_file_count(&name_of(folder), files.len())?;
        files.iter().try_for_each(|path| self.add(name_of(path), path, false, context))
    }

    /// Adds a file, or the files of an archive. Only a file given by itself (`is_alone`) may be an archive behind
    /// other data: files of a folder may be unrelated to the export.
    fn add(
        &mut self,
        name: String,
        path: &Path,
        is_alone: bool,
        context: &OpenContext<'_>,
    ) -> Result<(), ConvertError> {
        let path: Arc<Path> = Arc::from(path);
        let archive_name: Arc<str> = name.as_str().into();
        let location = MemberLocation::File { path: Arc::clone(&path) };
        let meter = Arc::clone(context.meter);
        let file =
            Member { name, location, with_digest: true, keep_packed: false, allows_damage: false, meter };
        let compression = match detect_compression(&path)? {
            Compression::Plain if is_alone && zip_archive::has_appended_archive(&path) => Compression::Zip,
            compression => compression,
        };
        let unpacked_archive = match compression {
            Compression::Zip => None,
            // The directory of an archive is at its end, so a compressed one is unpacked to a file first.
            Compression::Gzip | Compression::Zstd if contains_archive(&path) => {
                match unpack_to_file(&file, context) {
                    Err(error) if error.is_damage() => return self.add_broken(file, error),
                    unpacked => Some(unpacked?),
                }
            }
            _ => {
                self.members.push(file);
                return Ok(());
            }
        };
        let archive_path = unpacked_archive.as_ref().map_or(&*path, NamedTempFile::path);
        let (archive, entries) =
            match zip_archive::open(archive_path, &archive_name, file.stored_bytes(), context.limits) {
                Err(error) if error.is_damage() => return self.add_broken(file, error),
                opened => opened?,
            };
        self._spooled.extend(unpacked_archive);
        self.members.extend(entries.into_iter().map(|entry| Member {
            name: entry.name.clone(),
            location: MemberLocation::Zip {
                archive_name: Arc::clone(&archive_name),
                archive: archive.clone(),
                entry,
            },
            ..file.clone()
        }));
        self.archives.push(file);
        Ok(())
    }

    /// Records a damaged file. Whether the conversion needs it is decided once all files are listed.
    fn add_broken(&mut self, file: Member, error: ConvertError) -> Result<(), ConvertError> {
        self.broken.push((file, error));
        Ok(())
    }
}

impl Member {
    /// Opens the file from its beginning. Bytes are metered only if a meter is given.
    pub(crate) fn open(&self, limits: &Limits, meter: Option<&Arc<Meter>>) -> Result<Stream, ConvertError> {
        let Self { with_digest, keep_packed, allows_damage, .. } = *self;
        let options = ReadOptions { is_metered: meter.is_some(), with_digest, keep_packed, allows_damage };
        Stream::start(&self.name, &self.location, limits, &self.meter, options)
    }

    /// Fails if a stop was requested; for long work on this file.
    pub(crate) fn check_stop(&self) -> Result<(), ConvertError> {
        self.meter.check_stop()
    }

    /// Same file, read without a digest.
    pub(crate) fn without_digest(&self) -> Self {
        Self { with_digest: false, ..self.clone() }
    }

    /// Same file, read without decompressing it. Files of an archive are still extracted.
    pub(crate) fn without_unpacking(&self) -> Self {
        Self { keep_packed: true, ..self.clone() }
    }

    /// Same file, of which the beginning is read even if it is damaged.
    pub(crate) fn readable_part(&self) -> Self {
        Self { allows_damage: true, ..self.without_digest() }
    }

    /// Same file under another name.
    pub(crate) fn with_name(&self, name: String) -> Self {
        Self { name, ..self.clone() }
    }

    /// Path of the file if it is stored uncompressed outside an archive.
    pub(crate) fn plain_path(&self) -> Result<Option<PathBuf>, ConvertError> {
        let MemberLocation::File { path } = &self.location else { return Ok(None) };
        Ok((detect_compression(path)? == Compression::Plain).then(|| path.to_path_buf()))
    }

    /// Stored size in bytes, compressed or not.
    pub(crate) fn stored_bytes(&self) -> u64 {
        match &self.location {
            MemberLocation::File { path } => fs::metadata(path).map_or(0, |metadata| metadata.len()),
            MemberLocation::Zip { entry, .. } => entry.packed_bytes,
        }
    }

    /// Name without folders and extensions, as a fallback title.
    pub(crate) fn stem(&self) -> String {
        let name = self.name.rsplit('/').next().unwrap_or(&self.name);
        name.split('.').find(|part| !part.is_empty()).unwrap_or("input").to_owned()
    }

    /// Name of the archive that contains the file.
    pub(crate) fn archive_name(&self) -> Option<String> {
        match &self.location {
            MemberLocation::File { .. } => None,
            MemberLocation::Zip { archive_name: within, .. } => Some(within.to_string()),
        }
    }
}

fn detect_compression(path: &Path) -> Result<Compression, ConvertError> {
    let detection = File::open(path).and_then(|mut file| Compression::detect(&mut file));
    let (compression, _) = detection.map_err(|error| ConvertError::io("opening", path, error))?;
    Ok(compression)
}

/// True if the compressed file contains an archive. Its errors are reported when it is read.
fn contains_archive(path: &Path) -> bool {
    let detection =
        File::open(path).and_then(unpack).and_then(|mut content| Compression::detect(&mut content));
    detection.is_ok_and(|(compression, _)| compression == Compression::Zip)
}

fn unpack_to_file(file: &Member, context: &OpenContext<'_>) -> Result<NamedTempFile, ConvertError> {
    let io_error = |error| ConvertError::io("keeping an unpacked archive in", context.spool, error);
    let mut unpacked_file = NamedTempFile::new_in(context.spool).map_err(io_error)?;
    file.without_digest()
        .open(context.limits, None)?
        .for_each_block(|block| unpacked_file.as_file_mut().write_all(block).map_err(io_error))?;
    Ok(unpacked_file)
}

pub(crate) fn name_of(path: &Path) -> String {
    path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

const BLOCK_BYTES: usize = 256 << 10;
/// Interval of checks for a stop request while no input arrives.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Copies a stream to a file. A blocked read cannot be cancelled, so it runs on a thread of its own, which ends with
/// its input or with the process.
fn spool_stream(
    mut input: impl Read + Send + 'static,
    context: &OpenContext<'_>,
) -> Result<NamedTempFile, ConvertError> {
    let io_error = |error| ConvertError::io("keeping standard input in", context.spool, error);
    let mut spooled_file = NamedTempFile::new_in(context.spool).map_err(io_error)?;
    // Bounded, so that a fast pipe does not fill the memory.
    let (send, blocks) = sync_channel::<io::Result<Vec<u8>>>(2);
    let read_blocks = move || loop {
        let mut block = vec![0; BLOCK_BYTES];
        let result = match input.read(&mut block) {
            Ok(0) => return,
            Ok(count) => {
                block.truncate(count);
                Ok(block)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => Err(error),
        };
        // Not short-circuited: an error must be sent before the thread ends.
        if result.is_err() | send.send(result).is_err() {
            return;
        }
    };
    thread::Builder::new().name("stdin".to_owned()).spawn(read_blocks).map_err(io_error)?;
    loop {
        context.meter.check_stop()?;
        match blocks.recv_timeout(STOP_CHECK_INTERVAL) {
            Ok(block) => {
                block.and_then(|block| spooled_file.as_file_mut().write_all(&block)).map_err(io_error)?;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(spooled_file),
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
        let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
        for at in 0..files {
            writer.start_file(format!("{at}.csv"), SimpleFileOptions::default()).unwrap();
            write!(writer, "{at}").unwrap();
        }
        writer.finish().unwrap().into_inner()
    }

    #[test]
    fn archive_directory_is_read_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("many.zip");
        fs::write(&path, archive(300)).unwrap();
        let limits = Limits::default();
        let input =
            Input::open(std::slice::from_ref(&path), folder.path(), &[], &limits, &Arc::default()).unwrap();
        // A second read of the directory would fail now.
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
    fn waiting_for_standard_input_can_be_stopped() {
        for packed in [&b"half a table"[..], b"PK\x03\x04"] {
            let folder = tempfile::tempdir().unwrap();
            let (reader, mut writer) = io::pipe().unwrap();
            writer.write_all(packed).unwrap();
            let (meter, spool) = (Arc::new(Meter::default()), folder.path().to_owned());
            let (result_sender, result_receiver) = mpsc::channel();
            let reader_meter = Arc::clone(&meter);
            thread::spawn(move || {
                let limits = Limits::default();
                let context =
                    OpenContext { spool: &spool, working_files: &[], limits: &limits, meter: &reader_meter };
                result_sender.send(spool_stream(reader, &context).map(drop)).unwrap();
            });
            meter.stop();
            let error = result_receiver.recv_timeout(Duration::from_secs(60)).unwrap().unwrap_err();
            assert_eq!(error.tag(), "stopped");
            // Until here the input was still open.
            drop(writer);
            assert_eq!(folder.path().read_dir().unwrap().count(), 0);
        }
        let folder = tempfile::tempdir().unwrap();
        let (limits, meter) = (Limits::default(), Arc::default());
        let context =
            OpenContext { spool: folder.path(), working_files: &[], limits: &limits, meter: &meter };
        let text = vec![7; 3 * BLOCK_BYTES + 1];
        let spooled_file = spool_stream(Cursor::new(text.clone()), &context).unwrap();
        assert!(fs::read(spooled_file.path()).unwrap() == text);
    }

    #[test]
    fn more_files_than_allowed_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("many.zip");
        fs::write(&path, archive(4)).unwrap();
        let open = |path: &Path, files| {
            let limits = Limits { max_files: files, ..Limits::default() };
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
    fn archive_size_is_bounded_in_total_and_as_declared() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.zip");
        let limits = Limits::default();
        let open = || Input::open(std::slice::from_ref(&path), folder.path(), &[], &limits, &Arc::default());
        // Each file alone is below the limit.
        let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
        for at in 0..3 {
            writer.start_file(format!("{at}.csv"), SimpleFileOptions::default()).unwrap();
            writer.write_all(&vec![0; 30 << 20]).unwrap();
        }
        let bytes = writer.finish().unwrap().into_inner();
        fs::write(&path, &bytes).unwrap();
        assert_eq!(open().unwrap_err().tag(), "bomb");
        // The directory understates the sizes.
        let mut understated = bytes;
        let (size, small_size) = ((30_u32 << 20).to_le_bytes(), 7_u32.to_le_bytes());
        while let Some(at) = memchr::memmem::find(&understated, &size) {
            understated[at..at + 4].copy_from_slice(&small_size);
        }
        fs::write(&path, &understated).unwrap();
        let mut content = Vec::new();
        let mut stream = open().unwrap().members[0].open(&limits, None).unwrap();
        let error = ConvertError::from_io("0.csv", stream.read_to_end(&mut content).unwrap_err());
        assert_eq!(error.tag(), "compressed");
        assert!(content.len() < 1 << 20, "{}", content.len());
    }
}

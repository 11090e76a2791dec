//! Writes and reads `durable.mark`, which records the durable part of an embedded database so that a start detects lost
//! data.
//!
//! Each mark is written after the sync that it describes, so it never claims more than the disk holds. Most marks are
//! not synced: a write to the operating system survives a crash of the process. One mark a second is synced, so that a
//! power failure loses at most the marks of that second.

use std::{
    any::Any,
    collections::BTreeMap,
    fmt::Write as _,
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use sha2::{Digest as _, Sha256};

/// Key of the log's sync counter in the database.
pub const LOG_SYNCS_KEY: &str = "tidegate.log.syncs";
/// Key of the store's sync counter in the database.
pub const STORE_SYNCS_KEY: &str = "tidegate.store.syncs";
/// Name of the file in the data folder.
const FILE_NAME: &str = "durable.mark";
const HEADER: &str = "tidegate durable mark 1";
/// Distance between two copies in the file, in bytes. A copy of this size holds 120,000 partitions; the file is sparse.
const COPY_STRIDE: u64 = 8 << 20;
/// Number of copies that are written in turn at every sync of the database, and of copies that are synced themselves.
/// If a crash interrupts the write of a copy, the previous copy stays intact.
const UNSYNCED_COPIES: u64 = 2;
const SYNCED_COPIES: u64 = 2;
/// Minimum time between two synced copies.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);
/// Size from which a mark is written only when it is synced: the write would take longer than the sync that it
/// describes.
const LARGE_MARK_BYTES: usize = 64 << 10;

/// Durable part of a database at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DurableState {
    /// Number of log syncs. The database stores the same number, for comparison.
    pub log_syncs: u64,
    /// Number of store syncs. The database stores the same number, for comparison.
    pub store_syncs: u64,
    /// Next offset of each partition, by topic.
    pub ends: BTreeMap<String, BTreeMap<u32, i64>>,
}

impl DurableState {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the number of offsets that were assigned.
    pub fn offsets(&self) -> i64 {
        self.ends.values().flat_map(BTreeMap::values).sum()
    }

    fn set_end(&mut self, topic: &str, partition: u32, end: i64) {
        // Avoids an allocation of the topic's name at each sync: the topic nearly always exists.
        if let Some(topic_ends) = self.ends.get_mut(topic) {
            topic_ends.insert(partition, end);
        } else {
            self.ends.insert(topic.to_owned(), BTreeMap::from([(partition, end)]));
        }
    }
}

/// Mark of a data folder, shared by the writers of log and store.
#[derive(Debug)]
pub struct DurableMark {
    /// Content of the mark at the start; `None` if there was no mark.
    last_durable: Option<DurableState>,
    /// True if the operator accepts that missing data is lost.
    accepts_loss: bool,
    inner: Mutex<Inner>,
    /// Value that is dropped with the mark, and therefore after the last writer.
    keepalive: Mutex<Option<Box<dyn Any + Send>>>,
}

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    /// Opened at the first write, so that a refused start leaves the file unchanged.
    file: Option<File>,
    current: DurableState,
    writes: u64,
    syncs: u64,
    synced_at: Instant,
    is_dirty: bool,
    has_failed: bool,
}

impl DurableMark {
    pub fn path_in(data: &Path) -> PathBuf {
        data.join(FILE_NAME)
    }

    /// Reads the mark of a data folder. A mark without an intact copy is an error, unless loss is accepted.
    pub fn open(data: &Path, accepts_loss: bool) -> io::Result<Self> {
        let path = Self::path_in(data);
        let (number, last_durable) = match read_newest_copy(&path)? {
            MarkFile::Absent => (0, None),
            // The writer starts again at 0. A damaged copy has no valid checksum, so its higher number cannot win
            // later.
            MarkFile::Damaged if accepts_loss => (0, None),
            MarkFile::Damaged => return Err(io::Error::new(io::ErrorKind::InvalidData, "it is damaged")),
            MarkFile::Valid(number, durable) => (number, Some(durable)),
        };
        let inner = Inner {
            path,
            file: None,
            current: last_durable.clone().unwrap_or_default(),
            writes: number,
            syncs: 0,
            synced_at: Instant::now(),
            is_dirty: false,
            has_failed: false,
        };
        Ok(Self { last_durable, accepts_loss, inner: Mutex::new(inner), keepalive: Mutex::new(None) })
    }

    /// Stores a value that must be dropped after the last writer.
    pub fn keep_until_drop(&self, value: Box<dyn Any + Send>) {
        *self.keepalive.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
    }

    /// Returns the content of the mark at the start, as the previous process wrote it.
    pub const fn last_durable(&self) -> Option<&DurableState> {
        self.last_durable.as_ref()
    }

    pub const fn accepts_loss(&self) -> bool {
        self.accepts_loss
    }

    /// Records a sync of the log and the new ends of its partitions. After a failed write of the mark, the next start
    /// detects less loss; the synced data stays durable, so callers report the error and continue.
    pub fn record_log_sync<'a>(
        &self,
        syncs: u64,
        ends: impl IntoIterator<Item = (&'a str, u32, i64)>,
    ) -> io::Result<()> {
        self.change(|current| {
            current.log_syncs = syncs;
            for (topic, partition, end) in ends {
                current.set_end(topic, partition, end);
            }
        })
    }

    /// Records a sync of the store.
    pub fn record_store_sync(&self, syncs: u64) -> io::Result<()> {
        self.change(|current| current.store_syncs = syncs)
    }

    /// Syncs the mark if it changed since the last sync.
    pub fn sync(&self) -> io::Result<()> {
        let mut inner = self.lock();
        if inner.is_dirty { inner.write_synced() } else { Ok(()) }
    }

    fn change(&self, change: impl FnOnce(&mut DurableState)) -> io::Result<()> {
        let mut inner = self.lock();
        change(&mut inner.current);
        inner.is_dirty = true;
        // The first mark of a process is synced: without it, a power failure within the first second would leave no
        // mark.
        if inner.syncs == 0 || inner.synced_at.elapsed() >= SYNC_INTERVAL {
            inner.write_synced()
        } else {
            inner.write_unsynced()
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn write_unsynced(&mut self) -> io::Result<()> {
        let text = self.encode();
        if text.len() >= LARGE_MARK_BYTES {
            return Ok(());
        }
        // Alternates between the copies, so the previous one is intact if this write is interrupted.
        let copy = self.writes % UNSYNCED_COPIES;
        let result = self.write_at(copy, &text);
        self.report_first_failure(result)
    }

    fn write_synced(&mut self) -> io::Result<()> {
        let text = self.encode();
        // Synced copies have their own slots: an interrupted unsynced write cannot damage them.
        let copy = UNSYNCED_COPIES + self.syncs % SYNCED_COPIES;
        self.syncs += 1;
        let result = self.write_at(copy, &text).and_then(|()| match &self.file {
            // The length is part of the data, so the metadata needs no sync.
            Some(file) => file.sync_data(),
            None => Ok(()),
        });
        // Also after a failure, so that a broken disk is not synced again at each write.
        self.synced_at = Instant::now();
        self.is_dirty = false;
        self.report_first_failure(result)
    }

    /// Returns the first of consecutive failures; the others would repeat it several times a second.
    fn report_first_failure(&mut self, result: io::Result<()>) -> io::Result<()> {
        // A success resets the state, so that a later failure is reported again.
        let had_failed = std::mem::replace(&mut self.has_failed, result.is_err());
        if had_failed { Ok(()) } else { result }
    }

    fn encode(&mut self) -> String {
        self.writes += 1;
        encode(self.writes, &self.current)
    }

    fn write_at(&mut self, copy: u64, text: &str) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(open_or_create(&self.path)?),
        };
        file.seek(SeekFrom::Start(copy * COPY_STRIDE))?;
        file.write_all(text.as_bytes())
    }
}

/// Opens the file. A new file survives a power failure only after a sync of its folder.
fn open_or_create(path: &Path) -> io::Result<File> {
    let is_new = !path.exists();
    let file = File::options().create(true).truncate(false).read(true).write(true).open(path)?;
    #[cfg(unix)]
    // Only Unix can sync a folder.
    if is_new && let Some(folder) = path.parent() {
        File::open(folder)?.sync_all()?;
    }
    #[cfg(not(unix))]
    let _durable_by_itself = is_new;
    Ok(file)
}

fn encode(number: u64, durable: &DurableState) -> String {
    let mut text =
        format!("{HEADER}\nnumber {number}\nlog {}\nstore {}\n", durable.log_syncs, durable.store_syncs);
    for (topic, ends) in &durable.ends {
        for (partition, end) in ends {
            let _infallible = writeln!(text, "end {topic} {partition} {end}");
        }
    }
    let sum = checksum(text.as_bytes());
    let _infallible = writeln!(text, "sum {sum}");
    text
}

fn checksum(bytes: &[u8]) -> String {
    tidegate_schemas::hex(&Sha256::digest(bytes)[..16])
}

enum MarkFile {
    Absent,
    Damaged,
    Valid(u64, DurableState),
}

/// Returns the newest intact copy.
fn read_newest_copy(path: &Path) -> io::Result<MarkFile> {
    let length = match fs::metadata(path) {
        Ok(metadata) => metadata.len(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(MarkFile::Absent),
        Err(error) => return Err(error),
    };
    // A crash between the creation of the file and the first write leaves an empty file.
    if length == 0 {
        return Ok(MarkFile::Absent);
    }
    let mut file = File::open(path)?;
    let mut newest: Option<(u64, DurableState)> = None;
    for copy in 0..UNSYNCED_COPIES + SYNCED_COPIES {
        let start = copy * COPY_STRIDE;
        // The file ends with its last written copy.
        if start >= length {
            break;
        }
        file.seek(SeekFrom::Start(start))?;
        if let Some((number, durable)) = decode(&read_copy(&mut file)?)
            && newest.as_ref().is_none_or(|(newest, _)| number > *newest)
        {
            newest = Some((number, durable));
        }
    }
    Ok(newest.map_or(MarkFile::Damaged, |(number, durable)| MarkFile::Valid(number, durable)))
}

/// Reads one copy up to its checksum line. Returns an empty text if there is no checksum.
fn read_copy(file: &mut File) -> io::Result<Vec<u8>> {
    const CHUNK_BYTES: usize = 64 << 10;
    let mut text = Vec::new();
    let mut file = file.take(COPY_STRIDE);
    loop {
        let length_before = text.len();
        file.by_ref().take(CHUNK_BYTES as u64).read_to_end(&mut text)?;
        // Only the first checksum counts: a shorter copy overwrites just the beginning of a longer one.
        // The whole text is searched again, because the checksum line can span two chunks.
        let sum_start = text.windows(5).position(|bytes| bytes == b"\nsum ");
        if let Some(end) =
            sum_start.and_then(|at| Some(at + 1 + text[at + 1..].iter().position(|byte| *byte == b'\n')?))
        {
            text.truncate(end + 1);
            return Ok(text);
        }
        // At the end of the file, or in a hole of zeros between two copies, there is no checksum to wait for.
        if text.len() == length_before || text.first() != HEADER.as_bytes().first() {
            return Ok(Vec::new());
        }
    }
}

fn decode(copy: &[u8]) -> Option<(u64, DurableState)> {
    let text = std::str::from_utf8(copy).ok()?;
    let (body, sum) = text.split_at(text.rfind("sum ")?);
    if sum.trim_end() != format!("sum {}", checksum(body.as_bytes())) {
        return None;
    }
    let mut lines = body.lines();
    if lines.next() != Some(HEADER) {
        return None;
    }
    let (mut number, mut durable) = (0, DurableState::default());
    for line in lines {
        let mut words = line.split(' ');
        match words.next()? {
            "number" => number = words.next()?.parse().ok()?,
            "log" => durable.log_syncs = words.next()?.parse().ok()?,
            "store" => durable.store_syncs = words.next()?.parse().ok()?,
            "end" => {
                let topic = words.next()?;
                durable.set_end(topic, words.next()?.parse().ok()?, words.next()?.parse().ok()?);
            }
            // Lines of later versions are ignored.
            _ => {}
        }
    }
    Some((number, durable))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn open(data: &Path) -> DurableMark {
        DurableMark::open(data, false).unwrap()
    }

    #[test]
    fn newest_intact_copy_is_read() {
        let data = tempfile::tempdir().unwrap();
        let mark = open(data.path());
        assert_eq!(mark.last_durable(), None);
        assert!(
            !DurableMark::path_in(data.path()).exists(),
            "nothing is written before something is durable"
        );
        for n in 1..=9 {
            mark.record_log_sync(n, [("items", 3, i64::try_from(n).unwrap() * 10), ("appeals", 0, 1)])
                .unwrap();
            let found = open(data.path());
            let found = found.last_durable().unwrap();
            assert_eq!(
                (found.log_syncs, found.ends["items"][&3], found.ends["appeals"][&0]),
                (n, i64::try_from(n).unwrap() * 10, 1)
            );
        }
        mark.record_store_sync(4).unwrap();
        let found = open(data.path()).last_durable().cloned().unwrap();
        assert_eq!((found.log_syncs, found.store_syncs, found.offsets()), (9, 4, 91));
    }

    #[test]
    fn damaged_copy_leaves_the_previous_one() {
        let data = tempfile::tempdir().unwrap();
        let mark = open(data.path());
        for n in 1..=4 {
            mark.record_log_sync(n, [("items", 0, 1_000_000)]).unwrap();
        }
        drop(mark);
        // Writes 2, 3 and 4 were not synced; number 4 lies in the first copy.
        let path = DurableMark::path_in(data.path());
        let mut bytes = fs::read(&path).unwrap();
        bytes[40] ^= 1;
        fs::write(&path, &bytes).unwrap();
        assert_eq!(open(data.path()).last_durable().unwrap().log_syncs, 3);
        let second = usize::try_from(COPY_STRIDE).unwrap();
        bytes[second + 40] ^= 1;
        fs::write(&path, &bytes).unwrap();
        assert_eq!(open(data.path()).last_durable().unwrap().log_syncs, 1, "the synced one");
        bytes.fill(b'x');
        fs::write(&path, &bytes).unwrap();
        assert!(DurableMark::open(data.path(), false).is_err());
        assert_eq!(DurableMark::open(data.path(), true).unwrap().last_durable(), None);
    }

    #[test]
    fn numbering_continues_after_the_existing_mark() {
        let data = tempfile::tempdir().unwrap();
        open(data.path()).record_log_sync(7, [("items", 0, 5)]).unwrap();
        let next = open(data.path());
        next.record_store_sync(1).unwrap();
        let found = open(data.path()).last_durable().cloned().unwrap();
        assert_eq!((found.log_syncs, found.store_syncs, found.offsets()), (7, 1, 5));
    }
}

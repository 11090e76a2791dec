//! Mark beside an embedded database: how much of it was durable, so that a start can tell what is missing.
//!
//! It is written after the sync that it speaks of, so it never promises more than the disk holds. Most writes go to the
//! operating system only, which suffices when a process dies; once a second one is synced, for the loss of power.

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

/// File in the data folder.
const NAME: &str = "durable.mark";
const HEADER: &str = "tidegate durable mark 1";
/// Distance of two copies in the file, which is sparse: 120,000 partitions fit.
const STRIDE: u64 = 8 << 20;
/// Copies that are written in turn at every sync of the database, and further ones that are synced themselves. A copy
/// that a crash tears leaves the one before it.
const UNSYNCED: u64 = 2;
const SYNCED: u64 = 2;
/// Interval at which a copy is synced.
const SYNC_EVERY: Duration = Duration::from_secs(1);
/// Size from which on a mark is written only together with its sync: writing it would take longer than what it marks.
const LARGE_BYTES: usize = 64 << 10;

/// Parts of a database that were durable at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Durable {
    /// Syncs of the log. The database holds the same number.
    pub log_syncs: u64,
    /// Syncs of the store. The database holds the same number.
    pub store_syncs: u64,
    /// Next offset of each partition, by topic.
    pub ends: BTreeMap<String, BTreeMap<u32, i64>>,
}

impl Durable {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Number of offsets that were given.
    pub fn offsets(&self) -> i64 {
        self.ends.values().flat_map(BTreeMap::values).sum()
    }

    fn set_end(&mut self, topic: &str, partition: u32, end: i64) {
        // No allocation for what is there, which it nearly always is.
        if let Some(known) = self.ends.get_mut(topic) {
            known.insert(partition, end);
        } else {
            self.ends.insert(topic.to_owned(), BTreeMap::from([(partition, end)]));
        }
    }
}

/// The mark of a data folder. The writers of log and store share it.
#[derive(Debug)]
pub struct DurableMark {
    /// `None`: there was no mark.
    found: Option<Durable>,
    /// True if an operator accepts that what is missing is gone.
    accepts_loss: bool,
    inner: Mutex<Inner>,
    /// Dropped with the mark, so after the last writer.
    kept: Mutex<Option<Box<dyn Any + Send>>>,
}

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    /// Opened at the first write: a start that is refused changes nothing.
    file: Option<File>,
    now: Durable,
    writes: u64,
    syncs: u64,
    synced_at: Instant,
    is_dirty: bool,
    failed: bool,
}

impl DurableMark {
    pub fn path_in(data: &Path) -> PathBuf {
        data.join(NAME)
    }

    /// Reads the mark of a data folder. One without a single whole copy is an error, unless loss is accepted.
    pub fn open(data: &Path, accepts_loss: bool) -> io::Result<Self> {
        let path = Self::path_in(data);
        let (number, found) = match read(&path)? {
            Found::None => (0, None),
            Found::Damaged if accepts_loss => (0, None),
            Found::Damaged => return Err(io::Error::new(io::ErrorKind::InvalidData, "it is damaged")),
            Found::Mark(number, durable) => (number, Some(durable)),
        };
        let inner = Inner {
            path,
            file: None,
            now: found.clone().unwrap_or_default(),
            writes: number,
            syncs: 0,
            synced_at: Instant::now(),
            is_dirty: false,
            failed: false,
        };
        Ok(Self { found, accepts_loss, inner: Mutex::new(inner), kept: Mutex::new(None) })
    }

    /// Keeps something that has to end with the last writer.
    pub fn keep(&self, kept: Box<dyn Any + Send>) {
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(kept);
    }

    /// Returns what was durable when the mark was written last, by this process or the one before it.
    pub const fn found(&self) -> Option<&Durable> {
        self.found.as_ref()
    }

    pub const fn accepts_loss(&self) -> bool {
        self.accepts_loss
    }

    /// Notes a sync of the log, and the partitions that it moved. A mark that cannot be written finds less at the next
    /// start; that is no reason to refuse what is durable.
    pub fn log_synced<'a>(
        &self,
        syncs: u64,
        ends: impl IntoIterator<Item = (&'a str, u32, i64)>,
    ) -> io::Result<()> {
        self.change(|now| {
            now.log_syncs = syncs;
            for (topic, partition, end) in ends {
                now.set_end(topic, partition, end);
            }
        })
    }

    /// Notes a sync of the store.
    pub fn store_synced(&self, syncs: u64) -> io::Result<()> {
        self.change(|now| now.store_syncs = syncs)
    }

    /// Syncs the mark, if anything changed since.
    pub fn sync(&self) -> io::Result<()> {
        let mut inner = self.lock();
        if inner.is_dirty { inner.write_synced() } else { Ok(()) }
    }

    fn change(&self, change: impl FnOnce(&mut Durable)) -> io::Result<()> {
        let mut inner = self.lock();
        change(&mut inner.now);
        inner.is_dirty = true;
        if inner.syncs == 0 || inner.synced_at.elapsed() >= SYNC_EVERY {
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
        if text.len() >= LARGE_BYTES {
            return Ok(());
        }
        let copy = self.writes % UNSYNCED;
        let written = self.write_at(copy, &text);
        self.first_failure(written)
    }

    fn write_synced(&mut self) -> io::Result<()> {
        let text = self.encode();
        let copy = UNSYNCED + self.syncs % SYNCED;
        self.syncs += 1;
        let written = self.write_at(copy, &text).and_then(|()| match &self.file {
            Some(file) => file.sync_data(),
            None => Ok(()),
        });
        self.synced_at = Instant::now();
        self.is_dirty = false;
        self.first_failure(written)
    }

    /// Returns only the first of several failures.
    fn first_failure(&mut self, written: io::Result<()>) -> io::Result<()> {
        let is_known = std::mem::replace(&mut self.failed, written.is_err());
        if is_known { Ok(()) } else { written }
    }

    fn encode(&mut self) -> String {
        self.writes += 1;
        encode(self.writes, &self.now)
    }

    fn write_at(&mut self, copy: u64, text: &str) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(open_or_make(&self.path)?),
        };
        file.seek(SeekFrom::Start(copy * STRIDE))?;
        file.write_all(text.as_bytes())
    }
}

/// Opens the file. A new one lasts only once its folder is synced.
fn open_or_make(path: &Path) -> io::Result<File> {
    let is_new = !path.exists();
    let file = File::options().create(true).truncate(false).read(true).write(true).open(path)?;
    #[cfg(unix)]
    if is_new && let Some(folder) = path.parent() {
        File::open(folder)?.sync_all()?;
    }
    #[cfg(not(unix))]
    let _durable_by_itself = is_new;
    Ok(file)
}

fn encode(number: u64, durable: &Durable) -> String {
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
    crate::hex(&Sha256::digest(bytes)[..16])
}

enum Found {
    None,
    Damaged,
    Mark(u64, Durable),
}

/// Returns the newest whole copy.
fn read(path: &Path) -> io::Result<Found> {
    let length = match fs::metadata(path) {
        Ok(found) => found.len(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::None),
        Err(error) => return Err(error),
    };
    // A crash at the first write leaves the file without a copy.
    if length == 0 {
        return Ok(Found::None);
    }
    let mut file = File::open(path)?;
    let mut newest: Option<(u64, Durable)> = None;
    for copy in 0..UNSYNCED + SYNCED {
        let start = copy * STRIDE;
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
    Ok(newest.map_or(Found::Damaged, |(number, durable)| Found::Mark(number, durable)))
}

/// Reads up to the line of the checksum, or nothing.
fn read_copy(file: &mut File) -> io::Result<Vec<u8>> {
    const PIECE: usize = 64 << 10;
    let mut text = Vec::new();
    let mut file = file.take(STRIDE);
    loop {
        let before = text.len();
        file.by_ref().take(PIECE as u64).read_to_end(&mut text)?;
        // A longer copy may stand behind a shorter one that was written over it.
        let sum = text.windows(5).position(|bytes| bytes == b"\nsum ");
        if let Some(end) =
            sum.and_then(|at| Some(at + 1 + text[at + 1..].iter().position(|byte| *byte == b'\n')?))
        {
            text.truncate(end + 1);
            return Ok(text);
        }
        if text.len() == before || text.first() != HEADER.as_bytes().first() {
            return Ok(Vec::new());
        }
    }
}

fn decode(copy: &[u8]) -> Option<(u64, Durable)> {
    let text = std::str::from_utf8(copy).ok()?;
    let at = text.rfind("sum ")?;
    let (body, sum) = text.split_at(at);
    if sum.trim_end() != format!("sum {}", checksum(body.as_bytes())) {
        return None;
    }
    let mut lines = body.lines();
    if lines.next() != Some(HEADER) {
        return None;
    }
    let (mut number, mut durable) = (0, Durable::default());
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
    fn the_newest_whole_copy_counts() {
        let data = tempfile::tempdir().unwrap();
        let mark = open(data.path());
        assert_eq!(mark.found(), None);
        assert!(
            !DurableMark::path_in(data.path()).exists(),
            "nothing is written before something is durable"
        );
        for n in 1..=9 {
            mark.log_synced(n, [("items", 3, i64::try_from(n).unwrap() * 10), ("appeals", 0, 1)]).unwrap();
            let found = open(data.path());
            let found = found.found().unwrap();
            assert_eq!(
                (found.log_syncs, found.ends["items"][&3], found.ends["appeals"][&0]),
                (n, i64::try_from(n).unwrap() * 10, 1)
            );
        }
        mark.store_synced(4).unwrap();
        let found = open(data.path()).found().cloned().unwrap();
        assert_eq!((found.log_syncs, found.store_syncs, found.offsets()), (9, 4, 91));
    }

    #[test]
    fn a_torn_copy_leaves_the_one_before_it() {
        let data = tempfile::tempdir().unwrap();
        let mark = open(data.path());
        for n in 1..=4 {
            mark.log_synced(n, [("items", 0, 1_000_000)]).unwrap();
        }
        drop(mark);
        // Writes 2, 3 and 4 were not synced; number 4 lies in the first copy.
        let path = DurableMark::path_in(data.path());
        let mut bytes = fs::read(&path).unwrap();
        bytes[40] ^= 1;
        fs::write(&path, &bytes).unwrap();
        assert_eq!(open(data.path()).found().unwrap().log_syncs, 3);
        let second = usize::try_from(STRIDE).unwrap();
        bytes[second + 40] ^= 1;
        fs::write(&path, &bytes).unwrap();
        assert_eq!(open(data.path()).found().unwrap().log_syncs, 1, "the synced one");
        bytes.fill(b'x');
        fs::write(&path, &bytes).unwrap();
        assert!(DurableMark::open(data.path(), false).is_err());
        assert_eq!(DurableMark::open(data.path(), true).unwrap().found(), None);
    }

    #[test]
    fn it_goes_on_behind_what_it_found() {
        let data = tempfile::tempdir().unwrap();
        open(data.path()).log_synced(7, [("items", 0, 5)]).unwrap();
        let next = open(data.path());
        next.store_synced(1).unwrap();
        let found = open(data.path()).found().cloned().unwrap();
        assert_eq!((found.log_syncs, found.store_syncs, found.offsets()), (7, 1, 5));
    }
}

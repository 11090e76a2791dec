//! Checks the journals before the database opens them: opening truncates a journal silently at the first bytes that are not
//! a batch.
//!
//! After a crash a journal may end in half a batch, zeros, or, after a loss of power, in later batches without earlier
//! ones. Two things prove damage: bytes after the last batch of a finished journal, and a batch after the gap that was
//! written after a sync of an earlier one.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::{self, BufReader, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

use xxhash_rust::xxh3::Xxh3;

use crate::durable_mark::{DurableState, LOG_SYNCS_KEY, STORE_SYNCS_KEY};

/// Bytes at the end of each batch.
const MAGIC: &[u8] = b"FJL\x03";
const BUFFER: usize = 1 << 20;

/// Bytes of a journal after its last readable batch.
#[derive(Debug)]
pub(super) struct UnreadableTail {
    pub(super) file: PathBuf,
    pub(super) offset: u64,
    /// Description of the damage if acknowledged writes are lost; `None` if a crash alone explains the bytes.
    pub(super) damage: Option<String>,
    /// True if durable writes are lost, even if the log or the store will report it as well.
    pub(super) is_loss: bool,
}

/// Last sync counters of log and store in the batches read so far.
type Counters = BTreeMap<&'static str, u64>;

/// A row by its table and sequence number.
pub(super) type RowId = (u64, u64);

/// Journals of a database folder.
#[derive(Default)]
pub(super) struct Journals {
    /// Numbers and paths, oldest first.
    pub(super) numbered: Vec<(u64, PathBuf)>,
    /// Files that have the extension of a journal but no number as their name. The database refuses to open a folder with one.
    pub(super) misnamed: Vec<PathBuf>,
}

/// Contents of all journals.
#[derive(Default)]
pub(super) struct Scan {
    /// Unreadable ends of journals.
    pub(super) tails: Vec<UnreadableTail>,
    /// Numbers and paths of finished journals without content: a journal is finished only when it is full.
    pub(super) emptied_journals: Vec<(u64, PathBuf)>,
    /// Sequence number of the first row of each table in each journal, oldest journal first.
    pub(super) first_rows: Vec<BTreeMap<u64, u64>>,
    /// First sync counter of log and store in all journals, with the number of its table.
    pub(super) first_counters: BTreeMap<&'static str, (u64, u64)>,
    /// Highest sequence number that was read.
    pub(super) last_sequence: Option<u64>,
    /// Expected rows that are in no journal.
    pub(super) missing_rows: BTreeSet<RowId>,
}

/// Finds the journals of a database folder.
pub(super) fn list_journals(folder: &Path) -> io::Result<Journals> {
    let mut journals = Journals::default();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if !path.extension().is_some_and(|kind| kind.eq_ignore_ascii_case("jnl")) {
            continue;
        }
        let name = path.file_name().and_then(|name| name.to_str());
        let number = name.and_then(|name| name.strip_suffix(".jnl")).and_then(|stem| stem.parse().ok());
        match number {
            Some(number) => journals.numbered.push((number, path)),
            None => journals.misnamed.push(path),
        }
    }
    journals.numbered.sort_unstable();
    Ok(journals)
}

/// Reads all journals without changing them, and looks for the expected rows.
pub(super) fn scan(
    journals: &[(u64, PathBuf)],
    durable: Option<&DurableState>,
    expected_rows: BTreeSet<RowId>,
) -> io::Result<Scan> {
    let mut scan = Scan { missing_rows: expected_rows, ..Scan::default() };
    let mut counters = Counters::new();
    for (index, (number, path)) in journals.iter().enumerate() {
        // The database finishes a journal only when it is full, so all but the last one are full.
        let is_finished = index + 1 < journals.len();
        scan.first_rows.push(BTreeMap::new());
        let mut journal = Journal::open(path)?;
        let tail = journal.check(is_finished, &mut counters, durable, &mut scan)?;
        if is_finished && tail.is_none() && scan.first_rows.last().is_some_and(BTreeMap::is_empty) {
            scan.emptied_journals.push((*number, path.clone()));
        }
        scan.tails.extend(tail);
    }
    Ok(scan)
}

impl Scan {
    fn record_batch(&mut self, batch: &BatchRows) {
        self.last_sequence = self.last_sequence.max(Some(batch.sequence));
        for table in &batch.tables {
            self.missing_rows.remove(&(*table, batch.sequence));
            if let Some(first_rows) = self.first_rows.last_mut() {
                first_rows.entry(*table).or_insert(batch.sequence);
            }
        }
        for (writer, (table, count)) in &batch.counters {
            self.first_counters.entry(writer).or_insert((*table, *count));
        }
    }
}

struct Journal {
    reader: BufReader<File>,
    /// Key and value of the last row; one allocation serves all rows.
    row: Vec<u8>,
    path: PathBuf,
    position: u64,
    length: u64,
}

/// Rows of a batch.
struct BatchRows {
    sequence: u64,
    tables: Vec<u64>,
    /// Sync counters, with the table that holds them.
    counters: BTreeMap<&'static str, (u64, u64)>,
}

impl BatchRows {
    fn counters(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.counters.iter().map(|(writer, (_, count))| (*writer, *count))
    }
}

/// Result of reading a batch.
enum Batch {
    Complete(BatchRows),
    /// No batch, or an incomplete one.
    Unreadable,
}

impl Journal {
    fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        Ok(Self {
            reader: BufReader::with_capacity(BUFFER, file),
            row: Vec::new(),
            path: path.to_owned(),
            position: 0,
            length,
        })
    }

    /// Reads the journal to its end and returns its unreadable tail, if any. `counters_before` holds the counters of earlier journals
    /// and is advanced by those of this one.
    fn check(
        &mut self,
        is_finished: bool,
        counters_before: &mut Counters,
        durable: Option<&DurableState>,
        scan: &mut Scan,
    ) -> io::Result<Option<UnreadableTail>> {
        let mut valid_end = 0;
        while let Batch::Complete(batch) = self.read_batch()? {
            counters_before.extend(batch.counters());
            scan.record_batch(&batch);
            valid_end = self.position;
        }
        // Only zeros follow: the rest of the journal was allocated ahead and never written.
        let Some(content_start) = self.find_content(valid_end)? else { return Ok(None) };
        let (mut tail_batches, mut seen_counters) = (0_u64, counters_before.clone());
        // Log and store report this loss themselves, with offsets. Here it only decides whether a copy of the journal is kept.
        let is_loss =
            counters_before.iter().any(|(writer, count)| *count < durable_sync_count(writer, durable));
        // A finished journal was full, so a crash cannot explain unreadable bytes at its end.
        let mut is_proven = is_finished;
        let mut search_start = valid_end;
        // Looks for batches after the gap. Only the end of a batch can be recognised, so reading resumes after one.
        // A batch that was written after a sync of bytes in the gap proves that durable bytes are lost.
        while let Some(batch_start) = self.find_batch_end(search_start)? {
            self.seek(batch_start)?;
            search_start = batch_start;
            while let Batch::Complete(batch) = self.read_batch()? {
                tail_batches += 1;
                search_start = self.position;
                for (writer, count) in batch.counters() {
                    is_proven |= count <= durable_sync_count(writer, durable)
                        || proves_sync(writer, count, counters_before, &seen_counters);
                    seen_counters.insert(writer, count);
                }
            }
        }
        // Batches after the gap raise the counters for the journals that follow.
        *counters_before = seen_counters;
        let damage = is_proven.then(|| {
            format!(
                "{} is damaged at byte {valid_end}: the bytes from {content_start} on, with {tail_batches} complete batches, were \
                 written after durable bytes that cannot be read",
                self.path.display()
            )
        });
        Ok(Some(UnreadableTail {
            file: self.path.clone(),
            offset: valid_end,
            is_loss: is_loss || damage.is_some(),
            damage,
        }))
    }

    /// Reads one batch. The position moves past it only if it is complete.
    fn read_batch(&mut self) -> io::Result<Batch> {
        match self.parse_batch() {
            Ok(Some(batch)) => Ok(Batch::Complete(batch)),
            Ok(None) => Ok(Batch::Unreadable),
            // The file ends within the batch: a crash cut it off.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(Batch::Unreadable),
            Err(error) => Err(error),
        }
    }

    fn parse_batch(&mut self) -> io::Result<Option<BatchRows>> {
        // Tags of the journal format: 1 starts a batch, 2 is a row, 4 clears a table, 3 ends the batch.
        let [tag] = self.read_array()?;
        if tag != 1 {
            return Ok(None);
        }
        let item_count = u32::from_le_bytes(self.read_array()?);
        let sequence = u64::from_le_bytes(self.read_array()?);
        let mut batch = BatchRows { sequence, tables: Vec::new(), counters: BTreeMap::new() };
        let mut checksum = Xxh3::new();
        for _ in 0..item_count {
            let [tag] = self.read_array()?;
            checksum.update(&[tag]);
            match tag {
                2 => {
                    // Kind, compression, keyspace, and the lengths of key, value and stored value.
                    let head: [u8; 20] = self.read_array()?;
                    checksum.update(&head);
                    let [_, _, table @ .., _, _, _, _, _, _, _, _, _, _] = head;
                    let table = u64::from_le_bytes(table);
                    let key_length = u16::from_le_bytes([head[10], head[11]]);
                    // The stored length: a compressed value takes fewer bytes in the file.
                    let value_length = u32::from_le_bytes([head[16], head[17], head[18], head[19]]);
                    let row = self.read_row(u64::from(key_length) + u64::from(value_length))?;
                    checksum.update(row);
                    let (key, value) = row.split_at(usize::from(key_length));
                    let counter = sync_counter(key, value);
                    // Rows of one table are adjacent, so comparing with the last table suffices.
                    if batch.tables.last() != Some(&table) {
                        batch.tables.push(table);
                    }
                    if let Some((writer, count)) = counter {
                        batch.counters.insert(writer, (table, count));
                    }
                }
                4 => checksum.update(&self.read_array::<8>()?),
                _ => return Ok(None),
            }
        }
        let end: [u8; 13] = self.read_array()?;
        let is_complete = end[0] == 3 && end[1..9] == checksum.digest().to_le_bytes() && end[9..] == *MAGIC;
        Ok(is_complete.then_some(batch))
    }

    fn read_array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.reader.read_exact(&mut bytes)?;
        self.position += N as u64;
        Ok(bytes)
    }

    fn seek(&mut self, to: u64) -> io::Result<()> {
        self.position = self.reader.seek(SeekFrom::Start(to))?;
        Ok(())
    }

    /// Reads key and value; fails if the length, which may be garbage, exceeds the file.
    fn read_row(&mut self, length: u64) -> io::Result<&[u8]> {
        if self.position + length > self.length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.row.resize(usize::try_from(length).map_err(io::Error::other)?, 0);
        self.reader.read_exact(&mut self.row)?;
        self.position += length;
        Ok(&self.row)
    }

    /// Returns the position of the next byte that is not zero.
    fn find_content(&mut self, from: u64) -> io::Result<Option<u64>> {
        // Blocks avoid a branch per byte: a new journal consists of 64 MiB of zeros.
        const BLOCK: usize = 256;
        self.search(from, |bytes| {
            let mut blocks = bytes.chunks(BLOCK);
            let block = blocks.position(|block| block.iter().fold(0, |bits, byte| bits | byte) != 0)?;
            let at = bytes[block * BLOCK..].iter().position(|byte| *byte != 0)?;
            Some(block * BLOCK + at)
        })
    }

    /// Returns the position after the next end marker of a batch.
    fn find_batch_end(&mut self, from: u64) -> io::Result<Option<u64>> {
        let length = MAGIC.len();
        let marker_start =
            self.search(from, |bytes| bytes.windows(length).position(|bytes| bytes == MAGIC))?;
        Ok(marker_start.map(|marker_start| marker_start + length as u64))
    }

    fn search(&mut self, mut from: u64, find: impl Fn(&[u8]) -> Option<usize>) -> io::Result<Option<u64>> {
        let mut buffer = vec![0; BUFFER];
        loop {
            self.seek(from)?;
            let mut length = 0;
            while length < buffer.len() {
                match self.reader.read(&mut buffer[length..])? {
                    0 => break,
                    read => length += read,
                }
            }
            if let Some(index) = find(&buffer[..length]) {
                return Ok(Some(from + index as u64));
            }
            if length < buffer.len() {
                return Ok(None);
            }
            // Blocks overlap, because the marker may span two of them.
            from += (length - MAGIC.len()) as u64;
        }
    }
}

fn durable_sync_count(writer: &str, durable: Option<&DurableState>) -> u64 {
    // Without a mark no count is known to be durable, so none is missing.
    durable.map_or(0, |durable| if writer == LOG_SYNCS_KEY { durable.log_syncs } else { durable.store_syncs })
}

/// True if a batch after a gap was written after a sync of bytes in the gap. A writer starts a counter only after the sync of the
/// previous one, so a counter beyond the next one proves that sync. The first counter after the gap may itself be unsynced.
fn proves_sync(
    writer: &'static str,
    count: u64,
    counters_before: &Counters,
    seen_counters: &Counters,
) -> bool {
    match (counters_before.get(writer), seen_counters.get(writer)) {
        (Some(last_count), _) => count > last_count + 1,
        (None, Some(first_count)) => count > *first_count,
        (None, None) => false,
    }
}

fn sync_counter(key: &[u8], value: &[u8]) -> Option<(&'static str, u64)> {
    let writers = [LOG_SYNCS_KEY, STORE_SYNCS_KEY];
    let writer = writers.into_iter().find(|writer| writer.as_bytes() == key)?;
    Some((writer, u64::from_be_bytes(value.try_into().ok()?)))
}

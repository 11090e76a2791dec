//! `tidegate banks import`: sends a file's entries, some at a time, and tells what became of each.
//!
//! It holds no more of the file than one request, and the names of what is withdrawn with what came under them since.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::{self, BufRead, BufReader},
    ops::RangeInclusive,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tidegate_media::banks::Hash;
use tidegate_schemas::{
    banks::{BankKind, HashKind},
    hex,
};

use super::{
    Found, PAGE, Taken,
    files::{self, Format, Place, What},
    kind_of, page,
};
use crate::{
    client::Client,
    output::{complain, say},
};

/// What one request adds: of lists the rules are compiled with it, so few large ones are better.
const BATCH: usize = 10_000;
const BATCH_BYTES: usize = 2 << 20;

/// Entries from one line about how far it is to the next.
const TELL_EVERY: u64 = 100_000;

/// Bits of a PDQ hash of a picture that is no junk.
const USUALLY_SET: RangeInclusive<u32> = 118..=138;

/// What became of entries; the numbers add up to how many there were.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Sum {
    added: usize,
    changed: usize,
    unchanged: usize,
    removed: usize,
    /// Hashes of another kind.
    others: usize,
    rejected: usize,
}

impl Sum {
    pub(super) fn of(taken: &Taken) -> Self {
        let Taken { added, changed, unchanged, rejected } = taken;
        let rejected = rejected.len();
        Self { added: *added, changed: *changed, unchanged: *unchanged, rejected, ..Self::default() }
    }

    fn add(&mut self, other: &Self) {
        self.added += other.added;
        self.changed += other.changed;
        self.unchanged += other.unchanged;
        self.removed += other.removed;
        self.others += other.others;
        self.rejected += other.rejected;
    }

    pub(super) fn told(&self) -> ExitCode {
        let Self { added, changed, unchanged, removed, others, rejected } = self;
        let all = added + changed + unchanged + removed + others + rejected;
        let mut text = format!(
            "{all} entries: {added} added, {changed} changed, {unchanged} there already, {rejected} refused"
        );
        if *removed > 0 {
            text.push_str(&format!(", {removed} removed"));
        }
        if *others > 0 {
            text.push_str(&format!(", {others} of another kind"));
        }
        say(text);
        if *rejected == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// How far an import of a file is.
#[derive(Serialize, Deserialize)]
struct Progress {
    bank: String,
    format: Format,
    /// The SHA-256 of the file, which must be the same one.
    file: String,
    /// Entries that are done with, from the file's beginning.
    done: u64,
    sum: Sum,
    withdrawn: Withdrawn,
}

/// What is withdrawn in the part that is done with, by source and reference: which values were given again since.
type Withdrawn = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

pub(super) async fn run(
    client: &Client,
    bank: &str,
    file: &Path,
    format: Format,
    resume: bool,
) -> anyhow::Result<ExitCode> {
    let kind = kind_of(client, bank).await?;
    let is_standard_input = file.as_os_str() == "-";
    if resume && is_standard_input {
        bail!("standard input cannot be resumed");
    }
    let unreadable = || format!("cannot read {}", file.display());
    let input: Box<dyn BufRead + Send> = if is_standard_input {
        Box::new(BufReader::new(io::stdin()))
    } else {
        Box::new(BufReader::new(File::open(file).with_context(unreadable)?))
    };
    let digest = if resume { digest(file).with_context(unreadable)? } else { String::new() };
    let beside = resume.then(|| PathBuf::from(format!("{}.resume", file.display())));
    let progress = match beside.as_deref().map(fs::read) {
        Some(Ok(kept)) => {
            let kept: Progress =
                serde_json::from_slice(&kept).context("the file of the progress is broken")?;
            if kept.bank != bank || kept.format != format || kept.file != digest {
                let file = file.display();
                bail!("{file}.resume is of another bank, format or file: remove it to begin anew");
            }
            complain(format!("going on after {} entries", kept.done));
            kept
        }
        _ => Progress {
            bank: bank.to_owned(),
            format,
            file: digest,
            done: 0,
            sum: Sum::default(),
            withdrawn: Withdrawn::new(),
        },
    };
    let mut import = Import { client, bank, kind, progress, beside, waiting: Vec::new(), size: 0, read: 0 };
    for line in files::lines(input, format, kind).with_context(unreadable)? {
        match line {
            Ok(line) => import.take(line).await?,
            Err(fault) => {
                // What stood before it is taken like the whole of another file.
                import.finish().await?;
                complain(format!("{:#}: the rest was not read", fault.context(unreadable())));
                return Ok(ExitCode::FAILURE);
            }
        }
    }
    import.finish().await
}

fn digest(file: &Path) -> io::Result<String> {
    let mut digest = Sha256::new();
    let mut input = BufReader::with_capacity(1 << 16, File::open(file)?);
    loop {
        let block = input.fill_buf()?;
        if block.is_empty() {
            return Ok(hex(&digest.finalize()));
        }
        let read = block.len();
        digest.update(block);
        input.consume(read);
    }
}

struct Import<'c> {
    client: &'c Client,
    bank: &'c str,
    kind: BankKind,
    progress: Progress,
    beside: Option<PathBuf>,
    waiting: Vec<(Place, Change)>,
    /// In bytes, of what waits.
    size: usize,
    read: u64,
}

enum Change {
    Add(Value),
    Remove(String),
}

impl Import<'_> {
    async fn take(&mut self, line: files::Line) -> anyhow::Result<()> {
        self.read += 1;
        if self.read <= self.progress.done {
            return Ok(());
        }
        let files::Line { place, entry } = line;
        match entry {
            Ok(What::Add(entry)) => {
                self.doubt(place, &entry);
                self.is_given_again(&entry);
                self.size += entry.to_string().len();
                self.waiting.push((place, Change::Add(entry)));
            }
            Ok(What::Remove(value)) => {
                self.size += value.len();
                self.waiting.push((place, Change::Remove(value)));
            }
            Ok(What::Withdraw { source, reference }) => {
                let of_source = self.progress.withdrawn.entry(source).or_default();
                if of_source.insert(reference, BTreeSet::new()).is_some() {
                    self.progress.sum.unchanged += 1;
                }
            }
            Ok(What::Other) => self.progress.sum.others += 1,
            Err(reason) => {
                complain(format!("{place}: {reason}"));
                self.progress.sum.rejected += 1;
            }
        }
        if self.waiting.len() >= BATCH || self.size >= BATCH_BYTES {
            self.send().await?;
        }
        if self.read.is_multiple_of(TELL_EVERY) {
            complain(format!("{} entries read", self.read));
        }
        Ok(())
    }

    /// PDQ sets half of its bits, so a hash that does not is hardly one. It is added all the same.
    fn doubt(&self, place: Place, entry: &Value) {
        let value = entry.as_str().or_else(|| entry["value"].as_str()).unwrap_or_default();
        let hash = Some(value).filter(|_| self.kind == BankKind::Pdq);
        let Some(hash) = hash.and_then(|hash| Hash::parse(HashKind::Pdq, hash.trim())) else { return };
        let set: u32 = hash.bytes().iter().map(|byte| byte.count_ones()).sum();
        if !USUALLY_SET.contains(&set) {
            complain(format!("{place}: {set} of its bits are set; of a picture's hash about 128 are"));
        }
    }

    /// What is withdrawn goes at the end, but not what came under its name after that.
    fn is_given_again(&mut self, entry: &Value) {
        let text = |key: &str| entry[key].as_str().unwrap_or_default();
        let of_source = self.progress.withdrawn.get_mut(text("source"));
        if let Some(values) = of_source.and_then(|it| it.get_mut(text("reference")))
            && let Ok(value) = self.kind.canonical(text("value"))
        {
            values.insert(value);
        }
    }

    /// What waits, in its order: adding and removing the same entry are not swapped.
    async fn send(&mut self) -> anyhow::Result<()> {
        let mut run = Vec::new();
        for (place, change) in std::mem::take(&mut self.waiting) {
            let is_other =
                |(_, last): &(Place, Change)| std::mem::discriminant(last) != std::mem::discriminant(&change);
            if run.last().is_some_and(is_other) {
                self.send_run(std::mem::take(&mut run)).await?;
            }
            run.push((place, change));
        }
        self.send_run(run).await?;
        self.size = 0;
        self.progress.done = self.read;
        self.keep()
    }

    async fn send_run(&mut self, run: Vec<(Place, Change)>) -> anyhow::Result<()> {
        let (mut places, mut entries, mut values) = (Vec::new(), Vec::new(), Vec::new());
        for (place, change) in run {
            match change {
                Change::Add(entry) => {
                    places.push(place);
                    entries.push(entry);
                }
                Change::Remove(value) => values.push(value),
            }
        }
        if !entries.is_empty() {
            let path = format!("/banks/{}/entries", self.bank);
            let taken: Taken = self.client.post(&path, &json!({"entries": entries})).await?;
            for rejected in &taken.rejected {
                complain(format!("{}: {}", places[rejected.index], rejected.reason));
            }
            self.progress.sum.add(&Sum::of(&taken));
        }
        if !values.is_empty() {
            let count = values.len();
            let removed = self.remove(&json!({"values": values})).await?;
            self.progress.sum.removed += removed;
            self.progress.sum.unchanged += count - removed;
        }
        Ok(())
    }

    async fn remove(&self, named: &Value) -> anyhow::Result<usize> {
        let found: Found = self.client.post(&format!("/banks/{}/entries/remove", self.bank), named).await?;
        Ok(found.found)
    }

    async fn finish(mut self) -> anyhow::Result<ExitCode> {
        self.send().await?;
        self.withdraw().await?;
        if let Some(beside) = &self.beside {
            fs::remove_file(beside).with_context(|| format!("cannot remove {}", beside.display()))?;
        }
        Ok(self.progress.sum.told())
    }

    /// What is withdrawn has a name only, so all entries are looked at for it, once.
    async fn withdraw(&mut self) -> anyhow::Result<()> {
        if self.progress.withdrawn.is_empty() {
            return Ok(());
        }
        let withdrawn = &self.progress.withdrawn;
        let (mut ids, mut met, mut cursor) = (Vec::new(), BTreeSet::new(), None);
        loop {
            let page = page(self.client, self.bank, PAGE, cursor).await?;
            for entry in &page.items {
                let text = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
                let (source, reference) = (text("source"), text("reference"));
                let again = withdrawn.get(&source).and_then(|of_source| of_source.get(&reference));
                if again.is_some_and(|values| !values.contains(&text("value"))) {
                    ids.push(text("id"));
                    met.insert((source, reference));
                }
            }
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        for ids in ids.chunks(BATCH) {
            self.remove(&json!({"ids": ids})).await?;
        }
        let names: usize = withdrawn.values().map(BTreeMap::len).sum();
        self.progress.sum.removed += met.len();
        self.progress.sum.unchanged += names - met.len();
        Ok(())
    }

    /// A half-written file would be worse than an old one.
    fn keep(&self) -> anyhow::Result<()> {
        let Some(beside) = &self.beside else { return Ok(()) };
        let cannot = || format!("cannot write {}", beside.display());
        let new = beside.with_extension("resume-new");
        fs::write(&new, serde_json::to_vec(&self.progress)?).with_context(cannot)?;
        fs::rename(&new, beside).with_context(cannot)
    }
}

//! `tidegate banks import`: sends the entries of a file in batches and reports rejected ones.
//!
//! Memory holds one batch, and the withdrawn references with the values that were listed again since.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs::{self, File},
    io::{self, BufRead, BufReader},
    ops::RangeInclusive,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, bail};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tidegate_bank_exchange::{Change, FileEntry, Format, Position, read_entries};
use tidegate_media::banks::Hash;
use tidegate_schemas::{
    banks::{BankKind, HashKind},
    hex,
};

use super::{
    AddResult, PAGE, WithdrawResult, WithdrawResults,
    counts::ImportCounts,
    find_bank, page,
    progress::{ImportTarget, Progress},
};
use crate::{client::Client, output::print_error};

/// Number of entries in one request. Rules are compiled anew with each change of a list, so few large requests are
/// better.
const BATCH: usize = 10_000;
const BATCH_BYTES: usize = 2 << 20;

/// Number of entries between two progress lines.
const PROGRESS_EVERY: u64 = 100_000;

/// Usual number of set bits in the PDQ hash of a real picture.
const USUAL_BITS_SET: RangeInclusive<u32> = 118..=138;

pub(super) async fn run(
    client: &Client,
    bank: &str,
    file: &Path,
    format: Format,
    resume: bool,
) -> anyhow::Result<ExitCode> {
    let (found, kind) = find_bank(client, bank).await?;
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
    let beside = resume.then(|| PathBuf::from(format!("{}.resume", file.display())));
    let digest = if resume { digest(file).with_context(unreadable)? } else { String::new() };
    let (server, bank_name) = (client.server().to_owned(), bank.to_owned());
    let org = format!("{} since {}", found.org, found.org_since.unwrap_or_default());
    let subject = ImportTarget { server, org, bank: bank_name, format, file: digest };
    let kept = match &beside {
        Some(beside) => Progress::read(beside, &subject, found.revision)?,
        None => None,
    };
    if let Some(kept) = &kept {
        print_error(format!("going on after {} entries", kept.done));
    }
    let progress = kept.unwrap_or_else(|| Progress::new(subject, found.revision));
    let mut import = Import {
        client,
        bank,
        kind,
        progress,
        beside,
        waiting: Vec::new(),
        size: 0,
        remarks: Vec::new(),
        read: 0,
    };
    for entry in read_entries(input, format, kind).with_context(unreadable)? {
        match entry {
            Ok(entry) => import.take(entry).await?,
            Err(fault) => {
                // Entries before the broken part are imported like a whole file.
                import.finish().await?;
                print_error(format!(
                    "{:#}: the rest was not read",
                    anyhow::Error::from(fault).context(unreadable())
                ));
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
    waiting: Vec<(Position, Request)>,
    /// Size in bytes of the waiting changes.
    size: usize,
    /// Remarks on entries, printed in the file's order once the waiting changes are sent.
    remarks: Vec<(Position, String)>,
    read: u64,
}

/// Change that is sent to the service.
enum Request {
    Add(Value),
    Withdraw(Value),
}

/// Returns the value of an entry, which is a text or has one.
fn value(entry: &Value) -> &str {
    entry.as_str().or_else(|| entry["value"].as_str()).unwrap_or_default()
}

impl Import<'_> {
    async fn take(&mut self, entry: FileEntry) -> anyhow::Result<()> {
        self.read += 1;
        if self.read <= self.progress.done {
            return Ok(());
        }
        let FileEntry { position, change } = entry;
        match change {
            Ok(Change::Add(entry)) => {
                self.check_bits(position, &entry);
                self.note_relisted(&entry);
                self.size += entry.to_string().len();
                self.waiting.push((position, Request::Add(entry)));
            }
            Ok(Change::Withdraw(named)) => {
                self.size += named.to_string().len();
                self.waiting.push((position, Request::Withdraw(named)));
            }
            Ok(Change::WithdrawByReference { source, reference }) => {
                let of_source = self.progress.withdrawn.entry(source).or_default();
                if of_source.insert(reference, BTreeSet::new()).is_some() {
                    self.progress.sum.missing += 1;
                }
            }
            Ok(Change::OtherKind) => self.progress.sum.others += 1,
            Err(reason) => {
                self.size += reason.len();
                self.remarks.push((position, reason));
                self.progress.sum.rejected += 1;
            }
        }
        if self.waiting.len() + self.remarks.len() >= BATCH || self.size >= BATCH_BYTES {
            self.send().await?;
        }
        if self.read.is_multiple_of(PROGRESS_EVERY) {
            print_error(format!("{} entries read", self.read));
        }
        Ok(())
    }

    /// Remarks on PDQ hashes with an unusual number of set bits: PDQ sets half of them. The entry is added all the same.
    fn check_bits(&mut self, position: Position, entry: &Value) {
        let hash = Some(value(entry)).filter(|_| self.kind == BankKind::Pdq);
        let Some(hash) = hash.and_then(|hash| Hash::parse(HashKind::Pdq, hash.trim())) else { return };
        let set: u32 = hash.bytes().iter().map(|byte| byte.count_ones()).sum();
        if !USUAL_BITS_SET.contains(&set) {
            let remark = format!("{set} of its bits are set; of a picture's hash about 128 are");
            self.remarks.push((position, remark));
        }
    }

    /// Records that a withdrawn reference is listed again. Withdrawals by reference run at the end and must spare values
    /// that were listed after them.
    fn note_relisted(&mut self, entry: &Value) {
        let text = |key: &str| entry[key].as_str().unwrap_or_default();
        let of_source = self.progress.withdrawn.get_mut(text("source"));
        if let Some(values) = of_source.and_then(|it| it.get_mut(text("reference")))
            && let Ok(value) = self.kind.canonical(value(entry))
        {
            values.insert(value);
        }
    }

    /// Sends the waiting changes. Only adding and withdrawing the same value must keep their order, so all others share
    /// a request each.
    async fn send(&mut self) -> anyhow::Result<()> {
        let (mut run, mut known) = (Vec::new(), HashMap::new());
        for (position, change) in std::mem::take(&mut self.waiting) {
            let written = match &change {
                Request::Add(entry) | Request::Withdraw(entry) => value(entry),
            };
            let value = self.kind.canonical(written).unwrap_or_else(|_| written.to_owned());
            let how = std::mem::discriminant(&change);
            if known.get(&value).is_some_and(|before| *before != how) {
                self.send_run(std::mem::take(&mut run)).await?;
                known.clear();
            }
            known.insert(value, how);
            run.push((position, change));
        }
        self.send_run(run).await?;
        self.size = 0;
        self.remarks.sort_by_key(|(position, _)| *position);
        for (position, remark) in self.remarks.drain(..) {
            print_error(format!("{position}: {remark}"));
        }
        self.progress.done = self.read;
        self.keep()
    }

    async fn send_run(&mut self, run: Vec<(Position, Request)>) -> anyhow::Result<()> {
        let (mut positions, mut entries, mut withdrawn) = (Vec::new(), Vec::new(), Vec::new());
        for (position, change) in run {
            match change {
                Request::Add(entry) => {
                    positions.push(position);
                    entries.push(entry);
                }
                Request::Withdraw(named) => withdrawn.push(named),
            }
        }
        if !entries.is_empty() {
            let path = format!("/banks/{}/entries", self.bank);
            let result: AddResult = self.client.post(&path, &json!({"entries": entries})).await?;
            let rejected = result.rejected.iter();
            self.remarks.extend(rejected.map(|it| (positions[it.index], it.reason.clone())));
            result.print_warnings();
            self.progress.sum.add(&ImportCounts::from_result(&result));
            self.progress.revision = self.progress.revision.max(result.revision);
        }
        if !withdrawn.is_empty() {
            let outcomes = self.withdraw_entries(&withdrawn).await?;
            outcomes.into_iter().for_each(|outcome| self.progress.sum.count(outcome));
        }
        Ok(())
    }

    async fn withdraw_entries(&self, named: &[Value]) -> anyhow::Result<Vec<WithdrawResult>> {
        let path = format!("/banks/{}/entries/withdraw", self.bank);
        let told: WithdrawResults = self.client.post(&path, &json!({"entries": named})).await?;
        if told.outcomes.len() != named.len() {
            bail!("the service tells of {} of {} withdrawn entries", told.outcomes.len(), named.len());
        }
        Ok(told.outcomes)
    }

    async fn finish(mut self) -> anyhow::Result<ExitCode> {
        self.send().await?;
        self.withdraw_by_reference().await?;
        if let Some(beside) = &self.beside {
            fs::remove_file(beside).with_context(|| format!("cannot remove {}", beside.display()))?;
        }
        Ok(self.progress.sum.print())
    }

    /// Withdraws by reference. The service has no look-up by reference, so all entries are read once.
    async fn withdraw_by_reference(&mut self) -> anyhow::Result<()> {
        if self.progress.withdrawn.is_empty() {
            return Ok(());
        }
        let (mut named, mut cursor) = (Vec::new(), None);
        loop {
            let page = page(self.client, self.bank, PAGE, cursor).await?;
            page.items.iter().for_each(|entry| self.collect_withdrawn(entry, &mut named));
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        // A reference may have had several hashes.
        let mut by_name: BTreeMap<(String, String), WithdrawResult> = BTreeMap::new();
        for named in named.chunks(BATCH) {
            for (named, outcome) in named.iter().zip(self.withdraw_entries(named).await?) {
                let text = |key: &str| named[key].as_str().unwrap_or_default().to_owned();
                let most = by_name.entry((text("source"), text("reference"))).or_insert(outcome);
                *most = outcome.max(*most);
            }
        }
        let names: usize = self.progress.withdrawn.values().map(BTreeMap::len).sum();
        self.progress.sum.missing += names - by_name.len();
        by_name.into_values().for_each(|outcome| self.progress.sum.count(outcome));
        Ok(())
    }

    /// Collects the origins of an entry that withdraw it.
    fn collect_withdrawn(&self, entry: &Value, named: &mut Vec<Value>) {
        let value = entry["value"].as_str().unwrap_or_default();
        let also = entry["also"].as_array().into_iter().flatten();
        for origin in also.chain([entry]) {
            let text = |key: &str| origin[key].as_str().unwrap_or_default();
            let (source, reference) = (text("source"), text("reference"));
            let of_source = self.progress.withdrawn.get(source);
            let again = of_source.and_then(|of_source| of_source.get(reference));
            if again.is_some_and(|values| !values.contains(value)) {
                named.push(json!({"value": value, "source": source, "reference": reference}));
            }
        }
    }

    fn keep(&self) -> anyhow::Result<()> {
        self.beside.as_deref().map_or(Ok(()), |beside| self.progress.keep(beside))
    }
}

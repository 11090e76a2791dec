//! `tidegate banks import`: sends the entries of a file in batches and reports rejected ones.
//!
//! Memory holds one batch, and the withdrawn references with the values that were listed again later.

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
    fetch_page, find_bank,
    progress::{ImportTarget, Progress},
};
use crate::{client::Client, output::print_error};

/// Maximum number of entries in one request. Rules are recompiled after each change of a list, so few large requests are
/// better.
const MAX_BATCH_ENTRIES: usize = 10_000;
const MAX_BATCH_BYTES: usize = 2 << 20;

/// Number of entries between two progress lines.
const PROGRESS_INTERVAL: u64 = 100_000;

/// Usual number of set bits in the PDQ hash of a real picture.
const USUAL_BITS_SET: RangeInclusive<u32> = 118..=138;

pub(super) async fn run(
    client: &Client,
    bank: &str,
    file: &Path,
    format: Format,
    resume: bool,
) -> anyhow::Result<ExitCode> {
    let (bank_info, kind) = find_bank(client, bank).await?;
    let is_standard_input = file.as_os_str() == "-";
    // Progress belongs to the digest of a file, which standard input does not have.
    if resume && is_standard_input {
        bail!("standard input cannot be resumed");
    }
    let describe_read_error = || format!("cannot read {}", file.display());
    let input: Box<dyn BufRead + Send> = if is_standard_input {
        Box::new(BufReader::new(io::stdin()))
    } else {
        Box::new(BufReader::new(File::open(file).with_context(describe_read_error)?))
    };
    let progress_path = resume.then(|| PathBuf::from(format!("{}.resume", file.display())));
    let file_digest =
        if resume { digest_file(file).with_context(describe_read_error)? } else { String::new() };
    let (server, bank_name) = (client.identity().to_owned(), bank.to_owned());
    // An organisation that was deleted and created again is another one.
    let org = format!("{} since {}", bank_info.org, bank_info.org_since.unwrap_or_default());
    let subject = ImportTarget { server, org, bank: bank_name, format, file: file_digest };
    let saved_progress = match &progress_path {
        Some(path) => Progress::read(path, &subject, bank_info.revision)?,
        None => None,
    };
    if let Some(saved_progress) = &saved_progress {
        print_error(format!("continuing after {} entries", saved_progress.done));
    }
    let progress = saved_progress.unwrap_or_else(|| Progress::new(subject, bank_info.revision));
    let mut import = Import {
        client,
        bank,
        kind,
        progress,
        progress_path,
        pending: Vec::new(),
        pending_bytes: 0,
        remarks: Vec::new(),
        read_count: 0,
    };
    for entry in read_entries(input, format, kind).with_context(describe_read_error)? {
        match entry {
            Ok(entry) => import.process_entry(entry).await?,
            Err(fault) => {
                // The entries before the unreadable part are still imported.
                import.finish().await?;
                print_error(format!(
                    "{:#}: the rest was not read",
                    anyhow::Error::from(fault).context(describe_read_error())
                ));
                return Ok(ExitCode::FAILURE);
            }
        }
    }
    import.finish().await
}

fn digest_file(file: &Path) -> io::Result<String> {
    let mut hasher = Sha256::new();
    let mut input = BufReader::with_capacity(1 << 16, File::open(file)?);
    loop {
        let block = input.fill_buf()?;
        if block.is_empty() {
            return Ok(hex(&hasher.finalize()));
        }
        let read = block.len();
        hasher.update(block);
        input.consume(read);
    }
}

struct Import<'c> {
    client: &'c Client,
    bank: &'c str,
    kind: BankKind,
    progress: Progress,
    progress_path: Option<PathBuf>,
    pending: Vec<(Position, Request)>,
    /// Size in bytes of the pending changes and remarks.
    pending_bytes: usize,
    /// Remarks on entries, printed in the file's order once the pending changes are sent.
    remarks: Vec<(Position, String)>,
    read_count: u64,
}

/// Change that is sent to the service.
enum Request {
    Add(Value),
    Withdraw(Value),
}

/// Returns the value of an entry, which is a text or an object with a value.
fn entry_value(entry: &Value) -> &str {
    entry.as_str().or_else(|| entry["value"].as_str()).unwrap_or_default()
}

impl Import<'_> {
    async fn process_entry(&mut self, entry: FileEntry) -> anyhow::Result<()> {
        self.read_count += 1;
        // A resumed import skips the entries that an earlier run has sent.
        if self.read_count <= self.progress.done {
            return Ok(());
        }
        let FileEntry { position, change } = entry;
        match change {
            Ok(Change::Add(entry)) => {
                self.check_bits(position, &entry);
                self.record_relisted(&entry);
                self.pending_bytes += entry.to_string().len();
                self.pending.push((position, Request::Add(entry)));
            }
            Ok(Change::Withdraw(entry)) => {
                self.pending_bytes += entry.to_string().len();
                self.pending.push((position, Request::Withdraw(entry)));
            }
            Ok(Change::WithdrawByReference { source, reference }) => {
                let references = self.progress.withdrawn.entry(source).or_default();
                // A repeated withdrawal also covers values that were listed since the first one, so their set is emptied.
                if references.insert(reference, BTreeSet::new()).is_some() {
                    self.progress.sum.missing += 1;
                }
            }
            Ok(Change::OtherKind) => self.progress.sum.others += 1,
            Err(reason) => {
                self.pending_bytes += reason.len();
                self.remarks.push((position, reason));
                self.progress.sum.rejected += 1;
            }
        }
        // Remarks count as well, because they stay in memory until the batch is sent.
        if self.pending.len() + self.remarks.len() >= MAX_BATCH_ENTRIES
            || self.pending_bytes >= MAX_BATCH_BYTES
        {
            self.send().await?;
        }
        if self.read_count.is_multiple_of(PROGRESS_INTERVAL) {
            print_error(format!("{} entries read", self.read_count));
        }
        Ok(())
    }

    /// Warns of a PDQ hash with an unusual number of set bits: PDQ sets half of them. The entry is added anyway.
    fn check_bits(&mut self, position: Position, entry: &Value) {
        let hash = Some(entry_value(entry)).filter(|_| self.kind == BankKind::Pdq);
        let Some(hash) = hash.and_then(|hash| Hash::parse(HashKind::Pdq, hash.trim())) else { return };
        let set_bits: u32 = hash.bytes().iter().map(|byte| byte.count_ones()).sum();
        if !USUAL_BITS_SET.contains(&set_bits) {
            let remark = format!("{set_bits} of its bits are set; the hash of a real picture has about 128");
            self.remarks.push((position, remark));
        }
    }

    /// Records that a withdrawn reference is listed again. Withdrawals by reference run at the end and must spare values
    /// that were listed later.
    fn record_relisted(&mut self, entry: &Value) {
        let text = |key: &str| entry[key].as_str().unwrap_or_default();
        let of_source = self.progress.withdrawn.get_mut(text("source"));
        if let Some(values) = of_source.and_then(|references| references.get_mut(text("reference")))
            && let Ok(value) = self.kind.canonical(entry_value(entry))
        {
            values.insert(value);
        }
    }

    /// Sends the pending changes. Only adding and withdrawing the same value must keep their order, so all other changes share
    /// a request per kind.
    async fn send(&mut self) -> anyhow::Result<()> {
        let (mut batch, mut kinds_by_value) = (Vec::new(), HashMap::new());
        for (position, change) in std::mem::take(&mut self.pending) {
            let raw_value = match &change {
                Request::Add(entry) | Request::Withdraw(entry) => entry_value(entry),
            };
            // Two spellings of a value are the same entry.
            let value = self.kind.canonical(raw_value).unwrap_or_else(|_| raw_value.to_owned());
            let kind = std::mem::discriminant(&change);
            // The same value is added and withdrawn, so the earlier change must reach the service first.
            if kinds_by_value.get(&value).is_some_and(|earlier_kind| *earlier_kind != kind) {
                self.send_batch(std::mem::take(&mut batch)).await?;
                kinds_by_value.clear();
            }
            kinds_by_value.insert(value, kind);
            batch.push((position, change));
        }
        self.send_batch(batch).await?;
        self.pending_bytes = 0;
        // Refusals by the service are added after the remarks of the reader, so they are out of order.
        self.remarks.sort_by_key(|(position, _)| *position);
        for (position, remark) in self.remarks.drain(..) {
            print_error(format!("{position}: {remark}"));
        }
        // Saved after the answer: an interrupted batch is sent again, and entries that exist already stay unchanged.
        self.progress.done = self.read_count;
        self.save_progress()
    }

    async fn send_batch(&mut self, batch: Vec<(Position, Request)>) -> anyhow::Result<()> {
        let (mut positions, mut entries, mut withdrawals) = (Vec::new(), Vec::new(), Vec::new());
        for (position, change) in batch {
            match change {
                Request::Add(entry) => {
                    positions.push(position);
                    entries.push(entry);
                }
                Request::Withdraw(entry) => withdrawals.push(entry),
            }
        }
        if !entries.is_empty() {
            let path = format!("/banks/{}/entries", self.bank);
            let result: AddResult = self.client.post(&path, &json!({"entries": entries})).await?;
            let rejected = result.rejected.iter();
            self.remarks
                .extend(rejected.map(|rejection| (positions[rejection.index], rejection.reason.clone())));
            result.print_warnings();
            self.progress.sum.add(&ImportCounts::from_result(&result));
            self.progress.revision = self.progress.revision.max(result.revision);
        }
        if !withdrawals.is_empty() {
            let outcomes = self.withdraw_entries(&withdrawals).await?;
            outcomes.into_iter().for_each(|outcome| self.progress.sum.add_outcome(outcome));
        }
        Ok(())
    }

    async fn withdraw_entries(&self, entries: &[Value]) -> anyhow::Result<Vec<WithdrawResult>> {
        let path = format!("/banks/{}/entries/withdraw", self.bank);
        let response: WithdrawResults = self.client.post(&path, &json!({"entries": entries})).await?;
        // Outcomes are matched with entries by their order.
        if response.outcomes.len() != entries.len() {
            bail!("the service reports {} of {} withdrawn entries", response.outcomes.len(), entries.len());
        }
        Ok(response.outcomes)
    }

    async fn finish(mut self) -> anyhow::Result<ExitCode> {
        self.send().await?;
        self.withdraw_by_reference().await?;
        if let Some(progress_path) = &self.progress_path {
            fs::remove_file(progress_path)
                .with_context(|| format!("cannot remove {}", progress_path.display()))?;
        }
        Ok(self.progress.sum.print())
    }

    /// Withdraws entries by reference. The service has no look-up by reference, so all entries are read once.
    async fn withdraw_by_reference(&mut self) -> anyhow::Result<()> {
        if self.progress.withdrawn.is_empty() {
            return Ok(());
        }
        let (mut withdrawals, mut cursor) = (Vec::new(), None);
        loop {
            let page = fetch_page(self.client, self.bank, PAGE, cursor).await?;
            page.items.iter().for_each(|entry| self.collect_withdrawn(entry, &mut withdrawals));
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        // Several hashes may share a reference; the strongest outcome counts.
        let mut outcome_by_reference: BTreeMap<(String, String), WithdrawResult> = BTreeMap::new();
        for chunk in withdrawals.chunks(MAX_BATCH_ENTRIES) {
            for (entry, outcome) in chunk.iter().zip(self.withdraw_entries(chunk).await?) {
                let text = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
                let best_outcome =
                    outcome_by_reference.entry((text("source"), text("reference"))).or_insert(outcome);
                *best_outcome = outcome.max(*best_outcome);
            }
        }
        let reference_count: usize = self.progress.withdrawn.values().map(BTreeMap::len).sum();
        // References without an entry have no outcome.
        self.progress.sum.missing += reference_count - outcome_by_reference.len();
        outcome_by_reference.into_values().for_each(|outcome| self.progress.sum.add_outcome(outcome));
        Ok(())
    }

    /// Collects the origins of an entry that were withdrawn and did not list its value again.
    fn collect_withdrawn(&self, entry: &Value, withdrawals: &mut Vec<Value>) {
        let value = entry["value"].as_str().unwrap_or_default();
        let other_origins = entry["also"].as_array().into_iter().flatten();
        for origin in other_origins.chain([entry]) {
            let text = |key: &str| origin[key].as_str().unwrap_or_default();
            let (source, reference) = (text("source"), text("reference"));
            let references = self.progress.withdrawn.get(source);
            let relisted_values = references.and_then(|references| references.get(reference));
            if relisted_values.is_some_and(|values| !values.contains(value)) {
                withdrawals.push(json!({"value": value, "source": source, "reference": reference}));
            }
        }
    }

    fn save_progress(&self) -> anyhow::Result<()> {
        self.progress_path.as_deref().map_or(Ok(()), |path| self.progress.save(path))
    }
}

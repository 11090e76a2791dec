//! Measures look-ups in hash banks by number of entries, and compares cost and matches with a full scan.
//!
//! `cargo bench -p tidegate-media --bench index -- [sizes] [queries] [folder]`; it prints a table. With `folder`, hashes
//! and queries are written there as raw bytes, for `beside_faiss.py` to answer the same.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss
)]

use std::{
    fs,
    io::{BufWriter, Write as _},
    path::Path,
    time::Instant,
};

use tidegate_media::banks::{
    Bank, BankPublisher, BulkLoad, Entry, Hash, HashBanks, MediaHashes, Picture, Settings,
};
use tidegate_schemas::{banks::HashKind, documents::Percent, ids::BankId};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Rounds over all queries. The median is reported.
const ROUNDS: usize = 5;
const RADIUS: u32 = 31;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|it| !it.starts_with("--")).collect();
    let sizes: Vec<usize> = arguments.first().map_or_else(
        || vec![10_000, 1_000_000, 10_000_000],
        |sizes| sizes.split(',').map(|size| size.parse().unwrap()).collect(),
    );
    let queries: usize = arguments.get(1).map_or(2_000, |queries| queries.parse().unwrap());
    let folder = arguments.get(2);
    println!(
        "| entries | look-ups/s of a core | lowest to highest | scan/s | found | compared with all | B an entry | build s |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
    for size in sizes {
        measure(size, queries, folder.map(Path::new));
    }
}

fn measure(size: usize, queries: usize, folder: Option<&Path>) {
    let mut draw = Draw(size as u64);
    let hashes = bank(&mut draw, size);
    let asked = queries_of(&mut draw, &hashes, queries);
    if let Some(folder) = folder {
        write(&folder.join(format!("{size}.hashes")), &hashes);
        write(&folder.join(format!("{size}.queries")), &asked);
    }
    let id = BankId::new("bench");
    let publisher = BankPublisher::new(Settings { matches: 1_000, check_one_in: 0, ..Settings::default() });
    publisher.configure(vec![Bank {
        id: id.clone(),
        kind: HashKind::Pdq,
        enabled: true,
        distance: RADIUS,
        sample: Percent::new(100.0).unwrap(),
        suppresses: Vec::new(),
        watched: false,
        inline_hashes: Vec::new(),
    }]);
    let mut load = BulkLoad::new(HashKind::Pdq);
    for hash in &hashes {
        load.push(Hash::new(HashKind::Pdq, hash).unwrap(), Entry::default());
    }
    let began = Instant::now();
    publisher.load(&id, load);
    publisher.rebuild();
    let build = began.elapsed();
    let bytes = publisher.sizes()[0].bytes;
    let banks = publisher.current();
    let asked: Vec<MediaHashes> = asked
        .iter()
        .map(|pdq| MediaHashes {
            pictures: vec![Picture { pdq: *pdq, quality: 100, frame: None }],
            ..MediaHashes::default()
        })
        .collect();
    let found = |banks: &HashBanks| -> usize {
        asked.iter().map(|hashes| banks.find_hashes("item", hashes).matches.len()).sum()
    };
    // A full scan is slow, so only some queries are verified.
    let sample = (20_000_000 / size).clamp(20, queries);
    let began = cpu();
    let plain: Vec<_> = asked[..sample].iter().map(|hashes| banks.find_by_scan("item", hashes)).collect();
    let scanned = sample as f64 / (cpu() - began);
    for (plain, hashes) in plain.iter().zip(&asked) {
        assert_eq!(*plain, banks.find_hashes("item", hashes));
    }
    let count = found(&banks);
    let mut rates: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let began = cpu();
            assert_eq!(found(&banks), count);
            queries as f64 / (cpu() - began)
        })
        .collect();
    rates.sort_by(f64::total_cmp);
    println!(
        "| {size} | {:.0} | {:.0} to {:.0} | {scanned:.0} | {count} | {sample} queries | {:.0} | {:.2} |",
        rates[ROUNDS / 2],
        rates[0],
        rates[ROUNDS - 1],
        bytes as f64 / size as f64,
        build.as_secs_f64(),
    );
}

/// Any hashes, and among a hundred one that has five near it.
fn bank(draw: &mut Draw, size: usize) -> Vec<[u8; 32]> {
    let mut all: Vec<[u8; 32]> = Vec::with_capacity(size);
    while all.len() < size {
        let hash = draw.hash();
        all.push(hash);
        if all.len().is_multiple_of(100) {
            for _ in 0..5 {
                let flips = 1 + draw.below(19);
                all.push(draw.beside(hash, flips));
            }
        }
    }
    all.truncate(size);
    all
}

/// Half of them near an entry, up to 36 bits off.
fn queries_of(draw: &mut Draw, hashes: &[[u8; 32]], count: usize) -> Vec<[u8; 32]> {
    let query = |nth: usize| {
        if nth.is_multiple_of(2) {
            return draw.hash();
        }
        let near = hashes[draw.below(hashes.len() as u64) as usize];
        let flips = draw.below(37);
        draw.beside(near, flips)
    };
    (0..count).map(query).collect()
}

fn write(path: &Path, hashes: &[[u8; 32]]) {
    let mut file = BufWriter::new(fs::File::create(path).unwrap());
    hashes.iter().for_each(|hash| file.write_all(hash).unwrap());
    file.flush().unwrap();
}

/// CPU time of this process in seconds, independent of other load on the machine.
fn cpu() -> f64 {
    let text = fs::read_to_string("/proc/self/schedstat").unwrap();
    text.split_whitespace().next().unwrap().parse::<f64>().unwrap() / 1e9
}

struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn hash(&mut self) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes.chunks_exact_mut(8).for_each(|chunk| chunk.copy_from_slice(&self.next().to_be_bytes()));
        bytes
    }

    fn beside(&mut self, mut hash: [u8; 32], flips: u64) -> [u8; 32] {
        for _ in 0..flips {
            let bit = self.below(256) as usize;
            hash[bit / 8] ^= 1 << (bit % 8);
        }
        hash
    }
}

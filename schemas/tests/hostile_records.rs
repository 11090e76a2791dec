//! Hostile bytes against the readers of all records: a bounded, seeded stand-in for a fuzz target.
#![allow(clippy::unwrap_used)]
#![allow(unsafe_code, reason = "a counting allocator measures the allocations of a reader")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    fs,
};

use apache_avro::Schema;
use bytes::Bytes;
use tidegate_schemas::records::{
    Appeal, Callback, DeadLetter, Decision, Evaluation, Items, Record, RecordDecodeError, Report, Strike,
    resolve,
};

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

/// Counts the bytes in use by each thread.
struct Counting;

fn count(bytes: isize) {
    let in_use = HELD.get() + bytes;
    HELD.set(in_use);
    PEAK.set(PEAK.get().max(in_use));
}

// SAFETY: every call is forwarded to `System` unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-layout.size().cast_signed());
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn peak_of(work: impl FnOnce()) -> usize {
    let before = HELD.get();
    PEAK.set(before);
    work();
    (PEAK.get() - before).cast_unsigned()
}

/// SplitMix64: small, seeded, the same on every platform.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(end).unwrap()).unwrap()
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }
}

struct Target {
    name: &'static str,
    seed: Vec<u8>,
    schema: Schema,
    decode: fn(&Bytes) -> Result<Vec<u8>, RecordDecodeError>,
}

fn target<R: Record>() -> Target {
    let file = format!("{}/tests/golden/{}.{}.bin", env!("CARGO_MANIFEST_DIR"), R::NAME, R::SCHEMA_ID);
    Target {
        name: R::NAME,
        seed: fs::read(file).unwrap(),
        schema: Schema::parse_str(R::SCHEMA).unwrap(),
        decode: |datum| {
            let record = R::decode(datum)?;
            let mut encoded = Vec::new();
            record.encode(&mut encoded);
            Ok(encoded)
        },
    }
}

fn targets() -> Vec<Target> {
    vec![
        target::<Items>(),
        target::<Report>(),
        target::<Appeal>(),
        target::<Decision>(),
        target::<Strike>(),
        target::<Callback>(),
        target::<Evaluation>(),
        target::<DeadLetter>(),
    ]
}

/// Varints of excessive or invalid counts.
const PROMISES: &[&[u8]] = &[
    &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
    &[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
    &[0xfe, 0xff, 0xff, 0xff, 0x0f],
    &[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80],
    &[0x80, 0x80, 0x01],
    &[0x01],
];

fn mutate(random: &mut Random, datum: &mut Vec<u8>) {
    for _ in 0..=random.below(4) {
        let at = random.below(datum.len().max(1));
        match random.below(6) {
            _ if datum.is_empty() => datum.push(random.byte()),
            0 => datum[at] ^= 1 << random.below(8),
            1 => datum[at] = random.byte(),
            2 => datum.truncate(at),
            3 => drop(datum.splice(at..at, PROMISES[random.below(PROMISES.len())].iter().copied())),
            4 => {
                let promise = PROMISES[random.below(PROMISES.len())];
                let end = (at + promise.len()).min(datum.len());
                drop(datum.splice(at..end, promise.iter().copied()));
            }
            _ => {
                let end = at + random.below(datum.len() - at);
                let copy = datum[at..end].to_vec();
                drop(datum.splice(at..at, copy));
            }
        }
    }
}

/// Decodes a datum. An accepted record is encoded and decoded again unchanged; the allocated memory is bounded.
fn try_on(target: &Target, datum: Vec<u8>) -> bool {
    let length = datum.len();
    let datum = Bytes::from(datum);
    let mut accepted = None;
    let peak = peak_of(|| accepted = (target.decode)(&datum).ok());
    // The smallest entry is one byte on the wire. In memory it is an `Arc` and a place in a growing list.
    let allowed = 64 * length + 4_096;
    assert!(peak <= allowed, "{}: {peak} bytes for a datum of {length}", target.name);
    let Some(encoded) = accepted else { return false };
    assert!(
        (target.decode)(&Bytes::from(encoded.clone())) == Ok(encoded),
        "{}: the encoded record is read back",
        target.name
    );
    true
}

#[test]
fn changed_bytes_never_cost_more_than_their_length() {
    let mut random = Random(7);
    let targets = targets();
    let (mut accepted, mut refused) = (0_u32, 0_u32);
    for _ in 0..10_000 {
        for target in &targets {
            let mut datum = target.seed.clone();
            mutate(&mut random, &mut datum);
            if try_on(target, datum) { accepted += 1 } else { refused += 1 }
        }
    }
    assert!(
        accepted > 100 && refused > 100,
        "both outcomes must occur: {accepted} accepted, {refused} refused"
    );
}

#[test]
fn random_bytes_never_cost_more_than_their_length() {
    let mut random = Random(11);
    let targets = targets();
    for _ in 0..10_000 {
        let length = random.below(400);
        let datum: Vec<u8> =
            (0..length).map(|_| random.byte() & if random.below(2) == 0 { 0x03 } else { 0xff }).collect();
        for target in &targets {
            try_on(target, datum.clone());
        }
    }
}

#[test]
fn forged_counts_allocate_no_memory() {
    for target in targets() {
        for filler in [0x00, 0x01, 0x02, 0x7f, 0x80, 0xff] {
            for promise in PROMISES {
                let mut datum = promise.to_vec();
                datum.resize(1 << 20, filler);
                try_on(&target, datum);
            }
        }
    }
}

#[test]
fn lengths_of_another_schema_version_are_checked() {
    let mut random = Random(13);
    let targets = targets();
    for _ in 0..2_000 {
        for target in &targets {
            let mut datum = target.seed.clone();
            mutate(&mut random, &mut datum);
            let length = datum.len();
            let peak = peak_of(|| drop(resolve(&target.schema, &target.schema, &datum)));
            assert!(peak <= 1_024 * length + 65_536, "{}: {peak} bytes for a datum of {length}", target.name);
        }
    }
}

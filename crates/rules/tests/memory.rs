//! Memory of banks of texts. Runs in a separate process, because its global allocator counts.

#![allow(unsafe_code, clippy::unwrap_used)]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
};

use serde_json::json;
use tidegate_rules::{Bank, BankEntry, Kind, Limits, Plan, RuleSource, Shape, Vocabulary};
use tidegate_schemas::{banks::BankKind, ids::TypeId};
use uuid::Uuid;

/// Counts the bytes in use and their maximum.
struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator does all the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let in_use = HELD.fetch_add(layout.size(), SeqCst) + layout.size();
        PEAK.fetch_max(in_use, SeqCst);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), SeqCst);
        unsafe { System.dealloc(at, layout) };
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// A text of about 36 bytes, different for each number.
fn text(nth: usize) -> String {
    let mut state = nth as u64 + 1;
    let mut letters = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b"etaoinshrdlucmfwypvbgkjqxz"[(state >> 33) as usize % 26])
    };
    (0..5).map(|_| (0..7).map(|_| letters()).collect::<String>()).collect::<Vec<_>>().join(" ")
}

/// Compiles two rules about a bank of so many texts. Returns the bytes in use and their peak for each text.
fn measured(texts: usize) -> (usize, usize) {
    let post = TypeId::new("post");
    let documents = ["one", "two"].map(|rule| {
        json!({"rule": rule, "item_types": ["post"], "when": {"text": {"in": ["text"], "bank": "words"}}})
    });
    let sources = documents.each_ref().map(|document| RuleSource { document, version: "1" });
    let before = HELD.load(SeqCst);
    PEAK.store(before, SeqCst);
    let mut vocabulary = Vocabulary::new();
    vocabulary.add(post, [("text", Shape::one(Kind::Text))]);
    let entry = |nth: usize| BankEntry {
        id: Uuid::from_u128(nth as u128),
        value: text(nth).into(),
        labels: Default::default(),
    };
    let entries = (0..texts).map(entry).collect();
    vocabulary.add_bank(Bank { key: "words".into(), kind: BankKind::Text, entries });
    let plan = Plan::compile(&sources, &vocabulary, &Limits::default()).unwrap();
    let kept_bytes = HELD.load(SeqCst) - before;
    let peak = PEAK.load(SeqCst) - before;
    drop(plan);
    (kept_bytes / texts, peak / texts)
}

#[test]
fn text_of_a_bank_takes_at_most_300_bytes() {
    // The first plan also pays for data that are built once.
    measured(1_000);
    for texts in [20_000, 200_000] {
        let (kept, peak) = measured(texts);
        assert!(kept <= 300, "{texts} texts: {kept} bytes each are kept");
        assert!(peak <= 600, "{texts} texts: {peak} bytes each at most");
    }
}

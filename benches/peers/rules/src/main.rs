//! Keyword rules in Tidegate and in its peers, in one run: the same rules and items, equal matches before any timing.
//!
//! `tidegate-rule-peers [sizes]` prints a table. Each peer runs as its documentation shows it and, where that is
//! another way, as an expert would run it.
#![allow(clippy::unwrap_used, reason = "a bench that cannot go on must stop")]

mod sides;

use std::{collections::BTreeSet, fs, time::Duration};

use sides::Side;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// CPU time of one timing, and how many there are; the best counts.
const ROUND: Duration = Duration::from_millis(120);
const ROUNDS: usize = 9;
/// A side that is slow is given fewer items, but the same ones to all while matches are compared.
const ITEMS: usize = 300;

fn main() {
    let sizes: Vec<usize> = match std::env::args().nth(1) {
        Some(sizes) => sizes.split(',').map(|size| size.parse().unwrap()).collect(),
        None => vec![10, 100, 1_000, 10_000],
    };
    println!("load average at the start: {}", load());
    println!("| rules | side | ns an item | items a CPU-second | x Tidegate | matches |");
    println!("| --- | --- | --- | --- | --- | --- |");
    for size in sizes {
        let (words, texts) = world(size);
        let mut tidegate = None;
        let mut expected = None;
        for side in sides::all(&words) {
            // Slow sides are compared and timed on the first items.
            let items = (2_000_000 / size).clamp(10, ITEMS);
            let found: BTreeSet<(usize, u32)> = texts[..items]
                .iter()
                .enumerate()
                .flat_map(|(nth, text)| side.matches(text).into_iter().map(move |rule| (nth, rule)))
                .collect();
            assert_eq!(
                *expected.get_or_insert_with(|| found.clone()),
                found,
                "{} finds other matches",
                side.name()
            );
            let cost = time(&*side, &texts[..items]);
            let first = *tidegate.get_or_insert(cost);
            println!(
                "| {size} | {} | {cost:.0} | {:.0} | {:.1} | {} |",
                side.name(),
                1e9 / cost,
                cost / first,
                found.len()
            );
        }
    }
    println!("load average at the end: {}", load());
}

/// Nanoseconds of CPU time an item.
fn time(side: &dyn Side, texts: &[String]) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..ROUNDS {
        let (began, mut count) = (cpu(), 0_usize);
        while cpu() - began < ROUND {
            // In pieces, so that a slow side does not run for minutes.
            for text in texts.iter().cycle().skip(count % texts.len()).take(10) {
                std::hint::black_box(side.matches(text));
                count += 1;
            }
        }
        best = best.min((cpu() - began).as_nanos() as f64 / count as f64);
    }
    best
}

/// Words for the rules, one each, and lower-case texts of 300 bytes; three in ten hold one of the words.
fn world(size: usize) -> (Vec<String>, Vec<String>) {
    let mut seed = 0x7469_6465_u64;
    let mut roll = |sides: usize| {
        seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = seed;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % sides as u64).unwrap()
    };
    let mut word = |syllables: usize| -> String {
        let syllable = |roll: &mut dyn FnMut(usize) -> usize| {
            let (consonant, vowel) = (roll(16), roll(5));
            format!("{}{}", &"bcdfghklmnprstvw"[consonant..=consonant], &"aeiou"[vowel..=vowel])
        };
        (0..syllables).map(|_| syllable(&mut roll)).collect()
    };
    let mut words = BTreeSet::new();
    while words.len() < size {
        words.insert(word(4));
    }
    let words: Vec<String> = words.into_iter().collect();
    let texts = (0..ITEMS).map(|nth| {
        let mut text = String::new();
        while text.len() < 290 {
            text.push_str(&word(1 + (text.len() + nth) % 4));
            text.push(' ');
        }
        if nth % 10 < 3 {
            text.push_str(&words[nth * 7_919 % words.len()]);
        }
        text
    });
    (words.clone(), texts.collect())
}

/// Time on a processor: what else runs on the machine counts less than with a clock.
fn cpu() -> Duration {
    let spent = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(spent.split(' ').next().unwrap().parse().unwrap())
}

fn load() -> String {
    fs::read_to_string("/proc/loadavg").unwrap().split(' ').next().unwrap().to_owned()
}

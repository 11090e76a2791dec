//! Boundary cases: the last value that counts, and the first that does not.

use super::*;

fn unchecked(banks: Vec<Bank>) -> BankPublisher {
    let publisher = BankPublisher::new(Settings { check_one_in: 0, ..Settings::default() });
    publisher.configure(banks);
    publisher
}

fn share(percent: f64) -> Percent {
    Percent::new(percent).unwrap()
}

/// Entries that differ in the first byte alone.
fn crowd(count: u8) -> Vec<Change> {
    (0..count).map(|first| put(hash(HashKind::Pdq, first), &[])).collect()
}

fn print_of(state: State, frames: u32) -> Fingerprint {
    let mut print = Fingerprint::unhashed(state, None, Digests::of(b""));
    print.gradient8 = Some([7; 8]);
    let frame = |at| Frame { at, pdq: PdqHash([0xa5; 32]), quality: 90, turned: Vec::new() };
    print.frames = (0..frames).map(frame).collect();
    print
}

#[test]
fn disabled_bank_does_not_match_beside_an_enabled_one() {
    let off = Bank { enabled: false, ..bank("off", HashKind::Pdq) };
    let publisher = publisher(vec![bank("on", HashKind::Pdq), off]);
    for id in ["on", "off"] {
        publisher.apply(&BankId::new(id), crowd(1));
    }
    assert_eq!(names(&publisher.current().find_hashes("item", &picture(0, 0))), [("on", 0)]);
}

#[test]
fn banks_sample_independently_and_zero_share_is_empty() {
    let part = |id, percent| Bank { sample: share(percent), ..bank(id, HashKind::Pdq) };
    let publisher = unchecked(vec![part("a", 50.0), part("b", 50.0), part("none", 0.0)]);
    for id in ["a", "b", "none"] {
        publisher.apply(&BankId::new(id), crowd(1));
    }
    let (state, hashes) = (publisher.current(), picture(0, 0));
    let mut seen = BTreeMap::new();
    // An item in ten thousand draws the number zero.
    for nth in 0..60_000 {
        let found = state.find_hashes(&nth.to_string(), &hashes);
        let banks: Vec<_> = found.matches.iter().map(|it| it.bank.as_str().to_owned()).collect();
        *seen.entry(banks).or_insert(0) += 1;
    }
    assert!(seen.keys().flatten().all(|bank| bank != "none"), "{seen:?}");
    assert!(seen.len() == 4 && seen.values().all(|count| (14_000..16_000).contains(count)), "{seen:?}");
}

#[test]
fn picture_of_the_lowest_allowed_quality_is_compared() {
    let publisher = publisher(vec![bank("a", HashKind::Pdq)]);
    publisher.apply(&BankId::new("a"), crowd(1));
    for (quality, count) in [(49, 0), (50, 1)] {
        let mut hashes = picture(0, 0);
        hashes.pictures[0].quality = quality;
        assert_eq!(publisher.current().find_hashes("item", &hashes).matches.len(), count, "{quality}");
    }
}

#[test]
fn matches_above_the_limit_are_cut_off() {
    for (counts, told, truncated) in [
        (&[32][..], 32, false),
        (&[33], 32, true),
        (&[16, 16], 32, false),
        (&[17, 16], 32, true),
        (&[31], 31, false),
    ] {
        let ids = ["a", "b"];
        let banks = ids.iter().take(counts.len()).map(|id| bank(id, HashKind::Pdq)).collect();
        let publisher = publisher(banks);
        for (id, count) in ids.iter().zip(counts) {
            publisher.apply(&BankId::new(*id), crowd(*count));
        }
        let found = publisher.current().find_hashes("item", &picture(0, 0));
        assert_eq!((found.matches.len(), found.truncated), (told, truncated), "{counts:?}");
        assert_eq!(publisher.counts().truncated, u64::from(truncated));
    }
}

#[test]
fn entry_distance_above_the_bank_survives_rebuild() {
    let publisher = publisher(vec![Bank { distance: 2, ..bank("narrow", HashKind::Pdq) }]);
    let entry = Entry { distance: Some(4), ..Entry::default() };
    let narrow = BankId::new("narrow");
    publisher.apply(&narrow, [Change { hash: hash(HashKind::Pdq, 0xa5), entry: Some(entry.clone()) }]);
    let found = |bits: u8| publisher.current().find_hashes("item", &picture(0xa5 ^ bits, 0)).matches.len();
    assert_eq!([found(0b1111), found(0b1_1111)], [1, 0]);
    // The previous rows are orphaned, so a rebuild is needed.
    let mut load = BulkLoad::new(HashKind::Pdq);
    load.push(hash(HashKind::Pdq, 0xa5), entry);
    publisher.load(&narrow, load);
    assert!(publisher.needs_rebuild());
    publisher.rebuild();
    assert_eq!([found(0b1111), found(0b1_1111)], [1, 0]);
}

#[test]
fn low_quality_has_no_gradient_and_single_frame_no_index() {
    assert_eq!(MediaHashes::from_fingerprint(&print_of(State::LowQuality, 1), true).gradient, None);
    let single = MediaHashes::from_fingerprint(&print_of(State::Ok, 1), true);
    assert_eq!((single.gradient, single.pictures[0].frame), (Some([7; 8]), None));
    let several = MediaHashes::from_fingerprint(&print_of(State::Ok, 2), true);
    assert_eq!(several.pictures.iter().map(|it| it.frame).collect::<Vec<_>>(), [Some(0), Some(1)]);
}

#[test]
fn only_matches_of_watched_banks_are_recorded() {
    let watched = Bank { watched: true, ..bank("watched", HashKind::Pdq) };
    let publisher = unchecked(vec![watched, bank("other", HashKind::Md5)]);
    publisher.apply(&BankId::new("watched"), crowd(32));
    publisher.apply(&BankId::new("other"), [put(hash(HashKind::Md5, 7), &[])]);
    let mut hashes = MediaHashes::from_hashes(&[hash(HashKind::Md5, 7)]);
    let state = publisher.current();
    assert_eq!(state.find_hashes("item", &hashes).matches.len(), 1);
    assert!(publisher.take_watched_matches().is_empty());
    hashes.pictures = picture(0, 0).pictures;
    (0..2_200).for_each(|_| drop(state.find_hashes("item", &hashes)));
    assert_eq!(publisher.take_watched_matches().len(), 65_536);
}

#[test]
fn configured_share_of_look_ups_is_verified() {
    for (check_one_in, checked) in [(0, 0), (1, 6), (3, 2), (10_000, 1)] {
        let publisher = BankPublisher::new(Settings { check_one_in, ..Settings::default() });
        publisher.configure(vec![bank("a", HashKind::Pdq)]);
        (0..6).for_each(|_| drop(publisher.current().find_hashes("item", &picture(0, 0))));
        let counts = publisher.counts();
        assert_eq!((counts.lookups, counts.verified, counts.mismatches), (6, checked, 0), "{check_one_in}");
    }
}

#[test]
fn bulk_load_accepts_one_kind_and_removals() {
    let publisher = publisher(vec![bank("a", HashKind::Sha256)]);
    let mut load = BulkLoad::new(HashKind::Sha256);
    // Of as many bytes, so it would fit.
    load.push(hash(HashKind::Pdq, 1), Entry::default());
    for first in [2, 3] {
        load.push(hash(HashKind::Sha256, first), Entry::default());
    }
    load.remove(hash(HashKind::Sha256, 2));
    publisher.load(&BankId::new("a"), load);
    let found = |first| {
        let hashes = MediaHashes::from_hashes(&[hash(HashKind::Sha256, first)]);
        publisher.current().find_hashes("item", &hashes).matches.len()
    };
    assert_eq!([1, 2, 3].map(found), [0, 0, 1]);
}

#[test]
fn banks_are_equal_if_all_but_the_switch_is_equal() {
    let one = bank("a", HashKind::Pdq);
    assert!(one.is_configured_as(&Bank { enabled: false, ..one.clone() }));
    for other in [
        Bank { id: BankId::new("b"), ..one.clone() },
        Bank { kind: HashKind::Md5, ..one.clone() },
        Bank { distance: one.distance + 1, ..one.clone() },
        Bank { sample: share(99.0), ..one.clone() },
        Bank { suppresses: vec![BankId::new("b")], ..one.clone() },
        Bank { watched: true, ..one.clone() },
        Bank { inline_hashes: vec![hash(HashKind::Pdq, 0)], ..one.clone() },
    ] {
        assert!(!one.is_configured_as(&other), "{other:?}");
    }
}

#![allow(clippy::cast_possible_truncation, clippy::unwrap_used)]

mod bounds;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use super::*;
use crate::{
    Digests, PdqHash,
    fingerprint::{Fingerprint, Frame, State},
};

fn hash(kind: HashKind, first: u8) -> Hash {
    let mut bytes = [0xa5; 32];
    bytes[0] = first;
    Hash::new(kind, &bytes[..kind.byte_length()]).unwrap()
}

fn whole() -> Percent {
    Percent::new(100.0).unwrap()
}

fn bank(id: &str, kind: HashKind) -> Bank {
    Bank {
        id: BankId::new(id),
        kind,
        enabled: true,
        distance: kind.default_distance(),
        sample: whole(),
        suppresses: Vec::new(),
        watched: false,
        inline_hashes: Vec::new(),
    }
}

fn put(hash: Hash, labels: &[&str]) -> Change {
    let labels = labels.iter().map(|label| (*label).to_owned()).collect();
    Change { hash, entry: Some(Entry { labels, ..Entry::default() }) }
}

fn publisher(banks: Vec<Bank>) -> BankPublisher {
    let publisher = BankPublisher::new(Settings { check_one_in: 1, ..Settings::default() });
    publisher.configure(banks);
    publisher
}

/// A picture whose PDQ differs from `hash(Pdq, 0)` in the bits of the bytes.
fn picture(first: u8, last: u8) -> MediaHashes {
    let mut pdq = [0xa5; 32];
    (pdq[0], pdq[31]) = (first, pdq[31] ^ last);
    MediaHashes { pictures: vec![Picture { pdq, quality: 90, frame: None }], ..MediaHashes::default() }
}

fn names(found: &BankMatches) -> Vec<(&str, u32)> {
    found.matches.iter().map(|it| (it.bank.as_str(), it.distance)).collect()
}

#[test]
fn every_kind_of_hash_is_found_in_its_own_banks() {
    let publisher = publisher(HashKind::ALL.map(|kind| bank(kind.name(), kind)).to_vec());
    for kind in HashKind::ALL {
        publisher.apply(&BankId::new(kind.name()), [put(hash(kind, 0), &[kind.name()])]);
        // Of another kind than the bank: it is no entry.
        publisher.apply(&BankId::new("md5"), [put(hash(kind, 9), &[])]);
    }
    let bytes = |kind: HashKind| hash(kind, 0).bytes().to_vec();
    let hashes = MediaHashes {
        pictures: picture(0, 0).pictures,
        gradient: Some(bytes(HashKind::Gradient).try_into().unwrap()),
        md5: Some(bytes(HashKind::Md5).try_into().unwrap()),
        sha1: Some(bytes(HashKind::Sha1).try_into().unwrap()),
        sha256: Some(bytes(HashKind::Sha256).try_into().unwrap()),
        photodna: Some(bytes(HashKind::Photodna).try_into().unwrap()),
        netclean: Some(bytes(HashKind::Netclean).try_into().unwrap()),
    };
    let found = publisher.current().find_hashes("item", &hashes);
    let mut kinds: Vec<_> = found.matches.iter().map(|it| (it.kind, it.labels[0].as_str())).collect();
    kinds.sort_unstable();
    assert_eq!(kinds, HashKind::ALL.map(|kind| (kind, kind.name())));
    let first = found.matches.iter().find(|it| it.kind == HashKind::Md5).unwrap();
    assert_eq!(first.entry, entry_id(&BankId::new("md5"), BankKind::Md5, &hash(HashKind::Md5, 0).hex()));
    assert_eq!(publisher.sizes().map(|it| it.entries), [1, 1, 2, 1, 1, 1, 1]);
}

#[test]
fn hash_of_an_uncomputed_kind_is_found_by_its_text() {
    let publisher = publisher(vec![bank("p", HashKind::Photodna), bank("n", HashKind::Netclean)]);
    let numbers: Vec<String> = (0..144).map(|byte: u8| byte.to_string()).collect();
    let photodna = BankKind::Photodna.canonical(&numbers.join(",")).unwrap();
    for (id, kind, text) in
        [("p", BankKind::Photodna, &*photodna), ("n", BankKind::Netclean, "an+opaque/text=")]
    {
        let hash = |text: &str| Hash::parse(kind.hash_kind().unwrap(), text).unwrap();
        publisher.apply(&BankId::new(id), [put(hash(text), &["known"])]);
        let found = publisher.current().find_hashes("item", &MediaHashes::from_hashes(&[hash(text)]));
        assert_eq!(names(&found), [(id, 0)]);
        assert_eq!(found.matches[0].entry, entry_id(&BankId::new(id), kind, text), "as lists name it");
        let other = text.replacen(['0', 'a'], "1", 1);
        assert!(
            publisher
                .current()
                .find_hashes("item", &MediaHashes::from_hashes(&[hash(&other)]))
                .matches
                .is_empty()
        );
    }
}

#[test]
fn inspection_sees_only_the_named_banks() {
    let half = Bank { sample: Percent::new(0.0).unwrap(), watched: true, ..bank("wanted", HashKind::Pdq) };
    let taken_back = Bank { suppresses: vec![BankId::new("wanted")], ..bank("well", HashKind::Md5) };
    let publisher = publisher(vec![bank("crowd", HashKind::Pdq), half, taken_back]);
    let crowd = (0..64_u8).map(|first| put(hash(HashKind::Pdq, first), &[]));
    publisher.apply(&BankId::new("crowd"), crowd);
    publisher.apply(&BankId::new("wanted"), [put(hash(HashKind::Pdq, 0xff), &[])]);
    let ask = |item, banks: &[BankId], hashes: &MediaHashes| {
        let found = publisher.current().inspect(&LookupScope { item, banks }, hashes);
        (
            names(&found).into_iter().map(|(bank, distance)| (bank.to_owned(), distance)).collect::<Vec<_>>(),
            found,
        )
    };
    let wanted = [BankId::new("wanted")];
    let (there, found) = ask(None, &wanted, &picture(0, 0));
    assert_eq!((there, found.truncated), (vec![("wanted".to_owned(), 8)], false));
    assert!(ask(Some("item"), &wanted, &picture(0, 0)).0.is_empty(), "no item is in a sample of nothing");
    let (there, found) = ask(None, &[], &picture(0, 0));
    assert_eq!((there.len(), found.truncated), (32, true));
    publisher.apply(&BankId::new("well"), [put(hash(HashKind::Md5, 7), &[])]);
    let mut hashes = picture(0, 0);
    hashes.md5 = Some(hash(HashKind::Md5, 7).bytes().try_into().unwrap());
    let (there, found) = ask(None, &wanted, &hashes);
    assert_eq!((there.len(), found.suppressed), (0, wanted.to_vec()), "what is taken back is so here, too");
    assert!(ask(None, &[BankId::new("crowd")], &hashes).1.suppressed.is_empty());
    assert!(publisher.take_watched_matches().is_empty(), "to ask is no match");
    assert_eq!(publisher.counts(), LookupCounts::default());
}

#[test]
fn removed_bank_takes_memory_until_the_next_rebuild() {
    let publisher = publisher(vec![
        bank("a", HashKind::Md5),
        Bank { inline_hashes: vec![hash(HashKind::Md5, 1)], ..bank("b", HashKind::Md5) },
    ]);
    let entries =
        || publisher.sizes()[HashKind::ALL.iter().position(|it| *it == HashKind::Md5).unwrap()].entries;
    let load = |numbers: std::ops::Range<u8>| {
        let mut load = BulkLoad::new(HashKind::Md5);
        numbers.for_each(|nth| load.push(hash(HashKind::Md5, nth), Entry::default()));
        publisher.load(&BankId::new("a"), load);
    };
    load(0..100);
    assert!(!publisher.needs_rebuild());
    load(0..50);
    assert!(publisher.needs_rebuild());
    publisher.rebuild();
    assert_eq!((entries(), publisher.needs_rebuild()), (51, false));
    publisher.configure(vec![bank("b", HashKind::Md5)]);
    assert!(publisher.needs_rebuild());
    publisher.rebuild();
    assert_eq!((entries(), publisher.needs_rebuild()), (0, false));
}

#[test]
fn entry_distance_overrides_the_bank_distance() {
    let narrow = Bank { distance: 2, ..bank("narrow", HashKind::Pdq) };
    let publisher = publisher(vec![narrow, bank("wide", HashKind::Pdq)]);
    let zero = hash(HashKind::Pdq, 0);
    for id in ["narrow", "wide"] {
        publisher.apply(&BankId::new(id), [put(zero, &[])]);
    }
    let found = |first| publisher.current().find_hashes("item", &picture(first, 0));
    assert_eq!(names(&found(0b11)), [("narrow", 2), ("wide", 2)]);
    assert_eq!(names(&found(0b111)), [("wide", 3)]);
    let own = |distance| {
        let entry = Entry { distance: Some(distance), ..Entry::default() };
        Change { hash: zero, entry: Some(entry) }
    };
    publisher.apply(&BankId::new("wide"), [own(1)]);
    publisher.apply(&BankId::new("narrow"), [own(4)]);
    assert_eq!(names(&found(0b111)), [("narrow", 3)]);
    publisher.configure(vec![bank("narrow", HashKind::Pdq)]);
    assert_eq!(names(&found(0b111)), [("narrow", 3)], "a bank that stays keeps its entries");
    publisher.configure(vec![bank("narrow", HashKind::Pdq), bank("wide", HashKind::Pdq)]);
    assert_eq!(names(&found(0)), [("narrow", 0)], "one that was gone comes back empty");
}

#[test]
fn disabled_removed_expired_or_plain_is_not_found() {
    let ids = BankId::new("a");
    let publisher = publisher(vec![bank("a", HashKind::Pdq)]);
    let entry = Entry { expires_at: Some(Millis(1_000)), ..Entry::default() };
    publisher.apply(&ids, [Change { hash: hash(HashKind::Pdq, 0), entry: Some(entry) }]);
    let found = || publisher.current().find_hashes("item", &picture(0, 0)).matches.len();
    assert_eq!(found(), 1);
    publisher.set_time(Millis(1_000));
    assert_eq!(found(), 0);
    publisher.apply(&ids, [put(hash(HashKind::Pdq, 0), &[])]);
    assert_eq!(found(), 1);
    publisher.configure(vec![Bank { enabled: false, ..bank("a", HashKind::Pdq) }]);
    assert_eq!((found(), publisher.current().is_empty()), (0, true));
    publisher.configure(vec![bank("a", HashKind::Pdq)]);
    assert_eq!(found(), 1);
    let mut plain = picture(0, 0);
    plain.pictures[0].quality = 49;
    assert!(publisher.current().find_hashes("item", &plain).matches.is_empty());
    publisher.apply(&ids, [Change { hash: hash(HashKind::Pdq, 0), entry: None }]);
    assert_eq!(found(), 0);
}

#[test]
fn document_entries_survive_additions_and_removals() {
    let zero = hash(HashKind::Pdq, 0);
    let written = Bank { inline_hashes: vec![zero], ..bank("a", HashKind::Pdq) };
    let publisher = publisher(vec![written]);
    let found = || publisher.current().find_hashes("item", &picture(0, 0)).matches.len();
    assert_eq!(found(), 1);
    publisher.apply(&BankId::new("a"), [put(zero, &[])]);
    assert_eq!(found(), 1, "an entry is told once");
    publisher.apply(&BankId::new("a"), [put(zero, &["cruel"])]);
    let both = publisher.current().find_hashes("item", &picture(0, 0)).matches;
    assert_eq!((both.len(), both[0].labels.as_slice()), (1, &["cruel".to_owned()][..]));
    publisher.apply(&BankId::new("a"), [Change { hash: zero, entry: None }]);
    assert_eq!(found(), 1);
    publisher.configure(vec![bank("a", HashKind::Pdq)]);
    assert_eq!(found(), 0);
}

#[test]
fn suppressing_bank_drops_matches_of_other_banks() {
    let memes = Bank { suppresses: vec![BankId::new("bad")], ..bank("memes", HashKind::Md5) };
    let publisher = publisher(vec![bank("bad", HashKind::Pdq), bank("worse", HashKind::Pdq), memes]);
    for id in ["bad", "worse"] {
        publisher.apply(&BankId::new(id), [put(hash(HashKind::Pdq, 0), &[])]);
    }
    let mut hashes = picture(0, 0);
    hashes.md5 = Some(hash(HashKind::Md5, 7).bytes().try_into().unwrap());
    let found = publisher.current().find_hashes("item", &hashes);
    assert_eq!((names(&found).len(), found.suppressed.len()), (2, 0));
    publisher.apply(&BankId::new("memes"), [put(hash(HashKind::Md5, 7), &[])]);
    let found = publisher.current().find_hashes("item", &hashes);
    assert_eq!((names(&found), &found.suppressed), (vec![("worse", 0)], &vec![BankId::new("bad")]));
}

#[test]
fn sample_selects_the_same_items_every_time() {
    let part = Bank { sample: Percent::new(25.0).unwrap(), ..bank("a", HashKind::Pdq) };
    let publisher = publisher(vec![part]);
    publisher.apply(&BankId::new("a"), [put(hash(HashKind::Pdq, 0), &[])]);
    let found =
        |nth: u32| publisher.current().find_hashes(&format!("item {nth}"), &picture(0, 0)).matches.len();
    let first: Vec<_> = (0..2_000).map(found).collect();
    let count: usize = first.iter().sum();
    assert!((400..600).contains(&count), "{count}");
    assert_eq!(first[..100], (0..100).map(found).collect::<Vec<_>>());
}

#[test]
fn full_bank_returns_the_nearest_and_is_truncated() {
    let publisher = publisher(vec![bank("crowd", HashKind::Pdq), bank("single", HashKind::Pdq)]);
    let crowd = (0..=u16::MAX).filter(|bits| bits.count_ones() <= 8).map(|bits| {
        let mut bytes = [0xa5; 32];
        bytes[..2].copy_from_slice(&bits.to_be_bytes());
        put(Hash::new(HashKind::Pdq, &bytes).unwrap(), &[])
    });
    publisher.apply(&BankId::new("crowd"), crowd);
    let mut far = [0xa5; 32];
    (far[0], far[1], far[20]) = (0, 0, 0x5a);
    publisher.apply(&BankId::new("single"), [put(Hash::new(HashKind::Pdq, &far).unwrap(), &[])]);
    publisher.rebuild();
    let mut hashes = picture(0, 0);
    hashes.pictures[0].pdq[1] = 0;
    let found = publisher.current().find_hashes("item", &hashes);
    assert!(found.truncated);
    assert_eq!(found.matches.len(), 32);
    assert_eq!((found.matches[0].distance, found.matches[16].distance), (0, 1));
    assert!(found.matches.is_sorted_by_key(|it| it.distance));
    assert_eq!(publisher.counts().truncated, 1);
    // The nearest of the others is not lost behind those that are taken back.
    let quiet = Bank { suppresses: vec![BankId::new("crowd")], ..bank("quiet", HashKind::Pdq) };
    publisher.configure(vec![bank("crowd", HashKind::Pdq), bank("single", HashKind::Pdq), quiet]);
    publisher.apply(&BankId::new("quiet"), [put(Hash::new(HashKind::Pdq, &far).unwrap(), &[])]);
    let found = publisher.current().find_hashes("item", &hashes);
    assert_eq!((names(&found), found.truncated), (vec![("single", 8)], false));
    assert_eq!(publisher.counts().mismatches, 0);
}

#[test]
fn rotated_picture_is_found_unless_disabled() {
    let mut print = Fingerprint::unhashed(State::Ok, None, Digests::of(b""));
    let turned = vec![PdqHash([0x11; 32]), PdqHash([0xa5; 32])];
    print.frames.push(Frame { at: 0, pdq: PdqHash([0x77; 32]), quality: 90, turned });
    for turned in [true, false] {
        let publisher = BankPublisher::new(Settings { turned, ..Settings::default() });
        publisher.configure(vec![bank("a", HashKind::Pdq)]);
        publisher.apply(&BankId::new("a"), [put(hash(HashKind::Pdq, 0xa5), &[])]);
        assert_eq!(publisher.current().find("item", &print).matches.len(), usize::from(turned));
    }
}

#[test]
fn animation_matches_by_its_nearest_frame() {
    let publisher = publisher(vec![Bank { watched: true, ..bank("a", HashKind::Pdq) }]);
    publisher.apply(&BankId::new("a"), [put(hash(HashKind::Pdq, 0), &[])]);
    let mut hashes = picture(0b11, 0);
    hashes.pictures.extend(picture(0b1, 0).pictures);
    hashes.pictures.extend(picture(0, 1).pictures);
    (0..).zip(&mut hashes.pictures).for_each(|(nth, picture)| picture.frame = Some(nth));
    let found = publisher.current().find_hashes("item", &hashes);
    assert_eq!((found.matches.len(), found.matches[0].distance, found.matches[0].frame), (1, 1, Some(1)));
    assert_eq!(publisher.take_watched_matches(), [(BankId::new("a"), found.matches[0].entry)]);
    assert!(publisher.take_watched_matches().is_empty());
}

/// Look-ups run during changes and rebuilds: each sees one state, in which index and scan agree. At the end, all entries
/// are found.
#[test]
fn look_ups_during_changes_find_all_entries() {
    let publisher = Arc::new(publisher(vec![bank("a", HashKind::Pdq), bank("b", HashKind::Pdq)]));
    let numbered = |nth: u64| {
        let mut draw = crate::index::tests::Draw(nth % 9_000);
        let mut bytes = [0; 32];
        bytes.chunks_exact_mut(8).for_each(|chunk| chunk.copy_from_slice(&draw.next().to_be_bytes()));
        bytes[31] = bytes[31].wrapping_add((nth / 9_000) as u8);
        Hash::new(HashKind::Pdq, &bytes).unwrap()
    };
    let mut load = BulkLoad::new(HashKind::Pdq);
    (0..24_000).for_each(|nth| load.push(numbered(nth), Entry::default()));
    publisher.load(&BankId::new("a"), load);
    assert!(publisher.needs_rebuild());
    let done = Arc::new(AtomicBool::new(false));
    let lookers: Vec<_> = (0..2_u64)
        .map(|looker| {
            let (publisher, done) = (Arc::clone(&publisher), Arc::clone(&done));
            thread::spawn(move || {
                let mut rounds = 0;
                while !done.load(Ordering::Relaxed) || rounds == 0 {
                    let state = publisher.current();
                    for nth in 0..5 {
                        let pdq = numbered((rounds * 97 + looker * 31 + nth) % 26_000).bytes;
                        let hashes = MediaHashes {
                            pictures: vec![Picture { pdq, quality: 80, frame: None }],
                            ..MediaHashes::default()
                        };
                        let (fast, plain) =
                            (state.find_hashes("x", &hashes), state.find_by_scan("x", &hashes));
                        assert_eq!(fast, plain);
                    }
                    rounds += 1;
                }
            })
        })
        .collect();
    let builder = {
        let (publisher, done) = (Arc::clone(&publisher), Arc::clone(&done));
        thread::spawn(move || {
            while !done.load(Ordering::Relaxed) {
                publisher.rebuild();
                thread::yield_now();
            }
        })
    };
    let mut there: BTreeMap<(usize, Hash), ()> = (0..24_000).map(|nth| ((0, numbered(nth)), ())).collect();
    let banks = [BankId::new("a"), BankId::new("b")];
    let mut draw = crate::index::tests::Draw(5);
    for _ in 0..30 {
        let which = draw.below(2) as usize;
        let changes: Vec<Change> = (0..1_500)
            .map(|_| {
                let hash = numbered(draw.below(26_000));
                let entry = (draw.below(3) > 0).then(Entry::default);
                match entry {
                    Some(_) => drop(there.insert((which, hash), ())),
                    None => drop(there.remove(&(which, hash))),
                }
                Change { hash, entry }
            })
            .collect();
        publisher.apply(&banks[which], changes);
    }
    done.store(true, Ordering::Relaxed);
    lookers.into_iter().for_each(|looker| looker.join().unwrap());
    builder.join().unwrap();
    assert_eq!((publisher.counts().mismatches, publisher.sizes()[0].entries), (0, there.len()));
    let state = publisher.current();
    for (which, hash) in there.keys().step_by(97) {
        let picture = Picture { pdq: hash.bytes, quality: 80, frame: None };
        let found =
            state.find_hashes("x", &MediaHashes { pictures: vec![picture], ..MediaHashes::default() });
        assert!(found.matches.iter().any(|it| it.bank == banks[*which] && it.distance == 0));
    }
}

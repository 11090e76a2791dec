use std::sync::Arc;

use tidegate_catalog::{
    Banks, LiveConfigs,
    banks::{BankError, Entry, EntryInput, Origin, Page, PageCursor},
};
use tidegate_media::banks::{BankMatches, Hash, MediaHashes};
use tidegate_schemas::{
    banks::HashKind,
    ids::{BankId, Millis},
};
use tidegate_store::{Row as _, tables::catalog::banks::BankHash};
use tidegate_test_support::{PATIENCE, eventually};

use crate::support::{ManualClock, POST, Running, World};

const BANKS: &str = "\
bank: pictures
kind: pdq
distance: 10
---
bank: files
kind: md5
entries: [d41d8cd98f00b204e9800998ecf8427e]
";

fn hex(nth: u32) -> String {
    format!("{nth:08x}{}", "5a".repeat(28))
}

fn entry_inputs(numbers: impl IntoIterator<Item = u32>) -> Vec<EntryInput> {
    numbers.into_iter().map(|nth| EntryInput { value: hex(nth), ..EntryInput::default() }).collect()
}

async fn world() -> (World, Banks) {
    let world = World::new().await;
    world.apply(BANKS).await;
    let banks = Banks::new(world.store.clone(), &world.settings);
    (world, banks)
}

/// Buckets, pages and the feed on a cluster. Both checks share one case, because creating a keyspace takes
/// long.
#[tokio::test]
async fn hash_banks_work_on_cassandra() {
    let Some(world) = World::on_cql("banks of hashes").await else { return };
    world.apply(BANKS).await;
    let banks = Banks::new(world.store.clone(), &world.settings);
    lists_in_the_order_of_ids(&world, &banks).await;
    follows_without_compiling(world).await;
}

fn find_matches(live: &LiveConfigs, world: &World, text: &str) -> BankMatches {
    let hash = Hash::parse(HashKind::Pdq, text).unwrap();
    live.org(&world.org).unwrap().hash_banks().find_hashes("item", &MediaHashes::from_hashes(&[hash]))
}

async fn until_found(running: &Running, world: &World, nth: u32, is_match: bool) {
    let effect =
        async || (find_matches(&running.live, world, &hex(nth)).matches.is_empty() != is_match).then_some(());
    eventually("the entry to take effect", PATIENCE, effect).await.unwrap();
}

#[tokio::test]
async fn hash_entries_are_listed_by_id_across_buckets() {
    let (world, banks) = world().await;
    lists_in_the_order_of_ids(&world, &banks).await;
}

async fn lists_in_the_order_of_ids(world: &World, banks: &Banks) {
    let bank = BankId::new("pictures");
    let outcome = banks.add(&world.org, &bank, entry_inputs(0..150), "me").await.unwrap();
    assert_eq!((outcome.added, outcome.rejected.len()), (150, 0));
    let mut wrong = entry_inputs([1, 2]);
    wrong[0].value.pop();
    wrong[1].distance = Some(32);
    let outcome = banks.add(&world.org, &bank, wrong, "me").await.unwrap();
    let reasons: Vec<_> = outcome.rejected.iter().map(|(_, reason)| reason.as_str()).collect();
    assert_eq!(
        reasons,
        ["a PDQ hash has 64 hexadecimal digits", "hashes of kind pdq may differ in at most 31 bits"]
    );
    let (mut all, mut from) = (Vec::new(), None);
    loop {
        let Page { entries: page, next, .. } = banks.entries(&world.org, &bank, from, 7).await.unwrap();
        assert!(page.len() <= 7);
        all.extend(page);
        // Clients send the cursor in its text form.
        from = next.map(|place| place.to_string().parse::<PageCursor>().unwrap());
        if from.is_none() {
            break;
        }
    }
    assert_eq!(all.len(), 150);
    assert!(all.is_sorted_by_key(|entry| entry.id), "the entries are in the order of their ids");
    assert!("64.".parse::<PageCursor>().is_err() && "x".parse::<PageCursor>().is_err());
    let ids: Vec<_> = all.iter().take(50).map(|entry| entry.id).collect();
    assert_eq!(banks.remove(&world.org, &bank, &ids, "me").await.unwrap().existing_count, 50);
    assert_eq!(banks.entries(&world.org, &bank, None, 1_000).await.unwrap().entries.len(), 100);
    assert_eq!(BankHash::TABLE.partition, 3, "each part of a bank has its own partition");
}

/// One step is enough, and the settings bound the time between two steps, so a new entry is compared within a
/// second.
#[tokio::test]
async fn entry_changes_are_compared_after_one_step() {
    let mut world = World::new().await;
    // The heads are not read again during this test, so only the epoch row signals the change.
    world.settings.heads_every_ms = 3_600_000;
    world.apply(&format!("{BANKS}---\n{POST}")).await;
    let (banks, bank) = (Banks::new(world.store.clone(), &world.settings), BankId::new("pictures"));
    let mut processes = Vec::new();
    for _ in 0..3 {
        let live = LiveConfigs::open(world.store.clone(), world.settings.clone()).await.unwrap();
        processes.push((live.follower(), live));
    }
    for nth in [0xfff0_0000, 0x000f_ff00, 0xffff_ff00] {
        for is_there in [true, false] {
            if is_there {
                banks.add(&world.org, &bank, entry_inputs([nth]), "me").await.unwrap();
            } else {
                let ids = banks.derive_ids(&world.org, &bank, &[hex(nth)]).await.unwrap();
                banks.remove(&world.org, &bank, &[ids[0].unwrap()], "me").await.unwrap();
            }
            for (follower, live) in &mut processes {
                let finds = |live: &LiveConfigs| !find_matches(live, &world, &hex(nth)).matches.is_empty();
                assert_eq!(finds(live), !is_there, "the follower has made no step yet");
                follower.step().await;
                assert_eq!(finds(live), is_there, "{nth:x}");
            }
        }
    }
}

#[tokio::test]
async fn new_hashes_are_live_without_a_compilation() {
    follows_without_compiling(World::new().await).await;
}

async fn follows_without_compiling(mut world: World) {
    // The heads are not read again during this test, so only the epoch row signals the change.
    world.settings.heads_every_ms = 3_600_000;
    world.apply(&format!("{BANKS}---\n{POST}")).await;
    let banks = Banks::new(world.store.clone(), &world.settings);
    let bank = BankId::new("pictures");
    banks.add(&world.org, &bank, entry_inputs(0..10), "me").await.unwrap();
    let running = world.live().await;
    assert_eq!(
        find_matches(&running.live, &world, &hex(3)).matches[0].distance,
        0,
        "the first live configuration contains the entry"
    );
    let before = running.live.org(&world.org).unwrap();
    let mut slowest = std::time::Duration::ZERO;
    for nth in [0xfff0_0000, 0x000f_ff00, 0xffff_ff00] {
        banks.add(&world.org, &bank, entry_inputs([nth]), "me").await.unwrap();
        let began = std::time::Instant::now();
        until_found(&running, &world, nth, true).await;
        slowest = slowest.max(began.elapsed());
    }
    eprintln!("slowest hash: {slowest:?}");
    let after = running.live.org(&world.org).unwrap();
    assert!(Arc::ptr_eq(&before, &after), "an entry change causes no compilation");
    let id = banks.derive_ids(&world.org, &bank, &[hex(0xfff0_0000)]).await.unwrap()[0].unwrap();
    let hash_matches = find_matches(&running.live, &world, &hex(0xfff0_0000)).matches;
    assert_eq!(hash_matches[0].entry, id, "a match and a list use the same entry id");
    banks.switch_entries(&world.org, &bank, &[id], false, "me").await.unwrap();
    until_found(&running, &world, 0xfff0_0000, false).await;
    banks.switch_bank(&world.org, &bank, false, "me").await.unwrap();
    until_found(&running, &world, 3, false).await;
    banks.switch_bank(&world.org, &bank, true, "me").await.unwrap();
    until_found(&running, &world, 3, true).await;
    banks
        .remove(
            &world.org,
            &bank,
            &[banks.derive_ids(&world.org, &bank, &[hex(3)]).await.unwrap()[0].unwrap()],
            "me",
        )
        .await
        .unwrap();
    let removal = async || {
        let hash_matches = find_matches(&running.live, &world, &hex(3)).matches;
        hash_matches.iter().all(|it| it.distance > 0).then_some(())
    };
    eventually("the removal", PATIENCE, removal).await.unwrap();
    // A new process reads the whole bank.
    let new_process = world.live().await;
    assert_eq!(
        find_matches(&new_process.live, &world, &hex(4)),
        find_matches(&running.live, &world, &hex(4))
    );
    new_process.stop().await;
    running.stop().await;
}

#[tokio::test]
async fn bank_uses_document_entries_and_its_own_distance() {
    let (world, banks) = world().await;
    let running = world.live().await;
    let md5 = Hash::parse(HashKind::Md5, "d41d8cd98f00b204e9800998ecf8427e").unwrap();
    let hash_banks = running.live.org(&world.org).unwrap().hash_banks();
    assert_eq!(
        hash_banks.find_hashes("item", &MediaHashes::from_hashes(&[md5])).matches[0].bank.as_str(),
        "files"
    );
    banks.add(&world.org, &BankId::new("pictures"), entry_inputs([0]), "me").await.unwrap();
    until_found(&running, &world, 0x0000_03ff, true).await;
    assert!(
        find_matches(&running.live, &world, &hex(0x0000_07ff)).matches.is_empty(),
        "eleven bits are too many"
    );
    world.apply(&BANKS.replace("distance: 10", "distance: 11")).await;
    until_found(&running, &world, 0x0000_07ff, true).await;
    running.stop().await;
}

#[tokio::test]
async fn spiking_entry_is_quarantined() {
    let world = World::new().await;
    world.apply("bank: pictures\nkind: pdq\nquarantine: {matches: 20, within: 1m}\n").await;
    let manual_clock = ManualClock::new();
    let banks = Banks::with_clock(world.store.clone(), &world.settings, manual_clock.clock());
    let bank = BankId::new("pictures");
    banks.add(&world.org, &bank, entry_inputs([0]), "me").await.unwrap();
    let running = world.live_with_clock(&manual_clock).await;
    let live = &running.live;
    // A process reports no spike in its first period.
    manual_clock.advance(60_000);
    for _ in 0..19 {
        assert_eq!(find_matches(live, &world, &hex(0)).matches.len(), 1);
    }
    assert_eq!(find_matches(live, &world, &hex(0)).matches.len(), 1);
    let aside = async || find_matches(live, &world, &hex(0)).matches.is_empty().then_some(());
    eventually("the entry to be quarantined", PATIENCE, aside).await.unwrap();
    let entry = banks.entries(&world.org, &bank, None, 1).await.unwrap().entries.remove(0);
    assert!(!entry.enabled && entry.quarantined_at.is_some_and(|at| at > Millis(0)), "{entry:?}");
    banks.add(&world.org, &bank, entry_inputs([0]), "feed").await.unwrap();
    let repeated_entry = banks.entries(&world.org, &bank, None, 1).await.unwrap().entries.remove(0);
    assert_eq!(repeated_entry, entry, "a repeated entry stays quarantined");
    banks.switch_entries(&world.org, &bank, &[entry.id], true, "me").await.unwrap();
    let entry = banks.entries(&world.org, &bank, None, 1).await.unwrap().entries.remove(0);
    assert!(entry.enabled && entry.quarantined_at.is_none(), "switching the entry on ends the quarantine");
    running.stop().await;
}

#[tokio::test]
async fn document_entry_is_not_quarantined() {
    let world = World::new().await;
    let document = format!(
        "bank: pictures\nkind: pdq\nquarantine: {{matches: 20, within: 1m}}\nentries: [{}]\n",
        hex(0)
    );
    world.apply(&document).await;
    let manual_clock = ManualClock::new();
    let banks = Banks::with_clock(world.store.clone(), &world.settings, manual_clock.clock());
    let bank = BankId::new("pictures");
    banks.add(&world.org, &bank, entry_inputs([0, u32::MAX]), "me").await.unwrap();
    let running = world.live_with_clock(&manual_clock).await;
    let live = &running.live;
    manual_clock.advance(60_000);
    for _ in 0..20 {
        assert_eq!(find_matches(live, &world, &hex(0)).matches.len(), 1);
        find_matches(live, &world, &hex(u32::MAX));
    }
    let aside = async || find_matches(live, &world, &hex(u32::MAX)).matches.is_empty().then_some(());
    eventually("the other entry to be quarantined", PATIENCE, aside).await.unwrap();
    let entries = banks.entries(&world.org, &bank, None, 2).await.unwrap().entries;
    let off = |entry: &&Entry| !entry.enabled && entry.quarantined_at.is_some();
    let put_aside: Vec<&str> = entries.iter().filter(off).map(|entry| entry.value.as_str()).collect();
    assert_eq!(put_aside, [hex(u32::MAX)]);
    assert_eq!(find_matches(live, &world, &hex(0)).matches.len(), 1);
    let ids: Vec<_> = entries.iter().map(|entry| entry.id).collect();
    let touched = banks.switch_entries(&world.org, &bank, &ids, true, "me").await.unwrap();
    assert_eq!((touched.existing_count, touched.changed_ids.len(), touched.document_ids.len()), (2, 1, 1));
    running.stop().await;
}

#[tokio::test]
async fn repeated_entry_updates_only_its_metadata() {
    let (world, banks) = world().await;
    let (org, bank) = (&world.org, &BankId::new("pictures"));
    let full_entry = EntryInput {
        labels: Some(vec!["meme".to_owned()]),
        source: Some("tat".to_owned()),
        expires_at: Some(Millis(4_000_000_000_000)),
        distance: Some(3),
        reference: Some("r1".to_owned()),
        note: Some("seen".to_owned()),
        disabled: Some(true),
        ..entry_inputs([1]).remove(0)
    };
    banks.add(org, bank, vec![full_entry], "me").await.unwrap();
    let stored_entry = async || banks.entries(org, bank, None, 1).await.unwrap().entries.remove(0);
    let first = stored_entry().await;
    // A request without a source adds the organisation itself as an origin.
    let outcome = banks.add(org, bank, entry_inputs([1, 1]), "feed").await.unwrap();
    let first = Entry { also: vec![Origin::default()], author: "feed".to_owned(), ..first };
    assert_eq!((outcome.changed, outcome.unchanged, stored_entry().await), (1, 1, first.clone()));
    // Two entries in one request are applied in order.
    let note = |text: &str| EntryInput { note: Some(text.to_owned()), ..entry_inputs([1]).remove(0) };
    let outcome =
        banks.add(org, bank, vec![note("other"), entry_inputs([1]).remove(0)], "feed").await.unwrap();
    assert_eq!((outcome.changed, outcome.unchanged), (1, 1));
    let expected_entry = Entry { note: Some("other".to_owned()), author: "feed".to_owned(), ..first };
    assert_eq!(stored_entry().await, expected_entry);
    let fewer = EntryInput { labels: Some(Vec::new()), reference: Some(String::new()), ..note(" ") };
    banks.add(org, bank, vec![fewer], "feed").await.unwrap();
    let expected_entry = Entry { note: None, reference: None, labels: Vec::new(), ..expected_entry };
    assert_eq!(stored_entry().await, expected_entry, "a blank text clears the field");
    let on = EntryInput { disabled: Some(false), ..entry_inputs([1]).remove(0) };
    banks.add(org, bank, vec![on], "feed").await.unwrap();
    assert_eq!(
        stored_entry().await,
        Entry { enabled: true, ..expected_entry },
        "an explicit `disabled: false` switches the entry on"
    );
    let blank =
        EntryInput { labels: Some(vec!["a".to_owned(), " ".to_owned()]), ..entry_inputs([1]).remove(0) };
    let outcome = banks.add(org, bank, vec![blank], "feed").await.unwrap();
    assert_eq!(outcome.rejected, [(0, "one of its labels is blank".to_owned())]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_entry_changes_do_not_overwrite_each_other() {
    let (world, banks) = world().await;
    let (org, bank) = (&world.org, &BankId::new("pictures"));
    banks.add(org, bank, entry_inputs([1]), "me").await.unwrap();
    let id = banks.entries(org, bank, None, 1).await.unwrap().entries[0].id;
    for round in 0..50 {
        banks.switch_entries(org, bank, &[id], true, "me").await.unwrap();
        let note = Some(format!("note {round}"));
        let entry = EntryInput { note: note.clone(), ..entry_inputs([1]).remove(0) };
        let feed = {
            let (banks, org, bank) = (banks.clone(), org.clone(), bank.clone());
            tokio::spawn(async move { banks.add(&org, &bank, vec![entry], "feed").await })
        };
        banks.switch_entries(org, bank, &[id], false, "me").await.unwrap();
        feed.await.unwrap().unwrap();
        let entry = banks.entries(org, bank, None, 1).await.unwrap().entries.remove(0);
        assert_eq!((entry.enabled, entry.note), (false, note), "round {round}");
    }
}

#[tokio::test]
async fn hash_fields_are_refused_in_list_banks() {
    let world = World::new().await;
    world.apply("bank: words\nkind: text\n").await;
    let banks = Banks::new(world.store.clone(), &world.settings);
    let entry = EntryInput { value: "x".to_owned(), note: Some("why".to_owned()), ..EntryInput::default() };
    let outcome = banks.add(&world.org, &BankId::new("words"), vec![entry], "me").await.unwrap();
    assert_eq!((outcome.added, outcome.rejected.len()), (0, 1));
    let nowhere = banks.add(&world.org, &BankId::new("nowhere"), entry_inputs([1]), "me").await;
    assert!(matches!(nowhere, Err(BankError::NoSuchBank(_))));
}

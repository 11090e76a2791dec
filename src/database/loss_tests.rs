//! Databases that lost something that was durable, and those that a crash left.
#![allow(clippy::unwrap_used)]

use tidegate_store::Store;
use tidegate_stream::{
    Log, Record, Topic,
    consumer::inbox::DrainResult,
    page_reader::{Order, Query},
    settings::Settings,
    topics::Partition,
};
use tokio::time::{Duration, Instant};

use super::*;

const RECORDS: i64 = 300;

fn settings() -> Settings {
    let mut settings = Settings { partitions: Some(2), ..Settings::default() };
    settings.embedded.min_free_bytes = Some(0);
    settings
}

fn items(index: u32) -> Partition {
    Partition::new(Topic::Items, index)
}

/// Log and store, opened as a start does.
async fn open_all(data: &Path, accepts_loss: bool) -> anyhow::Result<(Log, Store)> {
    let data = data.to_owned();
    let opened = tokio::task::spawn_blocking(move || {
        let (database, mark) = LockedDataFolder::lock(&data, accepts_loss)?.open_database()?;
        let disk = Arc::new(DiskSpace::of(&folder_in(&data)));
        let log =
            Log::open_embedded_marked(database.clone(), &settings(), Arc::clone(&mark), Arc::clone(&disk))?;
        let store = Store::open_embedded_marked(
            &database,
            tidegate_store::embedded::Settings::default(),
            mark,
            disk,
        )?;
        anyhow::Ok((log, store))
    });
    opened.await?
}

async fn close((log, store): (Log, Store)) {
    store.close().await.unwrap();
    assert_eq!(log.close(Instant::now() + Duration::from_secs(60)).await, DrainResult::Clean);
}

async fn append(log: &Log, partition: Partition) {
    log.append(&[(partition, Record::new(b"key", &[b'v'; 300][..]))]).await.unwrap();
}

/// A data folder with acknowledged records, each synced by itself, and the path of its journal.
async fn filled() -> (tempfile::TempDir, PathBuf) {
    let data = tempfile::tempdir().unwrap();
    let opened = open_all(data.path(), false).await.unwrap();
    for _ in 0..RECORDS {
        append(&opened.0, items(0)).await;
    }
    append(&opened.0, items(1)).await;
    close(opened).await;
    let journal = folder_in(data.path()).join("0.jnl");
    (data, journal)
}

/// Length of a journal without the zeros behind it.
fn content(journal: &Path) -> usize {
    fs::read(journal).unwrap().iter().rposition(|byte| *byte != 0).unwrap() + 1
}

fn zero(journal: &Path, from: usize, length: usize) {
    let mut bytes = fs::read(journal).unwrap();
    bytes[from..from + length].fill(0);
    fs::write(journal, bytes).unwrap();
}

async fn refusal(data: &Path) -> String {
    format!("{:#}", open_all(data, false).await.err().expect("a refusal"))
}

async fn read(log: &Log) -> Vec<i64> {
    let query = Query { topic: Topic::Items, order: Order::Oldest, limit: 10_000, after: None };
    let records = log.read_page(query).await.unwrap().records;
    records.iter().filter(|record| record.at.partition == items(0)).map(|record| record.at.offset.0).collect()
}

/// A start that accepts the loss gives no offset twice, and later starts have nothing to complain about.
async fn goes_on_with_the_loss(data: &Path) {
    let opened = open_all(data, true).await.unwrap();
    assert!(read(&opened.0).await.len() < usize::try_from(RECORDS).unwrap());
    append(&opened.0, items(0)).await;
    assert_eq!(read(&opened.0).await.last(), Some(&RECORDS));
    close(opened).await;
    close(open_all(data, false).await.unwrap()).await;
}

#[tokio::test]
async fn zeros_in_a_journal_are_refused_and_nothing_is_changed() {
    let (data, journal) = filled().await;
    zero(&journal, content(&journal) / 2, 4_096);
    let before = fs::read(&journal).unwrap();
    let refused = refusal(data.path()).await;
    assert!(refused.contains("0.jnl is damaged at byte") && refused.contains("--accept-loss"), "{refused}");
    assert!(fs::read(&journal).unwrap() == before, "it could still be mended");
    goes_on_with_the_loss(data.path()).await;
    assert!(fs::read(data.path().join("damaged-0.jnl")).unwrap() == before);
}

#[tokio::test]
async fn zeros_in_a_journal_are_found_without_the_mark() {
    let (data, journal) = filled().await;
    fs::remove_file(DurableMark::path_in(data.path())).unwrap();
    zero(&journal, content(&journal) / 2, 4_096);
    let refused = refusal(data.path()).await;
    assert!(refused.contains("0.jnl is damaged at byte"), "{refused}");
}

#[tokio::test]
async fn a_journal_cut_at_half_is_refused_and_names_the_offsets() {
    let (data, journal) = filled().await;
    let half = content(&journal) as u64 / 2;
    File::options().write(true).open(&journal).unwrap().set_len(half).unwrap();
    for _ in 0..2 {
        let refused = refusal(data.path()).await;
        let named = format!("to {}", RECORDS - 1);
        assert!(refused.contains("items[0] offsets ") && refused.contains(&named), "{refused}");
        assert!(refused.contains("items[1] offsets 0 to 0"), "{refused}");
    }
    goes_on_with_the_loss(data.path()).await;
}

#[tokio::test]
async fn a_journal_that_was_removed_is_no_fresh_installation() {
    let (data, journal) = filled().await;
    fs::remove_file(&journal).unwrap();
    for _ in 0..2 {
        let refused = refusal(data.path()).await;
        assert!(refused.contains("has no journal"), "{refused}");
    }
    goes_on_with_the_loss(data.path()).await;
}

#[tokio::test]
async fn a_database_that_was_removed_or_emptied_is_no_fresh_installation() {
    for is_removed in [true, false] {
        let (data, _) = filled().await;
        fs::remove_dir_all(folder_in(data.path())).unwrap();
        if !is_removed {
            fs::create_dir(folder_in(data.path())).unwrap();
        }
        let refused = refusal(data.path()).await;
        assert!(
            refused.contains("is gone, and with it") && refused.contains("items[0] offsets 0 to 299"),
            "{refused}"
        );
        goes_on_with_the_loss(data.path()).await;
    }
}

#[tokio::test]
async fn a_journal_missing_between_others_is_named() {
    let (data, journal) = filled().await;
    fs::copy(&journal, journal.with_file_name("2.jnl")).unwrap();
    let refused = refusal(data.path()).await;
    assert!(refused.contains("the journals 1 to 1 before"), "{refused}");
}

#[tokio::test]
async fn what_a_crash_leaves_behind_the_last_sync_is_no_loss() {
    let (data, journal) = filled().await;
    // Half a batch.
    let end = content(&journal);
    let mut bytes = fs::read(&journal).unwrap();
    bytes.truncate(end);
    let batch: Vec<u8> = bytes[end - 200..].to_vec();
    bytes.extend(&batch[..150]);
    bytes.extend([0; 10_000]);
    fs::write(&journal, &bytes).unwrap();
    let (log, store) = open_all(data.path(), false).await.unwrap();
    assert_eq!(read(&log).await.len(), usize::try_from(RECORDS).unwrap());
    append(&log, items(0)).await;
    close((log, store)).await;

    // Writes without a sync of which a loss of power kept only the last.
    let before = content(&journal);
    let (database, _mark) = LockedDataFolder::lock(data.path(), false).unwrap().open_database().unwrap();
    let table = database.keyspace("t", fjall::KeyspaceCreateOptions::default).unwrap();
    for n in 0..100_u32 {
        table.insert(n.to_be_bytes(), [b'x'; 100]).unwrap();
    }
    drop((table, database));
    zero(&journal, before + 100, 4_096);
    let (log, store) = open_all(data.path(), false).await.unwrap();
    assert_eq!(read(&log).await.len(), usize::try_from(RECORDS).unwrap() + 1);
    close((log, store)).await;
}

#[tokio::test]
async fn data_of_an_older_version_gets_a_mark() {
    let data = tempfile::tempdir().unwrap();
    let (database, _) = LockedDataFolder::lock(data.path(), false).unwrap().open_database().unwrap();
    let log = Log::open_embedded(database, &settings()).unwrap();
    append(&log, items(0)).await;
    assert_eq!(log.close(Instant::now() + Duration::from_secs(60)).await, DrainResult::Clean);
    drop(log);
    assert!(!DurableMark::path_in(data.path()).exists());
    close(open_all(data.path(), false).await.unwrap()).await;
    let mark = DurableMark::open(data.path(), false).unwrap();
    assert_eq!(mark.found().unwrap().ends["items"][&0], 1);
}

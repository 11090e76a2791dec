//! Tests of databases that lost durable data, and of those that a crash left.
#![allow(clippy::unwrap_used)]

use std::{fs::File, path::PathBuf};

use fjall::Database;
use tidegate_embedded_data::{DatabaseSettings, closing_handle, folder_in};
use tidegate_stream::{
    Record, Topic,
    consumer::inbox::DrainResult,
    page_reader::{Order, Query},
    settings::Settings,
    topics::Partition,
};
use tidegate_test_support::garbled::incompressible_mebibyte;
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

/// The record of unflushed rows is updated often, because journals of tests are young.
const DATABASE: DatabaseSettings =
    DatabaseSettings { max_open_tables: 200, record_interval: Duration::from_millis(20) };

fn open_database(data: &Path, accepts_loss: bool) -> Embedded {
    LockedDataFolder::lock(data, accepts_loss).unwrap().open_database(DATABASE).unwrap()
}

/// Path of the record of unflushed rows.
fn record_path(data: &Path) -> PathBuf {
    data.join("unflushed.mark")
}

/// Returns the paths of all journals, sorted.
fn list_journals(data: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder_in(data)).unwrap();
    let mut journals: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    journals.retain(|path| path.extension().is_some_and(|kind| kind == "jnl"));
    journals.sort();
    journals
}

/// Opens log and store as a start does.
async fn open_all(data: &Path, accepts_loss: bool) -> anyhow::Result<(Log, Store)> {
    let data = data.to_owned();
    let opened = tokio::task::spawn_blocking(move || {
        let (database, mark) = LockedDataFolder::lock(&data, accepts_loss)?.open_database(DATABASE)?;
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

/// Returns a data folder with acknowledged records, each synced on its own, and the path of its journal.
async fn filled_data_folder() -> (tempfile::TempDir, PathBuf) {
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

/// Length of a journal without the zeros after its content.
fn content_length(journal: &Path) -> usize {
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

/// Asserts that a start that accepts the loss reuses no offset, and that later starts report no loss.
async fn assert_loss_can_be_accepted(data: &Path) {
    let opened = open_all(data, true).await.unwrap();
    assert!(read(&opened.0).await.len() < usize::try_from(RECORDS).unwrap());
    append(&opened.0, items(0)).await;
    assert_eq!(read(&opened.0).await.last(), Some(&RECORDS));
    close(opened).await;
    close(open_all(data, false).await.unwrap()).await;
}

#[tokio::test]
async fn zeros_in_a_journal_are_refused_without_changes() {
    let (data, journal) = filled_data_folder().await;
    zero(&journal, content_length(&journal) / 2, 4_096);
    let before = fs::read(&journal).unwrap();
    let refused = refusal(data.path()).await;
    assert!(refused.contains("0.jnl is damaged at byte") && refused.contains("--accept-loss"), "{refused}");
    assert!(fs::read(&journal).unwrap() == before, "it could still be mended");
    assert_loss_can_be_accepted(data.path()).await;
    assert!(fs::read(data.path().join("damaged-0.jnl")).unwrap() == before);
}

#[tokio::test]
async fn zeros_in_a_journal_are_found_without_the_mark() {
    let (data, journal) = filled_data_folder().await;
    fs::remove_file(DurableMark::path_in(data.path())).unwrap();
    zero(&journal, content_length(&journal) / 2, 4_096);
    let refused = refusal(data.path()).await;
    assert!(refused.contains("0.jnl is damaged at byte"), "{refused}");
}

#[tokio::test]
async fn truncated_journal_is_refused_with_the_lost_offsets() {
    let (data, journal) = filled_data_folder().await;
    let half = content_length(&journal) as u64 / 2;
    File::options().write(true).open(&journal).unwrap().set_len(half).unwrap();
    for _ in 0..2 {
        let refused = refusal(data.path()).await;
        let named = format!("to {}", RECORDS - 1);
        assert!(refused.contains("items[0] offsets ") && refused.contains(&named), "{refused}");
        assert!(refused.contains("items[1] offsets 0 to 0"), "{refused}");
    }
    assert_loss_can_be_accepted(data.path()).await;
}

#[tokio::test]
async fn removed_journal_is_refused() {
    let (data, journal) = filled_data_folder().await;
    fs::remove_file(&journal).unwrap();
    for _ in 0..2 {
        let refused = refusal(data.path()).await;
        assert!(refused.contains("has no journal"), "{refused}");
    }
    assert_loss_can_be_accepted(data.path()).await;
}

#[tokio::test]
async fn removed_or_emptied_database_is_refused() {
    for is_removed in [true, false] {
        let (data, _) = filled_data_folder().await;
        fs::remove_dir_all(folder_in(data.path())).unwrap();
        if !is_removed {
            fs::create_dir(folder_in(data.path())).unwrap();
        }
        let refused = refusal(data.path()).await;
        assert!(
            refused.contains("is missing, and with it") && refused.contains("items[0] offsets 0 to 299"),
            "{refused}"
        );
        assert_loss_can_be_accepted(data.path()).await;
    }
}

#[tokio::test]
async fn journal_missing_between_others_is_named() {
    let (data, journal) = filled_data_folder().await;
    fs::copy(&journal, journal.with_file_name("2.jnl")).unwrap();
    let refused = refusal(data.path()).await;
    assert!(refused.contains("the journals 1 to 1 before"), "{refused}");
}

#[tokio::test]
async fn remains_of_a_crash_after_the_last_sync_are_no_loss() {
    let (data, journal) = filled_data_folder().await;
    // A crash left half a batch.
    let end = content_length(&journal);
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

    // A loss of power kept only the last of several writes without a sync.
    let before = content_length(&journal);
    let (database, mark) = open_database(data.path(), false);
    let record = fs::read(record_path(data.path())).unwrap();
    let table = database.keyspace("t", fjall::KeyspaceCreateOptions::default).unwrap();
    for n in 0..100_u32 {
        table.insert(n.to_be_bytes(), [b'x'; 100]).unwrap();
    }
    drop((table, database, mark));
    // The record is written only after a sync of its rows, so the loss of power leaves the older one.
    fs::write(record_path(data.path()), record).unwrap();
    zero(&journal, before + 100, 4_096);
    let (log, store) = open_all(data.path(), false).await.unwrap();
    assert_eq!(read(&log).await.len(), usize::try_from(RECORDS).unwrap() + 1);
    close((log, store)).await;
}

#[tokio::test]
async fn data_of_an_older_version_gets_a_mark() {
    let data = tempfile::tempdir().unwrap();
    let log =
        Log::open_embedded(Database::builder(folder_in(data.path())).open().unwrap(), &settings()).unwrap();
    append(&log, items(0)).await;
    assert_eq!(log.close(Instant::now() + Duration::from_secs(60)).await, DrainResult::Clean);
    drop(log);
    assert!(!DurableMark::path_in(data.path()).exists());
    close(open_all(data.path(), false).await.unwrap()).await;
    let mark = DurableMark::open(data.path(), false).unwrap();
    assert_eq!(mark.last_durable().unwrap().ends["items"][&0], 1);
}

/// Returns a data folder with two journals, both with rows that are in no table file.
async fn filled_with_two_journals() -> (tempfile::TempDir, PathBuf) {
    let (data, journal) = filled_data_folder().await;
    let (database, mark) = open_database(data.path(), false);
    let disk = Arc::new(DiskSpace::of(&folder_in(data.path())));
    let log = Log::open_embedded_marked(database.clone(), &settings(), mark, disk).unwrap();
    append(&log, items(0)).await;
    let table = database.keyspace("t", fjall::KeyspaceCreateOptions::default).unwrap();
    let large = incompressible_mebibyte();
    for n in 0..65_u32 {
        table.insert(n.to_be_bytes(), &large[..]).unwrap();
    }
    table.rotate_memtable_and_wait().unwrap();
    append(&log, items(0)).await;
    assert_eq!(log.close(Instant::now() + Duration::from_secs(60)).await, DrainResult::Clean);
    drop((table, database, log));
    let journals = list_journals(data.path());
    assert_eq!(journals, ["0.jnl", "1.jnl"].map(|name| folder_in(data.path()).join(name)));
    (data, journal)
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        if entry.path().is_dir() {
            copy(&entry.path(), &to.join(entry.file_name()));
        } else {
            fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

/// Accepts the loss, and asserts that the next start needs no acceptance.
async fn assert_loss_is_accepted_once(data: &Path) {
    let (log, store) = open_all(data, true).await.unwrap();
    append(&log, items(0)).await;
    close((log, store)).await;
    for _ in 0..2 {
        close(open_all(data, false).await.unwrap()).await;
    }
}

#[tokio::test]
async fn lost_first_of_two_journals_is_refused() {
    let (data, _) = filled_with_two_journals().await;
    for damage in ["removed", "cut to nothing", "zeros"] {
        for has_record in [true, false] {
            let what = format!("{damage}, with the record: {has_record}");
            let damaged = tempfile::tempdir().unwrap();
            copy(data.path(), damaged.path());
            let journal = folder_in(damaged.path()).join("0.jnl");
            let length = fs::metadata(&journal).unwrap().len();
            match damage {
                "removed" => fs::remove_file(&journal).unwrap(),
                "zeros" => fs::write(&journal, vec![0; usize::try_from(length).unwrap()]).unwrap(),
                _ => drop(File::create(&journal).unwrap()),
            }
            if !has_record {
                fs::remove_file(record_path(damaged.path())).unwrap();
            }
            let refused = refusal(damaged.path()).await;
            assert!(refused.contains("rows of") && refused.contains("log.meta"), "{what}: {refused}");
            assert_eq!(refused.contains("0.jnl was emptied"), damage != "removed", "{what}: {refused}");
            assert_loss_is_accepted_once(damaged.path()).await;
        }
    }
}

#[tokio::test]
async fn journals_that_the_database_removed_are_no_loss() {
    let (data, journal) = filled_with_two_journals().await;
    let record = fs::read(record_path(data.path())).unwrap();
    flush_all(data.path());
    assert!(!journal.exists());
    // The state after a kill right after the flush, and that of a backup of the database alone.
    for record in [Some(record), None] {
        match record {
            Some(record) => fs::write(record_path(data.path()), record).unwrap(),
            None => fs::remove_file(record_path(data.path())).unwrap(),
        }
        let (log, store) = open_all(data.path(), false).await.unwrap();
        assert_eq!(read(&log).await.len(), usize::try_from(RECORDS).unwrap() + 2);
        close((log, store)).await;
    }
}

/// Returns the number of the table with this name.
fn number_of(data: &Path, name: &str) -> u64 {
    let (database, _mark) = open_database(data, false);
    assert!(database.keyspace_exists(name), "{name}");
    database.keyspace(name, fjall::KeyspaceCreateOptions::default).unwrap().id()
}

fn table_folder(data: &Path, table: u64) -> PathBuf {
    folder_in(data).join("keyspaces").join(table.to_string())
}

fn flush_all(data: &Path) {
    let (database, _mark) = open_database(data, false);
    for name in database.list_keyspace_names() {
        let table = database.keyspace(&name, fjall::KeyspaceCreateOptions::default).unwrap();
        table.rotate_memtable_and_wait().unwrap();
    }
}

#[tokio::test]
async fn table_without_folder_or_manifest_is_refused_by_name() {
    let (data, _) = filled_data_folder().await;
    let (database, mark) = open_database(data.path(), false);
    let made = database.keyspace("store.made", fjall::KeyspaceCreateOptions::default).unwrap();
    made.insert("k", "v").unwrap();
    drop((made, database, mark));
    flush_all(data.path());
    let table = number_of(data.path(), "store.made");
    for lost in ["", "current"] {
        let damaged = tempfile::tempdir().unwrap();
        copy(data.path(), damaged.path());
        let folder = table_folder(damaged.path(), table);
        if lost.is_empty() {
            fs::remove_dir_all(&folder).unwrap();
        } else {
            fs::remove_file(folder.join(lost)).unwrap();
        }
        for _ in 0..2 {
            let refused = refusal(damaged.path()).await;
            let named = refused.contains("the table store.made is lost")
                && refused.contains(folder.join(lost).to_str().unwrap().trim_end_matches('/'));
            assert!(named && refused.contains("--accept-loss"), "{refused}");
        }
        assert_loss_is_accepted_once(damaged.path()).await;
        let kept = damaged.path().join(format!("damaged-table-{table}/tables"));
        assert_eq!(kept.exists(), !lost.is_empty(), "what is left of it is kept");
    }
}

/// The journals hold rows of the lost table and of the one that was created again under its name.
#[tokio::test]
async fn rows_of_a_lost_table_are_not_mixed_with_the_next_ones() {
    let (data, _) = filled_data_folder().await;
    let open = |accepts| open_database(data.path(), accepts);
    let table = |database: &Database, name: &str| {
        database.keyspace(name, fjall::KeyspaceCreateOptions::default).unwrap()
    };
    let (database, mark) = open(false);
    table(&database, "store.made").insert("old", "row").unwrap();
    drop((database, mark));
    let lost = number_of(data.path(), "store.made");
    fs::remove_dir_all(table_folder(data.path(), lost)).unwrap();
    assert!(refusal(data.path()).await.contains("the table store.made is lost"));

    let (database, mark) = open(true);
    let (made, other) = (table(&database, "store.made"), table(&database, "t"));
    assert_ne!(made.id(), lost);
    made.insert("new", "row").unwrap();
    let large = incompressible_mebibyte();
    for n in 0..65_u32 {
        other.insert(n.to_be_bytes(), &large[..]).unwrap();
    }
    other.rotate_memtable_and_wait().unwrap();
    made.insert("newer", "row").unwrap();
    drop((made, other, database, mark));
    let journals = list_journals(data.path());
    assert!(journals.len() > 1, "the first journal is full: {journals:?}");

    for flush in [false, true, false] {
        let (database, mark) = open(false);
        let made = table(&database, "store.made");
        let found = ["old", "new", "newer"].map(|key| made.contains_key(key).unwrap());
        assert_eq!(found, [false, true, true]);
        if flush {
            made.rotate_memtable_and_wait().unwrap();
        }
        drop((made, database, mark));
    }
}

#[tokio::test]
async fn files_that_keep_the_database_from_opening_are_named() {
    let (data, _) = filled_data_folder().await;
    flush_all(data.path());
    let own = PathBuf::from("db/keyspaces").join(number_of(data.path(), "log.meta").to_string());
    let newest =
        u64::from_le_bytes(*fs::read(data.path().join(&own).join("current")).unwrap().first_chunk().unwrap());
    let manifest = own.join(format!("v{newest}"));
    let rows = fs::read_dir(data.path().join(&own).join("tables")).unwrap().next().unwrap().unwrap();
    let rows = own.join("tables").join(rows.file_name());
    for (file, content, named) in [
        (own.join("current"), Some(&b"x"[..]), vec!["the table log.meta", "current is cut off"]),
        (manifest.clone(), None, vec!["the table log.meta", "is missing, which"]),
        (manifest, Some(b""), vec!["the table log.meta", "is empty"]),
        (rows.clone(), None, vec!["the table log.meta in", "missing or damaged file"]),
        (rows.clone(), Some(b"x"), vec!["of the table log.meta is damaged", rows.to_str().unwrap()]),
        (
            own.join("tables/copy"),
            Some(b"x"),
            vec!["the table log.meta in", "tables/copy is not one of its files"],
        ),
        (
            "db/version".into(),
            None,
            vec!["its file `version` is missing", "put that file back from a backup"],
        ),
    ] {
        let damaged = tempfile::tempdir().unwrap();
        copy(data.path(), damaged.path());
        let path = damaged.path().join(&file);
        match content {
            Some(content) => fs::write(&path, content).unwrap(),
            None => fs::remove_file(&path).unwrap(),
        }
        let refused = refusal(damaged.path()).await;
        let is_named = named.iter().all(|named| refused.contains(named));
        assert!(is_named && refused.contains("backup"), "{}: {refused}", file.display());
        assert!(!refused.contains("--accept-loss"), "{}: {refused}", file.display());
    }

    fs::write(data.path().join("db/abc.jnl"), "x").unwrap();
    let refused = refusal(data.path()).await;
    assert!(refused.contains("db/abc.jnl is not a journal") && refused.contains("move it out"), "{refused}");
}

#[tokio::test]
async fn database_that_lacks_its_marks_is_refused() {
    for is_emptied in [false, true] {
        let (data, journal) = filled_data_folder().await;
        let mark = DurableMark::path_in(data.path());
        fs::remove_file(record_path(data.path())).unwrap();
        if is_emptied {
            File::create(&mark).unwrap();
        } else {
            fs::remove_file(&mark).unwrap();
        }
        let half = content_length(&journal) as u64 / 2;
        File::options().write(true).open(&journal).unwrap().set_len(half).unwrap();
        for _ in 0..2 {
            let refused = refusal(data.path()).await;
            assert!(
                refused.contains("durable.mark is missing or empty") && refused.contains("--accept-loss"),
                "{refused}"
            );
        }
        assert_loss_is_accepted_once(data.path()).await;
    }
}

#[tokio::test]
async fn unused_installation_has_no_loss() {
    let data = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        drop(open_database(data.path(), false));
    }
    close(open_all(data.path(), false).await.unwrap()).await;
}

#[tokio::test]
async fn stop_leaves_no_rows_to_replay() {
    let (data, _) = filled_data_folder().await;
    for round in 0..2_u8 {
        let (database, mark) = open_database(data.path(), false);
        let disk = Arc::new(DiskSpace::of(&folder_in(data.path())));
        let log = Log::open_embedded_marked(database.clone(), &settings(), mark, disk).unwrap();
        assert_eq!(read(&log).await.len(), usize::try_from(RECORDS).unwrap() + usize::from(round));
        append(&log, items(0)).await;
        assert_eq!(read(&log).await.last(), Some(&(RECORDS + i64::from(round))));
        let table = database.keyspace("t", fjall::KeyspaceCreateOptions::default).unwrap();
        assert_eq!(table.get("a").unwrap().map(|value| value.to_vec()), (round > 0).then(|| vec![round - 1]));
        table.insert("a", [round]).unwrap();
        assert_eq!(table.get("a").unwrap().unwrap()[..], [round], "it is newer than the one in a table");
        assert_eq!(log.close(Instant::now() + Duration::from_secs(60)).await, DrainResult::Clean);
        closing_handle(data.path(), &database).close(Duration::from_secs(60)).await;
        drop((log, table, database));
        let journals = list_journals(data.path());
        let bytes: Vec<_> = journals.iter().map(|path| fs::metadata(path).unwrap().len()).collect();
        assert_eq!(bytes, [0]);
    }
    close(open_all(data.path(), false).await.unwrap()).await;
}

#[tokio::test]
async fn damaged_file_of_a_table_is_named() {
    let (data, _) = filled_data_folder().await;
    flush_all(data.path());
    let own =
        folder_in(data.path()).join("keyspaces").join(number_of(data.path(), "log.items.0").to_string());
    let file = fs::read_dir(own.join("tables")).unwrap().next().unwrap().unwrap().path();
    let mut bytes = fs::read(&file).unwrap();
    bytes[100] ^= 1;
    fs::write(&file, bytes).unwrap();
    let (database, _mark) = open_database(data.path(), false);
    let table = database.keyspace("log.items.0", fjall::KeyspaceCreateOptions::default).unwrap();
    let error = table.iter().find_map(|row| row.into_inner().err()).unwrap();
    let named = format!("{:#}", closing_handle(data.path(), &database).name_damage(error.into()));
    let file = file.display().to_string();
    assert!(named.contains(&file) && named.contains("of the table log.items.0 is damaged"), "{named}");
    assert!(named.contains("Put back a backup"), "{named}");
    let other = closing_handle(data.path(), &database).name_damage(anyhow::anyhow!("no disk"));
    assert_eq!(other.to_string(), "no disk");
}

/// Returns a command that runs one test of this file in a process of its own.
fn process(test: &str) -> std::process::Command {
    let mut process = std::process::Command::new(std::env::current_exe().unwrap());
    process.args(["--exact", &format!("open::loss_tests::{test}"), "--nocapture"]);
    process
}

#[cfg(unix)]
#[test]
fn files_without_rights_are_named_and_no_loss() {
    use std::os::unix::{fs::PermissionsExt as _, process::CommandExt as _};

    // Permissions do not limit root.
    if rustix::process::geteuid().is_root() {
        let folder = tempfile::tempdir_in("/tmp").unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let status = process("files_without_rights_are_named_and_no_loss")
            .env("TMPDIR", folder.path())
            .current_dir(folder.path())
            .uid(65_534)
            .gid(65_534)
            .status();
        assert!(status.unwrap().success());
        return;
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (data, _) = runtime.block_on(filled_data_folder());
    for (path, mode) in [
        ("db", 0o555),
        ("db/keyspaces", 0o000),
        ("db/0.jnl", 0o444),
        ("db/version", 0o000),
        ("db/keyspaces/0/current", 0o000),
        ("durable.mark", 0o000),
        ("unflushed.mark", 0o000),
    ] {
        let file = data.path().join(path);
        let before = fs::metadata(&file).unwrap().permissions();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        let refused = runtime.block_on(refusal(data.path()));
        fs::set_permissions(&file, before).unwrap();
        let named = format!("{} cannot be used", file.display());
        assert!(refused.contains(&named) && refused.contains("read and write access"), "{path}: {refused}");
        assert!(
            !refused.contains("--accept-loss") && !refused.contains("begin with an empty database"),
            "{refused}"
        );
    }
    runtime.block_on(async { close(open_all(data.path(), false).await.unwrap()).await });
}

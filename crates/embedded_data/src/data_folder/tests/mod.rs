//! Tests of folders in the state that full disks, kills and people leave them in.
#![allow(clippy::unwrap_used)]

mod kills;

use super::*;

/// The record of unflushed rows is updated often, because journals of tests are young.
const SETTINGS: DatabaseSettings =
    DatabaseSettings { max_open_tables: 200, record_interval: Duration::from_millis(20) };

fn open(folder: &Path) -> fjall::Result<Database> {
    super::open(folder, SETTINGS)
}

fn open_in(data: &Path) -> anyhow::Result<Database> {
    Ok(open_with_mark(data)?.0)
}

fn open_with_mark(data: &Path) -> anyhow::Result<(Database, Arc<DurableMark>)> {
    LockedDataFolder::lock(data, false)?.open_database(SETTINGS)
}

fn table(database: &Database) -> fjall::Keyspace {
    database.keyspace("t", fjall::KeyspaceCreateOptions::default).unwrap()
}

/// Creates a database with one row.
fn create_with_row(folder: &Path) {
    let database = open(folder).unwrap();
    table(&database).insert("k", "v").unwrap();
    database.persist(fjall::PersistMode::SyncAll).unwrap();
}

fn has_row(database: &Database) -> bool {
    table(database).get("k").unwrap().is_some()
}

/// Files in the order in which the creation of a database writes them, with the length that is written so far; `None`: all of it.
const STEPS: [(&str, Option<usize>); 13] = [
    ("", None),
    ("lock", None),
    ("keyspaces", None),
    ("0.jnl", Some(0)),
    ("0.jnl", None),
    ("version", Some(0)),
    ("version", Some(3)),
    ("version", None),
    ("keyspaces/0", None),
    ("keyspaces/0/tables", None),
    ("keyspaces/0/v0", Some(7)),
    ("keyspaces/0/v0", None),
    ("keyspaces/0/current", None),
];

/// Copies a newly created database up to the given number of steps.
fn copy_steps(model: &Path, folder: &Path, steps: usize) {
    for (name, length) in &STEPS[..steps] {
        let (from, to) = (model.join(name), folder.join(name));
        if from.is_dir() {
            fs::create_dir_all(to).unwrap();
        } else {
            let content = fs::read(from).unwrap();
            fs::write(to, &content[..length.unwrap_or(content.len())]).unwrap();
        }
    }
}

#[test]
fn unfinished_database_is_created_again() {
    let data = tempfile::tempdir().unwrap();
    let (data, folder) = (data.path(), folder_in(data.path()));
    assert!(!may_hold_data(data));
    // Remains of a creation on a full disk, and of the last writes after a removal.
    fs::create_dir_all(folder.join("keyspaces/7/tables")).unwrap();
    for (file, content) in [
        ("lock", &b""[..]),
        ("version", b""),
        ("0.jnl", &[0; 100_000]),
        ("keyspaces/7/v0", b"list"),
        ("keyspaces/7/current", b"list"),
    ] {
        fs::write(folder.join(file), content).unwrap();
    }
    fs::create_dir_all(data.join(UNFINISHED)).unwrap();
    fs::write(data.join(UNFINISHED).join("lock"), "").unwrap();
    assert!(!may_hold_data(data));
    drop(open_in(data).unwrap());
    assert!(may_hold_data(data));
}

#[test]
fn interrupted_creation_is_finished_by_the_next_start() {
    let model = tempfile::tempdir().unwrap();
    drop(open(model.path()).unwrap());
    for (place, db) in [
        ("db.new", "nothing"),
        ("db.new", "a folder"),
        ("db", "a folder"),
        ("db", "a link"),
        ("db.new", "a link"),
    ] {
        for steps in 0..=STEPS.len() {
            let what = format!("{steps} steps of {place}, with {db} as db");
            let (data, disk) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            let (folder, unfinished) = (folder_in(data.path()), data.path().join(UNFINISHED));
            match db {
                "a folder" => fs::create_dir(&folder).unwrap(),
                #[cfg(unix)]
                "a link" => std::os::unix::fs::symlink(disk.path(), &folder).unwrap(),
                _ => {}
            }
            copy_steps(model.path(), &data.path().join(place), steps);
            let database = open_in(data.path()).unwrap_or_else(|error| panic!("{what}: {error:#}"));
            table(&database).insert("k", "v").unwrap();
            drop(database);
            assert!(has_row(&open(&folder).unwrap()), "{what}");
            assert_eq!(fs::symlink_metadata(&folder).unwrap().is_symlink(), db == "a link", "{what}");
            assert!(db != "nothing" || !unfinished.exists(), "{what}");
        }
    }
}

#[test]
fn finished_database_is_renamed_and_keeps_its_rows() {
    let data = tempfile::tempdir().unwrap();
    create_with_row(&data.path().join(UNFINISHED));
    assert!(may_hold_data(data.path()), "its key must not be made anew");
    assert!(has_row(&open_in(data.path()).unwrap()));
    assert!(!data.path().join(UNFINISHED).exists());
}

#[test]
fn unrenamed_rows_are_not_ignored_for_an_empty_folder() {
    let data = tempfile::tempdir().unwrap();
    let (folder, unfinished) = (folder_in(data.path()), data.path().join(UNFINISHED));
    create_with_row(&unfinished);
    fs::create_dir(&folder).unwrap();
    let refused = format!("{:#}", open_in(data.path()).err().unwrap());
    assert!(
        refused.contains("db.new may be a complete database that was not renamed yet: give it that name"),
        "{refused}"
    );
    fs::remove_dir(&folder).unwrap();
    fs::rename(&unfinished, &folder).unwrap();
    assert!(has_row(&open_in(data.path()).unwrap()));
}

#[test]
fn foreign_files_beside_a_database_stay() {
    let data = tempfile::tempdir().unwrap();
    let unfinished = data.path().join(UNFINISHED);
    create_with_row(&folder_in(data.path()));
    create_with_row(&unfinished);
    assert!(has_row(&open_in(data.path()).unwrap()));
    assert!(has_row(&open(&unfinished).unwrap()));

    let data = tempfile::tempdir().unwrap();
    let backup = data.path().join(UNFINISHED).join("0.jnl");
    fs::create_dir(backup.parent().unwrap()).unwrap();
    fs::write(&backup, b"\0\0row").unwrap();
    let refused = format!("{:#}", open_in(data.path()).err().unwrap());
    assert!(refused.contains("db.new cannot be opened as a database"), "{refused}");
    assert_eq!(fs::read(&backup).unwrap(), b"\0\0row");
}

#[test]
fn database_without_its_list_of_tables_is_refused() {
    for lost in ["keyspaces", "keyspaces/0", "keyspaces/0/current"] {
        let (data, aside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (path, kept) = (folder_in(data.path()).join(lost), aside.path().join("kept"));
        create_with_row(&folder_in(data.path()));
        fs::rename(&path, &kept).unwrap();
        let refused = format!("{:#}", open_in(data.path()).err().unwrap());
        assert!(refused.contains("lacks the list of its tables"), "{lost}: {refused}");
        fs::rename(&kept, &path).unwrap();
        assert!(has_row(&open_in(data.path()).unwrap()), "{lost}");
    }
}

#[test]
fn database_without_any_tables_is_refused() {
    let (data, aside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (tables, kept) = (folder_in(data.path()).join(TABLES), aside.path().join("kept"));
    create_with_row(&folder_in(data.path()));
    fs::rename(&tables, &kept).unwrap();
    fs::create_dir(&tables).unwrap();
    let refused = format!("{:#}", open_in(data.path()).err().unwrap());
    assert!(refused.contains("lacks the list of its tables"), "{refused}");
    fs::remove_dir(&tables).unwrap();
    fs::rename(&kept, &tables).unwrap();
    fs::remove_file(folder_in(data.path()).join(LOCK)).unwrap();
    assert!(has_row(&open_in(data.path()).unwrap()));
}

#[test]
fn damaged_unrenamed_database_is_not_ignored() {
    for lost in [MARKER, TABLES] {
        let data = tempfile::tempdir().unwrap();
        let unfinished = data.path().join(UNFINISHED);
        create_with_row(&unfinished);
        let path = unfinished.join(lost);
        if path.is_dir() {
            fs::remove_dir_all(path).unwrap();
        } else {
            fs::remove_file(path).unwrap();
        }
        fs::create_dir(folder_in(data.path())).unwrap();
        let refused = format!("{:#}", open_in(data.path()).err().unwrap());
        assert!(
            refused.contains("db.new may be a complete database that was not renamed yet: give it that name"),
            "{lost}: {refused}"
        );
    }
}

#[test]
fn concurrent_start_creates_no_second_database() {
    let data = tempfile::tempdir().unwrap();
    let starting = LockedDataFolder::lock(data.path(), false).unwrap();
    let refused = format!("{:#}", open_in(data.path()).err().unwrap());
    assert!(refused.contains("is being opened by another process"), "{refused}");
    assert_eq!(fs::read_dir(data.path()).unwrap().count(), 0);
    let (database, mark) = starting.open_database(SETTINGS).unwrap();
    let refused = format!("{:#}", open_in(data.path()).err().unwrap());
    assert!(refused.contains("open in another process"), "{refused}");
    drop((database, mark));
    open_in(data.path()).unwrap();
}

#[cfg(unix)]
#[test]
fn two_links_to_one_folder_create_one_database() {
    let disk = tempfile::tempdir().unwrap();
    let data = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(disk.path(), folder_in(data.path())).unwrap();
    let other = File::open(disk.path()).unwrap();
    other.lock().unwrap();
    let refused = format!("{:#}", open_in(data.path()).err().unwrap());
    assert!(refused.contains("is being opened by another process"), "{refused}");
    assert_eq!(fs::read_dir(disk.path()).unwrap().count(), 0);
    drop(other);
    open_in(data.path()).unwrap();
}

#[cfg(unix)]
#[test]
fn link_without_target_is_refused() {
    let data = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("not-mounted", folder_in(data.path())).unwrap();
    let refused = format!("{:#}", open_in(data.path()).err().unwrap());
    assert!(refused.contains("the link has no target"), "{refused}");
}

#[cfg(unix)]
#[test]
fn link_to_another_disk_and_foreign_files_stay() {
    let (data, disk) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let folder = folder_in(data.path());
    std::os::unix::fs::symlink(disk.path(), &folder).unwrap();
    fs::create_dir(disk.path().join("lost+found")).unwrap();
    fs::write(disk.path().join(MARKER), "").unwrap();
    drop(open_in(data.path()).unwrap());
    assert!(fs::symlink_metadata(&folder).unwrap().is_symlink() && may_hold_data(data.path()));
    assert!(disk.path().join("lost+found").exists() && is_finished(disk.path()));
}

#[test]
fn folder_that_may_hold_data_is_refused_and_kept() {
    for file in ["0.jnl", "keyspaces/7/tables/3", "blob", "keyspaces/v1"] {
        let data = tempfile::tempdir().unwrap();
        let (data, path) = (data.path(), folder_in(data.path()).join(file));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, b"\0\0row").unwrap();
        assert!(may_hold_data(data));
        let refused = format!("{:#}", open_in(data).err().unwrap());
        assert!(
            refused.contains("`version` is missing or cut off") && refused.contains("backup"),
            "{refused}"
        );
        assert_eq!(fs::read(&path).unwrap(), b"\0\0row");
    }
}

#[test]
fn rows_of_a_version_without_marks_are_opened_with_a_warning() {
    let data = tempfile::tempdir().unwrap();
    let folder = folder_in(data.path());
    let warning = || {
        let names = tables::read_names(&folder).unwrap();
        LockedDataFolder::lock(data.path(), false).unwrap().warn_of_missing_mark(&folder, &names)
    };
    assert_eq!(warning(), None, "nothing is there yet");
    let database = open(&folder).unwrap();
    database.keyspace("t", fjall::KeyspaceCreateOptions::default).unwrap().insert("a", "b").unwrap();
    drop(database);
    assert!(warning().unwrap().contains("durable.mark is missing or empty"));
    File::create(DurableMark::path_in(data.path())).unwrap();
    assert!(warning().unwrap().contains("opened without a check for lost writes"));
    drop(open_in(data.path()).unwrap());
    assert_eq!(warning(), None);
}

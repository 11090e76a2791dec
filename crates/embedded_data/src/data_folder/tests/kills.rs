//! Tests of a database whose process is killed while journals are created and removed.

use tidegate_test_support::garbled::incompressible_mebibyte;

use super::*;

#[test]
fn journals_are_bounded_for_any_number_of_tables() {
    let data = tempfile::tempdir().unwrap();
    let (database, _mark) = open_with_mark(data.path()).unwrap();
    // No table holds enough in memory for the database to flush it.
    let table = |n: u32| database.keyspace(&format!("t{n}"), fjall::KeyspaceCreateOptions::default).unwrap();
    let tables: Vec<_> = (0..16).map(table).collect();
    let value = incompressible_mebibyte();
    for n in 0..400_u32 {
        tables[n as usize % tables.len()].insert(n.to_be_bytes(), &value[..]).unwrap();
    }
    let end = Instant::now() + Duration::from_secs(60);
    while database.journal_disk_space().unwrap() > unflushed_rows::MAX_JOURNAL_BYTES {
        assert!(Instant::now() < end, "{} journals", database.journal_count());
        std::thread::yield_now();
    }
}

/// Returns a command that runs one test of this file in a process of its own.
fn process(test: &str) -> std::process::Command {
    let mut process = std::process::Command::new(std::env::current_exe().unwrap());
    process.args(["--exact", &format!("data_folder::tests::kills::{test}"), "--nocapture"]);
    process
}

/// Variable that names the data folder of the process to kill.
const KILLED: &str = "TIDEGATE_TEST_KILLED_DATA";

/// Writes rows of all sizes, removals, new tables and flushes until it is killed, and prints the number of the last durable row.
#[test]
#[expect(clippy::print_stdout, reason = "the test that kills it reads it")]
fn writer_that_is_killed() {
    let Some(data) = std::env::var_os(KILLED).map(PathBuf::from) else { return };
    let (database, _mark) = open_with_mark(&data).unwrap();
    let table = |name: &str| database.keyspace(name, fjall::KeyspaceCreateOptions::default).unwrap();
    let mut random = u64::from(std::process::id());
    let mut next = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    let (acked, mut tables) = (table("acked"), vec![table("large")]);
    let first = acked
        .last_key_value()
        .map_or(0, |row| u32::from_be_bytes(row.key().unwrap().as_ref().try_into().unwrap()) + 1);
    let large = incompressible_mebibyte();
    for row in first.. {
        tables[0].insert(row.to_be_bytes(), &large[..]).unwrap();
        for _ in 0..next(20) {
            let small = &tables[usize::try_from(next(tables.len() as u64)).unwrap()];
            if next(3) == 0 {
                small.remove(next(50).to_be_bytes()).unwrap();
            }
            small.insert(next(50).to_be_bytes(), "v").unwrap();
        }
        acked.insert(row.to_be_bytes(), "v").unwrap();
        match next(12) {
            0 => tables.push(table(&format!("small-{}", next(8)))),
            1 => acked.rotate_memtable().map(drop).unwrap(),
            2..6 => {
                let flushed = &tables[usize::try_from(next(tables.len() as u64)).unwrap()];
                flushed.rotate_memtable().unwrap();
            }
            _ => {}
        }
        database.persist(fjall::PersistMode::SyncAll).unwrap();
        println!("durable {row}");
    }
}

#[test]
fn kills_while_journals_are_made_and_removed_are_no_loss() {
    use std::io::{BufRead as _, BufReader};

    const KILLS: u64 = 40;
    let data = tempfile::tempdir().unwrap();
    let mut oldest = 0;
    for kill in 0..KILLS {
        let mut writer = process("writer_that_is_killed")
            .env(KILLED, data.path())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(writer.stdout.take().unwrap()).lines().map(Result::unwrap);
        let rows =
            lines.filter_map(|line| line.strip_prefix("durable ").map(|row| row.parse::<u32>().unwrap()));
        let durable = rows.take(usize::try_from(15 + kill * 7 % 30).unwrap()).last();
        writer.kill().unwrap();
        writer.wait().unwrap();
        let durable = durable.unwrap_or_else(|| panic!("start {kill} was refused"));
        let journals = journals::list_journals(&folder_in(data.path())).unwrap().numbered;
        oldest = journals[0].0;
        // After every other kill, the next writer starts directly on the remains of the kill.
        if kill % 2 == 0 {
            let (database, _mark) = open_with_mark(data.path()).unwrap();
            let acked = database.keyspace("acked", fjall::KeyspaceCreateOptions::default).unwrap();
            for row in 0..=durable {
                assert!(acked.contains_key(row.to_be_bytes()).unwrap(), "row {row} after kill {kill}");
            }
        }
    }
    assert!(oldest >= 3, "{oldest}: the database is to remove journals");
}

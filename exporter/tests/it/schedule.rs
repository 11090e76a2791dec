//! Scheduled exports on an embedded store, into a folder and into a bucket.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::{FutureExt as _, future::BoxFuture};
use sha2::{Digest as _, Sha256};
use tidegate_exporter::{
    destination::{Destination, DestinationSettings},
    schedule::{
        DayExport, DayExportError, DayManifest, Deps, FileFormat, FileSummary, Schedule, ScheduleSettings,
        Settings,
        cron::{format_day, parse_day},
        manifest_key, run,
    },
};
use tidegate_history::Dataset;
use tidegate_schemas::ids::{Millis, OrgId};
use tidegate_store::{Clock, Store, embedded, tables::history::export_schedules::ExportSchedule};
use tidegate_test_support::{PATIENCE, eventually};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::support::s3_server::{BUCKET, S3Server};

/// Writes two small files a day, and notes which days it wrote.
#[derive(Default)]
struct SampleExport {
    days: Mutex<BTreeMap<i64, usize>>,
    running: AtomicUsize,
    /// True while days are not finished.
    is_blocked: AtomicBool,
    dropped: AtomicUsize,
}

/// Counts exports that were dropped before their end.
struct DropCounter<'a>(&'a SampleExport, bool);

impl Drop for DropCounter<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
        if !self.1 {
            self.0.dropped.fetch_add(1, Ordering::SeqCst);
        }
    }
}

fn write_summary(folder: &Path, name: String, text: &str) -> FileSummary {
    let path = folder.join(&name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, text).unwrap();
    FileSummary { name, rows: 3, bytes: text.len() as u64, sha256: digest(text.as_bytes()) }
}

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

impl DayExport for SampleExport {
    fn export_day<'a>(
        &'a self,
        _: &'a Schedule,
        day: i64,
        folder: &'a Path,
    ) -> BoxFuture<'a, Result<Vec<FileSummary>, DayExportError>> {
        async move {
            assert_eq!(self.running.fetch_add(1, Ordering::SeqCst), 0, "two exports of one schedule");
            let mut counter = DropCounter(self, false);
            assert_eq!(std::fs::read_dir(folder).unwrap().count(), 0, "the folder is empty");
            let text = format_day(day);
            let name = |part: usize| format!("decisions/day={text}/part-{part}.ndjson");
            let files =
                (1..=2).map(|part| write_summary(folder, name(part), &format!("{text} {part}\n"))).collect();
            while self.is_blocked.load(Ordering::SeqCst) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            *self.days.lock().unwrap().entry(day).or_default() += 1;
            counter.1 = true;
            Ok(files)
        }
        .boxed()
    }
}

/// Store, clock and settings of a case.
struct Fixture {
    folder: tempfile::TempDir,
    store: Store,
    /// Difference between the clock of the case and that of the machine.
    clock_offset: Arc<AtomicI64>,
    settings: Settings,
    exporter: Arc<SampleExport>,
}

/// One process that runs the schedules.
struct RunningProcess {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl RunningProcess {
    async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }
}

fn day(text: &str) -> i64 {
    parse_day(text).unwrap()
}

impl Fixture {
    /// The clock starts at 03:00 on 28 November 2026, half an hour after the time of the schedule.
    fn new(destination: DestinationSettings) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let db = fjall::Database::builder(folder.path().join("store")).open().unwrap();
        let store = Store::open_embedded(&db, embedded::Settings::default()).unwrap();
        let schedule = ScheduleSettings {
            name: "nightly".to_owned(),
            org: OrgId::new("acme"),
            datasets: vec![Dataset::Decisions],
            bundle: None,
            format: FileFormat::Ndjson,
            columns: Vec::new(),
            profile: None,
            cron: "30 2 * * *".to_owned(),
            since: Some("2026-11-25".to_owned()),
            retention_days: None,
            destination,
        };
        let settings = Settings {
            lease_ms: 5_000,
            retry_min_ms: 100,
            retry_max_ms: 200,
            schedules: vec![schedule],
            ..Settings::default()
        };
        let fixture =
            Self { folder, store, clock_offset: Arc::default(), settings, exporter: Arc::default() };
        fixture.set_clock("2026-11-28");
        fixture
    }

    fn in_folder() -> Self {
        let mut fixture = Self::new(DestinationSettings::folder(Path::new("x")));
        let root = fixture.folder.path().join("exports");
        std::fs::create_dir(&root).unwrap();
        fixture.settings.schedules[0].destination = DestinationSettings::folder(&root);
        fixture
    }

    /// Sets the clock to 03:00 of a day.
    fn set_clock(&self, text: &str) {
        let now = day(text) * 86_400_000 + 3 * 3_600_000;
        self.clock_offset.store(now - Millis::now().0, Ordering::SeqCst);
    }

    fn clock(&self) -> Clock {
        let offset = Arc::clone(&self.clock_offset);
        Arc::new(move || Millis(Millis::now().0 + offset.load(Ordering::SeqCst)))
    }

    fn start(&self) -> RunningProcess {
        let exporter: Arc<dyn DayExport> = self.exporter.clone();
        let deps = Deps {
            store: self.store.clone(),
            exporter,
            clock: self.clock(),
            work_folder: self.folder.path().join("work"),
        };
        let schedules = self.settings.open(|_| None).unwrap();
        let (settings, stop) = (self.settings.clone(), CancellationToken::new());
        let task = tokio::spawn({
            let stop = stop.clone();
            async move { run(deps, settings, schedules, stop).await.unwrap() }
        });
        RunningProcess { stop, task }
    }

    fn destination(&self) -> Destination {
        self.settings.schedules[0].destination.open(|_| None).unwrap()
    }

    async fn row(&self) -> Option<ExportSchedule> {
        self.store.get(&ExportSchedule::key(OrgId::new("acme"), "nightly")).await.unwrap()
    }

    /// Waits until the day is the next one to export and the run is over.
    async fn wait_for(&self, next_day: &str) -> ExportSchedule {
        let row = eventually(next_day, PATIENCE, async || {
            self.row().await.filter(|row| row.next_day == day(next_day) && row.lease_owner.is_none())
        });
        row.await.unwrap()
    }

    /// Reads the manifest of a day, and checks that its files are there with their digests.
    async fn read_day(&self, text: &str) -> Option<DayManifest<'static>> {
        let destination = self.destination();
        let bytes = destination.get(&manifest_key(day(text))).await.unwrap()?;
        let manifest = DayManifest::parse(&bytes).unwrap();
        assert_eq!((manifest.day.as_ref(), manifest.rows), (text, 6));
        for file in &manifest.files {
            let bytes = destination.get(&file.name).await.unwrap().unwrap();
            assert_eq!((digest(&bytes), bytes.len() as u64), (file.sha256.clone(), file.bytes));
        }
        Some(manifest)
    }
}

async fn check_whole_days(fixture: &Fixture) {
    let process = fixture.start();
    let row = fixture.wait_for("2026-11-28").await;
    assert_eq!((row.rows, row.last_error.as_deref()), (18, None));
    assert!(row.last_success_at.is_some());
    for text in ["2026-11-25", "2026-11-26", "2026-11-27"] {
        assert_eq!(fixture.read_day(text).await.unwrap().files.len(), 2);
    }
    assert!(fixture.read_day("2026-11-28").await.is_none(), "the day has not ended");
    process.stop().await;

    fixture.set_clock("2026-11-29");
    let process = fixture.start();
    assert_eq!(fixture.wait_for("2026-11-29").await.rows, 24);
    assert!(fixture.read_day("2026-11-28").await.is_some());
    process.stop().await;
    assert!(fixture.exporter.days.lock().unwrap().values().all(|count| *count == 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whole_days_are_exported_to_a_folder() {
    let fixture = Fixture::in_folder();
    check_whole_days(&fixture).await;
    let work_folder = fixture.folder.path().join("work");
    let leftovers: Vec<_> = std::fs::read_dir(work_folder).unwrap().collect();
    assert!(leftovers.is_empty(), "{leftovers:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whole_days_are_exported_to_a_bucket() {
    let server = S3Server::start().await;
    check_whole_days(&Fixture::new(server.settings(BUCKET, "tidegate/decisions"))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_export_each_day_once() {
    let mut fixture = Fixture::in_folder();
    fixture.settings.schedules[0].since = Some("2026-11-08".to_owned());
    let processes = [fixture.start(), fixture.start()];
    let row = fixture.wait_for("2026-11-28").await;
    assert_eq!(row.rows, 20 * 6);
    for process in processes {
        process.stop().await;
    }
    let days = fixture.exporter.days.lock().unwrap();
    assert_eq!(days.len(), 20);
    assert!(days.values().all(|count| *count == 1), "{days:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failing_destination_keeps_the_day_and_names_the_remedy() {
    let server = S3Server::start().await;
    let fixture = Fixture::new(server.settings("later-bucket", "p"));
    let process = fixture.start();
    let row = eventually("a stored error", PATIENCE, async || {
        fixture.row().await.filter(|row| row.last_error.is_some())
    });
    let row = row.await.unwrap();
    let error = row.last_error.unwrap();
    for part in ["bucket later-bucket", "NoSuchBucket", "create the bucket"] {
        assert!(error.contains(part), "{error}");
    }
    assert_eq!((row.next_day, row.rows, row.lease_owner), (day("2026-11-25"), 0, None));
    server.create_bucket("later-bucket");
    assert_eq!(fixture.wait_for("2026-11-28").await.last_error, None);
    assert!(fixture.read_day("2026-11-25").await.is_some());
    process.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn process_without_its_lease_stops_its_export() {
    let fixture = Fixture::in_folder();
    fixture.exporter.is_blocked.store(true, Ordering::SeqCst);
    let process = fixture.start();
    eventually("a running export", PATIENCE, async || {
        (fixture.exporter.running.load(Ordering::SeqCst) == 1).then_some(())
    })
    .await
    .unwrap();
    // Renewals compete with this write.
    eventually("another owner", PATIENCE, async || {
        let row = fixture.row().await?;
        let taken = ExportSchedule {
            lease_owner: Some("other".to_owned()),
            lease_until: Some((fixture.clock())().plus(PATIENCE * 10)),
            ..row.clone()
        };
        fixture.store.replace(&taken, row.version).await.unwrap().is_done().then_some(())
    })
    .await
    .unwrap();
    eventually("the end of the export", PATIENCE, async || {
        (fixture.exporter.dropped.load(Ordering::SeqCst) == 1).then_some(())
    })
    .await
    .unwrap();
    process.stop().await;
    let row = fixture.row().await.unwrap();
    assert_eq!((row.lease_owner.as_deref(), row.next_day), (Some("other"), day("2026-11-25")));
    assert!(fixture.read_day("2026-11-25").await.is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stop_drops_the_day_and_releases_the_lease() {
    let fixture = Fixture::in_folder();
    fixture.exporter.is_blocked.store(true, Ordering::SeqCst);
    let process = fixture.start();
    eventually("a running export", PATIENCE, async || {
        (fixture.exporter.running.load(Ordering::SeqCst) == 1).then_some(())
    })
    .await
    .unwrap();
    process.stop().await;
    let row = fixture.row().await.unwrap();
    assert_eq!((row.lease_owner, row.next_day), (None, day("2026-11-25")));
    assert_eq!(fixture.exporter.dropped.load(Ordering::SeqCst), 1);

    fixture.exporter.is_blocked.store(false, Ordering::SeqCst);
    let process = fixture.start();
    assert_eq!(fixture.wait_for("2026-11-28").await.rows, 18);
    process.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_process_loses_its_lease_to_the_next_one() {
    let fixture = Fixture::in_folder();
    fixture.exporter.is_blocked.store(true, Ordering::SeqCst);
    let process = fixture.start();
    eventually("a running export", PATIENCE, async || {
        (fixture.exporter.running.load(Ordering::SeqCst) == 1).then_some(())
    })
    .await
    .unwrap();
    // Aborted tasks do not release the lease, as if the process were killed.
    process.task.abort();
    assert!(process.task.await.unwrap_err().is_cancelled());
    eventually("the end of the export", PATIENCE, async || {
        (fixture.exporter.running.load(Ordering::SeqCst) == 0).then_some(())
    })
    .await
    .unwrap();
    assert!(fixture.row().await.unwrap().lease_owner.is_some());
    fixture.exporter.is_blocked.store(false, Ordering::SeqCst);
    let process = fixture.start();
    assert_eq!(fixture.wait_for("2026-11-28").await.rows, 18);
    process.stop().await;
}

async fn check_retention(fixture: &mut Fixture) {
    fixture.settings.schedules[0].retention_days = Some(3);
    let process = fixture.start();
    fixture.wait_for("2026-11-28").await;
    process.stop().await;
    let destination = fixture.destination();
    destination.put_bytes("decisions/foreign.txt", Bytes::from_static(b"kept")).await.unwrap();

    fixture.set_clock("2026-11-30");
    let process = fixture.start();
    fixture.wait_for("2026-11-30").await;
    for (text, is_kept) in
        [("2026-11-25", false), ("2026-11-26", false), ("2026-11-27", true), ("2026-11-29", true)]
    {
        let keys = destination.list(&format!("decisions/day={text}")).await.unwrap();
        assert_eq!(
            (fixture.read_day(text).await.is_some(), keys.len()),
            (is_kept, if is_kept { 2 } else { 0 })
        );
    }
    assert!(destination.get("decisions/foreign.txt").await.unwrap().is_some());
    process.stop().await;

    // A file in place of an expired manifest must not lead to deletions.
    let key = manifest_key(day("2026-11-27"));
    destination.put_bytes(&key, Bytes::from_static(b"{}")).await.unwrap();
    fixture.set_clock("2026-12-01");
    let process = fixture.start();
    let row = eventually("a stored error", PATIENCE, async || {
        fixture.row().await.filter(|row| row.next_day == day("2026-12-01") && row.last_error.is_some())
    });
    let error = row.await.unwrap().last_error.unwrap();
    assert!(error.contains("2026-11-27 is kept") && error.contains(&key), "{error}");
    assert_eq!(destination.list("decisions/day=2026-11-27").await.unwrap().len(), 2);
    process.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expired_days_are_deleted_from_a_folder() {
    check_retention(&mut Fixture::in_folder()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expired_days_are_deleted_from_a_bucket() {
    let server = S3Server::start().await;
    check_retention(&mut Fixture::new(server.settings(BUCKET, "tidegate"))).await;
}

#[tokio::test]
async fn summary_that_differs_from_its_file_is_an_error() {
    struct WrongSummary;

    impl DayExport for WrongSummary {
        fn export_day<'a>(
            &'a self,
            _: &'a Schedule,
            _: i64,
            folder: &'a Path,
        ) -> BoxFuture<'a, Result<Vec<FileSummary>, DayExportError>> {
            let file = write_summary(folder, "x.ndjson".to_owned(), "text");
            async move { Ok(vec![FileSummary { bytes: 5, ..file }]) }.boxed()
        }
    }

    let fixture = Fixture::in_folder();
    let deps = Deps {
        store: fixture.store.clone(),
        exporter: Arc::new(WrongSummary),
        clock: fixture.clock(),
        work_folder: fixture.folder.path().join("work"),
    };
    let stop = CancellationToken::new();
    let schedules = fixture.settings.open(|_| None).unwrap();
    let task = tokio::spawn(run(deps, fixture.settings.clone(), schedules, stop.clone()));
    let error = eventually("a stored error", PATIENCE, async || fixture.row().await?.last_error);
    assert!(error.await.unwrap().contains("\"x.ndjson\" differs from its summary"));
    stop.cancel();
    task.await.unwrap().unwrap();
}

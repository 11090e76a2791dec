//! Two processes run one schedule in a simulated world, and fail or die at any step.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::schedule::cron::{day_start, parse_day};

const LEASE: Duration = Duration::from_secs(60);

/// Store, destination and clock.
#[derive(Default)]
struct World {
    now: i64,
    row: Option<ExportSchedule>,
    /// Digest of each file by name.
    files: BTreeMap<String, String>,
    manifests: BTreeMap<i64, Vec<FileSummary>>,
    /// Days that ever had a manifest.
    exported_days: BTreeSet<i64>,
    exports: u64,
}

/// Way in which a step ends.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Success,
    /// The effect does not happen, and the process reports a failure.
    Failure,
    /// The effect happens, but the process learns of a failure.
    LostAnswer,
    DeathBefore,
    DeathAfter,
}

#[derive(Clone, Debug)]
enum Event {
    Step { process: usize, fate: Fate },
    Pass(u32),
}

fn rules(owner: &str, retention_days: Option<i64>) -> RunRules {
    RunRules {
        owner: owner.to_owned(),
        org: OrgId::new("acme"),
        name: "nightly".to_owned(),
        run_times: "30 2 * * *".parse().unwrap(),
        since: parse_day("2026-11-20"),
        retention_days,
        lease: LEASE,
        retry_min: Duration::from_secs(5),
        retry_max: Duration::from_secs(60),
    }
}

impl World {
    fn now(&self) -> Millis {
        Millis(self.now)
    }

    fn replace(&mut self, row: &ExportSchedule) -> Outcome {
        match &mut self.row {
            Some(stored) if stored.version == row.version => {
                *stored = ExportSchedule { version: row.version + 1, ..row.clone() };
                Outcome::Done
            }
            stored => Outcome::Conflict(stored.clone()),
        }
    }

    /// Files of a day. Their number and their digests differ from attempt to attempt, which is the worst case.
    fn export(&mut self, day: i64) -> Vec<FileSummary> {
        self.exports += 1;
        let count = 1 + self.exports % 2;
        let summary = |part| FileSummary {
            name: format!("decisions/day={day}/part-{part}"),
            rows: if part == 0 { 10 } else { 0 },
            bytes: 1,
            sha256: format!("{}", self.exports),
        };
        (0..count).map(summary).collect()
    }

    fn carry_out(&mut self, step: &Step) -> Outcome {
        match step {
            Step::ReadRow => Outcome::Row(self.row.clone()),
            Step::InsertRow(row) => {
                if self.row.is_some() {
                    return Outcome::Conflict(self.row.clone());
                }
                self.row = Some(ExportSchedule { version: 1, ..row.clone() });
                Outcome::Done
            }
            Step::ReplaceRow(row) => self.replace(row),
            Step::SleepUntil(until) => {
                self.now = self.now.max(until.0);
                Outcome::Done
            }
            Step::ExportDay(day) => Outcome::Files(self.export(*day)),
            Step::RemoveManifest(day) => {
                let files = self.manifests.remove(day).unwrap_or_default();
                Outcome::RemovedNames(files.into_iter().map(|file| file.name).collect())
            }
            Step::PutFile(file) => {
                self.files.insert(file.name.clone(), file.sha256.clone());
                Outcome::Done
            }
            Step::PutManifest { day, files } => {
                self.manifests.insert(*day, files.clone());
                self.exported_days.insert(*day);
                Outcome::Done
            }
            Step::DeleteFile(name) => {
                self.files.remove(name);
                Outcome::Done
            }
            Step::ListDaysBefore(before) => {
                Outcome::Days(self.manifests.range(..before).map(|(day, _)| *day).collect())
            }
            Step::DeleteFiles(day) => {
                for file in self.manifests.get(day).into_iter().flatten() {
                    self.files.remove(&file.name);
                }
                Outcome::Done
            }
            Step::DeleteManifest(day) => {
                self.manifests.remove(day);
                Outcome::Done
            }
        }
    }

    /// A manifest beside incomplete files is only allowed for a day that is being deleted.
    fn check(&self, retention_days: Option<i64>) {
        let oldest_day = retention_days.map_or(i64::MIN, |days| self.now().day() - days);
        for (day, files) in self.manifests.range(oldest_day..) {
            for file in files {
                assert_eq!(self.files.get(&file.name), Some(&file.sha256), "day {day}");
            }
        }
        let Some(row) = &self.row else { return };
        let first_day = parse_day("2026-11-20").unwrap();
        for day in first_day.max(oldest_day)..row.next_day {
            assert!(self.exported_days.contains(&day), "day {day} was skipped");
        }
    }
}

struct Simulation {
    world: World,
    processes: Vec<RunState>,
    retention_days: Option<i64>,
    starts: usize,
}

impl Simulation {
    fn new(retention_days: Option<i64>) -> Self {
        let now = day_start(parse_day("2026-11-28").unwrap()).0;
        let mut simulation = Self {
            world: World { now, ..World::default() },
            processes: Vec::new(),
            retention_days,
            starts: 0,
        };
        let processes = (0..2).map(|_| simulation.start_process()).collect();
        simulation.processes = processes;
        simulation
    }

    fn start_process(&mut self) -> RunState {
        self.starts += 1;
        RunState::new(rules(&format!("process-{}", self.starts), self.retention_days))
    }

    fn run_step(&mut self, process: usize, fate: Fate) {
        let now = self.world.now();
        let state = &mut self.processes[process];
        if let Some(row) = state.renewal(now) {
            match fate {
                Fate::Success => {
                    let outcome = self.world.replace(&row);
                    state.apply_renewal(row, outcome);
                }
                Fate::LostAnswer => {
                    self.world.replace(&row);
                    state.apply_renewal(row, Outcome::StoreFailed);
                }
                _ => state.apply_renewal(row, Outcome::StoreFailed),
            }
            return;
        }
        let step = state.next_step(now);
        // Time passes by itself only while no process works. Otherwise a sleeping process would let each lease end.
        if let Step::SleepUntil(until) = step
            && until > now
            && self.processes.iter().any(|state| state.holds_lease(now))
        {
            return;
        }
        let is_store_step = matches!(step, Step::ReadRow | Step::InsertRow(_) | Step::ReplaceRow(_));
        if !is_store_step && !matches!(step, Step::SleepUntil(_)) {
            assert!(self.processes[process].holds_lease(now), "{step:?} without a lease");
            let holders = self.processes.iter().filter(|state| state.holds_lease(now)).count();
            assert_eq!(holders, 1, "{step:?} in two processes");
        }
        let failure =
            if is_store_step { Outcome::StoreFailed } else { Outcome::Failed("no such bucket".to_owned()) };
        match fate {
            Fate::Success => {
                let outcome = self.world.carry_out(&step);
                self.processes[process].apply(outcome, self.world.now());
            }
            Fate::Failure => self.processes[process].apply(failure, now),
            Fate::LostAnswer => {
                let _lost = self.world.carry_out(&step);
                self.processes[process].apply(failure, self.world.now());
            }
            Fate::DeathBefore => self.processes[process] = self.start_process(),
            Fate::DeathAfter => {
                let _lost = self.world.carry_out(&step);
                self.processes[process] = self.start_process();
            }
        }
        self.world.check(self.retention_days);
    }

    /// Runs without failures into the next day, until the day before is exported and the lease is released.
    fn finish(&mut self) {
        self.world.now = day_start(self.world.now().day() + 1).0 + 3 * 3_600_000;
        for turn in 0..5_000 {
            let today = self.world.now().day();
            let is_done =
                self.world.row.as_ref().is_some_and(|row| row.next_day >= today && row.lease_owner.is_none());
            if is_done {
                return;
            }
            self.run_step(turn % 2, Fate::Success);
        }
        panic!("not finished: {:?}", self.world.row);
    }

    fn check_end(&self) {
        let (world, today) = (&self.world, self.world.now().day());
        let first_day = parse_day("2026-11-20").unwrap();
        let oldest_day = self.retention_days.map_or(first_day, |days| first_day.max(today - days));
        let days: Vec<_> = world.manifests.keys().copied().collect();
        assert_eq!(days, (oldest_day..today).collect::<Vec<_>>());
        let row = world.row.as_ref().unwrap();
        assert_eq!(row.last_error, None);
        // Each day counts once, although it was exported several times.
        assert!(row.rows <= 10 * (row.next_day - first_day), "{row:?}");
        if self.retention_days.is_none() {
            assert_eq!(row.rows, 10 * (row.next_day - first_day));
        }
    }
}

fn event() -> impl Strategy<Value = Event> {
    let fate = prop_oneof![
        8 => Just(Fate::Success),
        1 => Just(Fate::Failure),
        1 => Just(Fate::LostAnswer),
        1 => Just(Fate::DeathBefore),
        1 => Just(Fate::DeathAfter),
    ];
    prop_oneof![
        12 => (0_usize..2, fate).prop_map(|(process, fate)| Event::Step { process, fate }),
        1 => (1_u32..90_000).prop_map(Event::Pass),
        1 => (1_u32..40_000_000).prop_map(Event::Pass),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn days_survive_failures_and_deaths_at_any_step(
        events in prop::collection::vec(event(), 0..250),
        retention_days in prop::option::of(2_i64..6),
    ) {
        let mut simulation = Simulation::new(retention_days);
        for event in events {
            match event {
                Event::Step { process, fate } => simulation.run_step(process, fate),
                Event::Pass(millis) => simulation.world.now += i64::from(millis),
            }
        }
        simulation.finish();
        simulation.check_end();
    }
}

#[test]
fn every_single_step_may_fail() {
    for fate in [Fate::Failure, Fate::LostAnswer, Fate::DeathBefore, Fate::DeathAfter] {
        for failing_step in 0..120 {
            let mut simulation = Simulation::new(Some(5));
            for step in 0..120 {
                simulation.run_step(0, if step == failing_step { fate } else { Fate::Success });
                simulation.world.now += 600_000;
            }
            simulation.finish();
            simulation.check_end();
        }
    }
}

#[test]
fn other_process_waits_until_the_lease_ends() {
    let mut simulation = Simulation::new(None);
    simulation.world.now += 3 * 3_600_000;
    while !simulation.processes[0].holds_lease(simulation.world.now()) {
        simulation.run_step(0, Fate::Success);
    }
    let leased_until = simulation.world.row.as_ref().unwrap().lease_until.unwrap();
    let other = &mut simulation.processes[1];
    other.apply(Outcome::Row(simulation.world.row.clone()), simulation.world.now());
    assert_eq!(other.next_step(simulation.world.now()), Step::SleepUntil(leased_until));
}

#[test]
fn lost_lease_ends_the_work_of_its_process() {
    let mut simulation = Simulation::new(None);
    simulation.world.now += 3 * 3_600_000;
    let is_upload = |step: &Step| matches!(step, Step::PutFile(_));
    while !is_upload(&simulation.processes[0].next_step(simulation.world.now())) {
        simulation.run_step(0, Fate::Success);
    }
    simulation.world.now += i64::try_from(LEASE.as_millis()).unwrap();
    let now = simulation.world.now();
    assert_eq!(simulation.processes[0].renewal(now), None);
    assert_eq!(simulation.processes[0].next_step(now), Step::ReadRow);
}

#[test]
fn failed_day_is_repeated_after_growing_pauses() {
    let mut simulation = Simulation::new(None);
    simulation.world.now += 3 * 3_600_000;
    let mut pauses = Vec::new();
    while pauses.len() < 6 {
        let now = simulation.world.now();
        match simulation.processes[0].next_step(now) {
            Step::ExportDay(day) => {
                assert_eq!(day, parse_day("2026-11-20").unwrap());
                simulation.run_step(0, Fate::Failure);
            }
            Step::SleepUntil(until) => {
                pauses.push((until.0 - now.0) / 1_000);
                let row = simulation.world.row.clone().unwrap();
                assert_eq!((row.last_error.as_deref(), row.lease_owner), (Some("no such bucket"), None));
                simulation.run_step(0, Fate::Success);
            }
            _ => simulation.run_step(0, Fate::Success),
        }
    }
    assert_eq!(pauses, [5, 10, 20, 40, 60, 60]);
}

#[test]
fn first_day_without_since_is_yesterday() {
    let now = Millis(day_start(parse_day("2026-11-28").unwrap()).0 + 1);
    let mut state = RunState::new(RunRules { since: None, ..rules("p", None) });
    state.apply(Outcome::Row(None), now);
    let Step::InsertRow(row) = state.next_step(now) else { panic!("{state:?}") };
    assert_eq!(Some(row.next_day), parse_day("2026-11-27"));
}

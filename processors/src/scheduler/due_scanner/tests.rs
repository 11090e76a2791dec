#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use tidegate_schemas::ids::Millis;

use super::*;

#[derive(Clone, Debug)]
struct Row {
    id: usize,
    due_at: Millis,
}

impl DueRow for Row {
    type Id = usize;

    fn id(&self) -> usize {
        self.id
    }

    fn minute(&self) -> i64 {
        minute_of(self.due_at)
    }

    fn due_at(&self) -> Millis {
        self.due_at
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// A row is written that is due so many seconds from now; late writers are behind.
    Write(i64),
    /// Seconds go by, then a pass. Every `again` of the rows that come due is not settled yet.
    Pass { seconds: i64, sweeps: bool, again: usize },
    /// The process dies; its successor has the saved cursor.
    Die,
    /// The clock is set back, and a pass sees it.
    Back { minutes: i64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (-(LATE_MINUTES - 1) * 60..120_i64).prop_map(Step::Write),
        6 => (0..300_i64, any::<bool>(), 1..4_usize)
            .prop_map(|(seconds, sweeps, again)| Step::Pass { seconds, sweeps, again }),
        1 => Just(Step::Die),
        1 => (1..120_i64).prop_map(|minutes| Step::Back { minutes }),
    ]
}

proptest! {
    #[test]
    fn no_row_is_passed_before_it_is_settled(steps in prop::collection::vec(step(), 1..60)) {
        let mut now = Millis(1_000 * MINUTE);
        let mut table: BTreeMap<usize, Row> = BTreeMap::new();
        let mut settled = BTreeSet::new();
        let mut saved = minute_of(now) - LATE_MINUTES;
        let mut agenda = Agenda::new(saved);
        let back: i64 =
            steps.iter().map(|step| if let Step::Back { minutes } = step { *minutes } else { 0 }).sum();
        let closing = (0..40 + back).map(|_| Step::Pass { seconds: 60, sweeps: true, again: usize::MAX });
        for step in steps.into_iter().chain(closing) {
            match step {
                Step::Write(seconds) => {
                    let id = table.len();
                    table.insert(id, Row { id, due_at: Millis(now.0 + seconds * 1_000) });
                }
                Step::Die => agenda = Agenda::new(saved),
                Step::Back { minutes } => {
                    now = Millis(now.0 - minutes * MINUTE);
                    agenda.rewind(now);
                    saved = agenda.advance();
                }
                Step::Pass { seconds, sweeps, again } => {
                    now = Millis(now.0 + seconds * 1_000);
                    agenda.rewind(now);
                    let mut minutes = agenda.backlog(now, 3);
                    if sweeps {
                        minutes.extend(agenda.recent(now));
                    }
                    for minute in minutes {
                        for row in table.values().filter(|row| row.minute() == minute) {
                            agenda.see(row.clone());
                        }
                        agenda.read(minute, now);
                    }
                    for (nth, row) in agenda.due(now).into_iter().enumerate() {
                        prop_assert!(row.due_at <= now, "a row came early");
                        let next = if (nth + 1).is_multiple_of(again) && again != usize::MAX {
                            Next::Again(Millis(now.0 + 5_000))
                        } else {
                            settled.insert(row.id);
                            Next::Settled
                        };
                        agenda.acted(row, next);
                    }
                    let cursor = agenda.advance();
                    prop_assert!(cursor >= saved && cursor <= minute_of(now) - LATE_MINUTES);
                    saved = cursor;
                    for row in table.values().filter(|row| row.minute() < saved) {
                        prop_assert!(settled.contains(&row.id), "{row:?} was passed unsettled");
                    }
                }
            }
        }
        prop_assert_eq!(settled.len(), table.len(), "every row was settled in the end");
        prop_assert!(minute_of(now) - saved <= LATE_MINUTES + 2, "the cursor follows");
        prop_assert!(agenda.minutes.len() <= usize::try_from(LATE_MINUTES).unwrap() + 4, "what is passed is forgotten");
    }
}

#[test]
fn a_row_that_was_settled_is_not_acted_on_when_it_is_read_again() {
    let now = Millis(1_000 * MINUTE);
    let mut agenda = Agenda::new(minute_of(now) - LATE_MINUTES);
    let row = Row { id: 1, due_at: now };
    agenda.see(row.clone());
    let due = agenda.due(now);
    assert_eq!(due.len(), 1);
    agenda.see(row.clone());
    assert!(agenda.due(now).is_empty(), "it is under way");
    agenda.acted(row.clone(), Next::Settled);
    agenda.see(row);
    assert!(agenda.due(now).is_empty());
    assert_eq!(agenda.next_at(), None);
}

/// A shard that nobody has scanned, with a row that comes due later.
struct Fresh(Millis);

impl DueTable for Fresh {
    type Row = Row;

    async fn read(&self, _: u32, _: i64, _: Option<RangeInclusive<Millis>>) -> Result<Vec<Row>, Fault> {
        Ok(Vec::new())
    }

    async fn saved(&self, _: u32) -> Result<Option<i64>, Fault> {
        Ok(None)
    }

    async fn oldest(&self, _: u32) -> Result<Option<i64>, Fault> {
        Ok(Some(minute_of(self.0)))
    }

    async fn save(&self, _: u32, _: i64) -> Result<(), Fault> {
        Ok(())
    }

    async fn act(&self, _: &Row, _: Millis) -> Result<Next, Fault> {
        Ok(Next::Settled)
    }
}

fn scanner(oldest: Millis) -> Scanner<Fresh> {
    Scanner {
        role: Role("test"),
        topic: Topic::Decisions,
        table: Fresh(oldest),
        poll: Duration::ZERO,
        sweep: Duration::ZERO,
        settings: Arc::default(),
        health: Health::default(),
        latest: AtomicI64::default(),
        is_told: AtomicBool::default(),
    }
}

#[test]
fn a_clock_that_was_set_back_is_told_once_by_all_shards_and_again_when_it_was_right_meanwhile() {
    let now = Millis(10_000 * MINUTE);
    let scanner = scanner(now);
    let mut shards = [0; 2].map(|_| Agenda::new(minute_of(now) - LATE_MINUTES));
    for (minutes, told) in
        [(0, [None; 2]), (60, [Some(60), None]), (30, [None; 2]), (0, [None; 2]), (90, [Some(90), None])]
    {
        let now = Millis(now.0 - minutes * MINUTE);
        assert_eq!(shards.each_mut().map(|agenda| scanner.follow_clock(agenda, now)), told, "{minutes}");
        for agenda in &mut shards {
            for minute in agenda.backlog(now, usize::MAX) {
                agenda.read(minute, now);
            }
            agenda.advance();
        }
    }
}

#[tokio::test]
async fn a_row_that_comes_due_later_says_nothing_of_the_clock() {
    let now = Millis::now();
    let scanner = scanner(now.plus(Duration::from_secs(3_600)));
    scanner.pass(0, &mut None, &mut Instant::now(), &CancellationToken::new()).await.unwrap();
    assert!(scanner.latest.load(Relaxed) <= minute_of(Millis::now()));
}

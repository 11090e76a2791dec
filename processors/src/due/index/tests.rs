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
    /// Writes a row that is due in this number of seconds. Writers with a late clock write in the past.
    Write(i64),
    /// Advances the clock and runs a pass. Every `again`th due row is due again later.
    Pass { seconds: i64, sweeps: bool, again: usize },
    /// The process dies, and its successor starts at the saved cursor.
    Restart,
    /// The clock is set back, and a pass notices it.
    Back { minutes: i64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (-(LATE_MINUTES - 1) * 60..120_i64).prop_map(Step::Write),
        6 => (0..300_i64, any::<bool>(), 1..4_usize)
            .prop_map(|(seconds, sweeps, again)| Step::Pass { seconds, sweeps, again }),
        1 => Just(Step::Restart),
        1 => (1..120_i64).prop_map(|minutes| Step::Back { minutes }),
    ]
}

proptest! {
    #[test]
    fn cursor_passes_no_unsettled_row(steps in prop::collection::vec(step(), 1..60)) {
        let mut now = Millis(1_000 * MINUTE_MS);
        let mut table: BTreeMap<usize, Row> = BTreeMap::new();
        let mut settled = BTreeSet::new();
        let mut saved = minute_of(now) - LATE_MINUTES;
        let mut index = DueIndex::new(saved);
        let back: i64 =
            steps.iter().map(|step| if let Step::Back { minutes } = step { *minutes } else { 0 }).sum();
        let closing = (0..40 + back).map(|_| Step::Pass { seconds: 60, sweeps: true, again: usize::MAX });
        for step in steps.into_iter().chain(closing) {
            match step {
                Step::Write(seconds) => {
                    let id = table.len();
                    table.insert(id, Row { id, due_at: Millis(now.0 + seconds * 1_000) });
                }
                Step::Restart => index = DueIndex::new(saved),
                Step::Back { minutes } => {
                    now = Millis(now.0 - minutes * MINUTE_MS);
                    index.rewind(now);
                    saved = index.advance();
                }
                Step::Pass { seconds, sweeps, again } => {
                    now = Millis(now.0 + seconds * 1_000);
                    index.rewind(now);
                    let mut minutes = index.backlog_minutes(now, 3);
                    if sweeps {
                        minutes.extend(index.recent_minutes(now));
                    }
                    for minute in minutes {
                        for row in table.values().filter(|row| row.minute() == minute) {
                            index.insert(row.clone());
                        }
                        index.record_read(minute, now);
                    }
                    for (nth, row) in index.take_due(now).into_iter().enumerate() {
                        prop_assert!(row.due_at <= now, "a row came early");
                        let follow_up = if (nth + 1).is_multiple_of(again) && again != usize::MAX {
                            FollowUp::DueAgain(Millis(now.0 + 5_000))
                        } else {
                            settled.insert(row.id);
                            FollowUp::Settled
                        };
                        index.finish(row, follow_up);
                    }
                    let cursor = index.advance();
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
        prop_assert!(index.minutes.len() <= usize::try_from(LATE_MINUTES).unwrap() + 4, "passed minutes are forgotten");
    }
}

#[test]
fn settled_row_is_not_due_when_it_is_read_again() {
    let now = Millis(1_000 * MINUTE_MS);
    let mut index = DueIndex::new(minute_of(now) - LATE_MINUTES);
    let row = Row { id: 1, due_at: now };
    index.insert(row.clone());
    let due_rows = index.take_due(now);
    assert_eq!(due_rows.len(), 1);
    index.insert(row.clone());
    assert!(index.take_due(now).is_empty(), "it is in progress");
    index.finish(row.clone(), FollowUp::Settled);
    index.insert(row);
    assert!(index.take_due(now).is_empty());
    assert_eq!(index.next_due_at(), None);
}

#[test]
fn clock_set_back_reopens_closed_minutes() {
    let now = Millis(1_000 * MINUTE_MS);
    let unsettled = Row { id: 1, due_at: Millis(now.0 - 20 * MINUTE_MS) };
    let mut index = DueIndex::new(unsettled.minute());
    index.insert(unsettled.clone());
    for minute in index.backlog_minutes(now, 20) {
        index.record_read(minute, now);
    }
    assert_eq!(index.take_due(now).len(), 1);

    let earlier_time = Millis(now.0 - 5 * MINUTE_MS);
    assert_eq!(index.rewind(earlier_time), None, "the cursor waits for the unsettled row");
    let late_row = Row { id: 2, due_at: Millis(earlier_time.0 - 8 * MINUTE_MS) };
    index.finish(unsettled, FollowUp::Settled);
    assert_eq!(index.advance(), minute_of(earlier_time) - LATE_MINUTES);
    assert!(index.backlog_minutes(now, 20).contains(&late_row.minute()), "it is read again");
}

//! Shows the progress of an export on standard error.

use std::{
    io::{self, IsTerminal as _, Write as _},
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
        mpsc::{self, RecvTimeoutError, Sender},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;
use tidegate_schemas::{ids::Millis, string_enum};

use super::manifest::format_time;

string_enum! {
    /// Form of the progress report.
    pub enum ProgressForm {
        /// Bar that is updated in place.
        Bar = "text",
        /// One JSON object per line, for programs.
        Json = "json",
        None = "none",
    }
}

const UPDATE_INTERVAL: Duration = Duration::from_millis(500);

/// Template of the bar: rows and rate are part of the message, because the bar measures the time range.
const TEMPLATE: &str = "{bar:24} {percent:>3} %  {msg}";

/// Progress of an export. Dropped, it prints the final state.
#[derive(Debug)]
pub struct ExportProgress {
    position: Arc<Position>,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Position {
    since: i64,
    until: i64,
    /// Time of the last row.
    time: AtomicI64,
    rows: AtomicU64,
}

/// State of an export at one moment.
#[derive(Clone, Debug, PartialEq)]
struct Snapshot {
    rows: u64,
    rows_per_second: f64,
    /// Time of the last row.
    time: Millis,
    /// Share of the range before this time, from 0 to 1.
    share: f64,
    /// Estimate from the share of the range; `None` before the first row.
    seconds_left: Option<f64>,
}

impl ProgressForm {
    /// Returns the chosen form, or by default a bar on a terminal.
    pub fn detect(chosen: Option<Self>) -> Self {
        let default = || if io::stderr().is_terminal() { Self::Bar } else { Self::None };
        chosen.unwrap_or_else(default)
    }
}

impl ExportProgress {
    /// Starts the report. The range gives the estimate of the remaining time.
    pub fn start(form: ProgressForm, since: Millis, until: Millis) -> Self {
        let position = Arc::new(Position {
            since: since.0,
            until: until.0,
            time: AtomicI64::new(since.0),
            rows: AtomicU64::new(0),
        });
        if form == ProgressForm::None {
            return Self { position, stop: None, thread: None };
        }
        let (stop_sender, stop_receiver) = mpsc::channel();
        let observed = Arc::clone(&position);
        let thread = thread::spawn(move || {
            let (started_at, printer) = (Instant::now(), Printer::new(form));
            while stop_receiver.recv_timeout(UPDATE_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                printer.print(&observed.snapshot(started_at.elapsed()));
            }
            // The final state is printed even if the export ends between two updates.
            printer.print(&observed.snapshot(started_at.elapsed()));
            printer.end();
        });
        Self { position, stop: Some(stop_sender), thread: Some(thread) }
    }

    /// Counts a row that was read, with its time.
    #[inline]
    pub fn record_row(&self, time: Millis) {
        self.position.time.store(time.0, Ordering::Relaxed);
        self.position.rows.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for ExportProgress {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}

impl Position {
    fn snapshot(&self, elapsed: Duration) -> Snapshot {
        let (rows, time) = (self.rows.load(Ordering::Relaxed), self.time.load(Ordering::Relaxed));
        // Avoids a division by zero right after the start.
        let seconds = elapsed.as_secs_f64().max(0.001);
        let range = self.until.saturating_sub(self.since).max(1) as f64;
        let share = (time.saturating_sub(self.since) as f64 / range).clamp(0.0, 1.0);
        let seconds_left = (rows > 0 && share > 0.0).then(|| seconds * (1.0 - share) / share);
        Snapshot { rows, rows_per_second: rows as f64 / seconds, time: Millis(time), share, seconds_left }
    }
}

enum Printer {
    Bar(ProgressBar),
    Json,
}

impl Printer {
    fn new(form: ProgressForm) -> Self {
        if form == ProgressForm::Json {
            return Self::Json;
        }
        let bar = ProgressBar::with_draw_target(Some(BAR_LENGTH), ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
            bar.set_style(style);
        }
        Self::Bar(bar)
    }

    fn print(&self, snapshot: &Snapshot) {
        match self {
            Self::Bar(bar) => {
                bar.set_message(snapshot.to_message());
                bar.set_position(snapshot.bar_position());
            }
            Self::Json => {
                let line = snapshot.to_json() + "\n";
                let mut stderr = io::stderr().lock();
                let _reader_gone = stderr.write_all(line.as_bytes()).and_then(|()| stderr.flush());
            }
        }
    }

    fn end(&self) {
        if let Self::Bar(bar) = self {
            bar.abandon();
        }
    }
}

/// Length of the bar in steps.
const BAR_LENGTH: u64 = 1_000;

impl Snapshot {
    fn bar_position(&self) -> u64 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 1,000")]
        let position = (self.share * BAR_LENGTH as f64) as u64;
        position
    }

    fn to_message(&self) -> String {
        let seconds_left = self.seconds_left.map_or_else(String::new, |left| format!(", {left:.0} s left"));
        format!("{} rows, {:.0} rows/s{seconds_left}", self.rows, self.rows_per_second)
    }

    fn to_json(&self) -> String {
        // Rounded up, so that remaining work never shows as 0 seconds.
        let seconds_left = self.seconds_left.map(f64::ceil);
        let rows_per_second = self.rows_per_second.round();
        json!({
            "rows": self.rows,
            "rowsPerSecond": rows_per_second,
            "time": format_time(self.time),
            "secondsLeft": seconds_left,
        })
        .to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remaining_time_follows_the_share_of_the_range() {
        let progress = ExportProgress::start(ProgressForm::None, Millis(1_000), Millis(5_000));
        let start = progress.position.snapshot(Duration::ZERO);
        assert_eq!((start.rows, start.share, start.seconds_left), (0, 0.0, None));
        progress.record_row(Millis(1_500));
        progress.record_row(Millis(2_000));
        let snapshot = progress.position.snapshot(Duration::from_secs(2));
        assert_eq!((snapshot.bar_position(), snapshot.seconds_left), (250, Some(6.0)));
        assert_eq!(snapshot.to_message(), "2 rows, 1 rows/s, 6 s left");
        assert_eq!(
            snapshot.to_json(),
            r#"{"rows":2,"rowsPerSecond":1.0,"secondsLeft":6.0,"time":"1970-01-01T00:00:02.000Z"}"#
        );
        progress.record_row(Millis(9_000));
        assert_eq!(progress.position.snapshot(Duration::from_secs(2)).seconds_left, Some(0.0));
    }
}

//! Shows the progress of a conversion on standard error.

use std::{
    io::{self, IsTerminal as _, Write as _},
    sync::{
        Arc,
        atomic::Ordering,
        mpsc::{self, RecvTimeoutError, Sender},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use clap::ValueEnum;
use serde_json::json;
use tidegate_exporter::{meter::Meter, plural::counted};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Progress {
    /// One line that is updated in place
    Text,
    /// One JSON object per line, for programs
    Json,
    None,
}

/// Form of the progress report, chosen from the option and the terminal.
pub(super) struct ProgressForm(Progress);

const OFTEN: Duration = Duration::from_millis(500);

/// Thread that prints the progress until it is dropped.
pub(super) struct ProgressThread {
    done: Option<Sender<()>>,
    showing: Option<JoinHandle<()>>,
}

impl ProgressForm {
    pub(super) fn new(asked: Option<Progress>) -> Self {
        let fallback = if io::stderr().is_terminal() { Progress::Text } else { Progress::None };
        Self(asked.unwrap_or(fallback))
    }

    pub(super) fn watch(&self, meter: &Arc<Meter>) -> ProgressThread {
        let form = self.0;
        if form == Progress::None {
            return ProgressThread { done: None, showing: None };
        }
        let meter = Arc::clone(meter);
        let (done, ended) = mpsc::channel();
        let showing = thread::spawn(move || {
            let began = Instant::now();
            while ended.recv_timeout(OFTEN) == Err(RecvTimeoutError::Timeout) {
                show(form, &meter, began.elapsed());
            }
            show(form, &meter, began.elapsed());
            if form == Progress::Text {
                let _reader_gone = writeln!(io::stderr());
            }
        });
        ProgressThread { done: Some(done), showing: Some(showing) }
    }
}

impl Drop for ProgressThread {
    fn drop(&mut self) {
        drop(self.done.take());
        if let Some(showing) = self.showing.take() {
            let _panicked = showing.join();
        }
    }
}

fn show(form: Progress, meter: &Meter, elapsed: Duration) {
    let of = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let (rows, read, total) = (of(&meter.rows), of(&meter.read), of(&meter.total));
    let seconds = elapsed.as_secs_f64().max(0.001);
    let rate = rows as f64 / seconds;
    let left = (read > 0 && total >= read).then(|| seconds * (total - read) as f64 / read as f64);
    let line = if form == Progress::Json {
        // What is left is never told as nothing.
        let left = left.map(f64::ceil);
        json!({ "rows": rows, "rowsPerSecond": rate.round(), "bytesRead": read, "bytesTotal": total, "secondsLeft": left })
            .to_string()
            + "\n"
    } else {
        let left = left.map_or_else(String::new, |left| format!(", {left:.0} s left"));
        let rows = counted(rows, "row");
        format!("\r\x1b[K{rows}, {rate:.0} rows/s{left}")
    };
    let mut stderr = io::stderr().lock();
    let _reader_gone = stderr.write_all(line.as_bytes()).and_then(|()| stderr.flush());
}

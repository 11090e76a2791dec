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
use tidegate_exporter::{meter::Meter, plural::format_count};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::commands::bundle) enum Progress {
    /// One line that is updated in place
    Text,
    /// One JSON object per line, for programs
    Json,
    None,
}

/// Form of the progress report, chosen from the option and the terminal.
pub(in crate::commands::bundle) struct ProgressForm(Progress);

const UPDATE_INTERVAL: Duration = Duration::from_millis(500);

/// Thread that prints the progress until it is dropped.
pub(super) struct ProgressThread {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl ProgressForm {
    pub(in crate::commands::bundle) fn new(option: Option<Progress>) -> Self {
        let fallback = if io::stderr().is_terminal() { Progress::Text } else { Progress::None };
        Self(option.unwrap_or(fallback))
    }

    pub(super) fn watch(&self, meter: &Arc<Meter>) -> ProgressThread {
        let form = self.0;
        if form == Progress::None {
            return ProgressThread { stop: None, thread: None };
        }
        let meter = Arc::clone(meter);
        let (stop_sender, stop_receiver) = mpsc::channel();
        let thread = thread::spawn(move || {
            let started_at = Instant::now();
            while stop_receiver.recv_timeout(UPDATE_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                print_progress(form, &meter, started_at.elapsed());
            }
            // The final state is printed even if the conversion ends between two updates.
            print_progress(form, &meter, started_at.elapsed());
            if form == Progress::Text {
                let _reader_gone = writeln!(io::stderr());
            }
        });
        ProgressThread { stop: Some(stop_sender), thread: Some(thread) }
    }
}

impl Drop for ProgressThread {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}

fn print_progress(form: Progress, meter: &Meter, elapsed: Duration) {
    let load = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let (rows, read, total) = (load(&meter.rows_read), load(&meter.bytes_read), load(&meter.bytes_expected));
    // Avoids a division by zero right after the start.
    let seconds = elapsed.as_secs_f64().max(0.001);
    let rate = rows as f64 / seconds;
    let left = (read > 0 && total >= read).then(|| seconds * (total - read) as f64 / read as f64);
    let line = if form == Progress::Json {
        // Rounded up, so that remaining work never shows as 0 seconds.
        let left = left.map(f64::ceil);
        json!({ "rows": rows, "rowsPerSecond": rate.round(), "bytesRead": read, "bytesTotal": total, "secondsLeft": left })
            .to_string()
            + "\n"
    } else {
        let left = left.map_or_else(String::new, |left| format!(", {left:.0} s left"));
        let rows = format_count(rows, "row");
        format!("\r\x1b[K{rows}, {rate:.0} rows/s{left}")
    };
    let mut stderr = io::stderr().lock();
    let _reader_gone = stderr.write_all(line.as_bytes()).and_then(|()| stderr.flush());
}

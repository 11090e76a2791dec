//! CPU time and memory of a process, as the system counts them.
//!
//! Wall-clock times of a shared machine swing; these repeat.

use std::fs;

use anyhow::{Context as _, Result};

/// The unit of `/proc/<pid>/stat`, which Linux fixes for programs whatever its own clock is.
const TICKS_A_SECOND: f64 = 100.0;

/// Seconds of CPU that a process has used, in user and in system, all threads.
pub fn cpu_seconds(process: u32) -> Result<f64> {
    let path = format!("/proc/{process}/stat");
    let text = fs::read_to_string(&path).with_context(|| path.clone())?;
    // The name may hold anything, and ends with the last bracket.
    let rest = text.rsplit_once(')').context("no process line")?.1;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).context("no time");
    Ok((ticks(11)? + ticks(12)?) / TICKS_A_SECOND)
}

/// Resident memory in MiB.
pub fn resident_mib(process: u32) -> Result<f64> {
    let path = format!("/proc/{process}/status");
    let text = fs::read_to_string(&path).with_context(|| path.clone())?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib / 1024.0)
}

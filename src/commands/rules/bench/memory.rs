//! Resident memory of the process.

use std::fs;

/// Resident memory in KB, now and at its peak; none where the system does not report it.
#[derive(Clone, Copy)]
pub(super) struct ResidentMemory(Option<(u64, u64)>);

impl ResidentMemory {
    /// Reads the present and the greatest resident memory.
    pub(super) fn now() -> Self {
        Self(fs::read_to_string("/proc/self/status").ok().as_deref().and_then(read))
    }
}

fn read(status: &str) -> Option<(u64, u64)> {
    let kilobytes = |name: &str| {
        let told = status.lines().find_map(|line| line.strip_prefix(name))?;
        told.trim().strip_suffix("kB")?.trim().parse().ok()
    };
    Some((kilobytes("VmRSS:")?, kilobytes("VmHWM:")?))
}

/// Describes the memory at each time, in order.
pub(super) fn describe(times: &[(&str, ResidentMemory)]) -> String {
    let known: Option<Vec<_>> = times.iter().map(|(when, it)| Some((when, it.0?))).collect();
    let Some(known) = known else { return "memory: this system does not say".to_owned() };
    // The kernel counts in steps: what is there now may be more than the most that it knows of.
    let most = known.iter().map(|(_, (now, most))| now.max(most)).max().copied().unwrap_or_default();
    let each: Vec<_> = known.iter().map(|(when, (now, _))| format!("{} {when}", megabytes(*now))).collect();
    format!("memory of the process: {}; {} at most", each.join(", "), megabytes(most))
}

fn megabytes(kilobytes: u64) -> String {
    format!("{:.1} MB", kilobytes as f64 * 1_024.0 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_described_or_said_to_be_unknown() {
        let at = |now, most| ResidentMemory(Some((now, most)));
        let said = describe(&[("before", at(10_000, 12_000)), ("after", at(30_000, 52_000))]);
        assert_eq!(said, "memory of the process: 10.2 MB before, 30.7 MB after; 53.2 MB at most");
        assert_eq!(describe(&[("a", at(2_000, 1_000))]), "memory of the process: 2.0 MB a; 2.0 MB at most");
        assert_eq!(
            describe(&[("a", at(1, 1)), ("b", ResidentMemory(None))]),
            "memory: this system does not say"
        );
        assert_eq!(read("VmPeak:\t 9 kB\nVmHWM:\t 8 kB\nVmRSS:\t  7 kB\n"), Some((7, 8)));
        assert_eq!(read("VmRSS:\t 7 kB\n"), None);
    }
}

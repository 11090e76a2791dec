//! Reads the resident memory of the process.

use std::fs;

/// Current and peak resident memory in KB; `None` where the system does not report it.
#[derive(Clone, Copy)]
pub(super) struct ResidentMemory(Option<(u64, u64)>);

impl ResidentMemory {
    /// Reads the current and the peak resident memory.
    pub(super) fn read() -> Self {
        Self(fs::read_to_string("/proc/self/status").ok().as_deref().and_then(parse_status))
    }
}

fn parse_status(status: &str) -> Option<(u64, u64)> {
    let kilobytes = |name: &str| {
        let value = status.lines().find_map(|line| line.strip_prefix(name))?;
        value.trim().strip_suffix("kB")?.trim().parse().ok()
    };
    Some((kilobytes("VmRSS:")?, kilobytes("VmHWM:")?))
}

/// Describes the memory at each time, in order.
pub(super) fn describe(times: &[(&str, ResidentMemory)]) -> String {
    let values: Option<Vec<_>> = times.iter().map(|(label, memory)| Some((label, memory.0?))).collect();
    let Some(values) = values else { return "memory: unknown on this system".to_owned() };
    // The kernel updates the peak in steps, so the current value may exceed it.
    let peak =
        values.iter().map(|(_, (current, maximum))| current.max(maximum)).max().copied().unwrap_or_default();
    let descriptions: Vec<_> =
        values.iter().map(|(label, (current, _))| format!("{} {label}", megabytes(*current))).collect();
    format!("memory of the process: {}; {} at most", descriptions.join(", "), megabytes(peak))
}

fn megabytes(kilobytes: u64) -> String {
    format!("{:.1} MB", kilobytes as f64 * 1_024.0 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_described_or_unknown() {
        let at = |now, most| ResidentMemory(Some((now, most)));
        let said = describe(&[("before", at(10_000, 12_000)), ("after", at(30_000, 52_000))]);
        assert_eq!(said, "memory of the process: 10.2 MB before, 30.7 MB after; 53.2 MB at most");
        assert_eq!(describe(&[("a", at(2_000, 1_000))]), "memory of the process: 2.0 MB a; 2.0 MB at most");
        assert_eq!(
            describe(&[("a", at(1, 1)), ("b", ResidentMemory(None))]),
            "memory: unknown on this system"
        );
        assert_eq!(parse_status("VmPeak:\t 9 kB\nVmHWM:\t 8 kB\nVmRSS:\t  7 kB\n"), Some((7, 8)));
        assert_eq!(parse_status("VmRSS:\t 7 kB\n"), None);
    }
}

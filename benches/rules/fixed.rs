//! Work that is the same in every run, measured between the others: it says how fast the machine was just then.
//!
//! Half of it computes, half of it waits for memory, because a loaded machine slows the two down differently.

use std::{fs, hint::black_box, time::Duration};

use crate::cpu;

/// Entries of a table that no nearest cache holds, each naming the next: 2 MB.
const TABLE: usize = 1 << 18;
const JUMPS: usize = 24;

pub(crate) struct Fixed {
    table: Vec<u64>,
    text: Vec<u8>,
}

impl Fixed {
    pub(crate) fn new() -> Self {
        // An odd step and a multiplier of the form 4n + 1 make one round through all entries.
        let next = |nth: usize| (nth.wrapping_mul(0x0019_660d) + 0x3c6e_f35f) % TABLE;
        Self {
            table: (0..TABLE).map(|nth| next(nth) as u64).collect(),
            text: (0..300_usize).map(|nth| b"etaoin shrdlu"[nth * 7 % 13]).collect(),
        }
    }

    /// Nanoseconds of the work, the best of some short rounds.
    pub(crate) fn measure(&self) -> f64 {
        const ROUND: u32 = 400;
        let mut best = Duration::MAX;
        let mut at = 0;
        for _ in 0..40 {
            let began = cpu();
            for _ in 0..ROUND {
                at = self.once(at);
            }
            best = best.min(cpu() - began);
        }
        best.as_nanos() as f64 / f64::from(ROUND)
    }

    fn once(&self, mut at: usize) -> usize {
        let mut hash = 0_u64;
        for piece in black_box(&self.text).windows(8) {
            let eight = u64::from_le_bytes(piece.try_into().unwrap());
            hash = (hash ^ eight).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17);
        }
        for _ in 0..JUMPS {
            at = usize::try_from(self.table[at]).unwrap();
        }
        black_box(hash);
        at
    }
}

/// How many want to run just now.
pub(crate) fn load() -> String {
    fs::read_to_string("/proc/loadavg").unwrap().split(' ').next().unwrap().to_owned()
}

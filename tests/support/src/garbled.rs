//! Valid bytes, cut, joined and garbled. A number always gives the same bytes.
//! Independent of any format.

/// Returns one of the seeds with a few parts removed, inserted, flipped, or replaced by parts of another seed.
pub fn garbled(number: u64, seeds: &[&[u8]], pieces: &[&[u8]]) -> Vec<u8> {
    let mut dice = Dice(number);
    let mut bytes = dice.one(seeds).to_vec();
    for _ in 0..dice.roll(6) {
        let from = dice.roll(bytes.len() + 1);
        let to = (from + dice.one(&[0, 0, 1, 4, 20, 300])).min(bytes.len());
        let replacement = match dice.roll(4) {
            0 => Vec::new(),
            1 => dice.one(pieces).to_vec(),
            2 => {
                let other_seed = dice.one(seeds);
                let from = dice.roll(other_seed.len() + 1);
                other_seed[from..(from + 1 + dice.roll(64)).min(other_seed.len())].to_vec()
            }
            _ => bytes[from..to].iter().map(|byte| byte ^ (1 << dice.roll(8))).collect(),
        };
        bytes.splice(from..to, replacement);
    }
    bytes
}

/// Runs a fuzz target on the seeds and on `usual` garbled forms of them. A panic names the number that repeats it.
/// `TIDEGATE_FUZZ_CASES` changes the count, `TIDEGATE_FUZZ_SEED` the first number.
pub fn run(usual: u64, seeds: &[&[u8]], pieces: &[&[u8]], target: fn(&[u8])) {
    let setting =
        |name: &str, usual| std::env::var(name).map_or(usual, |value| value.parse().unwrap_or(usual));
    let first = setting("TIDEGATE_FUZZ_SEED", 0);
    seeds.iter().for_each(|seed| target(seed));
    for number in first..first + setting("TIDEGATE_FUZZ_CASES", usual) {
        let bytes = garbled(number, seeds, pieces);
        let caught = std::panic::catch_unwind(|| target(&bytes));
        assert!(caught.is_ok(), "TIDEGATE_FUZZ_SEED={number}: {:?}", String::from_utf8_lossy(&bytes));
    }
}

/// A mebibyte of incompressible bytes.
pub fn incompressible_mebibyte() -> Vec<u8> {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33).to_le_bytes()[0]
    };
    (0..1 << 20).map(|_| next()).collect()
}

struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ mixed >> 31) % sides.max(1) as u64).unwrap_or_default()
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.roll(of.len())]
    }
}

//! Guesses missing coefficients of an incomplete progressive file from the first coefficients of nearby blocks, like
//! libjpeg.

use super::{
    header::JpegHeader,
    scan::{Band, ScanHeader},
    transform::ORDER,
};

/// Number of guessed coefficients, in the order of a scan.
const GUESSED: usize = 10;

/// Lowest known bit of each guessed coefficient; -1 if none is known.
type KnownBits = [i8; GUESSED];

/// First coefficients of a block (in the middle) and of the blocks around it.
pub(super) type NearbyFirsts = [[i16; 5]; 5];

#[derive(Clone, Copy)]
struct Component {
    known_bits: KnownBits,
    /// Known bits at the start of the last scan.
    previous_bits: KnownBits,
    /// True if the quantization steps are known and no needed step is zero.
    has_steps: bool,
    is_begun: bool,
}

/// Known bits of each component after the scans so far.
pub(super) struct Progress {
    components: Vec<Component>,
    scans: usize,
}

impl Progress {
    pub(super) fn new(header: &JpegHeader) -> Self {
        let initial_state = Component {
            known_bits: [-1; GUESSED],
            previous_bits: [-1; GUESSED],
            has_steps: false,
            is_begun: false,
        };
        Self { components: vec![initial_state; header.components.len()], scans: 0 }
    }

    /// Records the start of a scan. `steps` are the current quantization steps; a component keeps those of its first scan.
    pub(super) fn begin(&mut self, head: &ScanHeader, header: &JpegHeader, steps: &[Option<[i16; 64]>; 4]) {
        self.scans += 1;
        let Band { first, last, low, .. } = head.band;
        for part in &head.parts {
            let component = &mut self.components[part.component];
            if !component.is_begun {
                let steps = steps.get(usize::from(header.components[part.component].table));
                let are_set =
                    |steps: &[i16; 64]| ORDER[..GUESSED].iter().all(|at| steps[usize::from(*at)] != 0);
                component.has_steps = steps.is_some_and(|steps| steps.as_ref().is_some_and(are_set));
                component.is_begun = true;
            }
            // Like libjpeg, which treats every bit as known before the first scan.
            component.previous_bits = if self.scans > 1 { component.known_bits } else { [0; GUESSED] };
            for (_, known_bit) in
                (0..).zip(&mut component.known_bits).filter(|(at, _)| (first..=last).contains(at))
            {
                #[allow(clippy::cast_possible_truncation, reason = "13 at most")]
                let low = low as i8;
                *known_bit = low;
            }
        }
    }

    /// Returns the parameters for guesses. `None` if all bits are known, or if a component has no data.
    pub(super) fn guess(&self, component: usize) -> Option<Guess> {
        let is_begun = |component: &Component| component.has_steps && component.known_bits[0] >= 0;
        let is_known = |component: &Component| component.known_bits[1..].iter().all(|low| *low == 0);
        if !self.components.iter().all(is_begun) || self.components.iter().all(is_known) {
            return None;
        }
        let Component { known_bits: now, previous_bits: before, .. } = self.components[component];
        Some(Guess {
            known_bits: now,
            previous_bits: if self.scans > 1 { before } else { [-1; GUESSED] },
            last_row: 0,
        })
    }
}

/// Parameters for guesses in one component.
pub(super) struct Guess {
    known_bits: KnownBits,
    previous_bits: KnownBits,
    /// Row of units at which the data of the last scan ended. Below it, `previous_bits` apply.
    pub(super) last_row: usize,
}

impl Guess {
    pub(super) fn is_same_below(&self) -> bool {
        self.known_bits[1..] == self.previous_bits[1..]
    }

    /// Fills in the missing coefficients of a block in the given row of units.
    pub(super) fn fill(&self, values: &mut [i16; 64], row: usize, around: &NearbyFirsts, steps: &[i16; 64]) {
        let known_bits = if row > self.last_row { &self.previous_bits } else { &self.known_bits };
        let has_only_first = known_bits[1..].iter().all(|low| *low == -1);
        let weights: &[Weights] = if has_only_first { &WEIGHTS_WITHOUT_OTHERS } else { &WEIGHTS };
        for (nth, weights) in weights.iter().enumerate() {
            let at = usize::from(ORDER[nth]);
            let low = if nth == 0 { -1 } else { known_bits[nth] };
            if nth == 0 && has_only_first || nth > 0 && low != 0 && values[at] == 0 {
                let sum = weights.as_flattened().iter().zip(around.as_flattened());
                let sum = sum.map(|(weight, first)| i64::from(*weight) * i64::from(*first)).sum();
                values[at] = guess_value(sum, [steps[0], steps[at]], low);
            }
        }
    }
}

#[allow(clippy::cast_possible_truncation, reason = "libjpeg truncates as well")]
fn guess_value(sum: i64, steps: [i16; 2], low: i8) -> i16 {
    let [first_step, step] = steps.map(|step| i64::from(step.cast_unsigned()));
    let product = first_step * sum;
    let mut size = (((step << 7) + product.abs()) / (step << 8)) as i32;
    if low > 0 {
        size = size.min((1 << low) - 1);
    }
    (if product < 0 { size.wrapping_neg() } else { size }) as i16
}

/// Weights in 256ths.
type Weights = [[i16; 5]; 5];

const fn transpose(weights: Weights) -> Weights {
    let mut transposed = [[0; 5]; 5];
    let mut at = 0;
    while at < 25 {
        transposed[at % 5][at / 5] = weights[at / 5][at % 5];
        at += 1;
    }
    transposed
}

const ZEROS: [i16; 5] = [0; 5];

/// Weights for blocks with some known coefficients besides the first one, which stays unchanged.
const WEIGHTS: [Weights; 6] = {
    let slope = [ZEROS, ZEROS, [-7, 50, 0, -50, 7], ZEROS, ZEROS];
    let bend = [ZEROS, ZEROS, [-1, 13, -24, 13, -1], ZEROS, ZEROS];
    let twist = [[0, -1, 0, 1, 0], [-1, 10, 0, -10, 1], ZEROS, [1, -10, 0, 10, -1], [0, 1, 0, -1, 0]];
    [[ZEROS; 5], slope, transpose(slope), transpose(bend), twist, bend]
};

const WEIGHTS_WITHOUT_OTHERS: [Weights; GUESSED] = {
    let outer = [-2, -6, -8, -6, -2];
    let inner = [-6, 6, 42, 6, -6];
    let mean = [outer, inner, [-8, 42, 152, 42, -8], inner, outer];
    let neighbour_row = [-3, 13, 0, -13, 3];
    let slope = [[-1, -1, 0, 1, 1], neighbour_row, [-3, 38, 0, -38, 3], neighbour_row, [-1, -1, 0, 1, 1]];
    let bend = [ZEROS, [0, 2, -5, 2, 0], [1, 7, -14, 7, 1], [0, 2, -5, 2, 0], ZEROS];
    let twist = [[-1, 0, 0, 0, 1], [0, 9, 0, -9, 0], ZEROS, [0, -9, 0, 9, 0], [1, 0, 0, 0, -1]];
    let third = [ZEROS, [0, 1, 0, -1, 0], [0, 2, 0, -2, 0], [0, 1, 0, -1, 0], ZEROS];
    let mixed = [ZEROS, [0, 1, -3, 1, 0], ZEROS, [0, -1, 3, -1, 0], ZEROS];
    [
        mean,
        slope,
        transpose(slope),
        transpose(bend),
        twist,
        bend,
        third,
        mixed,
        transpose(mixed),
        transpose(third),
    ]
};

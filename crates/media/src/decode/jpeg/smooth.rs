//! Guesses missing coefficients of an incomplete progressive file from the first coefficients of the blocks around, as
//! libjpeg does.

use super::{
    header::JpegHeader,
    scan::{Band, Head},
    transform::ORDER,
};

/// Coefficients that are guessed, by their place in a scan.
const GUESSED: usize = 10;

/// The lowest bit that is known of each; -1 is none.
type Known = [i8; GUESSED];

/// The first coefficients of a block, which is in the middle, and of those around it.
pub(super) type Around = [[i16; 5]; 5];

#[derive(Clone, Copy)]
struct Component {
    now: Known,
    /// State when its last scan began.
    before: Known,
    /// True if its steps are known, and none that is needed is zero.
    has_steps: bool,
    is_begun: bool,
}

/// State of each component after the scans so far.
pub(super) struct Progress {
    components: Vec<Component>,
    scans: usize,
}

impl Progress {
    pub(super) fn new(header: &JpegHeader) -> Self {
        let none = Component { now: [-1; GUESSED], before: [-1; GUESSED], has_steps: false, is_begun: false };
        Self { components: vec![none; header.components.len()], scans: 0 }
    }

    /// Steps are those that hold when a component's first scan begins.
    pub(super) fn begin(&mut self, head: &Head, header: &JpegHeader, steps: &[Option<[i16; 64]>; 4]) {
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
            // As libjpeg has it, for which the first scan has nothing before it that is not known.
            component.before = if self.scans > 1 { component.now } else { [0; GUESSED] };
            for (_, known) in (0..).zip(&mut component.now).filter(|(at, _)| (first..=last).contains(at)) {
                #[allow(clippy::cast_possible_truncation, reason = "13 at most")]
                let low = low as i8;
                *known = low;
            }
        }
    }

    /// Returns how to guess; `None` if all is known, or nothing of some component.
    pub(super) fn guess(&self, component: usize) -> Option<Guess> {
        let is_begun = |component: &Component| component.has_steps && component.now[0] >= 0;
        let is_known = |component: &Component| component.now[1..].iter().all(|low| *low == 0);
        if !self.components.iter().all(is_begun) || self.components.iter().all(is_known) {
            return None;
        }
        let Component { now, before, .. } = self.components[component];
        Some(Guess { now, before: if self.scans > 1 { before } else { [-1; GUESSED] }, last: 0 })
    }
}

/// Guess for one component.
pub(super) struct Guess {
    now: Known,
    before: Known,
    /// The row of units where the last scan's data ran out. Below it, as much is known as before.
    pub(super) last: usize,
}

impl Guess {
    pub(super) fn is_the_same_below(&self) -> bool {
        self.now[1..] == self.before[1..]
    }

    /// Fills in a block that lies in that row of units.
    pub(super) fn fill(&self, values: &mut [i16; 64], row: usize, around: &Around, steps: &[i16; 64]) {
        let known = if row > self.last { &self.before } else { &self.now };
        let has_only_first = known[1..].iter().all(|low| *low == -1);
        let weights: &[Weights] = if has_only_first { &OF_FIRST_ALONE } else { &OF_FIRST };
        for (nth, weights) in weights.iter().enumerate() {
            let at = usize::from(ORDER[nth]);
            let low = if nth == 0 { -1 } else { known[nth] };
            if nth == 0 && has_only_first || nth > 0 && low != 0 && values[at] == 0 {
                let sum = weights.as_flattened().iter().zip(around.as_flattened());
                let sum = sum.map(|(weight, first)| i64::from(*weight) * i64::from(*first)).sum();
                values[at] = guessed(sum, [steps[0], steps[at]], low);
            }
        }
    }
}

#[allow(clippy::cast_possible_truncation, reason = "as libjpeg keeps it")]
fn guessed(sum: i64, steps: [i16; 2], low: i8) -> i16 {
    let [of_first, step] = steps.map(|step| i64::from(step.cast_unsigned()));
    let product = of_first * sum;
    let mut size = (((step << 7) + product.abs()) / (step << 8)) as i32;
    if low > 0 {
        size = size.min((1 << low) - 1);
    }
    (if product < 0 { size.wrapping_neg() } else { size }) as i16
}

/// Weights in 256ths.
type Weights = [[i16; 5]; 5];

const fn turned(weights: Weights) -> Weights {
    let mut turned = [[0; 5]; 5];
    let mut at = 0;
    while at < 25 {
        turned[at % 5][at / 5] = weights[at / 5][at % 5];
        at += 1;
    }
    turned
}

const NONE: [i16; 5] = [0; 5];

/// Weights for when other coefficients than the first one are partly known. The first one stays as it is.
const OF_FIRST: [Weights; 6] = {
    let slope = [NONE, NONE, [-7, 50, 0, -50, 7], NONE, NONE];
    let bend = [NONE, NONE, [-1, 13, -24, 13, -1], NONE, NONE];
    let twist = [[0, -1, 0, 1, 0], [-1, 10, 0, -10, 1], NONE, [1, -10, 0, 10, -1], [0, 1, 0, -1, 0]];
    [[NONE; 5], slope, turned(slope), turned(bend), twist, bend]
};

const OF_FIRST_ALONE: [Weights; GUESSED] = {
    let outer = [-2, -6, -8, -6, -2];
    let inner = [-6, 6, 42, 6, -6];
    let mean = [outer, inner, [-8, 42, 152, 42, -8], inner, outer];
    let beside = [-3, 13, 0, -13, 3];
    let slope = [[-1, -1, 0, 1, 1], beside, [-3, 38, 0, -38, 3], beside, [-1, -1, 0, 1, 1]];
    let bend = [NONE, [0, 2, -5, 2, 0], [1, 7, -14, 7, 1], [0, 2, -5, 2, 0], NONE];
    let twist = [[-1, 0, 0, 0, 1], [0, 9, 0, -9, 0], NONE, [0, -9, 0, 9, 0], [1, 0, 0, 0, -1]];
    let third = [NONE, [0, 1, 0, -1, 0], [0, 2, 0, -2, 0], [0, 1, 0, -1, 0], NONE];
    let mixed = [NONE, [0, 1, -3, 1, 0], NONE, [0, -1, 3, -1, 0], NONE];
    [mean, slope, turned(slope), turned(bend), twist, bend, third, mixed, turned(mixed), turned(third)]
};

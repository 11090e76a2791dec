//! Interval index: finds the ranges that contain a number. Numbers are compared as floats, so each hit still needs an exact
//! comparison.

/// Ranges with both ends inside, sorted by their lower end. Their order implies the tree.
#[derive(Debug, Default)]
pub(crate) struct Ranges {
    ranges: Box<[Range]>,
}

#[derive(Clone, Copy, Debug)]
struct Range {
    low: f64,
    high: f64,
    /// Largest upper end in the subtree of which this range is the root.
    reach: f64,
    witness: u32,
}

impl Ranges {
    pub(crate) fn new(ranges: impl IntoIterator<Item = (f64, f64, u32)>) -> Self {
        let mut ranges: Vec<_> =
            ranges.into_iter().map(|(low, high, of)| Range { low, high, reach: high, witness: of }).collect();
        ranges.sort_by(|a, b| a.low.total_cmp(&b.low));
        set_reach(&mut ranges);
        Self { ranges: ranges.into() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Calls `visit` for each range that contains `number`.
    pub(crate) fn visit_containing(&self, number: f64, visit: &mut impl FnMut(u32)) {
        stab(&self.ranges, number, visit);
    }
}

fn set_reach(ranges: &mut [Range]) -> f64 {
    if ranges.is_empty() {
        return f64::NEG_INFINITY;
    }
    let middle = ranges.len() / 2;
    let (left, rest) = ranges.split_at_mut(middle);
    let (this, right) = rest.split_at_mut(1);
    let max_reach = this[0].high.max(set_reach(left)).max(set_reach(right));
    this[0].reach = max_reach;
    max_reach
}

fn stab(ranges: &[Range], number: f64, visit: &mut impl FnMut(u32)) {
    if ranges.is_empty() {
        return;
    }
    let middle = ranges.len() / 2;
    let this = &ranges[middle];
    // Every range of the subtree ends below the number.
    if this.reach < number {
        return;
    }
    stab(&ranges[..middle], number, visit);
    if this.low <= number {
        if number <= this.high {
            visit(this.witness);
        }
        stab(&ranges[middle + 1..], number, visit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_the_ranges_that_contain_the_number_are_found() {
        let mut seed = 1_u64;
        let mut roll = |sides: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % sides
        };
        for count in [0, 1, 2, 3, 10, 200] {
            let ends = [f64::NEG_INFINITY, -2.0, 0.0, 1.0, 1.5, 3.0, 7.0, f64::INFINITY];
            let mut end = || ends[usize::try_from(roll(8)).unwrap_or_default()];
            let ranges: Vec<_> = (0..count).map(|of| (end(), end(), of)).collect();
            let index = Ranges::new(ranges.iter().copied());
            for at in [-3.0, -2.0, 0.5, 1.0, 3.0, 9.0] {
                let mut found = Vec::new();
                index.visit_containing(at, &mut |of| found.push(of));
                found.sort_unstable();
                let holding = ranges.iter().filter(|(low, high, _)| *low <= at && at <= *high);
                assert_eq!(found, holding.map(|(_, _, of)| *of).collect::<Vec<_>>());
            }
        }
    }
}

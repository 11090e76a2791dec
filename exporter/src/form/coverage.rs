//! Computes `summary.coverage`: the share of possible answers that were given.
//!
//! The writer and the validator of a bundle supply the counts of each phase.

/// Counts of one phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Items are answered one by one.
    Single {
        /// Distinct participants with a response in the phase.
        participants: u64,
        /// Items of the phase with a status in `form::ELIGIBLE_STATUSES`.
        eligible: u64,
        /// Distinct pairs of a participant and an eligible item with a response.
        answered: u64,
    },
    /// Items are compared: a response of the phase refers to a second item.
    Pairwise {
        eligible: u64,
        /// Distinct unordered pairs of eligible items with a response.
        compared: u64,
    },
}

/// Coverage of a bundle, from 0 to 1; 0 if no answer was possible.
///
/// Not applicable to responses without participants; their writer copies the coverage of the source.
pub(crate) fn of(phases: impl IntoIterator<Item = Phase>) -> f64 {
    let (mut answered, mut possible) = (0_u128, 0_u128);
    for phase in phases {
        // Sums of several phases times participants exceed 64 bits in hostile bundles, hence `u128`.
        let (phase_answered, phase_possible) = match phase {
            Phase::Single { participants, eligible, answered } => {
                (u128::from(answered), u128::from(participants) * u128::from(eligible))
            }
            Phase::Pairwise { eligible, compared } => {
                let eligible = u128::from(eligible);
                (u128::from(compared), eligible * eligible.saturating_sub(1) / 2)
            }
        };
        answered += phase_answered;
        possible += phase_possible;
    }
    // Capped: inconsistent counts of a bundle could give more than 1.
    if possible == 0 { 0.0 } else { (answered as f64 / possible as f64).min(1.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_are_added_up_before_they_are_divided() {
        let single = Phase::Single { participants: 122, eligible: 24, answered: 2851 };
        assert!((of([single]) - 2851.0 / 2928.0).abs() < 1e-12);
        let pairwise = Phase::Pairwise { eligible: 5, compared: 4 };
        assert!((of([pairwise]) - 0.4).abs() < 1e-12);
        assert!((of([single, pairwise]) - 2855.0 / 2938.0).abs() < 1e-12);
    }

    #[test]
    fn an_empty_bundle_is_not_covered_and_none_is_covered_twice() {
        let none = Phase::Single { participants: 0, eligible: 3, answered: 0 };
        let alone = Phase::Pairwise { eligible: 1, compared: 0 };
        for coverage in [of([]), of([none]), of([alone, none])] {
            assert!(coverage.abs() < 1e-12);
        }
        let over = Phase::Single { participants: 1, eligible: 1, answered: 2 };
        assert!((of([over]) - 1.0).abs() < 1e-12);
    }
}

//! How much of what an org may have at once one of its hosts may take.
//!
//! It counts nothing itself, and does not say which hosts are known.

/// What an org may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shares {
    pub(crate) all: usize,
    pub(crate) per_host: usize,
}

/// What an org has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) all: usize,
    /// Of hosts that are not known.
    pub(crate) by_strangers: usize,
}

impl Shares {
    /// Whether a host that has `own` may have one more. None has more than it leaves, so that there is always some for
    /// the next host; and hosts that are not known have no more than half, as names for them are free.
    pub(crate) fn admits(self, taken: Taken, own: usize, is_known: bool) -> bool {
        self.admits_more(taken, own, 1, is_known)
    }

    /// The same of so many more.
    pub(crate) fn admits_more(self, taken: Taken, own: usize, more: usize, is_known: bool) -> bool {
        let left = if is_known { self.left(taken) } else { self.left_to_strangers(taken) };
        own.saturating_add(more) <= left.min(self.per_host)
    }

    pub(crate) fn left(self, taken: Taken) -> usize {
        self.all.saturating_sub(taken.all)
    }

    pub(crate) fn left_to_strangers(self, taken: Taken) -> usize {
        self.left(taken).min(self.all.div_ceil(2).saturating_sub(taken.by_strangers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What each of so many hosts has when each of them takes what it may.
    fn greedy(shares: Shares, hosts: usize, is_known: bool) -> (Vec<usize>, Taken) {
        let (mut own, mut taken) = (vec![0; hosts], Taken::default());
        while let Some(next) = own.iter_mut().min().filter(|own| shares.admits(taken, **own, is_known)) {
            *next += 1;
            taken.all += 1;
            taken.by_strangers += usize::from(!is_known);
        }
        (own, taken)
    }

    #[test]
    fn hosts_share_alike_and_leave_some_for_the_next_one() {
        let shares = Shares { all: 64, per_host: 8 };
        for (hosts, is_known, each) in
            [(1, true, 8), (4, true, 8), (12, true, 5), (63, true, 1), (1, false, 8), (12, false, 3)]
        {
            let (own, taken) = greedy(shares, hosts, is_known);
            assert!(own.iter().all(|own| *own == each || *own + 1 == each), "{hosts}: {own:?}");
            assert!(shares.admits(taken, 0, true), "{hosts}: {taken:?}");
            assert!(hosts > 31 || shares.admits(taken, 0, false), "{hosts}: {taken:?}");
        }
    }

    #[test]
    fn half_is_left_to_known_hosts_however_many_strangers_come() {
        let shares = Shares { all: 64, per_host: 8 };
        let (own, taken) = greedy(shares, 1_000, false);
        assert_eq!((own.iter().sum::<usize>(), taken), (32, Taken { all: 32, by_strangers: 32 }));
        assert!(!shares.admits(taken, 0, false) && shares.admits(taken, 7, true));
    }

    #[test]
    fn what_comes_in_pieces_is_shared_alike() {
        let shares = Shares { all: 100, per_host: 100 };
        let taken = |all, by_strangers| Taken { all, by_strangers };
        for (taken, own, is_known, most) in [
            (taken(0, 0), 0, true, 100),
            (taken(40, 0), 40, true, 20),
            (taken(40, 0), 0, true, 60),
            (taken(0, 0), 0, false, 50),
            (taken(60, 20), 0, false, 30),
            (taken(60, 20), 20, false, 10),
        ] {
            assert!(shares.admits_more(taken, own, most, is_known), "{taken:?}");
            assert!(!shares.admits_more(taken, own, most + 1, is_known), "{taken:?}");
        }
        assert!(!shares.admits_more(taken(0, 0), 1, usize::MAX, true));
    }

    #[test]
    fn one_host_has_some_of_whatever_little_there_is() {
        for all in 1..9 {
            for is_known in [true, false] {
                assert!(Shares { all, per_host: 1 }.admits(Taken::default(), 0, is_known), "{all}");
            }
        }
    }
}

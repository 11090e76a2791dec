//! States of lazily built automata that a thread keeps between texts, without any effect on what a search comes to.

/// Kept states.
pub(crate) struct KeptStates<S> {
    pub(crate) states: S,
    is_fresh: bool,
}

/// The text needs more states than there is room for, or the automaton is not for such a text.
pub(crate) struct GaveUp;

impl<S> KeptStates<S> {
    pub(crate) fn new(states: S) -> Self {
        Self { states, is_fresh: true }
    }

    /// Searches with the states of earlier texts, and once more with new ones where those leave too little room: whether a
    /// text fits must not depend on earlier texts. States of a text that does not fit at all are dropped, so that no
    /// thread keeps them.
    pub(crate) fn search<T>(
        &mut self,
        make: impl Fn() -> S,
        search: impl Fn(&mut S) -> Result<T, GaveUp>,
    ) -> Result<T, GaveUp> {
        loop {
            let was_fresh = std::mem::replace(&mut self.is_fresh, false);
            let found = search(&mut self.states);
            if found.is_ok() {
                return found;
            }
            *self = Self::new(make());
            if was_fresh {
                return found;
            }
        }
    }
}

//! States of lazy automata that a thread keeps between texts, without influence on the results of searches.

/// States of an automaton, and whether they are unused so far.
pub(crate) struct KeptStates<S> {
    pub(crate) states: S,
    is_fresh: bool,
}

/// The text needs more states than the cache holds, or the automaton cannot search such a text.
pub(crate) struct SearchFailed;

impl<S> KeptStates<S> {
    pub(crate) fn new(states: S) -> Self {
        Self { states, is_fresh: true }
    }

    /// Searches with the states of earlier texts, and once more with new ones if these leave too little room: whether a text
    /// fits must not depend on earlier texts. States of a text that does not fit at all are dropped, so that no thread keeps
    /// them.
    pub(crate) fn search<T>(
        &mut self,
        make: impl Fn() -> S,
        search: impl Fn(&mut S) -> Result<T, SearchFailed>,
    ) -> Result<T, SearchFailed> {
        loop {
            let was_fresh = std::mem::replace(&mut self.is_fresh, false);
            let result = search(&mut self.states);
            if result.is_ok() {
                return result;
            }
            *self = Self::new(make());
            // New states were too few as well, so the text itself does not fit.
            if was_fresh {
                return result;
            }
        }
    }
}

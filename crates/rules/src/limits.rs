//! Limits of the compilation and the evaluation of rules, with their defaults.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// Limits of compilation and evaluation. A document beyond one is refused with its name; an evaluation beyond one is marked
/// in the outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Searched text of one field in bytes. The outcome names the fields with longer texts.
    pub text_bytes: usize,
    /// Levels of a condition tree. At most 32, so that every JSON parser can read its explanation.
    pub depth: usize,
    /// Conditions of one rule.
    pub nodes: usize,
    /// Words, patterns and listed values of one rule.
    pub words: usize,
    /// Length of one word or listed value, in bytes.
    pub word_bytes: usize,
    /// Source length of one regular expression, in bytes.
    pub regex_source_bytes: usize,
    /// Length of one expression, in bytes.
    pub expr_bytes: usize,
    /// Compiled size of one regular expression in bytes. Its lazy automaton may take as much again.
    pub regex_bytes: usize,
    /// Rules of one plan.
    pub rules: usize,
    /// Words, patterns and listed values of all rules of a plan.
    pub words_in_all: usize,
    /// Regular expressions of all rules of a plan.
    pub regexes_in_all: usize,
    /// Steps of all rules on one item. One step is a condition, a place of a word in a text, one of several texts or values,
    /// a parent domain of a host, an area that may contain a place, 16 bytes of text searched for many words, 64 bytes
    /// searched for one word or compared in a field, 8 bytes of the searched word, or 4 bytes searched with a small regular
    /// expression. A regular expression with more than a few places, counted repetitions written out, costs a step for every
    /// four places, and six times as many on a text that needs the slow engine. The search for hosts in a text beyond ASCII
    /// costs a step for each byte and 64 for each dot.
    pub steps_per_item: u64,
    /// Steps of one rule on one item, so that a costly rule leaves the steps of the others.
    pub steps_per_rule: u64,
    /// CPU time of all rules on one item in milliseconds, independent of their steps. It is checked every 65,536 steps, and
    /// ends an evaluation only if steps are far more expensive than expected.
    pub cpu_ms_per_item: u64,
    /// Places shown in the explanation of one text condition.
    pub hits: usize,
    /// Length of a value or a text in an explanation, in bytes.
    pub excerpt_bytes: usize,
    /// Conditions and places in the explanations of one item. Further matches are listed without a tree.
    pub explained: usize,
    /// Matches listed for one item. Further ones are counted, but live rules always have their effects.
    pub matched: usize,
    /// Failed rules listed for one item. Further ones are counted.
    pub errored: usize,
    /// Matches stored with an item, those of acting rules first. Further ones are counted. Also limits the rules that an
    /// action, its callback and its review name.
    pub stored_matches: usize,
    /// Bytes of the matches and failures stored with an item. Larger ones are stored without explanations, which `rules
    /// explain` computes again.
    pub stored_bytes: usize,
    /// Memory of all rules of a plan in bytes, as far as it depends on them: searches, words, and patterns with the caches
    /// of threads.
    pub memory_bytes: usize,
    /// Windows of a plan.
    pub windows: usize,
    /// Values of a list that a window distinguishes in one item. The outcome names the windows that met more.
    pub window_values: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            text_bytes: 64 << 10,
            depth: 32,
            nodes: 1_000,
            words: 10_000,
            word_bytes: 1_024,
            regex_source_bytes: 8 << 10,
            expr_bytes: 8 << 10,
            regex_bytes: 256 << 10,
            rules: 20_000,
            words_in_all: 1_000_000,
            regexes_in_all: 10_000,
            steps_per_item: 32_000_000,
            steps_per_rule: 2_000_000,
            cpu_ms_per_item: 2_000,
            hits: 16,
            excerpt_bytes: 256,
            explained: 10_000,
            matched: 4_096,
            errored: 1_000,
            stored_matches: 100,
            stored_bytes: 16 << 10,
            memory_bytes: 2 << 30,
            windows: 1_000,
            window_values: 16,
        }
    }
}

/// Limit out of its range, which may depend on another limit.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} = {value} is out of range: {range}")]
pub struct LimitError {
    pub name: &'static str,
    pub value: u64,
    pub range: &'static str,
}

impl LimitError {
    pub fn tag(&self) -> &'static str {
        "limit_out_of_range"
    }
}

impl Limits {
    /// Refuses limits under which no rule could run, or under which explanations could not be read back.
    pub fn validate(&self) -> Result<(), LimitError> {
        let checks = [
            ("depth", to_u64(self.depth), 1, 32, "1 to 32"),
            ("text_bytes", to_u64(self.text_bytes), 4, 16 << 20, "4 to 16 MiB"),
            ("word_bytes", to_u64(self.word_bytes), 1, 64 << 10, "1 to 64 KiB"),
            ("nodes", to_u64(self.nodes), 1, 100_000, "1 to 100,000"),
            ("regex_bytes", to_u64(self.regex_bytes), 1 << 10, 16 << 20, "1 KiB to 16 MiB"),
            ("steps_per_rule", self.steps_per_rule, 1, self.steps_per_item, "1 to steps_per_item"),
            ("cpu_ms_per_item", self.cpu_ms_per_item, 10, u64::MAX, "10 or more"),
            ("window_values", to_u64(self.window_values), 1, 1_000, "1 to 1,000"),
            ("hits", to_u64(self.hits), 1, 1_000, "1 to 1,000"),
            ("matched", to_u64(self.matched), 1, 100_000, "1 to 100,000"),
            ("stored_matches", to_u64(self.stored_matches), 1, 100_000, "1 to 100,000"),
            ("stored_bytes", to_u64(self.stored_bytes), 1 << 10, 64 << 20, "1 KiB to 64 MiB"),
            ("memory_bytes", to_u64(self.memory_bytes), 1 << 20, 1 << 40, "1 MiB to 1 TiB"),
            ("excerpt_bytes", to_u64(self.excerpt_bytes), 4, 64 << 10, "4 to 64 KiB"),
        ];
        for (name, value, least, most, range) in checks {
            if value < least || value > most {
                return Err(LimitError { name, value, range });
            }
        }
        Ok(())
    }
}

/// Converts a length for the calculation of steps.
pub(crate) fn to_u64(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

/// Steps of the search for one word in one text. Preparing the search reads the word, more slowly than the search reads the
/// text.
pub(crate) fn search_steps(text: usize, word: usize) -> u64 {
    if word > text { 1 } else { 1 + to_u64(text) / 64 + to_u64(word) / 8 }
}

/// The evaluation has used all of its steps.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OutOfSteps;

/// Request to end an evaluation with a result that is not needed any more or takes too long. Clones share the request.
#[derive(Clone, Debug, Default)]
pub struct Interrupt {
    is_requested: Arc<AtomicBool>,
    deadline: Option<Instant>,
}

impl Interrupt {
    /// Returns the same request, which is also due from `deadline` on.
    #[must_use]
    pub fn with_deadline(&self, deadline: Instant) -> Self {
        Self { deadline: Some(deadline), ..self.clone() }
    }

    pub fn request(&self) {
        self.is_requested.store(true, Ordering::Relaxed);
    }

    pub fn is_due(&self) -> bool {
        self.is_requested.load(Ordering::Relaxed)
            || self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }
}

/// Steps left on one item. Counting steps instead of time gives a replay the same outcome on any machine. The CPU limit
/// covers errors of the count.
pub(crate) struct Steps {
    item_steps: u64,
    rule_steps: u64,
    per_rule: u64,
    cpu: CpuLimit,
    interrupt: Option<Interrupt>,
    was_interrupted: bool,
}

/// CPU time of this thread since the first check. Most items end before a check and need no system call.
struct CpuLimit {
    limit: Duration,
    clock: fn() -> Duration,
    started: Option<Duration>,
    is_exceeded: bool,
}

/// Steps between two checks of the clock as a power of two: about a millisecond.
const CHECK_INTERVAL_BITS: u32 = 16;

fn thread_cpu_time() -> Duration {
    // The time of the thread excludes waiting for a core, which must not fail an evaluation.
    let cpu_time = clock_gettime(ClockId::ThreadCPUTime);
    let nanos = u32::try_from(cpu_time.tv_nsec).unwrap_or_default();
    Duration::new(cpu_time.tv_sec.unsigned_abs(), nanos)
}

impl CpuLimit {
    fn is_over(&mut self) -> bool {
        let cpu_time = (self.clock)();
        cpu_time.saturating_sub(*self.started.get_or_insert(cpu_time)) > self.limit
    }
}

impl Steps {
    pub(crate) fn new(limits: &Limits) -> Self {
        let limit = Duration::from_millis(limits.cpu_ms_per_item);
        Self {
            item_steps: limits.steps_per_item,
            rule_steps: limits.steps_per_rule,
            per_rule: limits.steps_per_rule,
            cpu: CpuLimit { limit, clock: thread_cpu_time, started: None, is_exceeded: false },
            interrupt: None,
            was_interrupted: false,
        }
    }

    /// Also checks `interrupt` at each check of the clock.
    pub(crate) fn with_interrupt(self, interrupt: Option<&Interrupt>) -> Self {
        Self { interrupt: interrupt.cloned(), ..self }
    }

    #[cfg(test)]
    pub(crate) fn left_for_item(&self) -> u64 {
        self.item_steps
    }

    /// Ends the evaluation if its CPU time is used up or an interrupt is due.
    #[cold]
    pub(crate) fn check_clock(&mut self) -> Result<(), OutOfSteps> {
        self.was_interrupted |= self.interrupt.as_ref().is_some_and(Interrupt::is_due);
        // An interrupt is no overrun of the CPU limit, even if both are due.
        self.cpu.is_exceeded |= !self.was_interrupted && self.cpu.is_over();
        if self.was_interrupted || self.cpu.is_exceeded {
            // All later steps fail too, so that every loop of the evaluation ends.
            (self.item_steps, self.rule_steps) = (0, 0);
            return Err(OutOfSteps);
        }
        Ok(())
    }

    pub(crate) fn was_interrupted(&self) -> bool {
        self.was_interrupted
    }

    /// True if the CPU limit ended the evaluation.
    pub(crate) fn ran_out_of_time(&self) -> bool {
        self.cpu.is_exceeded
    }

    #[inline]
    fn set_item(&mut self, item: u64) -> Result<(), OutOfSteps> {
        // A check is due when the count crosses a multiple of the interval, for any number of steps taken at once.
        let is_check_due = (self.item_steps ^ item) >> CHECK_INTERVAL_BITS != 0;
        self.item_steps = item;
        if is_check_due { self.check_clock() } else { Ok(()) }
    }

    pub(crate) fn next_rule(&mut self) {
        self.rule_steps = self.per_rule;
    }

    /// Takes steps for work that all rules share.
    pub(crate) fn take_shared(&mut self, steps: u64) -> Result<(), OutOfSteps> {
        let item = self.item_steps.checked_sub(steps).ok_or(OutOfSteps)?;
        self.set_item(item)
    }

    pub(crate) fn take(&mut self, steps: u64) -> Result<(), OutOfSteps> {
        match (self.item_steps.checked_sub(steps), self.rule_steps.checked_sub(steps)) {
            (Some(item), Some(rule)) => {
                self.rule_steps = rule;
                self.set_item(item)
            }
            // The remaining steps of the item are kept for rules that need fewer.
            _ => {
                self.rule_steps = 0;
                Err(OutOfSteps)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_valid_and_errors_name_the_limit() {
        assert_eq!(Limits::default().validate(), Ok(()));
        let deep = Limits { depth: 33, ..Limits::default() };
        assert!(deep.validate().is_err_and(|e| e.to_string().contains("depth = 33")));
        let steps = Limits { steps_per_rule: 9, steps_per_item: 8, ..Limits::default() };
        assert!(steps.validate().is_err_and(|e| e.name == "steps_per_rule"));
        for limits in [
            Limits { matched: 0, ..Limits::default() },
            Limits { matched: 100_001, ..Limits::default() },
            Limits { memory_bytes: 1_000, ..Limits::default() },
        ] {
            assert!(limits.validate().is_err_and(|e| ["matched", "memory_bytes"].contains(&e.name)));
        }
    }

    #[test]
    fn cpu_limit_ends_an_item_with_steps_left() {
        thread_local!(static NOW: std::cell::Cell<u64> = const { std::cell::Cell::new(0) });
        let mut steps = Steps::new(&Limits { cpu_ms_per_item: 50, ..Limits::default() });
        steps.cpu.clock = || {
            NOW.set(NOW.get() + 20);
            Duration::from_millis(NOW.get())
        };
        // The first look starts the clock, and the fourth finds it 60 ms later.
        let takes: Vec<_> = (0..5).map(|_| steps.take_shared(1 << CHECK_INTERVAL_BITS).is_ok()).collect();
        assert_eq!(takes, [true, true, true, false, false]);
        steps.next_rule();
        assert_eq!((steps.take(1), NOW.get()), (Err(OutOfSteps), 80));
    }

    #[test]
    fn rule_out_of_steps_leaves_steps_for_the_next() {
        let limits = Limits { steps_per_item: 10, steps_per_rule: 6, ..Limits::default() };
        let mut steps = Steps::new(&limits);
        assert_eq!(steps.take(4), Ok(()));
        assert_eq!(steps.take(4), Err(OutOfSteps));
        assert_eq!(steps.take(1), Err(OutOfSteps));
        steps.next_rule();
        assert_eq!(steps.take(6), Ok(()));
        steps.next_rule();
        assert_eq!(steps.take(1), Err(OutOfSteps));
    }
}

//! Search in texts: for many words at once, and what can be said of a pattern before it runs.

pub(crate) mod grams;
pub(crate) mod hashing;
mod keys;
pub(crate) mod literals;
mod maps;
mod passes;
pub(crate) mod rarity;
pub(crate) mod scanner;
pub(crate) mod width;

/// Answer to an occurrence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Tell of the next one.
    Go,
    /// Stops the scan.
    Stop,
}

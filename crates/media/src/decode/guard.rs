//! Decoders that run into a fault of their own, and the one that is tried after them.
//!
//! Decoders of hostile files have panicked before. A panic here costs its file, nothing else.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::Refusal;
use crate::fingerprint::{Format, reason};

/// Runs a decoder. Nothing that it had half done is used after a panic, so none of it can be seen broken.
pub(super) fn guarded<T>(format: Format, decode: impl FnOnce() -> Result<T, Refusal>) -> Result<T, Refusal> {
    catch_unwind(AssertUnwindSafe(decode)).unwrap_or_else(|_| {
        metrics::counter!("tidegate_media_decoder_panics_total", "format" => format.tag()).increment(1);
        Err(Refusal::Undecodable(reason::DECODER_FAULT))
    })
}

/// What the first decoder says, or if it can make nothing of the file, the other one. If neither can, the first one's
/// reason stands, unless the other one needs more than there is.
pub(super) fn either<T>(
    format: Format,
    first: impl FnOnce() -> Result<T, Refusal>,
    other: impl FnOnce() -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    let refused = match guarded(format, first) {
        Err(refused @ Refusal::Undecodable(_)) => refused,
        done => return done,
    };
    let second = guarded(format, other);
    let outcome = if second.is_ok() { "decoded" } else { "refused" };
    metrics::counter!("tidegate_media_second_decoder_total", "format" => format.tag(), "outcome" => outcome)
        .increment(1);
    second.map_err(|other| if matches!(other, Refusal::TooLarge(_)) { other } else { refused })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic)]

    use super::*;

    const BROKEN: Result<u32, Refusal> = Err(Refusal::BROKEN);

    #[test]
    fn a_panic_is_a_state_and_the_other_decoder_gets_its_turn() {
        let panics = || -> Result<u32, Refusal> { panic!("index out of bounds") };
        let fault = Err(Refusal::Undecodable(reason::DECODER_FAULT));
        assert_eq!(guarded(Format::Jpeg, panics), fault);
        assert_eq!(either(Format::Jpeg, panics, || Ok(7)), Ok(7));
        assert_eq!(either(Format::Jpeg, panics, panics), fault);
        assert_eq!(either(Format::Jpeg, panics, || BROKEN), fault);
        assert_eq!(either(Format::Jpeg, || BROKEN, || Ok(7)), Ok(7));
        assert_eq!(either(Format::Jpeg, || BROKEN, panics), BROKEN);
    }

    #[test]
    fn the_other_decoder_does_not_run_for_what_is_refused_or_done() {
        let not_run = || -> Result<u32, Refusal> { unreachable!("it must not run") };
        assert_eq!(either(Format::Jpeg, || Ok(1), not_run), Ok(1));
        let large = Refusal::TooLarge(reason::MEMORY);
        assert_eq!(either(Format::Jpeg, || Err(large), not_run), Err(large));
        assert_eq!(either(Format::Jpeg, || BROKEN, || Err(large)), Err(large));
    }
}

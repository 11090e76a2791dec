//! Runs decoders so that a panic costs only its file, and tries a second decoder if the first one fails.
//!
//! Decoders have panicked on hostile files before.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::DecodeError;
use crate::{
    fingerprint::{Format, Reason},
    metrics,
};

/// Runs a decoder and turns a panic into an error. Nothing that it had half done is used after a panic, so none of its
/// broken state can be observed.
pub(super) fn catch_panic<T>(
    format: Format,
    decode: impl FnOnce() -> Result<T, DecodeError>,
) -> Result<T, DecodeError> {
    catch_unwind(AssertUnwindSafe(decode)).unwrap_or_else(|_| {
        metrics::decoder_panicked(format);
        Err(DecodeError::Undecodable(Reason::DecoderFault))
    })
}

/// Runs the first decoder and, if it finds the file undecodable, the second. If both fail, the first one's reason stands,
/// unless the second needs more memory than there is.
pub(super) fn with_fallback<T>(
    format: Format,
    first: impl FnOnce() -> Result<T, DecodeError>,
    second: impl FnOnce() -> Result<T, DecodeError>,
) -> Result<T, DecodeError> {
    let error = match catch_panic(format, first) {
        Err(error @ DecodeError::Undecodable(_)) => error,
        done => return done,
    };
    let done = catch_panic(format, second);
    metrics::second_decoder_ran(format, done.is_ok());
    done.map_err(|second| if matches!(second, DecodeError::TooLarge(_)) { second } else { error })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic)]

    use super::*;

    const BROKEN: Result<u32, DecodeError> = Err(DecodeError::BROKEN);

    #[test]
    fn panic_is_an_error_and_the_second_decoder_runs() {
        let panics = || -> Result<u32, DecodeError> { panic!("index out of bounds") };
        let fault = Err(DecodeError::Undecodable(Reason::DecoderFault));
        assert_eq!(catch_panic(Format::Jpeg, panics), fault);
        assert_eq!(with_fallback(Format::Jpeg, panics, || Ok(7)), Ok(7));
        assert_eq!(with_fallback(Format::Jpeg, panics, panics), fault);
        assert_eq!(with_fallback(Format::Jpeg, panics, || BROKEN), fault);
        assert_eq!(with_fallback(Format::Jpeg, || BROKEN, || Ok(7)), Ok(7));
        assert_eq!(with_fallback(Format::Jpeg, || BROKEN, panics), BROKEN);
    }

    #[test]
    fn second_decoder_does_not_run_after_success_or_too_large() {
        let not_run = || -> Result<u32, DecodeError> { unreachable!("it must not run") };
        assert_eq!(with_fallback(Format::Jpeg, || Ok(1), not_run), Ok(1));
        let large = DecodeError::OUT_OF_MEMORY;
        assert_eq!(with_fallback(Format::Jpeg, || Err(large), not_run), Err(large));
        assert_eq!(with_fallback(Format::Jpeg, || BROKEN, || Err(large)), Err(large));
    }
}

//! Runs decoders: a panic fails only the current file, and a second decoder is tried if the first one fails.
//!
//! Decoders have panicked on hostile files.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::{DecodeError, Format, Reason, metrics};

/// Runs a decoder and converts a panic to an error. `AssertUnwindSafe` is sound here: the state of a decoder is dropped
/// after a panic.
pub(super) fn catch_panic<T>(
    format: Format,
    decode: impl FnOnce() -> Result<T, DecodeError>,
) -> Result<T, DecodeError> {
    catch_unwind(AssertUnwindSafe(decode)).unwrap_or_else(|_| {
        metrics::count_decoder_panic(format);
        Err(DecodeError::Undecodable(Reason::DecoderFault))
    })
}

/// Runs the first decoder and, if the file is undecodable for it, the second. If both fail, the error of the first is
/// returned, unless the second exceeds the memory limit.
pub(super) fn with_fallback<T>(
    format: Format,
    first: impl FnOnce() -> Result<T, DecodeError>,
    second: impl FnOnce() -> Result<T, DecodeError>,
) -> Result<T, DecodeError> {
    let error = match catch_panic(format, first) {
        Err(error @ DecodeError::Undecodable(_)) => error,
        result => return result,
    };
    // Only undecodable files are tried again: a file beyond the limits is refused for any decoder.
    let second_result = catch_panic(format, second);
    metrics::count_second_decoder(format, second_result.is_ok());
    second_result.map_err(
        |second_error| if matches!(second_error, DecodeError::TooLarge(_)) { second_error } else { error },
    )
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

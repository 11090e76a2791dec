//! Entries of banks: refused with a reason, or kept in a form that is its own.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tidegate_fuzz::banks::value(bytes));

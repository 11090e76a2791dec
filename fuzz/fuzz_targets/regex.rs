//! Patterns: refused, or found exactly where the pattern alone finds them.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tidegate_fuzz::rules::regex(bytes));

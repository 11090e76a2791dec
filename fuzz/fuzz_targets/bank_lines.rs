//! Files with an entry a line.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tidegate_fuzz::banks::lines(bytes));

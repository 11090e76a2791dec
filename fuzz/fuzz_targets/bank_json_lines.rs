//! Files with a JSON entry a line.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tidegate_fuzz::banks::json_lines(bytes));

//! Pages of exchanges, in JSON.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tidegate_fuzz::banks::pages(bytes));

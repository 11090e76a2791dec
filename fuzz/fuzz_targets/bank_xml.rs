//! Exchanges that hand out XML.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tidegate_fuzz::banks::xml(bytes));

//! Rule documents: refused with a reason, or compiled and evaluated; never a panic.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tidegate_fuzz::rules::rule(bytes));

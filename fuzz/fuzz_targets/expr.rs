//! Expressions: refused where they stand, or compiled and evaluated; never a panic.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tidegate_fuzz::rules::expr(bytes));

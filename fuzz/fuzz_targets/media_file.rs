//! Files of pictures: refused with a reason, or hashed; never a panic.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tidegate_fuzz::media::file(bytes));

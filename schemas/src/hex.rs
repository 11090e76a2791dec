//! Bytes as hexadecimal digits.
//!
//! It does not read them back; whoever does knows how many there must be.

use std::fmt::Write as _;

/// Returns hexadecimal digits in lower case.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes everything");
        text
    })
}

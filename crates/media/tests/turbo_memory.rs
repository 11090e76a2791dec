//! What libjpeg-turbo holds, which allocates past the tests' allocators, against what is reserved for it.
//!
//! A process of its own decodes, so that nothing else is in its memory and nothing is there to be used again. It counts
//! pages that were written to: coefficients of colours whose scans are left out are reserved, and never are.

#![cfg(all(feature = "turbo", target_os = "linux"))]
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::{env, fs, process::Command};

use jpeg_encoder::{ColorType, Encoder};
use tidegate_media::{Decoders, Digests, Limits, State, fingerprint::reason};

const FILE: &str = "TIDEGATE_TEST_DECODED";
const HELD: &str = "held at most: ";

/// Pages that are touched beside decoding, and what the kernel counts late. For pictures of this size, coefficients and
/// luma are larger.
const SLACK: u64 = 2 << 20;
const WIDTH: u16 = 2_400;
const HEIGHT: u16 = 2_000;

fn jpeg(width: u16, height: u16, colours: ColorType, progressive: bool) -> Vec<u8> {
    let per_pixel = if colours == ColorType::Luma { 1 } else { 3 };
    let count = usize::from(width) * usize::from(height) * per_pixel;
    let samples: Vec<u8> = (0..count).map(|at| ((at / 5) ^ (at >> 11)).to_le_bytes()[0]).collect();
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, 80);
    encoder.set_progressive(progressive);
    encoder.encode(&samples, width, height, colours).unwrap();
    bytes
}

fn decoders(decode_bytes: u64) -> Decoders {
    Decoders::new(Limits { threads: 1, decode_bytes, ..Limits::default() }).unwrap()
}

/// In bytes.
fn status(key: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

#[test]
fn what_is_reserved_for_libjpeg_turbo_is_no_less_than_what_it_holds() {
    if let Ok(file) = env::var(FILE) {
        let (bytes, decoders) = (fs::read(file).unwrap(), decoders(Limits::default().decode_bytes));
        decoders.luma(&jpeg(64, 64, ColorType::Luma, true)).unwrap();
        let before = status("VmRSS");
        decoders.luma(&bytes).unwrap();
        println!("\n{HELD}{}", status("VmHWM") - before);
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for (colours, progressive) in
        [(ColorType::Luma, false), (ColorType::Luma, true), (ColorType::Rgb, false), (ColorType::Rgb, true)]
    {
        let name = format!("{colours:?}, {progressive}");
        let bytes = jpeg(WIDTH, HEIGHT, colours, progressive);
        let file = folder.path().join("decoded.jpg");
        fs::write(&file, &bytes).unwrap();
        let child = Command::new(env::current_exe().unwrap())
            .args([
                "what_is_reserved_for_libjpeg_turbo_is_no_less_than_what_it_holds",
                "--exact",
                "--nocapture",
            ])
            .env(FILE, &file)
            .output()
            .unwrap();
        let said = String::from_utf8(child.stdout).unwrap();
        let held = said
            .lines()
            .find_map(|line| line.strip_prefix(HELD))
            .unwrap_or_else(|| panic!("{name}: {said} {}", String::from_utf8_lossy(&child.stderr)));
        let held: u64 = held.parse().unwrap();
        let pixels = u64::from(WIDTH) * u64::from(HEIGHT);
        assert!(held + SLACK > pixels * if progressive { 3 } else { 1 }, "{name}: {held} is not all of it");
        let print = decoders(held - SLACK).fingerprint(&bytes, Digests::of(b""));
        assert_eq!(
            (print.state, print.reason),
            (State::TooLarge, Some(reason::MEMORY)),
            "{name}: {held} held"
        );
    }
}

//! What hashing a JPEG costs, stage by stage and against peers, in CPU time of all threads.
//!
//! `cargo bench -p tidegate-media --bench hashing -- [FILE...]`: given JPEGs, or ones of 1.6 MP that are
//! drawn. With `TIDEGATE_TEST_PDQHASH` naming a Python that has `pdqhash` and `pillow`, the reference's C++ runs in
//! turn with the others. Sides take turns in rounds after one that only warms up; the figure is the median of the rounds.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation
)]

#[path = "../../../image_decode/tests/it/support/bombs/mod.rs"]
mod bombs;
#[path = "../../../image_decode/tests/it/support/pictures.rs"]
mod pictures;

use std::{env, fs, hint::black_box, path::PathBuf, process::Command};

use image::{DynamicImage, ImageReader};
use image_hasher::{HashAlg, HasherConfig};
use jpeg_encoder::{ColorType, Encoder, SamplingFactor};
use tidegate_image_decode::LumaImage;
use tidegate_media::{Decoders, Digests, Limits, PdqHash, hashes::pdq};
use zune_core::{bytestream::ZCursor, colorspace::ColorSpace, options::DecoderOptions};
use zune_jpeg::JpegDecoder;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ROUNDS: usize = 7;
/// How often a round goes through all pictures.
const TIMES: usize = 5;

struct Jpeg {
    path: PathBuf,
    bytes: Vec<u8>,
    luma: Vec<u8>,
    width: u32,
    height: u32,
}

/// Nanoseconds of CPU that this process has used, all threads.
fn cpu() -> u64 {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let spent = |task: PathBuf| fs::read_to_string(task.join("schedstat")).unwrap_or_default();
    let first = |text: String| text.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0);
    tasks.map(|task| first(spent(task.unwrap().path()))).sum::<u64>()
}

/// Without leaving any scan out.
fn zune(bytes: &[u8]) -> Vec<u8> {
    let options = DecoderOptions::default().jpeg_set_out_colorspace(ColorSpace::Luma);
    JpegDecoder::new_with_options(ZCursor::new(bytes), options).decode().unwrap()
}

/// Draws shapes, shading and grain, with about as many bytes a pixel as camera pictures.
fn drawn(folder: &std::path::Path) -> Vec<PathBuf> {
    let mut grain = pictures::Draw::new(5);
    let write = |(at, family): (usize, u64)| {
        let mut picture = pictures::sized(family, 77, 1460, 1096);
        for sample in &mut picture.rgb {
            *sample = sample.saturating_add((grain.bits() % 9) as u8);
        }
        let mut encoder = Encoder::new_file(folder.join(format!("{at}.jpg")), 85).unwrap();
        encoder.set_sampling_factor(SamplingFactor::F_2_2);
        encoder.set_progressive(at % 4 == 3);
        encoder.encode(&picture.rgb, 1460, 1096, ColorType::Rgb).unwrap();
        folder.join(format!("{at}.jpg"))
    };
    [1, 3, 4, 8, 2, 7, 9, 5].into_iter().enumerate().map(write).collect()
}

fn read(decoders: &Decoders, path: PathBuf) -> Jpeg {
    let bytes = fs::read(&path).unwrap();
    let LumaImage { width, height, samples: luma } = decoders.luma(&bytes).unwrap();
    Jpeg { path, bytes, luma, width, height }
}

type Side<'a> = (&'static str, Box<dyn Fn() -> f64 + 'a>);

fn main() {
    let folder = tempfile::tempdir().unwrap();
    let decoders = Decoders::new(Limits { threads: 1, ..Limits::default() }).unwrap();
    let given: Vec<_> =
        env::args().skip(1).filter(|word| !word.starts_with("--")).map(PathBuf::from).collect();
    let paths = if given.is_empty() { drawn(folder.path()) } else { given };
    let all: Vec<_> = paths.into_iter().map(|path| read(&decoders, path)).collect();
    let pixels: u64 = all.iter().map(|jpeg| u64::from(jpeg.width) * u64::from(jpeg.height)).sum();
    let bytes: usize = all.iter().map(|jpeg| jpeg.bytes.len()).sum();
    println!(
        "{} pictures, {:.2} MP and {} kB each; load {}\n",
        all.len(),
        pixels as f64 / all.len() as f64 / 1e6,
        bytes / all.len() / 1000,
        fs::read_to_string("/proc/loadavg").unwrap().split(' ').next().unwrap()
    );

    let python = env::var("TIDEGATE_TEST_PDQHASH").ok().filter(|python| !python.is_empty());
    if let Some(python) = &python {
        agree(python, &all);
    }
    let gradient = HasherConfig::new().hash_alg(HashAlg::Gradient).hash_size(8, 8).to_hasher();
    let median = HasherConfig::new().hash_alg(HashAlg::Median).preproc_dct().hash_size(16, 16).to_hasher();
    let digests = Digests::of(b"");
    let decoded: Vec<_> = all.iter().map(|jpeg| image::load_from_memory(&jpeg.bytes).unwrap()).collect();
    let grays: Vec<_> = decoded.iter().map(|image| DynamicImage::ImageLuma8(image.to_luma8())).collect();

    let mut sides: Vec<Side<'_>> = vec![
        (
            "JPEG to luma and PDQ",
            each(&all, |jpeg| {
                let LumaImage { width, height, samples } = decoders.luma(&jpeg.bytes).unwrap();
                black_box(pdq::hash(&samples, width, height));
            }),
        ),
        (
            "JPEG to fingerprint: PDQ, its turns, Gradient, Median",
            each(&all, |jpeg| {
                black_box(decoders.fingerprint(&jpeg.bytes, digests));
            }),
        ),
        (
            "- decode to luma",
            each(&all, |jpeg| {
                black_box(decoders.luma(&jpeg.bytes));
            }),
        ),
        (
            "- zune-jpeg by itself, all scans, to luma",
            each(&all, |jpeg| {
                black_box(zune(&jpeg.bytes));
            }),
        ),
        (
            "- PDQ of luma",
            each(&all, |jpeg| {
                black_box(pdq::hash(&jpeg.luma, jpeg.width, jpeg.height));
            }),
        ),
        (
            "- Gradient 8 x 8 of luma",
            each(&grays, |gray| {
                black_box(gradient.hash_image(gray));
            }),
        ),
        (
            "- Median 16 x 16 of luma",
            each(&grays, |gray| {
                black_box(median.hash_image(gray));
            }),
        ),
        (
            "- MD5, SHA-1, SHA-256 of the file",
            each(&all, |jpeg| {
                black_box(Digests::of(&jpeg.bytes));
            }),
        ),
        (
            "`image` and image_hasher with its plain resizer, Gradient 8 x 8",
            each(&all, |jpeg| {
                let reader =
                    ImageReader::new(std::io::Cursor::new(&jpeg.bytes)).with_guessed_format().unwrap();
                black_box(gradient.hash_image(&reader.decode().unwrap()));
            }),
        ),
        (
            IMAGE_DECODES,
            each(&all, |jpeg| {
                black_box(image::load_from_memory(&jpeg.bytes).unwrap());
            }),
        ),
    ];
    if let Some(python) = &python {
        for (name, stage) in [
            ("Pillow and `pdqhash` (C++)", "both"),
            ("- Pillow, decode to RGB", "decode"),
            (PDQHASH_HASHES, "hash"),
        ] {
            sides.push((
                name,
                Box::new(|| ask(python, &["time", stage, &TIMES.to_string()], &all).trim().parse().unwrap()),
            ));
        }
    } else {
        println!("TIDEGATE_TEST_PDQHASH is not set: without the reference's C++\n");
    }
    print_bombs(&decoders);
    let figures = measure(&sides);
    print(&sides, &figures);
    if python.is_some() {
        let of = |wanted: &str| &figures[sides.iter().position(|(name, _)| *name == wanted).unwrap()];
        let both = of(IMAGE_DECODES).iter().zip(of(PDQHASH_HASHES));
        let ratios: Vec<_> =
            both.zip(&figures[0]).map(|((decode, hash), ours)| (decode + hash) / ours).collect();
        println!("\n`image`, then `pdqhash` (C++): {:.2} x JPEG to PDQ", spread(&ratios).0);
    }
}

const IMAGE_DECODES: &str = "- `image`, decode to RGB";
const PDQHASH_HASHES: &str = "- `pdqhash` of RGB";

/// Milliseconds of CPU that a piece of work takes for one of all.
fn each<'a, T>(all: &'a [T], work: impl Fn(&T) + 'a) -> Box<dyn Fn() -> f64 + 'a> {
    Box::new(move || {
        let began = cpu();
        for _ in 0..TIMES {
            all.iter().for_each(&work);
        }
        (cpu() - began) as f64 / 1e6 / (TIMES * all.len()) as f64
    })
}

fn measure(sides: &[Side<'_>]) -> Vec<Vec<f64>> {
    let mut figures = vec![Vec::new(); sides.len()];
    for round in 0..=ROUNDS {
        for ((_, side), figures) in sides.iter().zip(&mut figures) {
            let figure = side();
            if round > 0 {
                figures.push(figure);
            }
        }
    }
    figures
}

/// The middle, the lowest and the highest.
fn spread(values: &[f64]) -> (f64, f64, f64) {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    (sorted[sorted.len() / 2], sorted[0], sorted[sorted.len() - 1])
}

fn print(sides: &[Side<'_>], figures: &[Vec<f64>]) {
    println!("| side | CPU ms a picture | lowest to highest | x JPEG to PDQ |");
    println!("| --- | --- | --- | --- |");
    for ((name, _), values) in sides.iter().zip(figures) {
        let ratios: Vec<_> = values.iter().zip(&figures[0]).map(|(value, ours)| value / ours).collect();
        let (middle, low, high) = spread(values);
        println!("| {name} | {middle:.2} | {low:.2} to {high:.2} | {:.2} |", spread(&ratios).0);
    }
}

/// Prints the cost of files refused by their header: the time of the slowest run, and the largest growth of the process.
fn print_bombs(decoders: &Decoders) {
    println!("| bomb | bytes | refused in, ms of CPU at most | MB at most |");
    println!("| --- | --- | --- | --- |");
    for (name, bytes, why) in bombs::all() {
        let digests = Digests::of(&bytes);
        // Resets the peak memory of the process to its current size.
        fs::write("/proc/self/clear_refs", "5").unwrap();
        let before = largest_kb();
        let mut slowest = 0.0_f64;
        for _ in 0..20 {
            let began = cpu();
            let print = decoders.fingerprint(&bytes, digests);
            slowest = slowest.max((cpu() - began) as f64 / 1e6);
            assert_eq!(print.reason, Some(why), "{name}");
        }
        let grown = largest_kb().saturating_sub(before) as f64 / 1e3;
        println!("| {name} | {} | {slowest:.3} | {grown:.1} |", bytes.len());
    }
    println!("\nbars: 10 ms, 64 MB\n");
}

fn largest_kb() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().split(' ').next().unwrap().parse().unwrap()
}

/// Before a figure counts, both sides hash alike.
fn agree(python: &str, all: &[Jpeg]) {
    for (jpeg, theirs) in all.iter().zip(ask(python, &["print"], all).lines()) {
        let ours = pdq::hash(&jpeg.luma, jpeg.width, jpeg.height).unwrap();
        let distance = ours.hash.distance(&theirs.parse::<PdqHash>().unwrap());
        assert!(distance <= 10 || ours.quality < 80, "{}: {distance} bits", jpeg.path.display());
    }
}

fn ask(python: &str, words: &[&str], all: &[Jpeg]) -> String {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/hashing/pdqhash_of.py");
    let output = Command::new(python)
        .arg(script)
        .args(words)
        .args(all.iter().map(|jpeg| &jpeg.path))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

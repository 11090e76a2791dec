//! `tidegate media` with the real binary: its output for pictures and for other files.

use std::fs;

use crate::support::{Place, text};
use serde_json::{Value, json};
use tidegate_test_support::{PATIENCE, eventually};

/// Encodes one of two different 24-bit pictures, mirrored or not.
fn bmp(kind: u32, mirrored: bool) -> Vec<u8> {
    let (width, height) = (128u32, 96u32);
    let mut bytes = b"BM".to_vec();
    for number in
        [54 + width * height * 3, 0, 54, 40, width, height, 0x0018_0001, 0, width * height * 3, 0, 0, 0, 0]
    {
        bytes.extend(number.to_le_bytes());
    }
    for y in 0..height {
        for x in 0..width {
            let x = if mirrored { width - 1 - x } else { x };
            // Blocks of pseudo-random brightness on a gradient.
            let block = (x / 9 + kind * 31).wrapping_mul(0x9e37_79b9) ^ (y / 7).wrapping_mul(0x85eb_ca6b);
            let value = u8::try_from((block >> 13) % 200 + x / 4 + y / 8).unwrap();
            bytes.extend([value, value, value]);
        }
    }
    bytes
}

fn place() -> Place {
    let place = Place::new();
    for (name, bytes) in [
        ("one.bmp", bmp(1, false)),
        ("mirrored.bmp", bmp(1, true)),
        ("two.bmp", bmp(2, false)),
        ("notes.txt", b"no picture".to_vec()),
    ] {
        fs::write(place.folder.path().join(name), bytes).unwrap();
    }
    place
}

#[tokio::test]
async fn hash_prints_one_json_line_per_file_in_order() {
    let output = place().run(&["media", "hash", "--json", "one.bmp", "notes.txt", "two.bmp"]).await;
    assert!(output.status.success(), "{}", text(&output.stderr));
    let lines: Vec<Value> =
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |field: &str| lines.iter().map(|line| line[field].clone()).collect::<Vec<_>>();
    assert_eq!(of("path"), ["one.bmp", "notes.txt", "two.bmp"]);
    assert_eq!(of("state"), ["ok", "undecodable", "ok"]);
    assert_eq!(of("format"), [Value::from("bmp"), Value::Null, Value::from("bmp")]);
    assert_eq!((&lines[0]["width"], &lines[0]["height"]), (&Value::from(128), &Value::from(96)));
    for (field, digits) in [("pdq", 64), ("gradient8", 16), ("dct16", 64)] {
        assert_eq!(lines[0][field].as_str().unwrap().len(), digits, "{field}");
        assert_eq!(lines[1][field], Value::Null);
    }
    assert!(lines[0]["quality"].as_u64().unwrap() >= 50);
    assert_eq!(lines[1]["reason"], "unknown_format");
    assert_eq!(lines[1]["md5"], "52b8497c36cfa26b2af4345a99d95e6c");
    assert_eq!(lines[1]["sha256"].as_str().unwrap().len(), 64);
}

#[tokio::test]
async fn unreadable_file_is_named_and_other_files_are_hashed() {
    let output = place().run(&["media", "hash", "missing.png", "one.bmp"]).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("missing.png"));
    let stdout = text(&output.stdout);
    for part in ["one.bmp: ok", "bmp, 128 x 96", "pdq ", "quality 100", "gradient8 ", "dct16 ", "sha256 "] {
        assert!(stdout.contains(part), "{part}: {stdout}");
    }
}

#[tokio::test]
async fn compare_prints_distance_and_rotation_of_two_pictures() {
    let place = place();
    let same_picture = place.run(&["media", "compare", "one.bmp", "one.bmp"]).await;
    assert!(
        text(&same_picture.stdout).contains("the same\npdq        0 of 256 bits: a match\n"),
        "{}",
        text(&same_picture.stdout)
    );
    let mirrored = text(&place.run(&["media", "compare", "one.bmp", "mirrored.bmp"]).await.stdout);
    assert!(mirrored.contains("bits: a match, the first one mirrored left to right\n"), "{mirrored}");
    let other_picture = place.run(&["media", "compare", "one.bmp", "two.bmp", "--json"]).await;
    let comparison: Value = serde_json::from_str(&text(&other_picture.stdout)).unwrap();
    assert!(comparison["pdq"]["distance"].as_u64().unwrap() > 31, "{comparison}");
    assert!(
        comparison["gradient8"].as_u64().unwrap() > 0 && comparison["dct16"].as_u64().unwrap() > 0,
        "{comparison}"
    );

    let failed_comparison = place.run(&["media", "compare", "one.bmp", "notes.txt"]).await;
    assert_eq!(failed_comparison.status.code(), Some(1));
    assert!(text(&failed_comparison.stderr).contains("notes.txt has no hashes: undecodable, unknown_format"));
}

#[tokio::test]
async fn media_commands_apply_limits_of_the_settings() {
    let place = place();
    fs::write(place.folder.path().join("tidegate.toml"), "[media]\npixels = 1000\n").unwrap();
    let hash_line = text(&place.run(&["media", "hash", "one.bmp", "--json"]).await.stdout);
    assert!(
        hash_line.contains(r#""state":"too_large""#) && hash_line.contains(r#""reason":"pixels""#),
        "{hash_line}"
    );
}

const BANKS: &str = "\
bank: pictures
kind: pdq
---
bank: files
kind: md5
";

/// Gray picture with one slightly brighter pixel.
fn faint() -> Vec<u8> {
    let mut bytes = bmp(1, false);
    bytes[54..].fill(120);
    bytes[9_000] = 200;
    bytes
}

#[tokio::test]
async fn match_compares_as_a_service_with_the_same_settings() {
    let place = place();
    fs::write(place.folder.path().join("faint.bmp"), faint()).unwrap();
    let demo = place.start().await.unwrap();
    let change = json!({"files": [{"name": "banks.yaml", "text": BANKS}]});
    let (status, answer) = demo.command("/config", &change).await;
    assert_eq!(status, 200, "{answer}");
    let hashed = place.run(&["media", "hash", "--json", "one.bmp", "faint.bmp", "notes.txt"]).await;
    let hashed: Vec<Value> =
        text(&hashed.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |nth: usize, kind: &str| hashed[nth][kind].as_str().unwrap().to_owned();
    place.run_ok(&["banks", "add", "pictures", &of(0, "pdq"), &of(1, "pdq")]).await;
    place.run_ok(&["banks", "add", "files", &of(2, "md5")]).await;
    eventually("the entries to be in use", PATIENCE, async || {
        let match_output = place.run_ok(&["banks", "match", &of(2, "md5"), "--kind", "md5"]).await;
        match_output.ends_with("1 matches\n").then_some(())
    })
    .await
    .unwrap();

    let data = place.data();
    let files = ["one.bmp", "mirrored.bmp", "faint.bmp", "notes.txt"];
    let run_match = async |settings: &str, more: &[&str]| {
        fs::write(place.folder.path().join("tidegate.toml"), settings).unwrap();
        let all = [&["media", "match"][..], &files, more, &["--data", data.to_str().unwrap()]].concat();
        let output = place.run(&all).await;
        assert!(output.status.success(), "{}", text(&output.stderr));
        let stdout = text(&output.stdout);
        let file_matches =
            files.map(|file| stdout.lines().any(|line| line.starts_with(&format!("{file}  "))));
        (file_matches, text(&output.stderr))
    };
    let (matched_files, complaints) = run_match("", &[]).await;
    assert_eq!(matched_files, [true, true, false, true]);
    let quality = hashed[1]["quality"].as_u64().unwrap();
    assert_eq!(
        complaints,
        format!(
            "faint.bmp: low_quality, quality {quality} is below catalog.hash_banks.least_quality = 50: only its \
             digests are looked up\nnotes.txt: undecodable, unknown_format: only its digests are looked up\n"
        )
    );
    let unturned = "[catalog.hash_banks]\nturned = false\nleast_quality = 0\n";
    assert_eq!(run_match("", &["--turned", "false"]).await.0, [true, false, false, true]);
    assert_eq!(run_match(unturned, &[]).await.0, [true, false, true, true]);
    assert_eq!(run_match(unturned, &["--turned", "true"]).await.0, [true, true, true, true]);
    let (matched_files, complaints) = run_match("[media]\npixels = 1000\n", &[]).await;
    assert_eq!(matched_files, [false, false, false, true]);
    assert!(complaints.starts_with("one.bmp: too_large, pixels: only its digests are looked up\n"));
}

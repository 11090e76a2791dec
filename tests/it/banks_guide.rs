//! The guide to banks of hashes: its documents are taken, and its commands say what it says they do.

use std::fs;

use crate::support::{Place, text};
use serde_json::json;
use tidegate_test_support::{PATIENCE, eventually_ok, pictures::picture};

const GUIDE: &str = include_str!("../../docs/guides/banks.md");

fn blocks(language: &str) -> Vec<&'static str> {
    let begin = format!("```{language}\n");
    GUIDE.split(&*begin).skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

#[tokio::test]
async fn every_example_of_the_guide_goes_as_it_says() {
    let place = Place::new();
    let demo = place.start().await.unwrap();
    for (nth, document) in blocks("yaml").into_iter().enumerate() {
        let change = json!({"files": [{"name": format!("block-{nth}.yaml"), "text": document}]});
        let (status, answer) = demo.command("/config", &change).await;
        assert_eq!(status, 200, "{answer}");
    }
    fs::write(place.folder.path().join("picture.bmp"), picture(7)).unwrap();
    fs::write(place.folder.path().join("scams.csv"), blocks("csv")[0]).unwrap();
    let data = place.data();
    let mut count = 0;
    for session in blocks("console").into_iter().flat_map(|block| block.split("$ tidegate ").skip(1)) {
        let (command, expected) = session.split_once('\n').unwrap();
        let args: Vec<&str> = command.split(' ').chain(["--data", data.to_str().unwrap()]).collect();
        count += 1;
        let told = async || {
            let output = place.run(&args).await;
            let (said, faults) = (text(&output.stdout), text(&output.stderr));
            let is_there = |line: &str| said.lines().any(|it| it.starts_with(line));
            let goes = output.status.success() && expected.lines().all(is_there);
            if goes { Ok(()) } else { Err(anyhow::anyhow!("{said}{faults}")) }
        };
        // What changes something is run once; a look-up may come before the entry does.
        if args[1] == "match" {
            eventually_ok(command, PATIENCE, told).await.unwrap();
        } else {
            told().await.unwrap_or_else(|error| panic!("{command}: {error}"));
        }
    }
    assert!(count >= 8, "{count} commands");
    drop(demo);
}

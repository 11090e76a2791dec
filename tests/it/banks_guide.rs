//! The guide to banks of hashes: its documents apply, and its commands print the documented output.

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
async fn each_example_of_the_guide_prints_its_documented_output() {
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
        let run_command = async || {
            let output = place.run(&args).await;
            let (stdout, faults) = (text(&output.stdout), text(&output.stderr));
            let is_there = |line: &str| stdout.lines().any(|it| it.starts_with(line));
            let succeeded = output.status.success() && expected.lines().all(is_there);
            if succeeded { Ok(()) } else { Err(anyhow::anyhow!("{stdout}{faults}")) }
        };
        // Commands that change data run once. A look-up is repeated, because the entry may not be active yet.
        if args[1] == "match" {
            eventually_ok(command, PATIENCE, run_command).await.unwrap();
        } else {
            run_command().await.unwrap_or_else(|error| panic!("{command}: {error}"));
        }
    }
    assert!(count >= 8, "{count} commands");
    drop(demo);
}

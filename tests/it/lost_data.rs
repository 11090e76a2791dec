//! Data with a damaged journal, and data of a killed process.

use std::{fs, path::Path};

use crate::support::{Place, post, text};
use tidegate_test_support::PATIENCE;

fn up<'a>(data: &'a Path, more: &[&'a str]) -> Vec<&'a str> {
    let mut args = vec!["up", "--data", data.to_str().unwrap()];
    for flag in ["--api-listen", "--console-listen", "--ops-listen"] {
        args.extend([flag, "127.0.0.1:0"]);
    }
    args.extend(more);
    args
}

#[tokio::test]
async fn damaged_journal_is_refused_until_its_loss_is_accepted() {
    let place = Place::new();
    let mut demo = place.start().await.unwrap();
    for nth in 0..200 {
        demo.submit(&post(&format!("p{nth}"), "mallory", "hello")).await;
    }
    demo.process.kill().await.unwrap();
    let data = place.data();
    let journal = data.join("db/0.jnl");
    let intact_journal = fs::read(&journal).unwrap();
    let mut bytes = intact_journal.clone();
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    // The damage is at two thirds of the journal, behind the keys of the demo.
    let at = end / 3 * 2;
    bytes[at..at + 4_096].fill(0);
    for (damage, bytes, named) in [
        ("zeros", Some(&bytes[..]), "0.jnl is damaged at byte"),
        ("cut", Some(&intact_journal[..at]), "items["),
        ("removed", None, "has no journal"),
    ] {
        match bytes {
            Some(bytes) => fs::write(&journal, bytes).unwrap(),
            None => fs::remove_file(&journal).unwrap(),
        }
        let refusal = place.run(&up(&data, &[])).await;
        let stderr = text(&refusal.stderr);
        assert_eq!(refusal.status.code(), Some(1), "{damage}: {stderr}");
        assert!(stderr.contains(named) && stderr.contains("--accept-loss"), "{damage}: {stderr}");
    }

    fs::write(&journal, &intact_journal).unwrap();
    let mut demo = place.start().await.unwrap();
    demo.evaluated("post", "p199").await;
    // An orderly stop would leave an empty journal.
    demo.process.kill().await.unwrap();

    let last = fs::read_dir(data.join("db")).unwrap().map(|entry| entry.unwrap().path());
    let last = last.filter(|path| path.extension().is_some_and(|kind| kind == "jnl")).max().unwrap();
    let half = fs::read(&last).unwrap().iter().rposition(|byte| *byte != 0).unwrap() as u64 / 2;
    fs::File::options().write(true).open(&last).unwrap().set_len(half).unwrap();
    let mut program =
        tidegate_test_support::Program::new(crate::support::BINARY, place.folder.path().join("accepted"))
            .args(up(&data, &["--accept-loss"]))
            .start()
            .unwrap();
    program.line("is ready", PATIENCE).await.unwrap();
    program.kill().await.unwrap();
    let program_output = program.output().unwrap();
    assert!(program_output.contains("accepted as lost: items["), "{program_output}");
    assert_eq!(place.start().await.unwrap().stop().await.code(), Some(0));
}

#[tokio::test]
async fn killed_process_restarts_without_accepting_loss() {
    let place = Place::new();
    let mut sent_count = 0;
    for round in 0..10 {
        let mut demo = place.start().await.unwrap();
        if sent_count > 0 {
            demo.evaluated("post", &format!("p{}", sent_count - 1)).await;
        }
        for _ in 0..=round * 7 {
            demo.submit(&post(&format!("p{sent_count}"), "mallory", "hello")).await;
            sent_count += 1;
        }
        demo.process.kill().await.unwrap();
    }
    assert_eq!(place.start().await.unwrap().stop().await.code(), Some(0));
}

//! Data that lost something that was acknowledged, and data that a kill left.

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
async fn a_damaged_journal_is_refused_until_its_loss_is_accepted() {
    let place = Place::new();
    let mut demo = place.start().await.unwrap();
    for nth in 0..200 {
        demo.submit(&post(&format!("p{nth}"), "mallory", "hello")).await;
    }
    demo.process.kill().await.unwrap();
    let data = place.data();
    let journal = data.join("db/0.jnl");
    let whole = fs::read(&journal).unwrap();
    let mut bytes = whole.clone();
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    // Two thirds, so that the keys of the demo are before it.
    let at = end / 3 * 2;
    bytes[at..at + 4_096].fill(0);
    for (damage, bytes, named) in [
        ("zeros", Some(&bytes[..]), "0.jnl is damaged at byte"),
        ("cut", Some(&whole[..at]), "items["),
        ("removed", None, "has no journal"),
    ] {
        match bytes {
            Some(bytes) => fs::write(&journal, bytes).unwrap(),
            None => fs::remove_file(&journal).unwrap(),
        }
        let refused = place.run(&up(&data, &[])).await;
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{damage}: {said}");
        assert!(said.contains(named) && said.contains("--accept-loss"), "{damage}: {said}");
    }

    fs::write(&journal, &whole).unwrap();
    let mut demo = place.start().await.unwrap();
    demo.evaluated("post", "p199").await;
    // A stop in order would leave an empty journal.
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
    let said = program.output().unwrap();
    assert!(said.contains("accepted as lost: items["), "{said}");
    assert_eq!(place.start().await.unwrap().stop().await.code(), Some(0));
}

#[tokio::test]
async fn kills_are_no_loss() {
    let place = Place::new();
    let mut sent = 0;
    for round in 0..10 {
        let mut demo = place.start().await.unwrap();
        if sent > 0 {
            demo.evaluated("post", &format!("p{}", sent - 1)).await;
        }
        for _ in 0..=round * 7 {
            demo.submit(&post(&format!("p{sent}"), "mallory", "hello")).await;
            sent += 1;
        }
        demo.process.kill().await.unwrap();
    }
    assert_eq!(place.start().await.unwrap().stop().await.code(), Some(0));
}

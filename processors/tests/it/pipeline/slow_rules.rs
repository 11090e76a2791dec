//! Slow rules delay neither a stop nor another organisation.

use std::{fmt::Write as _, time::Instant};

use tidegate_schemas::records::ItemEntry;
use tidegate_store::tables::items::items::SubmissionState;
use tidegate_stream::{Topic, consumer::inbox::DrainResult, topics::Group};

use super::world::{World, entry, org, post};

fn rules(pattern: impl Fn(usize) -> String) -> String {
    let mut documents = String::new();
    for number in 0..24 {
        let pattern = pattern(number);
        write!(
            documents,
            "rule: slow{number}\nstatus: live\nitem_types: [post]\nwhen: {{text: {{in: [text], regex: '{pattern}'}}}}\n\
             actions: []\n---\n"
        )
        .unwrap();
    }
    documents
}

fn hostile_text() -> String {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut letter = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        if state & 1 == 0 { 'a' } else { 'b' }
    };
    (0..64 << 10).map(&mut letter).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_interrupts_slow_rules_and_leaves_their_records() {
    let mut world = World::new().await;
    // The rules take seconds on this text in an unoptimised build.
    world.configure(&rules(|number| format!("a[ab]{{{}}}[q-r]", 20 + number)), false).await;
    let text = hostile_text();
    let entries: Vec<ItemEntry> = (0..100).map(|nth| entry(&post(&format!("p{nth}")), &text)).collect();
    let last = (entries[99].key(), entries[99].submission_id);
    for entry in entries {
        world.submit(vec![entry]).await;
    }
    world.start();
    let load = std::sync::Arc::clone(world.deps.live.processing_load());
    world.wait_for("an evaluation", async || load.report(Instant::now()).orgs.pop()).await;
    // A hundred of these items take longer than the drain time.
    assert_eq!(world.stop().await.unwrap(), DrainResult::Clean);
    let oldest = world.deps.log.oldest_uncommitted(Group::ITEMS, Topic::Items).await.unwrap();
    assert!(oldest.is_some(), "interrupted records are not committed");

    world.configure(&rules(|number| format!("[q-r]{number}")), false).await;
    world.start();
    let (item, submission) = last;
    assert_eq!(world.wait_until_evaluated(&item, submission).await.state, SubmissionState::Evaluated);
    assert_eq!(world.stop().await.unwrap(), DrainResult::Clean);
    let delays: Vec<_> = load.report(Instant::now()).orgs;
    assert!(delays.iter().any(|load| load.org == org() && load.delay_ms > 0), "{delays:?}");
}

//! A conversion that is told to stop before its votes.

#![allow(clippy::unwrap_used)]

mod support;

use std::{fs, sync::Arc};

use support::{Conversation, Folder, run};
use tidegate_exporter::{
    convert::{Job, convert},
    fault::Fault,
    meter::Meter,
    privacy::Profile,
};

/// Told to stop once it has read so many rows.
fn stopped(job: &Job, rows: u64) -> Fault {
    let meter = Arc::new(Meter::default());
    meter.stop_after(rows);
    convert(job, &meter).unwrap_err()
}

#[test]
fn told_to_stop_before_the_votes_it_says_so_at_once_and_how_it_goes_on() {
    let (folder, conversation) = (Folder::new(), Conversation::new(71, 10, 60));
    let mut job = folder.job(&conversation.variant_a(&folder, "a"));
    job.force = false;
    run(&job).unwrap();
    let whole = fs::read(folder.path("bundle.json")).unwrap();
    fs::remove_file(folder.path("bundle.json")).unwrap();
    let fault = stopped(&job, 0);
    assert!(matches!(fault, Fault::Stopped { rows: 0, resumable: true }), "{fault:?}");
    assert_eq!(folder.names(), ["a", "bundle.json.parts"]);
    job.resume = true;
    run(&job).unwrap();
    assert!(fs::read(folder.path("bundle.json")).unwrap() == whole);
    fs::remove_file(folder.path("bundle.json")).unwrap();
    (job.resume, job.profile) = (false, Profile::Public);
    let fault = stopped(&job, 0);
    assert!(matches!(fault, Fault::Stopped { rows: 0, resumable: false }), "{fault:?}");
    assert_eq!(folder.names(), ["a"]);
}

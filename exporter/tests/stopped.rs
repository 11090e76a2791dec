//! A conversion that is told to stop before its votes or that has lost its key.

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

#[test]
fn a_key_that_is_lost_is_told_by_its_name() {
    let (folder, conversation) = (Folder::new(), Conversation::new(72, 100, 400));
    let mut job = folder.fresh(&conversation.variant_a(&folder, "a"));
    job.force = false;
    let fault = stopped(&job, 1);
    assert!(matches!(fault, Fault::Stopped { rows: 1.., resumable: true }), "{fault:?}");
    job.resume = true;
    let path = folder.path("bundle.json.parts/key");
    let key = fs::read(&path).unwrap();
    for (left, is) in [(None, "missing"), (Some(&key[..7]), "damaged")] {
        fs::remove_file(&path).unwrap();
        if let Some(left) = left {
            fs::write(&path, left).unwrap();
        }
        let fault = run(&job).unwrap_err();
        let said = format!(
            "bundle.json.parts/key is {is}: it is the key that the pseudonyms so far were made with, and without it the same \
             bytes cannot be made again. Put it back for --resume to go on; --force without --resume begins anew with another"
        );
        assert_eq!((fault.tag(), fault.to_string()), ("refused", said));
        fs::write(&path, &key).unwrap();
    }
    assert!(run(&job).unwrap().resumed_rows > 0);
    // Nothing was written with this one.
    let mut job = Job { force: true, resume: false, ..job };
    stopped(&job, 0);
    fs::write(&path, "half").unwrap();
    (job.force, job.resume) = (true, true);
    run(&job).unwrap();
    assert_eq!(folder.names(), ["a", "bundle.json"]);
}

//! Tests of a conversion that is stopped and run again.

use std::{fs, sync::Arc};

use crate::support::{Conversation, Folder, run};
use tidegate_exporter::{convert::convert, error::ConvertError, meter::Meter, privacy::Profile};

#[test]
fn stopped_conversion_leaves_no_file_and_runs_again() {
    let (folder, conversation) = (Folder::new(), Conversation::new(71, 100, 400));
    let mut job = folder.job(&conversation.variant_a(&folder, "a"));
    job.force = false;
    for (profile, threads, rows) in [
        (Profile::Private, 1, 0),
        (Profile::Private, 1, 9_000),
        (Profile::Private, 2, 9_000),
        (Profile::Public, 1, 0),
    ] {
        (job.profile, job.threads) = (profile, threads);
        run(&job).unwrap();
        let full_bundle = fs::read(folder.path("bundle.json")).unwrap();
        fs::remove_file(folder.path("bundle.json")).unwrap();
        let meter = Arc::new(Meter::default());
        meter.stop_after(rows);
        let error = convert(&job, &meter).unwrap_err();
        assert!(matches!(error, ConvertError::Stopped { .. }), "{error:?}");
        assert_eq!(folder.names(), ["a"]);
        run(&job).unwrap();
        assert!(fs::read(folder.path("bundle.json")).unwrap() == full_bundle);
        fs::remove_file(folder.path("bundle.json")).unwrap();
    }
}

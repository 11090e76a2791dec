//! Tests that converted bundles pass validation at every level, with any options.

use std::{fs, path::Path};

use crate::support::bundles::{check_with, finding_places, options};
use crate::support::{Conversation, Folder, run};
use tidegate_exporter::{
    bundle::validate::Options,
    convert::Job,
    form::Naming,
    privacy::{Profile, TextTreatment},
};
use tidegate_test_support::servers;

fn agree(what: &str, folder: &Folder, job: &Job) {
    run(job).unwrap_or_else(|error| panic!("{what}: {error}"));
    let text = fs::read(folder.path("bundle.json")).unwrap();
    let delib = job.naming == Naming::Delib;
    let k = if job.profile == Profile::Public { job.k } else { options().k };
    let options = Options { k, naming: job.naming, delib, schema_url: job.schema_url.clone(), ..options() };
    let report = check_with(&text, &options);
    assert_eq!(finding_places(&report), [""; 0], "{what}");
    assert!(report.is_complete, "{what}");
}

fn in_every_way(name: &str, folder: &Folder, input: &Path) {
    let job = folder.job(input);
    agree(&format!("{name}, private"), folder, &job);
    agree(&format!("{name}, events"), folder, &Job { events: true, ..folder.job(input) });
    agree(&format!("{name}, Delib"), folder, &Job { naming: Naming::Delib, ..folder.job(input) });
    let url = Some("https://example.org/bundle/v1".to_owned());
    agree(&format!("{name}, another schema"), folder, &Job { schema_url: url, ..folder.job(input) });
    for texts in [TextTreatment::Keep, TextTreatment::Redact, TextTreatment::Omit] {
        for reviewed in [None, Some("the clerk".to_owned())] {
            // The last k hides all counts.
            for k in [3, 5, 8, 10_000] {
                let mut job = folder.job(input);
                job.profile = Profile::Public;
                (job.texts, job.text_reviewed_by, job.k) = (Some(texts), reviewed.clone(), k);
                agree(&format!("{name}, public, {texts:?}, {reviewed:?}, {k}"), folder, &job);
            }
        }
    }
}

#[test]
fn converted_bundles_are_valid() {
    let folder = Folder::new();
    for seed in 1..6 {
        let input = Conversation::new(seed, 23, 40).variant_a(&folder, &format!("in-{seed}"));
        in_every_way(&format!("seed {seed}"), &folder, &input);
    }
}

#[test]
fn real_exports_become_valid_bundles() {
    let real = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/data/polis"));
    if !real.exists() {
        servers::skipped("bundles of real exports", "../shared/data/polis is not beside the checkout");
        return;
    }
    let folder = Folder::new();
    for name in ["london.youth.policing", "15-per-hour-seattle"] {
        in_every_way(name, &folder, &real.join(name));
    }
}

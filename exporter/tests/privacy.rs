//! What a bundle gives away, and what it says of that.

#![allow(clippy::unwrap_used)]

mod support;

use std::fs;

use support::{Conversation, Folder, VOTERS_FROM, bundle, run};
use tidegate_exporter::{
    convert::{Job, Overrides},
    form::{K_DEFAULT, K_FLOOR},
    privacy::{Key, Participants, Profile, Texts},
    spill::Room,
    validate::{Options, validate},
};

fn public(folder: &Folder, conversation: &Conversation) -> Job {
    let mut job = folder.job(&conversation.variant_a(folder, "a"));
    job.profile = Profile::Public;
    job
}

#[test]
fn a_public_bundle_holds_nobodys_id_and_no_small_count() {
    let (folder, mut conversation) = (Folder::new(), Conversation::new(11, 20, 60));
    // One item that hardly anybody has answered.
    conversation.votes.retain(|vote| vote.0 != 3 || vote.1 < VOTERS_FROM + 3);
    let job = public(&folder, &conversation);
    let (report, shared) = bundle(&job);
    let text = fs::read_to_string(folder.path("bundle.json")).unwrap();
    assert!(!text.contains("xid-of") && !text.contains("participant:"));
    for voter in &conversation.voters {
        assert!(!text.contains(&voter.to_string()), "{voter}");
    }
    assert_eq!(report.items, 19);
    for response in shared["responses"].as_array().unwrap() {
        assert!(response["participantRef"].is_null() && response["occurredAt"].is_null());
        assert!(response["count"].as_u64().unwrap() >= K_DEFAULT);
        assert_ne!(response["subjectRef"], "statement:3");
    }
    assert!(
        shared["items"]
            .as_array()
            .unwrap()
            .iter()
            .all(|item| item["createdAt"].as_str().unwrap().ends_with("T00:00:00Z"))
    );
    assert!(
        shared["outcomes"].as_array().unwrap().iter().all(|outcome| outcome["type"] == "response-counts")
    );
    // A guess at what is hidden cannot be held against the source.
    for artifact in shared["provenance"]["sourceArtifacts"].as_array().unwrap() {
        let known: Vec<_> = artifact.as_object().unwrap().keys().collect();
        assert_eq!(known, ["name", "role"]);
    }
    let card = &shared["dataCard"];
    assert_eq!(
        (&card["containsPseudonymousLinkage"], &card["suitableForPublicSharing"]),
        (&false.into(), &false.into())
    );
}

#[test]
fn an_address_in_the_head_identifies_somebody_too() {
    let (folder, conversation) = (Folder::new(), Conversation::new(12, 8, 60));
    let mut job = public(&folder, &conversation);
    job.texts = Some(Texts::Omit);
    job.force = true;
    let mut flags = |change: &dyn Fn(&mut Overrides)| {
        job.overrides = Overrides::default();
        change(&mut job.overrides);
        let (_, shared) = bundle(&job);
        let card = &shared["dataCard"];
        (card["containsDirectIdentifiers"] == true, card["suitableForPublicSharing"] == true)
    };
    let said = |text: &str| Some(text.to_owned());
    assert_eq!(flags(&|head| head.description = said("about a town")), (false, true));
    assert_eq!(flags(&|head| head.description = said("mail jo@town.example")), (true, false));
    assert_eq!(flags(&|head| head.title = said("call +44 20 7946 0958")), (true, false));
}

#[test]
fn a_bundle_is_for_everybody_once_its_texts_are_read_or_gone() {
    let (folder, conversation) = (Folder::new(), Conversation::new(12, 8, 60));
    let mut job = public(&folder, &conversation);
    job.texts = Some(Texts::Omit);
    let (_, omitted) = bundle(&job);
    assert_eq!(omitted["dataCard"]["suitableForPublicSharing"], true);
    assert_eq!(omitted["dataCard"]["containsParticipantFreeText"], false);
    job.texts = None;
    job.text_reviewed_by = Some("the editors".to_owned());
    let (_, reviewed) = bundle(&job);
    assert_eq!(reviewed["dataCard"]["suitableForPublicSharing"], true);
    assert_eq!(reviewed["dataCard"]["containsParticipantFreeText"], true);
    job.withheld = true;
    assert_eq!(bundle(&job).1["dataCard"]["suitableForPublicSharing"], false);
}

#[test]
fn a_public_bundle_refuses_what_would_undo_it() {
    let (folder, conversation) = (Folder::new(), Conversation::new(13, 4, 20));
    let job = public(&folder, &conversation);
    for wrong in 0..3 {
        let mut job = job.clone();
        match wrong {
            0 => job.k = 2,
            1 => job.events = true,
            _ => job.participants = Participants::ExternalIds,
        }
        assert_eq!(run(&job).unwrap_err().tag(), "refused");
    }
    assert_eq!(folder.names(), ["a"]);
}

#[test]
fn texts_are_redacted_and_counted() {
    let (folder, mut conversation) = (Folder::new(), Conversation::new(14, 3, 20));
    conversation.comments[1].3 = "Write to me@home.example or @me".to_owned();
    let mut job = folder.job(&conversation.variant_a(&folder, "a"));
    let (_, kept) = bundle(&job);
    assert_eq!(kept["dataCard"]["containsDirectIdentifiers"], true);
    job.texts = Some(Texts::Redact);
    let (report, redacted) = bundle(&job);
    assert_eq!(redacted["items"][1]["text"], "Write to [email] or [handle]");
    assert_eq!((report.redacted, &redacted["dataCard"]["containsDirectIdentifiers"]), (2, &false.into()));
}

#[test]
fn keys_link_bundles_and_fresh_ones_do_not() {
    let (folder, conversation) = (Folder::new(), Conversation::new(15, 3, 20));
    let mut job = folder.job(&conversation.variant_a(&folder, "a"));
    let refs = |job: &_| bundle(job).1["responses"][0]["participantRef"].clone();
    assert_eq!(refs(&job), refs(&job));
    job.key = None;
    assert_ne!(refs(&job), refs(&job));
    job.key = Key::kept(vec![9; 32]);
    let other = refs(&job);
    job.overrides.id = Some("another conversation".to_owned());
    assert_ne!(refs(&job), other);
}

#[test]
fn external_ids_are_kept_only_when_asked_and_then_said() {
    let (folder, conversation) = (Folder::new(), Conversation::new(16, 3, 20));
    let mut job = folder.job(&conversation.variant_a(&folder, "a"));
    job.participants = Participants::ExternalIds;
    for threads in [1, 3] {
        job.threads = threads;
        let (_, named) = bundle(&job);
        assert!(
            named["responses"][0]["participantRef"].as_str().unwrap().starts_with("participant:xid-of-77")
        );
        assert_eq!(named["dataCard"]["containsDirectIdentifiers"], true);
    }
}

#[test]
fn a_preview_writes_nothing() {
    let (folder, conversation) = (Folder::new(), Conversation::new(17, 6, 40));
    let mut job = public(&folder, &conversation);
    job.dry_run = true;
    let preview = run(&job).unwrap();
    assert_eq!(folder.names(), ["a"]);
    job.dry_run = false;
    let done = run(&job).unwrap();
    assert_eq!((preview.items, preview.responses, preview.notes), (done.items, done.responses, done.notes));
}

/// Rules that a bundle breaks at its own k, and whether it says that it may be shared.
fn judged(folder: &Folder, job: &Job) -> (Vec<&'static str>, bool) {
    let (_, shared) = bundle(job);
    let mut options = Options::new(Room { memory: 1 << 20, folder: std::env::temp_dir() });
    options.k = job.k;
    let text = fs::read(folder.path("bundle.json")).unwrap();
    let found = validate(&mut text.as_slice(), &options).unwrap();
    let broken = found.totals.iter().map(|(rule, _)| rule.id()).collect();
    (broken, shared["dataCard"]["suitableForPublicSharing"] == true)
}

#[test]
fn whatever_is_written_for_everybody_is_found_fit_for_it() {
    for seed in 0..60_u64 {
        let draw = |below: u64, salt: u64| (seed * 31 + salt * 17) % below;
        let small = |salt| u32::try_from(draw(24, salt)).unwrap() + 1;
        let (folder, mut conversation) =
            (Folder::new(), Conversation::new(100 + seed, small(1), small(2) * 2));
        // Items that few have answered, and answers that few have given.
        conversation.votes.retain(|vote| vote.0 % 3 > 0 || vote.1 % 7 == 0);
        conversation.votes.retain(|vote| vote.3 >= 0 || vote.1 % 5 == 0);
        let mut job = public(&folder, &conversation);
        fs::rename(folder.path("a"), folder.path("polis-2024-05-06")).unwrap();
        folder.write("polis-2024-05-06/20240506-030 12345678.csv", "x\n1\n");
        folder.write("polis-2024-05-06/12345678/x", "");
        job.inputs = vec![folder.path("polis-2024-05-06")];
        job.k = K_FLOOR + draw(6, 3);
        job.texts = Some(Texts::Omit);
        assert_eq!(judged(&folder, &job), (Vec::new(), true), "seed {seed}");
        job.texts = None;
        assert_eq!(judged(&folder, &job).0, [""; 0], "seed {seed}");
        job.text_reviewed_by = Some("the editors".to_owned());
        assert_eq!(judged(&folder, &job), (Vec::new(), true), "seed {seed}");
    }
}

#[test]
fn an_address_in_what_is_said_beside_the_texts_identifies_somebody_too() {
    let (folder, conversation) = (Folder::new(), Conversation::new(18, 8, 60));
    let said = |change: &dyn Fn(&mut Job)| {
        let mut job = public(&folder, &conversation);
        job.texts = Some(Texts::Omit);
        change(&mut job);
        judged(&folder, &job)
    };
    let address = || "ada@town.example".to_owned();
    let fit = (Vec::new(), true);
    let unfit = (Vec::new(), false);
    assert_eq!(said(&|_| {}), fit);
    assert_eq!(said(&|job| job.limitations.push(address())), unfit);
    assert_eq!(said(&|job| job.text_reviewed_by = Some(address())), unfit);
    assert_eq!(said(&|job| job.overrides.id = Some(address())), unfit);
    assert_eq!(said(&|job| job.overrides.url = Some(format!("mailto:{}", address()))), unfit);
    assert_eq!(said(&|job| job.bundle_id = Some(address())), unfit);
    // Of a private bundle the names of files are told.
    folder.write("a/ada@town.example.csv", "x\n1\n");
    assert_eq!(said(&|_| {}), fit);
    let private = |job: &mut Job| job.profile = Profile::Private;
    assert_eq!(said(&private), unfit);
    let card = bundle(&folder.job(&folder.path("a"))).1["dataCard"].clone();
    assert_eq!(card["containsDirectIdentifiers"], true);
}

//! Tests of privacy: disclosed content, and its description in the data card.

use std::{collections::BTreeSet, fs};

use serde_json::Value;

use crate::support::{Conversation, Folder, VOTERS_FROM, bundle, run};
use tidegate_exporter::{
    bundle::validate::{Options, validate},
    convert::{Job, Overrides},
    form::{K_DEFAULT, K_FLOOR},
    privacy::{Key, ParticipantNaming, Profile, TextTreatment},
    storage::spill::SpillOptions,
};

fn public(folder: &Folder, conversation: &Conversation) -> Job {
    let mut job = folder.job(&conversation.variant_a(folder, "a"));
    job.profile = Profile::Public;
    job
}

#[test]
fn public_bundle_has_no_ids_and_no_small_counts() {
    let (folder, mut conversation) = (Folder::new(), Conversation::new(11, 20, 60));
    // One item with very few answers.
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
    // The bundle has no digest of the source to test guesses with.
    for artifact in shared["provenance"]["sourceArtifacts"].as_array().unwrap() {
        let members: Vec<_> = artifact.as_object().unwrap().keys().collect();
        assert_eq!(members, ["name", "role"]);
    }
    let card = &shared["dataCard"];
    assert_eq!(
        (&card["containsPseudonymousLinkage"], &card["suitableForPublicSharing"]),
        (&false.into(), &false.into())
    );
}

#[test]
fn address_in_title_or_description_is_identifying() {
    let (folder, conversation) = (Folder::new(), Conversation::new(12, 8, 60));
    let mut job = public(&folder, &conversation);
    job.texts = Some(TextTreatment::Omit);
    job.force = true;
    let mut flags = |change: &dyn Fn(&mut Overrides)| {
        job.overrides = Overrides::default();
        change(&mut job.overrides);
        let (_, shared) = bundle(&job);
        let card = &shared["dataCard"];
        (card["containsDirectIdentifiers"] == true, card["suitableForPublicSharing"] == true)
    };
    let to_text = |text: &str| Some(text.to_owned());
    assert_eq!(flags(&|head| head.description = to_text("about a town")), (false, true));
    assert_eq!(flags(&|head| head.description = to_text("mail jo@town.example")), (true, false));
    assert_eq!(flags(&|head| head.title = to_text("call +44 20 7946 0958")), (true, false));
}

#[test]
fn percent_encoded_address_is_identifying() {
    let (folder, mut conversation) = (Folder::new(), Conversation::new(12, 3, 20));
    conversation.comments[1].3 = "See jane.doe%40example.org".to_owned();
    let mut job = folder.job(&conversation.variant_a(&folder, "a"));
    job.texts = Some(TextTreatment::Redact);
    let redacted = bundle(&job).1;
    assert_eq!(redacted["items"][1]["text"], "See [email]");
    assert_eq!(redacted["dataCard"]["containsDirectIdentifiers"], false);
    for url in ["https://pol.is/abc?u=ada%40example.org", "mailto:ada%2540example.org"] {
        job.overrides.url = Some(url.to_owned());
        assert_eq!(bundle(&job).1["dataCard"]["containsDirectIdentifiers"], true, "{url}");
    }
}

#[test]
fn bundle_is_public_with_reviewed_or_omitted_texts() {
    let (folder, conversation) = (Folder::new(), Conversation::new(12, 8, 60));
    let mut job = public(&folder, &conversation);
    job.texts = Some(TextTreatment::Omit);
    let (_, omitted) = bundle(&job);
    assert_eq!(omitted["dataCard"]["suitableForPublicSharing"], true);
    assert_eq!(omitted["dataCard"]["containsParticipantFreeText"], false);
    job.texts = None;
    job.text_reviewed_by = Some("the editors".to_owned());
    let (_, reviewed) = bundle(&job);
    assert_eq!(reviewed["dataCard"]["suitableForPublicSharing"], true);
    assert_eq!(reviewed["dataCard"]["containsParticipantFreeText"], true);
    job.not_for_sharing = true;
    assert_eq!(bundle(&job).1["dataCard"]["suitableForPublicSharing"], false);
}

#[test]
fn public_bundle_refuses_disclosing_options() {
    let (folder, conversation) = (Folder::new(), Conversation::new(13, 4, 20));
    let job = public(&folder, &conversation);
    for wrong in 0..3 {
        let mut job = job.clone();
        match wrong {
            0 => job.k = 2,
            1 => job.events = true,
            _ => job.participants = ParticipantNaming::ExternalIds,
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
    job.texts = Some(TextTreatment::Redact);
    let (report, redacted) = bundle(&job);
    assert_eq!(redacted["items"][1]["text"], "Write to [email] or [handle]");
    assert_eq!((report.redacted, &redacted["dataCard"]["containsDirectIdentifiers"]), (2, &false.into()));
}

#[test]
fn same_key_links_bundles_and_random_keys_do_not() {
    let (folder, conversation) = (Folder::new(), Conversation::new(15, 3, 20));
    let mut job = folder.job(&conversation.variant_a(&folder, "a"));
    let refs = |job: &_| bundle(job).1["responses"][0]["participantRef"].clone();
    assert_eq!(refs(&job), refs(&job));
    job.key = None;
    assert_ne!(refs(&job), refs(&job));
    job.key = Key::from_bytes(vec![9; 32]);
    let other_key = refs(&job);
    job.overrides.id = Some("another conversation".to_owned());
    assert_ne!(refs(&job), other_key);
}

#[test]
fn given_key_needs_a_conversation_id() {
    let folder = Folder::new();
    let conversation = Conversation::new(15, 3, 20);
    let comments = conversation.comments_csv(1000);
    let summary = Conversation::SUMMARY.replace("url,https://pol.is/3invented\n", "");
    folder.write("votes/votes.csv", conversation.votes_csv(1000));
    folder.write("matrix/participants-votes.csv", conversation.matrix_csv());
    for name in ["votes", "matrix"] {
        folder.write(&format!("{name}/comments.csv"), &comments);
        folder.write(&format!("{name}/summary.csv"), &summary);
    }
    folder.write("pocket/statements.csv", "statement_id,text\ns1,one\n");
    folder.write("pocket/votes.csv", "participant,statement_id,vote\np1,s1,1\n");
    folder.write("ideas/ideas.csv", "Idea ID,Idea Text\n1,one\n2,two\n");
    let header = "Vote ID,Session ID,Winner ID,Loser ID,Left Choice ID,Right Choice ID\n";
    folder.write("ideas/votes.csv", format!("{header}1,s1,1,2,1,2\n"));
    let refs = |bundle: Value| {
        let responses = bundle["responses"].as_array().unwrap().clone();
        responses.iter().map(|it| it["participantRef"].as_str().unwrap().to_owned()).collect::<BTreeSet<_>>()
    };
    for name in ["votes", "matrix", "pocket", "ideas"] {
        let mut job = folder.job(&folder.path(name));
        for dry_run in [true, false] {
            job.dry_run = dry_run;
            let error = run(&job).unwrap_err();
            assert!(
                error.tag() == "refused"
                    && error.to_string().contains("--linkage-key-file needs --source-id"),
                "{error}"
            );
        }
        let key = job.key.take();
        let fresh = refs(bundle(&job).1);
        job.key = key;
        job.profile = Profile::Public;
        run(&job).unwrap();
        job.profile = Profile::Private;
        job.overrides.id = Some("here".to_owned());
        let refs_here = refs(bundle(&job).1);
        assert_eq!(refs_here, refs(bundle(&job).1), "{name}");
        job.overrides.id = Some("there".to_owned());
        let refs_there = refs(bundle(&job).1);
        assert!(refs_here.is_disjoint(&refs_there) && refs_here.is_disjoint(&fresh), "{name}");
    }
    // Votes or matrix alone give the same pseudonyms as both together.
    let of = |name: &str| {
        let mut job = folder.job(&folder.path(name));
        job.overrides.id = Some("pol.is/3invented".to_owned());
        refs(bundle(&job).1)
    };
    let expected_refs = refs(bundle(&folder.job(&conversation.variant_a(&folder, "a"))).1);
    assert_eq!((of("votes"), of("matrix")), (expected_refs.clone(), expected_refs));
}

#[test]
fn equal_ids_of_two_sources_are_two_people() {
    let (folder, conversation) = (Folder::new(), Conversation::new(15, 3, 20));
    conversation.variant_a(&folder, "a");
    let refs = |job: &Job| {
        let bundle = bundle(job).1;
        let of = |it: &Value| it["participantRef"].as_str().unwrap().to_owned();
        let refs: BTreeSet<_> = bundle["responses"].as_array().unwrap().iter().map(of).collect();
        (bundle["source"]["sourceId"].clone(), refs)
    };
    let at = |url: &str| {
        folder.write("a/summary.csv", Conversation::SUMMARY.replace("https://pol.is/3invented", url));
        refs(&folder.job(&folder.path("a")))
    };
    let plain = at("https://pol.is/77");
    for same in ["https://pol.is/77/", "http://POL.is:80/77?x=1"] {
        assert_eq!(at(same), plain, "{same}");
    }
    let mut scopes = vec![plain];
    for other in ["https://polis.example.org/77", "https://pol.is/m/77", "https://pol.is:8443/77"] {
        scopes.push(at(other));
    }
    let session = VOTERS_FROM;
    folder.write("i/ideas.csv", "Wikisurvey ID,Idea ID,Idea Text\n77,1,one\n77,2,two\n");
    let header = "Vote ID,Session ID,Winner ID,Loser ID,Left Choice ID,Right Choice ID\n";
    let rows: String = (0..20).map(|at| format!("{at},{},1,2,1,2\n", session + at)).collect();
    folder.write("i/votes.csv", header.to_owned() + &rows);
    let ideas = folder.job(&folder.path("i"));
    scopes.push(refs(&ideas));
    let notes_of = |mut job: Job| {
        job.overrides.id = Some("77".to_owned());
        refs(&job)
    };
    assert_eq!(notes_of(ideas), scopes[4]);
    scopes.push(notes_of(folder.job(&folder.path("a"))));
    assert!(scopes.iter().all(|(id, refs)| id == "77" && !refs.is_empty()));
    for (at, (_, refs)) in scopes.iter().enumerate() {
        assert!(scopes[..at].iter().all(|(_, before)| before.is_disjoint(refs)), "{at}");
    }
}

#[test]
fn external_ids_are_kept_on_request_and_declared() {
    let (folder, conversation) = (Folder::new(), Conversation::new(16, 3, 20));
    let mut job = folder.job(&conversation.variant_a(&folder, "a"));
    job.participants = ParticipantNaming::ExternalIds;
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
fn missing_and_repeated_external_ids_are_refused() {
    let (folder, conversation) = (Folder::new(), Conversation::new(16, 3, 20));
    let mut job = folder.job(&conversation.variant_a(&folder, "a"));
    let table = conversation.matrix_csv();
    let write = |text: &str| folder.write("a/participants-votes.csv", text);
    write(&table.replace("xid-of-7700003,", "xid-of-7700001 ,"));
    run(&job).unwrap();
    job.participants = ParticipantNaming::ExternalIds;
    let message = run(&job).unwrap_err().to_string();
    assert!(
        message.starts_with("participants-votes.csv, row 5: its xid occurs in row 3 already"),
        "{message}"
    );
    assert!(!message.contains("7700001"));
    write(&table.replacen(",xid,", ",other,", 1));
    let message = run(&job).unwrap_err().to_string();
    assert!(message.starts_with("participants-votes.csv, row 1: the column xid is missing"), "{message}");
    // Participants without external ids are noted.
    write(&table.replace("xid-of-7700003,", ",").replace("xid-of-7700004,", ","));
    let (report, named) = bundle(&job);
    let note = "2 participants were without an id of the embedding site (xid): a pseudonym is used instead.";
    assert!(report.notes.iter().any(|said| said == note), "{:?}", report.notes);
    assert!(!report.notes.iter().any(|said| said.contains("only `--participants external-ids`")));
    assert_eq!(named["dataCard"]["containsDirectIdentifiers"], true);
    fs::remove_file(folder.path("a/participants-votes.csv")).unwrap();
    assert_eq!(run(&job).unwrap_err().tag(), "refused");
    let counts = folder.write("t.csv", "comment-id,comment_text,agrees,disagrees\n1,one,1,2\n");
    job.inputs = vec![counts];
    let message = run(&job).unwrap_err().to_string();
    assert!(message.starts_with("--participants external-ids applies to --from polis only"), "{message}");
}

#[test]
fn references_in_names_keep_a_bundle_private() {
    let folder = Folder::new();
    let counts = |id: &str| format!("comment-id,comment_text,agrees,disagrees\n{id},one,10,20\n");
    let mut job = folder.job(&folder.write("t.csv", counts("participant:7")));
    (job.profile, job.texts) = (Profile::Public, Some(TextTreatment::Omit));
    let (report, shared) = bundle(&job);
    assert!(report.suitable && shared["items"][0]["id"] == "statement:hidden-1", "{shared}");
    folder.write("t.csv", counts("7"));
    job.overrides.title = Some("What participant:7 says".to_owned());
    let (report, kept) = bundle(&job);
    assert!(!report.suitable && kept["dataCard"]["containsPseudonymousLinkage"] == true, "{kept}");
}

#[test]
fn dry_run_writes_no_files() {
    let (folder, conversation) = (Folder::new(), Conversation::new(17, 6, 40));
    let mut job = public(&folder, &conversation);
    job.dry_run = true;
    let preview = run(&job).unwrap();
    assert_eq!(folder.names(), ["a"]);
    job.dry_run = false;
    let report = run(&job).unwrap();
    assert_eq!(
        (preview.items, preview.responses, preview.notes),
        (report.items, report.responses, report.notes)
    );
}

/// Conversation with the given answers of each voter.
fn answered(comments: u32, answered: &dyn Fn(u32) -> Vec<u32>, voters: u32) -> Conversation {
    let mut conversation = Conversation::new(23, comments, voters);
    conversation.comments.iter_mut().for_each(|comment| comment.2 = 1);
    let votes =
        (0..voters).flat_map(|voter| answered(voter).into_iter().map(move |comment| (comment, voter)));
    conversation.votes =
        votes.map(|(comment, voter)| (comment, VOTERS_FROM + voter, 1_600_000_000, 1)).collect();
    conversation.votes.sort_unstable();
    conversation
}

#[test]
fn participant_total_hides_few_missing_answers() {
    let folder = Folder::new();
    let answers_of = |voter| if voter < 10 { vec![0] } else { vec![1] };
    for (voters, told) in [(14, 0), (15, 15), (10, 10)] {
        let job = public(&folder, &answered(2, &answers_of, voters));
        for dry_run in [true, false] {
            let report = run(&Job { dry_run, ..job.clone() }).unwrap();
            assert_eq!((report.participants, report.coverage > 0.0), (told, told > 0), "{voters}");
            let noted =
                report.notes.iter().any(|note| note.starts_with("The number of participants is withheld"));
            assert_eq!(noted, told == 0, "{:?}", report.notes);
        }
        assert_eq!(bundle(&job).1["summary"]["participants"], told);
        // A private bundle states the number.
        assert_eq!(bundle(&Job { profile: Profile::Private, ..job }).1["summary"]["participants"], voters);
    }
}

#[test]
fn participants_hidden_in_omitted_tables_are_not_counted() {
    let folder = Folder::new();
    // Statements 1 to 3 are omitted and 4 has no answers. Some people have answered only these, at most four each.
    let answers_of = |voter| if voter < 10 { vec![0] } else { vec![(voter - 10) / 4 + 1] };
    let fewer = |voter| if voter < 10 { vec![0] } else { vec![(voter - 10) % 3 + 1] };
    let all = answered(5, &answers_of, 22);
    for (conversation, told) in [(all, 0), (answered(5, &fewer, 21), 0), (answered(5, &fewer, 20), 20)] {
        assert_eq!(run(&public(&folder, &conversation)).unwrap().participants, told);
    }
}

#[test]
fn totals_of_a_public_bundle_never_differ_by_few_people() {
    let folder = Folder::new();
    let (mut told, mut untold) = (0, 0);
    for seed in 0..60_u32 {
        let mixed = |voter: u32, comment: u32| {
            i64::from((voter * 7 + comment * 13 + seed * 31).wrapping_mul(2_654_435_761) >> 7)
        };
        let answers_of = |voter: u32| {
            (0..4).filter(|at| mixed(voter, *at) % 9 < 8 - 2 * i64::from(at + seed % 3)).collect::<Vec<_>>()
        };
        let mut conversation = answered(4, &answers_of, 8 + seed % 30);
        conversation
            .votes
            .iter_mut()
            .for_each(|vote| vote.3 = [1, 1, -1, 1, 0][(vote.0 + vote.1) as usize % 5]);
        let mut job = public(&folder, &conversation);
        (job.k, job.texts) = (3 + u64::from(seed % 4), Some(TextTreatment::Omit));
        let (_, shared) = bundle(&job);
        let participants = shared["summary"]["participants"].as_u64().unwrap();
        let responses = shared["summary"]["responses"].as_u64().unwrap();
        let mut totals = vec![responses];
        for outcome in shared["outcomes"].as_array().unwrap() {
            totals.push(
                outcome["counts"].as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum(),
            );
        }
        for total in totals {
            let few = 1..job.k;
            assert!(!few.contains(&participants.saturating_sub(total)), "{seed}: {shared}");
            assert!(!few.contains(&(responses - total)), "{seed}: {shared}");
        }
        let mut options = Options::new(SpillOptions { memory: 1 << 24, folder: folder.path("") });
        options.k = job.k;
        let text = fs::read(folder.path("bundle.json")).unwrap();
        let report = validate(&mut text.as_slice(), &options).unwrap();
        assert!(report.is_valid(), "{seed}: {:?}", report.findings);
        if responses > 0 {
            *if participants > 0 { &mut told } else { &mut untold } += 1;
        }
    }
    assert!(told > 9 && untold > 9, "{told} {untold}");
}

#[test]
fn small_numbers_of_replaced_answers_are_not_reported() {
    let folder = Folder::new();
    for (votes, few) in [(2, true), (9, false), (0, false)] {
        let mut conversation = Conversation::new(17, 6, 40);
        let latest = conversation.latest();
        conversation.votes = latest.into_values().collect();
        let changed_votes: Vec<_> = conversation.votes.iter().rev().take(votes).copied().collect();
        conversation.votes.extend(changed_votes.iter().map(|vote| (vote.0, vote.1, vote.2 + 5, vote.3)));
        let job = public(&folder, &conversation);
        for dry_run in [true, false] {
            let report = run(&Job { dry_run, ..job.clone() }).unwrap();
            let superseded = serde_json::to_value(&report).unwrap()["superseded"].clone();
            assert_eq!(superseded, if few { Value::Null } else { votes.into() });
            let note = report.notes.iter().find(|note| note.contains("replaced by a later"));
            assert_eq!(note.is_some_and(|note| note.starts_with("Fewer than 5")), few, "{note:?}");
        }
    }
}

/// Rules that the bundle breaks at its own k, and whether it is declared as suitable for sharing.
fn check_bundle(folder: &Folder, job: &Job) -> (Vec<&'static str>, bool) {
    let (_, shared) = bundle(job);
    let mut options = Options::new(SpillOptions { memory: 1 << 20, folder: std::env::temp_dir() });
    options.k = job.k;
    let text = fs::read(folder.path("bundle.json")).unwrap();
    let report = validate(&mut text.as_slice(), &options).unwrap();
    let rules = report.totals.iter().map(|(rule, _)| rule.id()).collect();
    (rules, shared["dataCard"]["suitableForPublicSharing"] == true)
}

#[test]
fn public_bundles_pass_validation_as_public() {
    for seed in 0..60_u64 {
        let draw = |below: u64, salt: u64| (seed * 31 + salt * 17) % below;
        let small = |salt| u32::try_from(draw(24, salt)).unwrap() + 1;
        let (folder, mut conversation) =
            (Folder::new(), Conversation::new(100 + seed, small(1), small(2) * 2));
        // Items with few answers, and answers with few people.
        conversation.votes.retain(|vote| vote.0 % 3 > 0 || vote.1 % 7 == 0);
        conversation.votes.retain(|vote| vote.3 >= 0 || vote.1 % 5 == 0);
        let mut job = public(&folder, &conversation);
        fs::rename(folder.path("a"), folder.path("polis-2024-05-06")).unwrap();
        folder.write("polis-2024-05-06/20240506-030 12345678.csv", "x\n1\n");
        folder.write("polis-2024-05-06/12345678/x", "");
        job.inputs = vec![folder.path("polis-2024-05-06")];
        job.k = K_FLOOR + draw(6, 3);
        job.texts = Some(TextTreatment::Omit);
        assert_eq!(check_bundle(&folder, &job), (Vec::new(), true), "seed {seed}");
        job.texts = None;
        assert_eq!(check_bundle(&folder, &job).0, [""; 0], "seed {seed}");
        job.text_reviewed_by = Some("the editors".to_owned());
        assert_eq!(check_bundle(&folder, &job), (Vec::new(), true), "seed {seed}");
    }
}

#[test]
fn address_outside_the_texts_is_identifying() {
    let (folder, conversation) = (Folder::new(), Conversation::new(18, 8, 60));
    let check_with = |change: &dyn Fn(&mut Job)| {
        let mut job = public(&folder, &conversation);
        job.texts = Some(TextTreatment::Omit);
        change(&mut job);
        check_bundle(&folder, &job)
    };
    let address = || "ada@town.example".to_owned();
    let unobjectionable = (Vec::new(), true);
    let unfit = (Vec::new(), false);
    assert_eq!(check_with(&|_| {}), unobjectionable);
    assert_eq!(check_with(&|job| job.limitations.push(address())), unfit);
    assert_eq!(check_with(&|job| job.text_reviewed_by = Some(address())), unfit);
    assert_eq!(check_with(&|job| job.overrides.id = Some(address())), unfit);
    assert_eq!(check_with(&|job| job.overrides.url = Some(format!("mailto:{}", address()))), unfit);
    assert_eq!(check_with(&|job| job.bundle_id = Some(address())), unfit);
    // A private bundle lists the names of input files.
    folder.write("a/ada@town.example.csv", "x\n1\n");
    assert_eq!(check_with(&|_| {}), unobjectionable);
    let private = |job: &mut Job| job.profile = Profile::Private;
    assert_eq!(check_with(&private), unfit);
    let card = bundle(&folder.job(&folder.path("a"))).1["dataCard"].clone();
    assert_eq!(card["containsDirectIdentifiers"], true);
}

#[test]
fn ids_with_addresses_are_replaced_in_public_bundles() {
    let folder = Folder::new();
    let statements = "statement_id,text,status,is_seed,created_at,agrees,disagrees,passes\n\
                      s1,one,approved,true,,9,0,0\nada@town.example,two,approved,true,,9,0,0\n\
                      hidden-1,three,approved,true,,9,0,0\n+49 30 12345678,four,approved,true,,9,0,0\n";
    folder.write("p/statements.csv", statements);
    let ids = ["s1", "ada@town.example", "hidden-1", "+49 30 12345678"];
    let votes = |id: &str| (0..9).map(|who| format!("p{who},{id},1,\n")).collect::<String>();
    let votes = ids.map(votes).concat();
    folder.write("p/votes.csv", format!("participant,statement_id,vote,updated_at\n{votes}"));
    let mut job = folder.fresh(&folder.path("p"));
    let (_, private) = bundle(&job);
    assert_eq!(private["dataCard"]["containsDirectIdentifiers"], true);
    assert!(private.to_string().contains("statement:ada@town.example"));
    (job.profile, job.texts) = (Profile::Public, Some(TextTreatment::Omit));
    let (report, public) = bundle(&job);
    let text = public.to_string();
    assert!(!text.contains("ada@") && !text.contains("12345678"), "{text}");
    assert_eq!(public["dataCard"]["suitableForPublicSharing"], true);
    let item_ids: BTreeSet<_> =
        public["items"].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap()).collect();
    let expected_ids = ["statement:hidden-1", "statement:hidden-2", "statement:hidden-3", "statement:s1"];
    assert_eq!(item_ids.into_iter().collect::<Vec<_>>(), expected_ids);
    assert_eq!(public["responses"].as_array().unwrap().len(), 4);
    let note = "2 item ids that look like personal identifiers were replaced by numbers.";
    assert!(report.notes.iter().any(|said| said == note), "{:?}", report.notes);
}

#[test]
fn public_bundle_rounds_times_to_days() {
    let (folder, conversation) = (Folder::new(), Conversation::new(19, 8, 60));
    for fine in [1, 1000] {
        let mut job = public(&folder, &conversation);
        folder.write("a/comments.csv", conversation.comments_csv(fine));
        folder.write("a/votes.csv", conversation.votes_csv(fine));
        job.package = true;
        run(&job).unwrap();
        for name in ["bundle.json", "datapackage.json"] {
            let text = fs::read_to_string(folder.path(name)).unwrap();
            let times =
                memchr::memmem::find_iter(text.as_bytes(), b"T").filter_map(|at| text.get(at..at + 9));
            let times = times.filter(|time| time.as_bytes()[3] == b':' && time.as_bytes()[6] == b':');
            let exact_times: Vec<_> = times.filter(|time| *time != "T00:00:00").collect();
            // The export time belongs to the operator.
            let time_count = if name == "bundle.json" { 2 } else { 1 };
            assert_eq!(exact_times, vec!["T03:04:05"; time_count], "{name}");
            assert!(!text.contains("16000"), "{name}: seconds since 1970");
        }
    }
}

#[test]
fn public_notes_hide_small_numbers_of_people() {
    let (folder, mut conversation) = (Folder::new(), Conversation::new(20, 8, 60));
    // Three participants without answers, and three with changed answers.
    conversation.votes.retain(|vote| vote.1 >= VOTERS_FROM + 3);
    let latest: Vec<_> = conversation.latest().into_values().collect();
    let earlier_votes: Vec<_> =
        latest.iter().take(3).map(|vote| (vote.0, vote.1, vote.2 - 1, vote.3)).collect();
    conversation.votes = latest;
    conversation.votes.extend(earlier_votes);
    conversation.votes.sort_unstable();
    conversation.comments[1].3 = "Write to me@home.example".to_owned();
    let mut job = public(&folder, &conversation);
    let matrix = conversation.matrix_csv();
    let remove_xid = |line: &str, at: u32| line.replace(&format!("xid-of-{}", VOTERS_FROM + at), "");
    let few: Vec<_> =
        matrix.lines().map(|line| (0..56).fold(line.to_owned(), |line, at| remove_xid(&line, at))).collect();
    folder.write("a/participants-votes.csv", few.join("\n"));
    let notes = |job: &Job| bundle(job).0.notes;
    let has = |notes: &[String], start: &str| {
        assert!(notes.iter().any(|note| note.starts_with(start)), "{start}: {notes:?}");
    };
    let public = notes(&job);
    has(&public, "Fewer than 5 participants without an answer were left out.");
    has(&public, "Fewer than 5 answers were replaced by a later one");
    has(&public, "Fewer than 5 addresses, numbers, links and handles in participants' texts were replaced");
    has(&public, "Participants had an id of the embedding site (xid)");
    (job.profile, job.texts) = (Profile::Private, Some(TextTreatment::Redact));
    let private = notes(&job);
    has(&private, "3 participants without an answer were left out.");
    has(&private, "3 answers were replaced by a later one");
    has(&private, "1 address, number, link or handle in participants' texts was replaced");
    has(&private, "4 participants had an id of the embedding site (xid)");
}

#[test]
fn public_notes_on_surveys_hide_small_numbers() {
    let folder = Folder::new();
    let vote = |at: usize, valid: &str| format!("{at},s{at},1,2,1,2,NA,{valid}\n");
    let votes: String = (0..9).map(|at| vote(at, if at < 2 { "FALSE" } else { "TRUE" })).collect();
    folder.write("i/ideas.csv", "Wikisurvey ID,Idea ID,Idea Text\n7,1,one\n7,2,two\n");
    let header = "Vote ID,Session ID,Winner ID,Loser ID,Left Choice ID,Right Choice ID,Created at,Valid\n";
    folder.write("i/votes.csv", format!("{header}{votes}"));
    let header = "Record Type,Session ID,Left Choice ID,Right Choice ID,Reason\n";
    folder.write("i/non_votes.csv", format!("{header}Skip,s1,1,2,NA\nBounce,s2,1,2,NA\n"));
    let mut job = folder.job(&folder.path("i"));
    for (profile, wanted) in [
        (
            Profile::Private,
            [
                "2 votes that the source marks as not valid were",
                "1 record of pairs that were shown but not answered was",
            ],
        ),
        (
            Profile::Public,
            [
                "Fewer than 5 votes that the source marks as not valid were",
                "Fewer than 5 records of pairs that were shown but not answered were",
            ],
        ),
    ] {
        job.profile = profile;
        let notes = bundle(&job).0.notes;
        for wanted in wanted {
            assert!(notes.iter().any(|note| note.starts_with(wanted)), "{wanted}: {notes:?}");
        }
    }
}

#[test]
fn public_bundles_hide_unknown_file_names() {
    let (folder, conversation) = (Folder::new(), Conversation::new(31, 6, 40));
    let input = conversation.variant_a(&folder, "a");
    let file_names = [
        ("votes.csv", "votes-7700003.csv", "votes"),
        ("comments.csv", "joan-comments.csv", "comments.csv"),
        ("participants-votes.csv", "Joan-Participants-Votes.CSV", "participants-votes.csv"),
        ("summary.csv", "facts-of-joan.csv", "summary"),
    ];
    for (before, after, _) in file_names {
        fs::rename(input.join(before), input.join(after)).unwrap();
    }
    folder.write("a/notes-xid-of-7700003.txt", "mine");
    fs::create_dir(input.join("of-joan")).unwrap();
    let mut job = folder.fresh(&input);
    for profile in [Profile::Private, Profile::Public] {
        job.profile = profile;
        let (report, bundle) = bundle(&job);
        let public = profile == Profile::Public;
        for text in [bundle.to_string(), format!("{:?}", report.notes)] {
            for name in ["7700003", "joan", "Joan"] {
                assert!(!public || !text.contains(name), "{name} {text}");
            }
        }
        assert_eq!(report.variant, Some("A"));
        let mut names: Vec<_> = bundle["provenance"]["sourceArtifacts"]
            .as_array()
            .unwrap()
            .iter()
            .map(|artifact| artifact["name"].as_str().unwrap())
            .collect();
        names.sort_unstable();
        let mut expected_names: Vec<_> =
            file_names.iter().map(|(_, name, shared)| if public { *shared } else { *name }).collect();
        expected_names.push(if public { "unused" } else { "notes-xid-of-7700003.txt" });
        expected_names.sort_unstable();
        assert_eq!(names, expected_names);
    }
    // A file with the name of a table but other columns is still refused.
    fs::remove_file(input.join("facts-of-joan.csv")).unwrap();
    folder.write("a/joan-summary.csv", "topic;Trees\n");
    let error = run(&job).unwrap_err().to_string();
    assert!(error.starts_with("summary.csv, row 1: its columns are not separated by commas"), "{error}");
}

//! Tests of lists of votes that lack answers present in the other tables.

use std::{collections::BTreeSet, fs};

use crate::support::{Conversation, Folder, Vote, bundle, run};
use tidegate_exporter::{convert::Job, privacy::Profile};

#[test]
fn truncated_votes_are_distinguished_from_silent_people() {
    let (folder, conversation) = (Folder::new(), Conversation::new(9, 6, 20));
    let mut job = folder.job(&conversation.variant_a(&folder, "a"));
    let matrix = conversation.matrix_csv();
    let nobody = "1,,0,1,0,0,0\n2,,,1,0,0,0\n";
    folder.write("a/participants-votes.csv", format!("{matrix}{nobody}"));
    let notes_of = |job: &Job| {
        let notes = bundle(job).0.notes;
        let is_told = |note: &String| note.contains("without an answer") || note.contains("cut off");
        notes.into_iter().filter(is_told).collect::<Vec<_>>()
    };
    let silent = "2 participants without an answer were left out.";
    assert_eq!(notes_of(&job), [silent]);
    // The votes on the first comment, except for the last one.
    let list = conversation.votes_csv(1000);
    let first = conversation.votes.iter().filter(|vote| vote.0 == 0).count();
    let kept_votes = &conversation.votes[..first - 1];
    let truncated: Vec<_> = list.lines().take(first).collect();
    folder.write("a/votes.csv", truncated.join("\n") + "\n");
    let is_lost = |vote: &&Vote| !kept_votes.iter().any(|other| other.1 == vote.1);
    let latest: Vec<_> = conversation.latest().into_values().collect();
    let votes = latest.iter().filter(is_lost).count();
    let people: BTreeSet<_> = latest.iter().filter(is_lost).map(|vote| vote.1).collect();
    assert!(people.len() > 4);
    let (people, file) = (people.len(), "participants-votes.csv");
    let statements_note = "5 statements with agrees or disagrees in comments.csv have none in it.";
    let note = format!(
        "votes.csv may have been cut off: {people} participants with {votes} votes in {file} have none in it and were \
         left out; {statements_note}"
    );
    assert_eq!(notes_of(&job), [silent, &note]);
    // Cells and stated counts are each sufficient.
    let (header, rows) = matrix.split_once('\n').unwrap();
    let cells = rows.lines().map(|row| {
        let mut cells: Vec<_> = row.split(',').collect();
        cells[4] = "";
        cells.join(",")
    });
    let counts = rows.lines().map(|row| row.split(',').take(7).collect::<Vec<_>>().join(","));
    for rows in [cells.collect::<Vec<_>>(), counts.collect()] {
        folder.write("a/participants-votes.csv", format!("{header}\n{}\n{nobody}", rows.join("\n")));
        assert_eq!(notes_of(&job), [silent, &note]);
    }
    job.profile = Profile::Public;
    let note = note.replace(&format!("with {votes} votes"), "with votes");
    assert_eq!(notes_of(&job), ["Fewer than 5 participants without an answer were left out.", &note]);
    fs::remove_file(folder.path("a/participants-votes.csv")).unwrap();
    assert_eq!(notes_of(&job), [format!("votes.csv may have been cut off: {statements_note}")]);
}

#[test]
fn empty_votes_are_refused_if_other_tables_have_some() {
    let (folder, conversation) = (Folder::new(), Conversation::new(9, 6, 20));
    let job = folder.job(&conversation.variant_a(&folder, "a"));
    let list = conversation.votes_csv(1000);
    folder.write("a/votes.csv", format!("{}\n", list.lines().next().unwrap()));
    let nothing = Conversation { votes: Vec::new(), ..conversation.clone() };
    let comments = [(conversation.comments_csv(1000), true), (nothing.comments_csv(1000), false)];
    let matrices = [(conversation.matrix_csv(), true), (nothing.matrix_csv(), false)];
    for (comments, counts) in &comments {
        for (matrix, votes) in &matrices {
            folder.write("a/comments.csv", comments);
            folder.write("a/participants-votes.csv", matrix);
            let have = match (votes, counts) {
                (true, true) => "participants-votes.csv and comments.csv have",
                (true, false) => "participants-votes.csv has",
                (false, true) => "comments.csv has",
                (false, false) => {
                    assert_eq!(bundle(&job).1["summary"]["responses"], 0);
                    continue;
                }
            };
            let error = run(&job).unwrap_err().to_string();
            let detail = "it holds no answers, and";
            assert_eq!(error, format!("votes.csv: {detail} {have} some: it may have been cut off"));
            assert!(!folder.path("bundle.json").exists());
        }
    }
}

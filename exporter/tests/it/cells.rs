//! Tests of rows that do not fit their header, and of headers with repeated columns: errors name file and row.

use std::{fs, path::PathBuf};

use crate::support::{Conversation, Folder, bundle, run};

/// Applies a change to each record of a table; record 0 is the header.
fn edited(text: &str, edit: impl Fn(usize, &mut Vec<String>)) -> String {
    let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(text.as_bytes());
    // Texts without quotes belong to another variant, which allows commas in them.
    let texts = text.contains("comment-body");
    let style = if texts { csv::QuoteStyle::NonNumeric } else { csv::QuoteStyle::Necessary };
    let mut writer = csv::WriterBuilder::new().flexible(true).quote_style(style).from_writer(Vec::new());
    for (at, record) in reader.records().enumerate() {
        let mut cells: Vec<_> = record.unwrap().iter().map(str::to_owned).collect();
        edit(at, &mut cells);
        writer.write_record(&cells).unwrap();
    }
    String::from_utf8(writer.into_inner().unwrap()).unwrap()
}

/// Exports of all tools by folder name. In one of them the participant table replaces the list of votes.
fn exports() -> Vec<Vec<(&'static str, String)>> {
    let conversation = Conversation::new(71, 6, 30);
    let (comments, votes) = (conversation.comments_csv(1000), conversation.votes_csv(1000));
    let with_more = edited(&votes, |at, cells| {
        cells.extend(
            [if at == 0 { "important" } else { "0" }, if at == 0 { "why" } else { "" }].map(str::to_owned),
        );
    });
    let quoted = edited(&votes, |at, cells| {
        if at > 0 {
            cells[1] = "Wed, Jul 27".to_owned();
        }
    });
    let small = conversation.comments_csv(1);
    let to_text = |text: &str| text.to_owned();
    vec![
        vec![
            ("comments.csv", comments.clone()),
            ("votes.csv", votes),
            ("participants-votes.csv", conversation.matrix_csv()),
        ],
        vec![("votes.csv", with_more), ("comments.csv", comments.clone())],
        vec![("votes.csv", quoted), ("comments.csv", comments.clone())],
        vec![("comments.csv", small), ("votes.csv", conversation.votes_csv(1))],
        vec![("participants-votes.csv", conversation.matrix_csv()), ("comments.csv", comments)],
        vec![
            (
                "statements.csv",
                to_text(
                    "statement_id,text,status,is_seed,created_at,agrees,disagrees,passes\ns1,one,active,true,,1,0,0\ns2,two,active,true,,0,0,0\n",
                ),
            ),
            ("votes.csv", to_text("participant,statement_id,vote,updated_at\np1,s1,1,\np2,s1,1,\n")),
        ],
        vec![
            (
                "ideas.csv",
                to_text(
                    "Wikisurvey ID,Idea ID,Idea Text,Wins,Losses,Score\n7,1,one,1,0,60\n7,2,two,0,1,40\n",
                ),
            ),
            (
                "votes.csv",
                to_text(
                    "Vote ID,Session ID,Winner ID,Loser ID,Left Choice ID,Right Choice ID,Created at\n1,9,1,2,1,2,NA\n2,8,1,2,1,2,NA\n",
                ),
            ),
            (
                "non_votes.csv",
                to_text(
                    "Record Type,Session ID,Left Choice ID,Right Choice ID,Reason\nSkip,9,1,2,same\nSkip,8,1,2,NA\n",
                ),
            ),
        ],
        vec![("t.csv", to_text("comment-id,comment_text,agrees,disagrees\n1,one,1,2\n2,two,1,2\n"))],
        vec![(
            "t.csv",
            to_text("comment-id,comment_text,a-agree-count,a-disagree-count\n1,one,1,2\n2,two,1,2\n"),
        )],
    ]
}

fn write_export(folder: &Folder, files: &[(&'static str, String)], change: Option<(&str, &str)>) -> PathBuf {
    drop(fs::remove_dir_all(folder.path("a")));
    for (name, text) in files {
        let change = change.filter(|(file, _)| file == name);
        folder.write(&format!("a/{name}"), change.map_or(text.as_str(), |(_, text)| text));
    }
    folder.path("a")
}

/// Errors of the changed tables.
fn errors_of_changes(change: impl Fn(&str, &str) -> Vec<(String, String)>) -> Vec<(String, String, String)> {
    let folder = Folder::new();
    let mut errors = Vec::new();
    for (export, files) in exports().into_iter().enumerate() {
        let input = write_export(&folder, &files, None);
        bundle(&folder.fresh(&input));
        for (name, text) in &files {
            for (changed_text, expected_message) in change(name, text) {
                let input = write_export(&folder, &files, Some((name, &changed_text)));
                let message = match run(&folder.fresh(&input)) {
                    Ok(_) => "nothing".to_owned(),
                    Err(error) => format!("{} {error}", error.tag()),
                };
                errors.push((format!("export {export}, {name}"), message, expected_message));
            }
        }
    }
    errors
}

#[track_caller]
fn assert_messages(errors: Vec<(String, String, String)>, least: usize) {
    assert!(errors.len() >= least, "{}", errors.len());
    let wrong: Vec<_> =
        errors.into_iter().filter(|(_, message, expected_message)| message != expected_message).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn cells_beyond_the_header_are_refused() {
    let errors = errors_of_changes(|name, text| {
        let longer = |cell: &str| {
            edited(text, |at, cells| {
                if at == 2 {
                    cells.push(cell.to_owned());
                }
            })
        };
        let expected_message = format!("columns {name}, row 3: the row has more cells than the header");
        vec![(longer("more"), expected_message.clone()), (longer(""), expected_message)]
    });
    assert_messages(errors, 32);
}

#[test]
fn only_converted_columns_must_be_unique() {
    let read = [
        "comment-id",
        "comment-body",
        "timestamp",
        "author-id",
        "moderated",
        "agrees",
        "voter-id",
        "vote",
        "participant",
        "group-id",
        "xid",
        "3",
        "n-votes",
        "statement_id",
        "text",
        "passes",
        "updated_at",
        "Idea ID",
        "Score",
        "Winner ID",
        "Left Choice ID",
        "Session ID",
        "Record Type",
        "Reason",
        "comment_text",
        "disagrees",
        "a-agree-count",
    ];
    let errors = errors_of_changes(|name, text| {
        let header: Vec<_> =
            text.lines().next().unwrap().split(',').map(|name| name.trim_matches('"').to_owned()).collect();
        let repeated = |column: &str| {
            edited(text, |at, cells| cells.push(if at == 0 { column.to_owned() } else { String::new() }))
        };
        let mut cases = Vec::new();
        for (at, column) in header.iter().enumerate() {
            let is_read = read.contains(&column.as_str())
                && (column != "3" || text.contains("xid-of"))
                // Only if the export has a list of votes.
                && (name != "comments.csv" || column != "passes");
            let message = format!(
                "duplicate {name}, row 1: the columns {} and {} are both called {column}",
                at + 1,
                header.len() + 1
            );
            if is_read && column != "3" {
                cases.push((repeated(column), message));
            }
        }
        let unread = ["datetime", "n-agree", "Vote ID", "Times"];
        for column in unread.into_iter().filter(|column| header.iter().any(|name| name == column)) {
            cases.push((repeated(column), "nothing".to_owned()));
        }
        cases
    });
    assert_messages(errors, 45);
}

#[test]
fn repeated_comment_column_of_a_matrix_is_refused() {
    let (folder, conversation) = (Folder::new(), Conversation::new(72, 6, 30));
    let comments = || ("comments.csv", conversation.comments_csv(1000));
    let matrix = conversation.matrix_csv();
    let repeated =
        edited(&matrix, |at, cells| cells.push(if at == 0 { "3".to_owned() } else { String::new() }));
    let input = write_export(&folder, &[comments(), ("participants-votes.csv", repeated)], None);
    let error = run(&folder.fresh(&input)).unwrap_err();
    let message = "participants-votes.csv, row 1: the columns 11 and 14 are both called 3";
    assert_eq!((error.tag(), error.to_string().as_str()), ("duplicate", message));
}

#[test]
fn repeated_participant_is_refused() {
    let (folder, conversation) = (Folder::new(), Conversation::new(73, 6, 30));
    let files = [
        ("comments.csv", conversation.comments_csv(1000)),
        ("votes.csv", conversation.votes_csv(1000)),
        ("participants-votes.csv", conversation.matrix_csv()),
    ];
    let matrix = &files[2].1;
    let rows: Vec<_> = matrix.lines().collect();
    for files in [&files[..], &[files[0].clone(), files[2].clone()]] {
        for (changed, tag, said) in [
            (
                format!("{matrix}{}\n", rows[2]),
                "duplicate",
                "row 32: the participant occurs in row 3 already",
            ),
            (
                edited(matrix, |at, cells| {
                    if at == 4 {
                        cells[0].clear();
                    }
                }),
                "value",
                "row 5: participant is empty",
            ),
        ] {
            let input = write_export(&folder, files, Some(("participants-votes.csv", &changed)));
            let error = run(&folder.fresh(&input)).unwrap_err();
            assert_eq!((error.tag(), error.to_string()), (tag, format!("participants-votes.csv, {said}")));
        }
    }
}

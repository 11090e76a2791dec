//! Reads the ideas of an All Our Ideas survey, with the source's scores.

use serde_json::Map;

use crate::{
    error::{ConvertError, ErrorKind},
    input::{Limits, Member, table::Table},
    model::{Item, Origin, PublishedOutcome},
    timestamp::Timestamp,
};

#[derive(Debug)]
pub(super) struct IdeasFile {
    pub(super) items: Vec<Item>,
    /// Id of the survey.
    pub(super) survey: Option<String>,
    pub(super) notes: Vec<String>,
}

pub(super) fn read_ideas(member: &Member, limits: &Limits) -> Result<IdeasFile, ConvertError> {
    let mut table = Table::open(member.open(limits, None)?, limits, true)?;
    let survey_column = table.find(&["Wikisurvey ID", "Question ID", "Ideamarketplace ID"])?;
    let (id, text) = (table.require(&["Idea ID"])?, table.require(&["Idea Text", "Idea"])?);
    let counts = [
        ("wins", table.find(&["Wins"])?),
        ("losses", table.find(&["Losses"])?),
        ("cantDecide", table.find(&["Times involved in Cant Decide"])?),
    ];
    let (score, user_submitted) = (table.find(&["Score"])?, table.find(&["User Submitted"])?);
    let (created_at, active_column) = (table.find(&["Created at"])?, table.find(&["Active"])?);
    let mut survey = None;
    let (mut items, mut texts) = (Vec::new(), Vec::new());
    while let Some(row) = table.next()? {
        let key = row.text(id)?.trim();
        if key.is_empty() {
            return Err(row.error(ErrorKind::Value, "Idea ID is empty"));
        }
        let created_at =
            match row.optional_text(created_at)?.trim() {
                "" | "NA" => None,
                text => Some(Timestamp::parse(text).ok_or_else(|| {
                    row.error(ErrorKind::Value, "Created at is not a time with a time zone")
                })?),
            };
        let mut cells = Map::new();
        for (name, column) in counts {
            let text = row.optional_text(column)?.trim();
            // `NA` marks a missing value in these exports.
            if let Some(column) = column.filter(|_| !text.is_empty() && text != "NA") {
                cells.insert(name.to_owned(), row.number::<u64>(column, name)?.into());
            }
        }
        let score = match row.optional_text(score)?.trim() {
            "" | "NA" => None,
            text => {
                let score = text.parse().ok().filter(|score: &f64| score.is_finite());
                Some(score.ok_or_else(|| row.error(ErrorKind::Value, "Score is not a number"))?)
            }
        };
        let count_of = |name: &str| cells.get(name).and_then(serde_json::Value::as_u64);
        let observations =
            count_of("wins").zip(count_of("losses")).and_then(|(wins, losses)| wins.checked_add(losses));
        if survey.is_none() {
            survey = Some(row.optional_text(survey_column)?.trim().to_owned())
                .filter(|id| !matches!(id.as_str(), "" | "NA"));
        }
        texts.push(row.text(text)?.to_owned());
        items.push(Item {
            id: format!("option:{key}"),
            key: key.to_owned(),
            row: row.number,
            text: String::new(),
            status: if row.optional_text(active_column)?.trim().eq_ignore_ascii_case("false") {
                "inactive"
            } else {
                "active"
            }
            .to_owned(),
            origin: Origin::organizer_if(
                !row.optional_text(user_submitted)?.trim().eq_ignore_ascii_case("true"),
            ),
            phase: 0,
            created: created_at,
            author: None,
            outcomes: vec![PublishedOutcome {
                score,
                observations,
                ..PublishedOutcome::counts("wiki-survey-score", cells)
            }],
        });
    }
    // Quotes around every text come from the exporter; quotes around some texts are part of them.
    let is_quoted = |text: &String| text.len() >= 2 && text.starts_with('\'') && text.ends_with('\'');
    let all_quoted = !texts.is_empty() && texts.iter().all(is_quoted);
    for (item, text) in items.iter_mut().zip(texts) {
        item.text = if all_quoted { text[1..text.len() - 1].to_owned() } else { text };
    }
    assign_ranks(&mut items);
    let notes = vec!["Ranks follow the source's scores; equal scores share a rank.".to_owned()];
    Ok(IdeasFile { items, survey, notes })
}

fn assign_ranks(items: &mut [Item]) {
    let mut scores: Vec<f64> =
        items.iter().flat_map(|item| &item.outcomes).filter_map(|outcome| outcome.score).collect();
    scores.sort_by(|left, right| right.total_cmp(left));
    for outcome in items.iter_mut().flat_map(|item| &mut item.outcomes) {
        if let Some(score) = outcome.score {
            // Scores are sorted in descending order, so the index is the number of higher ones.
            let higher_scores = scores.partition_point(|other_score| *other_score > score);
            outcome.rank = Some(higher_scores as u64 + 1);
        }
    }
}

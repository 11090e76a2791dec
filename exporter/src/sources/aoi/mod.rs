//! Adapter for All Our Ideas: ideas compared in pairs, in three generations of headers.
//!
//! Left is the subject and right the object, whoever wins: the side an idea stood on is data.

mod ideas;
mod session;

use std::sync::{Arc, atomic::Ordering};

use self::session::{SESSIONS, UnattributedAnswers, named, session};
use crate::{
    error::{ConvertError, ErrorKind},
    form::Answer,
    input::{
        Limits, Member, Role, check_name, need, one_of,
        table::{self, Table},
    },
    meter::Meter,
    model::{BundleHeader, ItemIndex, Source},
    privacy::participants::{ParticipantRegistry, RegistryFor, scope},
    storage::rows::{Read, Row, order::Flow},
    timestamp::Timestamp,
};

const TOOL: &str = "all-our-ideas";

/// Reasons for a skip that say that both are as good; the others say nothing about the ideas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    pub equal_reasons: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        let known = ["like both", "i like both ideas", "i think both ideas are the same", "same", "the same"];
        Self { equal_reasons: known.map(str::to_owned).to_vec() }
    }
}

#[derive(Debug)]
pub(crate) struct Ideas {
    votes: Member,
    skips: Option<Member>,
    /// Column that identifies participants in votes and skips.
    session: &'static str,
    keys: ItemIndex,
    equal_reasons: Vec<String>,
}

impl Ideas {
    pub(crate) fn open(
        files: &[(Member, Role)],
        limits: &Limits,
        options: &Options,
        source_id: Option<&str>,
        people_of: &mut RegistryFor<'_>,
    ) -> Result<(Self, BundleHeader, ParticipantRegistry), ConvertError> {
        let votes = need(files, limits, Role::IdeasVotes, "the file of votes")?;
        let ideas = need(files, limits, Role::Ideas, "the file of ideas")?;
        check_name(files, limits, Role::IdeasNonVotes)?;
        let read = ideas::read(ideas, limits)?;
        let known = source_id.map(str::to_owned).or(read.survey);
        let people = people_of(known.as_deref().map(|id| scope(TOOL, id)).as_deref())?;
        let id = known.unwrap_or_else(|| votes.stem());
        let mut items = read.items;
        let keys = ItemIndex::sort(&mut items, &ideas.name)?;
        let source = Source {
            tool: TOOL.to_owned(),
            schema: "https://github.com/allourideas/pairwise-api".to_owned(),
            id,
            ..Source::default()
        };
        let rows = vec![(Role::Ideas, items.len() as u64)];
        let skips = one_of(files, Role::IdeasNonVotes)?.cloned();
        let (session, note) = session(votes, skips.as_ref(), limits)?;
        let equal_reasons = options.equal_reasons.iter().map(|reason| plain(reason)).collect();
        let notes = read.notes.into_iter().chain(note).collect();
        let head = BundleHeader {
            rows,
            notes,
            ..BundleHeader::of_options("tidegate:all-our-ideas/v1", source, items)
        };
        Ok((Self { votes: votes.clone(), skips, session, keys, equal_reasons }, head, people))
    }

    pub(crate) fn rows_file(&self) -> &Member {
        &self.votes
    }

    pub(crate) fn rows(
        &self,
        limits: &Limits,
        meter: &Arc<Meter>,
        people: &mut ParticipantRegistry,
        notes: &mut Vec<String>,
        mut each: impl FnMut(Row) -> Result<Flow, ConvertError>,
    ) -> Result<Read, ConvertError> {
        let mut read = self.votes(limits, meter, people, notes, &mut each)?;
        if let Some(skips) = &self.skips
            && read.flow == Flow::More
        {
            read.flow = self.skips(skips, limits, people, notes, &mut each)?;
        }
        Ok(read)
    }

    fn votes(
        &self,
        limits: &Limits,
        meter: &Arc<Meter>,
        people: &mut ParticipantRegistry,
        notes: &mut Vec<String>,
        each: &mut impl FnMut(Row) -> Result<Flow, ConvertError>,
    ) -> Result<Read, ConvertError> {
        let mut table = Table::open(self.votes.open(limits, Some(meter))?, limits, true)?;
        let common = SharedColumns::find(&table, self.session)?;
        let (winner, loser) = (table.need(&["Winner ID"])?, table.need(&["Loser ID"])?);
        let valid = table.find(&["Valid"])?;
        let (mut invalid, mut nobodys) = (0_u64, UnattributedAnswers::default());
        while let Some(row) = table.next()? {
            meter.rows.fetch_add(1, Ordering::Relaxed);
            if row.maybe(valid)?.trim().eq_ignore_ascii_case("false") {
                invalid += 1;
                continue;
            }
            let (left, right) = self.pair(&row, &common)?;
            let item = |column| self.item(&row, column);
            let answer = match (item(winner)?, item(loser)?) {
                (won, lost) if won == left && lost == right => Answer::PreferSubject,
                (won, lost) if won == right && lost == left => Answer::PreferObject,
                _ => {
                    return Err(row.wrong(
                        ErrorKind::Value,
                        "winner and loser are not the choices on the left and right",
                    ));
                }
            };
            let Some(row) = common.row(&row, people, left, right, answer)? else {
                nobodys.add(&row, common.session_id)?;
                continue;
            };
            if each(row)? == Flow::Enough {
                return Ok(Read { flow: Flow::Enough, rows: table.rows(), ended: None });
            }
        }
        if invalid > 0 {
            let (told, were) = people.hidden_below.counted(invalid, "vote");
            notes.push(format!("{told} that the source marks as not valid {were} left out."));
        }
        notes.extend(nobodys.note(people, "vote"));
        let rows = table.rows();
        Ok(Read { flow: Flow::More, rows, ended: Some(table.finish()?) })
    }

    /// Skips are answers; what was only shown is not.
    fn skips(
        &self,
        member: &Member,
        limits: &Limits,
        people: &mut ParticipantRegistry,
        notes: &mut Vec<String>,
        each: &mut impl FnMut(Row) -> Result<Flow, ConvertError>,
    ) -> Result<Flow, ConvertError> {
        let mut table = Table::open(member.open(limits, None)?, limits, true)?;
        let common = SharedColumns::find(&table, self.session)?;
        let (kind, reason) = (table.need(&["Record Type"])?, table.find(&["Reason"])?);
        let valid = table.find(&["Valid"])?;
        let (mut left_out, mut nobodys) = (0_u64, UnattributedAnswers::default());
        while let Some(row) = table.next()? {
            let skip = row.text(kind)?.trim().eq_ignore_ascii_case("skip");
            if !skip || row.maybe(valid)?.trim().eq_ignore_ascii_case("false") {
                left_out += 1;
                continue;
            }
            let (left, right) = self.pair(&row, &common)?;
            let reason = plain(row.maybe(reason)?);
            let answer = if self.equal_reasons.contains(&reason) { Answer::Equal } else { Answer::Pass };
            let Some(row) = common.row(&row, people, left, right, answer)? else {
                nobodys.add(&row, common.session_id)?;
                continue;
            };
            if each(row)? == Flow::Enough {
                return Ok(Flow::Enough);
            }
        }
        if left_out > 0 {
            let (told, were) = people.hidden_below.counted(left_out, "record");
            notes.push(format!("{told} of pairs that were shown but not answered {were} left out."));
        }
        notes.extend(nobodys.note(people, "skip"));
        Ok(Flow::More)
    }

    fn pair(&self, row: &table::Row<'_>, common: &SharedColumns) -> Result<(u32, u32), ConvertError> {
        let (left, right) = (self.item(row, common.left)?, self.item(row, common.right)?);
        if left == right {
            return Err(row.wrong(ErrorKind::Value, "an idea is compared with itself"));
        }
        Ok((left, right))
    }

    fn item(&self, row: &table::Row<'_>, column: usize) -> Result<u32, ConvertError> {
        let found = self.keys.find(row.text(column)?.trim().as_bytes());
        found.ok_or_else(|| row.wrong(ErrorKind::UnknownItem, "a choice is not among the ideas"))
    }
}

/// Columns that votes and skips share.
struct SharedColumns {
    left: usize,
    right: usize,
    session: usize,
    /// Column that identifies people, if it is another one.
    session_id: Option<usize>,
    created: Option<usize>,
}

impl SharedColumns {
    fn find(table: &Table, session: &str) -> Result<Self, ConvertError> {
        Ok(Self {
            left: table.need(&["Left Choice ID"])?,
            right: table.need(&["Right Choice ID"])?,
            session: table.need(&[session])?,
            session_id: table.find(&SESSIONS[1..])?.filter(|_| session != SESSIONS[1]),
            created: table.find(&["Created at"])?,
        })
    }

    /// Reads a row; `None` if it has no session, so that repeated answers cannot be recognised.
    fn row(
        &self,
        row: &table::Row<'_>,
        people: &mut ParticipantRegistry,
        left: u32,
        right: u32,
        answer: Answer,
    ) -> Result<Option<Row>, ConvertError> {
        let at = match row.maybe(self.created)?.trim() {
            "" | "NA" => None,
            text => Some(
                Timestamp::parse(text)
                    .ok_or_else(|| row.wrong(ErrorKind::Value, "Created at is not a time with its zone"))?,
            ),
        };
        let Some(session) = named(row.text(self.session)?) else { return Ok(None) };
        let (who, group) = people.see(session.as_bytes());
        Ok(Some(Row::new(who, left, right, answer, at, group)))
    }
}

/// Some exports have the words of the page, others the names of its buttons.
fn plain(reason: &str) -> String {
    let words = reason.split(|sign: char| sign.is_whitespace() || sign == '_' || sign == '-');
    words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ").to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_the_same_as_words_of_the_page_or_name_of_a_button() {
        let known: Vec<_> = Options::default().equal_reasons.iter().map(|reason| plain(reason)).collect();
        for equal in
            ["like both", "like_both", "Like-Both", " I like  both ideas ", "same", "the same", "The_Same"]
        {
            assert!(known.contains(&plain(equal)), "{equal}");
        }
        for other in
            ["", "NA", "like neither", "I don't know enough about either idea", "not the same", "both"]
        {
            assert!(!known.contains(&plain(other)), "{other}");
        }
    }
}

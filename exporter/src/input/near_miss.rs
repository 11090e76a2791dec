//! Explains why a file is not the one that was expected: a column has another name, or the file another encoding.

use super::{
    Limits, Member, Role,
    sniff::{HeaderRow, KNOWN_HEADERS, KnownHeader, is_called_format, is_called_summary, one_of, wide},
    table::no_column,
};
use crate::error::{ConvertError, ErrorKind};

/// Error for a missing input file.
pub(crate) fn absent(what: &str) -> ConvertError {
    ConvertError::content("the input", None, ErrorKind::MissingFile, format!("{what} is not there"))
}

/// The file of a role that there must be.
pub(crate) fn need<'f>(
    files: &'f [(Member, Role)],
    limits: &Limits,
    role: Role,
    what: &str,
) -> Result<&'f Member, ConvertError> {
    one_of(files, role)?.ok_or_else(|| missing(files, limits, role, what))
}

/// Error for a missing file: describes the file that comes closest, if any does.
pub(crate) fn missing(files: &[(Member, Role)], limits: &Limits, role: Role, what: &str) -> ConvertError {
    let error = match nearest(files, limits, |known| known.role == role) {
        Ok(Some(error)) | Err(error) => error,
        Ok(None) => absent(what),
    };
    match (error, broken(files)) {
        (ConvertError::Content { file, row, wrong, detail }, (broken, 1..)) => {
            let detail = format!("{detail}; it may be among what cannot be unpacked: {broken}");
            ConvertError::Content { file, row, wrong, detail }
        }
        (error, _) => error,
    }
}

/// Suffix for the name of a missing file, if broken files may hold it.
pub(crate) fn unless_broken(files: &[(Member, Role)]) -> String {
    match broken(files) {
        (_, 0) => String::new(),
        (broken, _) => format!(", unless it is among what cannot be unpacked ({broken})"),
    }
}

/// Number of file names that messages list; all files are among the artifacts.
pub(crate) const TOLD: usize = 5;

/// The names of files that cannot be unpacked, and how many they are.
pub(crate) fn broken(files: &[(Member, Role)]) -> (String, u64) {
    named(files, |role| role == Role::Broken)
}

/// The names of files that play some part, and how many they are.
pub(crate) fn named(files: &[(Member, Role)], wanted: impl Fn(Role) -> bool) -> (String, u64) {
    let names: Vec<_> =
        files.iter().filter(|(_, role)| wanted(*role)).map(|(member, _)| member.name.as_str()).collect();
    let more = if names.len() > TOLD { ", ..." } else { "" };
    let told = names.iter().take(TOLD).copied().collect::<Vec<_>>().join(", ");
    (told + more, names.len() as u64)
}

/// Explains what is wrong with the file that comes closest to a table of any tool.
pub(crate) fn nearest_of_all(
    files: &[(Member, Role)],
    limits: &Limits,
) -> Result<Option<ConvertError>, ConvertError> {
    nearest(files, limits, |_| true)
}

/// Checks an optional file: one that is called like it must have its columns, unless another file has them.
pub(crate) fn check_name(files: &[(Member, Role)], limits: &Limits, role: Role) -> Result<(), ConvertError> {
    if files.iter().any(|file| file.1 == role) {
        return Ok(());
    }
    for (member, _) in files.iter().filter(|file| file.1 == Role::Unknown) {
        if let Some(known) = KNOWN_HEADERS.iter().find(|known| known.role == role && is_called(member, known))
        {
            return Err(misfit(member, known, &HeaderRow::of(member, limits)?));
        }
    }
    Ok(())
}

fn nearest(
    files: &[(Member, Role)],
    limits: &Limits,
    wanted: impl Fn(&KnownHeader) -> bool,
) -> Result<Option<ConvertError>, ConvertError> {
    let mut best = None;
    for (member, _) in files.iter().filter(|file| file.1 == Role::Unknown) {
        let head = HeaderRow::of(member, limits)?;
        let columns = head.columns();
        for known in KNOWN_HEADERS.iter().filter(|known| wanted(known)) {
            let shared = known.columns.len() - known.missing(&columns).len();
            let called = is_called(member, known);
            let score = (called, shared);
            if (called || shared * 2 >= known.columns.len())
                && best.as_ref().is_none_or(|(before, _)| *before < score)
            {
                best = Some((score, misfit(member, known, &head)));
            }
        }
    }
    Ok(best.map(|(_, error)| error))
}

/// True if the file is called like this table of the tool; `participants-votes.csv` is not a list of votes.
fn is_called(member: &Member, known: &KnownHeader) -> bool {
    let name = member.name.to_lowercase();
    let Some((name, _)) = name.split_once(".csv") else { return false };
    let ends = |known: &&str| name.ends_with(known);
    let longest =
        KNOWN_HEADERS.iter().flat_map(|known| known.names).filter(|name| ends(name)).map(|name| name.len());
    longest.max().is_some_and(|longest| known.names.iter().any(|name| ends(name) && name.len() == longest))
}

/// Tool's own name for a file whose name ends with it. The rest of the name may identify a person.
pub(crate) fn tools_name(name: &str) -> Option<String> {
    let last = name.rsplit('/').next().unwrap_or(name).to_lowercase();
    if last.split_once(".json").is_some_and(|(name, _)| name == "format") {
        return Some("format.json".to_owned());
    }
    let (name, behind) = last.split_once(".csv")?;
    let names = KNOWN_HEADERS.iter().flat_map(|known| known.names).copied().chain(["summary"]);
    let longest = names.filter(|known| name.ends_with(known)).max_by_key(|known| known.len())?;
    let packed = [".gz", ".zst"].into_iter().find(|ending| *ending == behind).unwrap_or_default();
    Some(format!("{longest}.csv{packed}"))
}

/// True if the file is called like a table of any tool.
pub(crate) fn is_called_as_any(member: &Member) -> bool {
    KNOWN_HEADERS.iter().any(|known| is_called(member, known))
        || is_called_summary(member)
        || is_called_format(member)
}

fn misfit(member: &Member, known: &KnownHeader, head: &HeaderRow) -> ConvertError {
    let wrong = |detail: String| ConvertError::content(&member.name, 1, ErrorKind::MissingColumn, detail);
    if let Some(encoding) = head.wide {
        return wide(member, encoding);
    }
    if head.text.trim().is_empty() {
        return wrong("the file is empty".to_owned());
    }
    let columns = head.columns();
    let missing = known.missing(&columns);
    if missing.len() < known.columns.len() {
        return no_column(&member.name, &missing.join(", "), &columns);
    }
    let line = head.text.lines().next().unwrap_or_default().to_lowercase();
    let separated = |by: char| {
        let columns: Vec<_> = line.split(by).map(|name| name.trim().trim_matches('"')).collect();
        known.columns.iter().all(|name| columns.contains(name))
    };
    // What stands in the first row may be data then, which is not repeated.
    wrong(match [(';', "semicolons"), ('\t', "tabs")].into_iter().find(|(by, _)| separated(*by)) {
        Some((_, called)) => format!("its columns are separated by {called}: save it with commas"),
        None => format!("its first row has none of the columns {}", known.columns.join(", ")),
    })
}

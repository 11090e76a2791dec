//! Explains why a file is not the one that was expected: a column has another name, or the file another encoding.

use super::{
    Limits, Member, Role,
    sniff::{
        HeaderRow, KNOWN_HEADERS, KnownHeader, encoding_error, find_single, is_called_format,
        is_called_summary,
    },
    table::missing_column,
};
use crate::error::{ConvertError, ErrorKind};

/// Error for a missing input file.
pub(crate) fn missing_file_error(description: &str) -> ConvertError {
    ConvertError::content("the input", None, ErrorKind::MissingFile, format!("{description} is not there"))
}

/// The file of a role that there must be.
pub(crate) fn require_file<'f>(
    files: &'f [(Member, Role)],
    limits: &Limits,
    role: Role,
    description: &str,
) -> Result<&'f Member, ConvertError> {
    find_single(files, role)?.ok_or_else(|| explain_missing(files, limits, role, description))
}

/// Error for a missing file: describes the file that comes closest, if any does.
pub(crate) fn explain_missing(
    files: &[(Member, Role)],
    limits: &Limits,
    role: Role,
    description: &str,
) -> ConvertError {
    let error = match find_nearest(files, limits, |header| header.role == role) {
        Ok(Some(error)) | Err(error) => error,
        Ok(None) => missing_file_error(description),
    };
    match (error, list_broken(files)) {
        (ConvertError::Content { file, row, wrong, detail }, (broken_names, 1..)) => {
            let detail = format!("{detail}; it may be among what cannot be unpacked: {broken_names}");
            ConvertError::Content { file, row, wrong, detail }
        }
        (error, _) => error,
    }
}

/// Suffix for the name of a missing file, if broken files may hold it.
pub(crate) fn broken_file_suffix(files: &[(Member, Role)]) -> String {
    match list_broken(files) {
        (_, 0) => String::new(),
        (names, _) => format!(", unless it is among what cannot be unpacked ({names})"),
    }
}

/// Number of file names that messages list; all files are among the artifacts.
pub(crate) const MAX_LISTED_FILES: usize = 5;

/// The names of files that cannot be unpacked, and how many they are.
pub(crate) fn list_broken(files: &[(Member, Role)]) -> (String, u64) {
    list_files(files, |role| role == Role::Broken)
}

/// The names of files that play some part, and how many they are.
pub(crate) fn list_files(files: &[(Member, Role)], is_listed: impl Fn(Role) -> bool) -> (String, u64) {
    let names: Vec<_> =
        files.iter().filter(|(_, role)| is_listed(*role)).map(|(member, _)| member.name.as_str()).collect();
    let ellipsis = if names.len() > MAX_LISTED_FILES { ", ..." } else { "" };
    let listed = names.iter().take(MAX_LISTED_FILES).copied().collect::<Vec<_>>().join(", ");
    (listed + ellipsis, names.len() as u64)
}

/// Explains what is wrong with the file that comes closest to a table of any tool.
pub(crate) fn explain_nearest(
    files: &[(Member, Role)],
    limits: &Limits,
) -> Result<Option<ConvertError>, ConvertError> {
    find_nearest(files, limits, |_| true)
}

/// Checks an optional file: one that is called like it must have its columns, unless another file has them.
pub(crate) fn check_optional_file(
    files: &[(Member, Role)],
    limits: &Limits,
    role: Role,
) -> Result<(), ConvertError> {
    if files.iter().any(|file| file.1 == role) {
        return Ok(());
    }
    for (member, _) in files.iter().filter(|file| file.1 == Role::Unknown) {
        if let Some(header) =
            KNOWN_HEADERS.iter().find(|candidate| candidate.role == role && is_named_like(member, candidate))
        {
            return Err(mismatch_error(member, header, &HeaderRow::read(member, limits)?));
        }
    }
    Ok(())
}

fn find_nearest(
    files: &[(Member, Role)],
    limits: &Limits,
    is_candidate: impl Fn(&KnownHeader) -> bool,
) -> Result<Option<ConvertError>, ConvertError> {
    let mut best = None;
    for (member, _) in files.iter().filter(|file| file.1 == Role::Unknown) {
        let header_row = HeaderRow::read(member, limits)?;
        let columns = header_row.columns();
        for header in KNOWN_HEADERS.iter().filter(|candidate| is_candidate(candidate)) {
            let matching_columns = header.columns.len() - header.missing_columns(&columns).len();
            let is_named = is_named_like(member, header);
            let score = (is_named, matching_columns);
            if (is_named || matching_columns * 2 >= header.columns.len())
                && best.as_ref().is_none_or(|(best_score, _)| *best_score < score)
            {
                best = Some((score, mismatch_error(member, header, &header_row)));
            }
        }
    }
    Ok(best.map(|(_, error)| error))
}

/// True if the file is called like this table of the tool; `participants-votes.csv` is not a list of votes.
fn is_named_like(member: &Member, header: &KnownHeader) -> bool {
    let name = member.name.to_lowercase();
    let Some((name, _)) = name.split_once(".csv") else { return false };
    let is_ending = |ending: &&str| name.ends_with(ending);
    let ending_lengths = KNOWN_HEADERS
        .iter()
        .flat_map(|known| known.names)
        .filter(|name| is_ending(name))
        .map(|name| name.len());
    ending_lengths
        .max()
        .is_some_and(|length| header.names.iter().any(|name| is_ending(name) && name.len() == length))
}

/// Tool's own name for a file whose name ends with it. The rest of the name may identify a person.
pub(crate) fn tool_file_name(name: &str) -> Option<String> {
    let file_name = name.rsplit('/').next().unwrap_or(name).to_lowercase();
    if file_name.split_once(".json").is_some_and(|(name, _)| name == "format") {
        return Some("format.json".to_owned());
    }
    let (name, extension) = file_name.split_once(".csv")?;
    let names = KNOWN_HEADERS.iter().flat_map(|known| known.names).copied().chain(["summary"]);
    let ending = names.filter(|candidate| name.ends_with(candidate)).max_by_key(|known| known.len())?;
    let packed_extension =
        [".gz", ".zst"].into_iter().find(|ending| *ending == extension).unwrap_or_default();
    Some(format!("{ending}.csv{packed_extension}"))
}

/// True if the file is called like a table of any tool.
pub(crate) fn has_known_name(member: &Member) -> bool {
    KNOWN_HEADERS.iter().any(|header| is_named_like(member, header))
        || is_called_summary(member)
        || is_called_format(member)
}

fn mismatch_error(member: &Member, header: &KnownHeader, header_row: &HeaderRow) -> ConvertError {
    let error = |detail: String| ConvertError::content(&member.name, 1, ErrorKind::MissingColumn, detail);
    if let Some(encoding) = header_row.unsupported_encoding {
        return encoding_error(member, encoding);
    }
    if header_row.text.trim().is_empty() {
        return error("the file is empty".to_owned());
    }
    let columns = header_row.columns();
    let missing_columns = header.missing_columns(&columns);
    if missing_columns.len() < header.columns.len() {
        return missing_column(&member.name, &missing_columns.join(", "), &columns);
    }
    let line = header_row.text.lines().next().unwrap_or_default().to_lowercase();
    let is_separated_by = |separator: char| {
        let columns: Vec<_> = line.split(separator).map(|name| name.trim().trim_matches('"')).collect();
        header.columns.iter().all(|name| columns.contains(name))
    };
    // What stands in the first row may be data then, which is not repeated.
    error(
        match [(';', "semicolons"), ('\t', "tabs")]
            .into_iter()
            .find(|(separator, _)| is_separated_by(*separator))
        {
            Some((_, separators)) => {
                format!("its columns are separated by {separators}: save it with commas")
            }
            None => format!("its first row has none of the columns {}", header.columns.join(", ")),
        },
    )
}

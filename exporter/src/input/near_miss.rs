//! Explains why an expected file was not recognised, such as a renamed column or an unsupported encoding.

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
    ConvertError::content("the input", None, ErrorKind::MissingFile, format!("{description} is missing"))
}

/// Returns the single file of a required role.
pub(crate) fn require_file<'f>(
    files: &'f [(Member, Role)],
    limits: &Limits,
    role: Role,
    description: &str,
) -> Result<&'f Member, ConvertError> {
    find_single(files, role)?.ok_or_else(|| explain_missing(files, limits, role, description))
}

/// Error for a missing file: explains the most similar file, if there is one.
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
        (ConvertError::Content { file, row, kind: wrong, detail }, (broken_names, 1..)) => {
            let detail = format!("{detail}; it may be one of the damaged files: {broken_names}");
            ConvertError::Content { file, row, kind: wrong, detail }
        }
        (error, _) => error,
    }
}

/// Suffix for notes about a missing file, if damaged files may contain it.
pub(crate) fn broken_file_suffix(files: &[(Member, Role)]) -> String {
    match list_broken(files) {
        (_, 0) => String::new(),
        (names, _) => format!(", unless it is one of the damaged files ({names})"),
    }
}

/// Number of file names listed in one message; the artifacts list all files.
pub(crate) const MAX_LISTED_FILES: usize = 5;

/// Names and number of the damaged files.
pub(crate) fn list_broken(files: &[(Member, Role)]) -> (String, u64) {
    list_files(files, |role| role == Role::Broken)
}

/// Names and number of the files with matching roles.
pub(crate) fn list_files(files: &[(Member, Role)], is_listed: impl Fn(Role) -> bool) -> (String, u64) {
    let names: Vec<_> =
        files.iter().filter(|(_, role)| is_listed(*role)).map(|(member, _)| member.name.as_str()).collect();
    let ellipsis = if names.len() > MAX_LISTED_FILES { ", ..." } else { "" };
    let listing = names.iter().take(MAX_LISTED_FILES).copied().collect::<Vec<_>>().join(", ");
    (listing + ellipsis, names.len() as u64)
}

/// Explains the file that is most similar to a table of any tool.
pub(crate) fn explain_nearest(
    files: &[(Member, Role)],
    limits: &Limits,
) -> Result<Option<ConvertError>, ConvertError> {
    find_nearest(files, limits, |_| true)
}

/// Checks an optional role: a file with a matching name must have the columns, unless another file has the role.
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
            // Half of the columns or a matching name is required: a weaker guess would mislead.
            if (is_named || matching_columns * 2 >= header.columns.len())
                && best.as_ref().is_none_or(|(best_score, _)| *best_score < score)
            {
                best = Some((score, mismatch_error(member, header, &header_row)));
            }
        }
    }
    Ok(best.map(|(_, error)| error))
}

/// True if the file name matches the tool's name of the table. The longest ending wins: `participants-votes.csv` is
/// not a list of votes.
fn is_named_like(member: &Member, header: &KnownHeader) -> bool {
    let name = member.name.to_lowercase();
    // The name may have another extension, such as `.csv.gz`.
    let Some((name, _)) = name.split_once(".csv") else { return false };
    let is_ending = |ending: &&str| name.ends_with(ending);
    let ending_lengths = KNOWN_HEADERS
        .iter()
        .flat_map(|header| header.names)
        .filter(|name| is_ending(name))
        .map(|name| name.len());
    ending_lengths
        .max()
        .is_some_and(|length| header.names.iter().any(|name| is_ending(name) && name.len() == length))
}

/// The tool's own name for a file. The rest of the actual name may identify a person.
pub(crate) fn tool_file_name(name: &str) -> Option<String> {
    let file_name = name.rsplit('/').next().unwrap_or(name).to_lowercase();
    if file_name.split_once(".json").is_some_and(|(name, _)| name == "format") {
        return Some("format.json".to_owned());
    }
    let (name, extension) = file_name.split_once(".csv")?;
    let names = KNOWN_HEADERS.iter().flat_map(|header| header.names).copied().chain(["summary"]);
    let ending =
        names.filter(|candidate| name.ends_with(candidate)).max_by_key(|candidate| candidate.len())?;
    let packed_extension =
        [".gz", ".zst"].into_iter().find(|ending| *ending == extension).unwrap_or_default();
    Some(format!("{ending}.csv{packed_extension}"))
}

/// True if the file name matches a table of any tool.
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
    // Some columns match, so the others were probably renamed.
    if missing_columns.len() < header.columns.len() {
        return missing_column(&member.name, &missing_columns.join(", "), &columns);
    }
    let line = header_row.text.lines().next().unwrap_or_default().to_lowercase();
    let is_separated_by = |separator: char| {
        let columns: Vec<_> = line.split(separator).map(|name| name.trim().trim_matches('"')).collect();
        header.columns.iter().all(|name| columns.contains(name))
    };
    // The first row may be data, so the message does not repeat it.
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

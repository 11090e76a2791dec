//! Reads files of entries one after the other: what each says, or why it cannot be read.
//!
//! Whether it can be an entry of the bank is judged by the service. The shapes of exchanges are `exchanges`' matter.

mod bounded;
mod exchanges;
mod keys;
mod pages;
mod starts;

use std::{
    collections::BTreeMap,
    fmt,
    io::{BufRead, Read},
    path::Path,
};

use anyhow::bail;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tidegate_media::hashes::pdq::MIN_QUALITY;
use tidegate_schemas::{
    banks::{BankKind, HashKind},
    item_types::datetime,
};

use self::{bounded::bounded, keys::said_once, starts::noted};

/// How a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Format {
    /// One entry a line, of hashes also behind their kind (`pdq f8f8...`) or as PDQ's tools write them (`hash,name` and
    /// `number,quality,hash,time`); blank lines are passed over
    Lines,
    /// With a header: `value` or `hash`, and if wanted `labels` (separated by `|`), `source`, `expires_at`, and of hashes
    /// `signal_type`, `max_distance`, `content_id`, `note` and `disabled`
    Csv,
    /// A JSON string, or an object with `value`, `labels`, `source`, `expiresAt` and what a table may have, a line
    Ndjson,
    /// ThreatExchange: pages of indicators
    Threatexchange,
    /// NCMEC hash sharing, version 2: XML
    Ncmec,
    /// StopNCII: pages of hash records
    Stopncii,
    /// Tech Against Terrorism: pages of hashes
    Tat,
}

impl Format {
    pub(super) fn of(file: &Path) -> Self {
        match file.extension().and_then(|it| it.to_str()).map(str::to_ascii_lowercase).as_deref() {
            Some("csv") => Self::Csv,
            Some("ndjson" | "jsonl") => Self::Ndjson,
            Some("xml") => Self::Ncmec,
            _ => Self::Lines,
        }
    }
}

/// What an entry of a file says.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum What {
    Add(Value),
    /// Its value from its source, under its name there.
    Withdraw(Value),
    /// Whatever came from there under this name.
    WithdrawName {
        source: String,
        reference: String,
    },
    /// A hash of another kind than the bank's.
    Other,
}

pub(super) struct Line {
    pub(super) place: Place,
    pub(super) entry: Result<What, String>,
}

/// Where an entry stands in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    /// From 1, of an entry over several lines the first.
    pub(super) line: u64,
    /// Of an exchange's file, all of which may be one line: which record it is.
    record: Option<u64>,
}

impl Place {
    const fn line(line: u64) -> Self {
        Self { line, record: None }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}", self.line)?;
        self.record.map_or(Ok(()), |record| write!(f, ", record {record}"))
    }
}

pub(super) type Lines = Box<dyn Iterator<Item = anyhow::Result<Line>>>;

/// Longer lines are no entries, and are not kept to be looked at.
const LONGEST_LINE: u64 = 1 << 20;

/// An error is one of the file as a whole: nothing follows it.
pub(super) fn lines(
    file: impl BufRead + Send + 'static,
    format: Format,
    kind: BankKind,
) -> anyhow::Result<Lines> {
    match format {
        Format::Lines => Ok(Box::new(plain(file, move |text| word(text, kind)))),
        Format::Ndjson => Ok(Box::new(plain(file, move |text| object(text, kind)))),
        Format::Csv => table(file, kind),
        Format::Ncmec => Ok(exchanges::ncmec(file, kind)),
        Format::Threatexchange | Format::Stopncii | Format::Tat => Ok(exchanges::pages(file, format, kind)),
    }
}

fn plain(
    mut file: impl BufRead,
    read: impl Fn(&str) -> Result<What, String>,
) -> impl Iterator<Item = anyhow::Result<Line>> {
    let mut number = 0;
    std::iter::from_fn(move || {
        loop {
            let mut bytes = Vec::new();
            match file.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut bytes) {
                Err(error) => return Some(Err(error.into())),
                Ok(0) => return None,
                Ok(_) => number += 1,
            }
            if bytes.len() as u64 == LONGEST_LINE && bytes.last() != Some(&b'\n') {
                if let Err(error) = skip_line(&mut file) {
                    return Some(Err(error.into()));
                }
                let entry = Err(format!("it is longer than {LONGEST_LINE} bytes"));
                return Some(Ok(Line { place: Place::line(number), entry }));
            }
            let bytes =
                if number == 1 { bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes) } else { &bytes };
            let text = std::str::from_utf8(bytes).map(|text| text.trim_end_matches(['\n', '\r']));
            match text {
                Ok(text) if text.trim().is_empty() => {}
                Ok(text) => return Some(Ok(Line { place: Place::line(number), entry: read(text) })),
                Err(_) => {
                    let entry = Err("it is no UTF-8".to_owned());
                    return Some(Ok(Line { place: Place::line(number), entry }));
                }
            }
        }
    })
}

fn skip_line(file: &mut impl BufRead) -> std::io::Result<()> {
    loop {
        let buffer = file.fill_buf()?;
        let (length, found) = match buffer.iter().position(|byte| *byte == b'\n') {
            Some(at) => (at + 1, true),
            None => (buffer.len(), buffer.is_empty()),
        };
        file.consume(length);
        if found {
            return Ok(());
        }
    }
}

/// The names that exchanges have for kinds of hashes; `None`: of a kind that is not kept here.
pub(super) fn kind_named(name: &str) -> Option<HashKind> {
    match name.trim().to_ascii_lowercase().as_str() {
        "hash_pdq" | "imagepdq" => Some(HashKind::Pdq),
        "hash_md5" | "video_md5" | "videomd5" => Some(HashKind::Md5),
        "hash_sha1" | "sha-1" => Some(HashKind::Sha1),
        "hash_sha256" | "sha-256" => Some(HashKind::Sha256),
        "pdna" | "hash_pdna" | "hash_photodna" => Some(HashKind::Photodna),
        "hash_netclean" => Some(HashKind::Netclean),
        other => HashKind::named(other),
    }
}

/// Lists have words with blanks and commas; a hash may stand behind its kind, or among what a tool says of it.
fn word(line: &str, bank: BankKind) -> Result<What, String> {
    let plain = || Ok(What::Add(json!(line)));
    let Some(kind) = bank.hash() else { return plain() };
    let line = line.trim();
    if let Some((name, value)) = line.split_once(char::is_whitespace)
        && let Some(named) = kind_named(name)
    {
        return Ok(if named == kind { What::Add(json!(value.trim())) } else { What::Other });
    }
    if kind.canonical(line).is_ok() {
        return plain();
    }
    let cells: Vec<&str> = line.split(',').map(str::trim).collect();
    match cells[..] {
        [value, name] if kind.canonical(value).is_ok() => {
            Ok(What::Add(json!({"value": value, "reference": name})))
        }
        [_, quality, value, _] if kind == HashKind::Pdq => match quality.parse::<u32>() {
            Ok(quality) if quality < u32::from(MIN_QUALITY) => {
                Err(format!("its quality is {quality}: below {MIN_QUALITY} a hash says too little"))
            }
            Ok(_) => Ok(What::Add(json!(value))),
            Err(_) => plain(),
        },
        _ => plain(),
    }
}

/// Names in files, and in what the service takes.
const FIELDS: [(&str, &str); 16] = [
    ("value", "value"),
    ("hash", "value"),
    ("labels", "labels"),
    ("source", "source"),
    ("expiresAt", "expiresAt"),
    ("expires_at", "expiresAt"),
    ("expiresat", "expiresAt"),
    ("signal_type", "signalType"),
    ("signalType", "signalType"),
    ("distance", "distance"),
    ("max_distance", "distance"),
    ("maxDistance", "distance"),
    ("reference", "reference"),
    ("content_id", "reference"),
    ("note", "note"),
    ("disabled", "disabled"),
];

fn field(name: &str) -> Option<&'static str> {
    FIELDS.into_iter().find(|(known, _)| *known == name).map(|(_, field)| field)
}

fn object(line: &str, bank: BankKind) -> Result<What, String> {
    let entry = said_once(line)?;
    let object = match entry {
        Value::String(_) => return Ok(What::Add(entry)),
        Value::Object(object) => object,
        _ => return Err("it is neither a text nor an object".to_owned()),
    };
    let (mut read, mut named) = (Map::new(), BTreeMap::new());
    for (key, value) in object {
        let Some(name) = field(&key) else {
            let shown: String = key.chars().take(64).collect();
            return Err(format!(
                "`{shown}` is none of value, labels, source, expiresAt, signal_type, max_distance, content_id, note and disabled"
            ));
        };
        if let Some(earlier) = named.insert(name, key.clone()) {
            return Err(format!("it has both `{earlier}` and `{key}`, which are the same"));
        }
        let fits = match name {
            "labels" => value.as_array().is_some_and(|all| all.iter().all(Value::is_string)),
            "distance" => value.as_u64().is_some_and(|number| u32::try_from(number).is_ok()),
            "disabled" => value.is_boolean(),
            _ => value.is_string(),
        };
        match value {
            Value::Null => {}
            value if fits => drop(read.insert(name.to_owned(), value)),
            _ => {
                return Err(format!(
                    "`{key}` is not what it should be: a text, of labels a list of texts, of the distance a number"
                ));
            }
        }
    }
    whole(read, bank)
}

/// Takes the kind out, which the service knows. What it would refuse a request for is refused here, by itself.
fn whole(mut entry: Map<String, Value>, bank: BankKind) -> Result<What, String> {
    let named = entry.remove("signalType");
    if !entry.get("value").is_some_and(Value::is_string) {
        return Err("its `value` is no text".to_owned());
    }
    if entry.get("expiresAt").and_then(Value::as_str).is_some_and(|text| datetime::parse(text).is_none()) {
        return Err("it ends at no instant such as 2026-12-31T00:00:00Z".to_owned());
    }
    match named.as_ref().and_then(Value::as_str) {
        Some(name) if kind_named(name).is_none() || kind_named(name) != bank.hash() => Ok(What::Other),
        _ => Ok(What::Add(Value::Object(entry))),
    }
}

fn table(file: impl BufRead + 'static, bank: BankKind) -> anyhow::Result<Lines> {
    let (file, bound) = bounded(file);
    let (file, starts) = noted(file);
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(file);
    let header = reader.headers()?.clone();
    let mut columns = Vec::new();
    for name in &header {
        let name = name.trim().trim_start_matches('\u{feff}').to_ascii_lowercase();
        match field(&name) {
            Some(column) if !columns.contains(&column) => columns.push(column),
            Some(_) => bail!("the header names `{name}` twice, or two names for the same"),
            None => bail!(
                "the header names `{name}`; known are value or hash, labels, source, expires_at, signal_type, \
                 max_distance, content_id, note and disabled"
            ),
        }
    }
    if !columns.contains(&"value") {
        bail!("the header names no column `value`");
    }
    let mut last = 1;
    let rows = reader.into_records().map(move |record| {
        bound.renew();
        let position = match &record {
            Ok(record) => record.position(),
            Err(error) => error.position(),
        };
        if let Some(line) = position.and_then(|it| starts.line(it.byte())) {
            last = line;
        }
        if starts.ends_within_a_quote() {
            bail!("line {last}: a quote begins in this row, or after it, and does not end");
        }
        let entry = match record {
            Ok(record) if record.len() == columns.len() => row(&columns, &record, bank),
            Ok(record) => Err(format!("it has {} columns instead of {}", record.len(), columns.len())),
            Err(error) if error.is_io_error() => {
                return Err(anyhow::Error::from(error).context(format!("after line {last}")));
            }
            Err(error) => Err(error.to_string()),
        };
        Ok(Line { place: Place::line(last), entry })
    });
    Ok(Box::new(rows))
}

fn row(columns: &[&str], record: &csv::StringRecord, bank: BankKind) -> Result<What, String> {
    let mut entry = Map::new();
    for (name, cell) in columns.iter().zip(record) {
        if *name != "value" && cell.trim().is_empty() {
            continue;
        }
        let value = match *name {
            "labels" => json!(labels(cell)),
            "distance" => {
                json!(cell.trim().parse::<u32>().map_err(|_| "its distance is no number".to_owned())?)
            }
            "disabled" => {
                let said = cell.trim().to_ascii_lowercase();
                json!(said.parse::<bool>().map_err(|_| "`disabled` is true or false".to_owned())?)
            }
            _ => json!(cell),
        };
        entry.insert((*name).to_owned(), value);
    }
    whole(entry, bank)
}

/// Between bars; a bar, a blank at an end and a backslash may stand behind a backslash, as `export` writes them.
fn labels(cell: &str) -> Vec<String> {
    let mut labels = Vec::new();
    // The length up to which blanks are kept.
    let (mut label, mut kept) = (String::new(), 0);
    let mut end = |label: &mut String, kept: &mut usize| {
        label.truncate(label.trim_end().len().max(*kept));
        *kept = 0;
        labels.extend(Some(std::mem::take(label)).filter(|label| !label.is_empty()));
    };
    let mut letters = cell.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '|' => end(&mut label, &mut kept),
            '\\' if letters.peek().is_some_and(|next| is_escaped(*next)) => {
                label.extend(letters.next());
                kept = label.len();
            }
            _ if label.is_empty() && letter.is_whitespace() => {}
            _ => label.push(letter),
        }
    }
    end(&mut label, &mut kept);
    labels
}

fn is_escaped(letter: char) -> bool {
    matches!(letter, '|' | '\\') || letter.is_whitespace()
}

/// Labels in one cell, which reads as them.
pub(super) fn cell(labels: &[String]) -> String {
    let one = |label: &String| {
        let (start, end) = (label.len() - label.trim_start().len(), label.trim_end().len());
        let mut text = String::with_capacity(label.len());
        for (at, letter) in label.char_indices() {
            let is_at_end = letter.is_whitespace() && (at < start || at >= end);
            if matches!(letter, '|' | '\\') || is_at_end {
                text.push('\\');
            }
            text.push(letter);
        }
        text
    };
    labels.iter().map(one).collect::<Vec<_>>().join("|")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn shown(text: &'static str, format: Format) -> Vec<(u64, Result<What, String>)> {
        of(text, format, BankKind::Text)
    }

    fn of(text: &'static str, format: Format, kind: BankKind) -> Vec<(u64, Result<What, String>)> {
        let lines = lines(text.as_bytes(), format, kind).unwrap();
        lines.map(Result::unwrap).map(|line| (line.place.line, line.entry)).collect()
    }

    fn add(value: Value) -> Result<What, String> {
        Ok(What::Add(value))
    }

    #[test]
    fn lines_keep_their_numbers_over_blank_ones() {
        let lines = shown("\u{feff}one\r\n\n#two\n", Format::Lines);
        assert_eq!(lines, [(1, add(json!("one"))), (3, add(json!("#two")))]);
    }

    #[test]
    fn a_line_without_an_end_is_not_kept() {
        let text: &'static str = format!("{}\nlast", "x".repeat(3 << 20)).leak();
        let lines = shown(text, Format::Lines);
        assert!(lines[0].1.as_ref().unwrap_err().contains("longer"));
        assert_eq!((lines.len(), &lines[1]), (2, &(2, add(json!("last")))));
    }

    #[test]
    fn a_hash_may_say_its_kind() {
        let lines = of("pdq ab\nvideo_md5 cd\nsome ef\nab\n", Format::Lines, BankKind::Pdq);
        let read: Vec<_> = lines.into_iter().map(|(_, entry)| entry.unwrap()).collect();
        let add = |text: &str| What::Add(json!(text));
        assert_eq!(read, [add("ab"), What::Other, add("some ef"), add("ab")]);
        let hash = "5a".repeat(32);
        let text: &'static str =
            format!("{hash},a.jpg\n7,80,{hash},1.5\n8,49,{hash},1.7\n9,x,{hash},1.9\n").leak();
        let lines = of(text, Format::Lines, BankKind::Pdq);
        assert_eq!(lines[0].1, Ok(What::Add(json!({"value": &hash, "reference": "a.jpg"}))));
        assert_eq!((&lines[1].1, lines[2].1.is_err()), (&Ok(add(&hash)), true));
        assert_eq!(
            lines[3].1,
            Ok(What::Add(json!(format!("9,x,{hash},1.9")))),
            "the service says what is wrong"
        );
        let table = "signal_type,hash,content_id,labels,note,max_distance\npdq,ab,7,x|y,why,12\nmd5,cd,,,,\npdq,ab,,,,far\n";
        let rows = of(table, Format::Csv, BankKind::Pdq);
        let whole =
            json!({"value": "ab", "reference": "7", "labels": ["x", "y"], "note": "why", "distance": 12});
        assert_eq!((&rows[0].1, &rows[1].1), (&Ok(What::Add(whole)), &Ok(What::Other)));
        assert_eq!(rows[2], (4, Err("its distance is no number".to_owned())));
    }

    #[test]
    fn a_table_names_its_columns_and_may_quote() {
        let text = "labels,value\na|b,\"one, two\"\n,\"over\nlines\"\nx\n,last\n";
        let rows = shown(text, Format::Csv);
        assert_eq!(rows[0], (2, add(json!({"labels": ["a", "b"], "value": "one, two"}))));
        assert_eq!(rows[1], (3, add(json!({"value": "over\nlines"}))));
        assert_eq!((rows[2].0, rows[2].1.is_err()), (5, true));
        assert_eq!(rows[3], (6, add(json!({"value": "last"}))));
        let of_windows = shown("value,note\r\n\r\none,\r\ntwo,x,y\r\n", Format::Csv);
        assert_eq!((of_windows[0].0, of_windows[1].0), (3, 4));
        assert!(lines("word\nx\n".as_bytes(), Format::Csv, BankKind::Text).is_err(), "no column of values");
        for open in ["value,note\n5\" pipe,a\nb,\"five inch\nc,d\n", "value,note\n5\" pipe,a\nb,\"cut"] {
            let mut read = lines(open.as_bytes(), Format::Csv, BankKind::Text).unwrap();
            let first = json!({"value": "5\" pipe", "note": "a"});
            assert_eq!(read.next().unwrap().unwrap().entry, add(first));
            let fault = read.next().unwrap().err().unwrap().to_string();
            assert!(fault.starts_with("line 3: a quote") && read.next().is_none(), "{fault}");
        }
        let closed = "value,note\na,\"x\"\"y\"\nb,\"z\"";
        assert_eq!(shown(closed, Format::Csv)[1], (3, add(json!({"value": "b", "note": "z"}))));
        let open: &'static str = format!("value\none\n\"{}", "x,\n".repeat(2 << 20)).leak();
        let read: Vec<_> = lines(open.as_bytes(), Format::Csv, BankKind::Text).unwrap().take(2).collect();
        assert!(read[0].is_ok() && read[1].is_err(), "a quote that never ends is not read to the end");
    }

    #[test]
    fn labels_in_a_cell_are_read_as_they_were_written() {
        for all in [
            &["a", "b c"][..],
            &["a|b", "|", "\\", "a\\"],
            &[" a", "a ", " \t a\u{a0}", "\\ ", "\n|\\|\r"],
            &["a\\b", "a\\|b", "\\\\ "],
            &[],
        ] {
            let all: Vec<String> = all.iter().map(|label| (*label).to_owned()).collect();
            assert_eq!(labels(&cell(&all)), all, "{}", cell(&all));
        }
        assert_eq!(labels(" a | b c ||\\d\\|"), ["a", "b c", "\\d|"], "written by hand");
    }

    #[test]
    fn each_bad_line_of_json_says_why() {
        let text = "\"one\"\n{\"value\":\"two\",\"source\":null}\n{\"valeu\":\"x\"}\n[1]\n{\n{\"value\":1}\n\
            {\"value\":\"x\",\"expiresAt\":\"soon\"}\n{\"value\":\"x\",\"distance\":4294967296}\n";
        let lines = shown(text, Format::Ndjson);
        assert_eq!(lines[0].1, add(json!("one")));
        assert_eq!(lines[1].1, add(json!({"value": "two"})));
        assert!(lines[2..].iter().all(|(_, entry)| entry.is_err()));
        assert_eq!(lines.len(), 8);
    }

    #[test]
    fn a_line_of_json_that_says_something_twice_is_bad() {
        let text = "{\"value\":\"a\",\"hash\":\"b\"}\n{\"value\":\"a\",\"value\":\"b\"}\n\
            {\"value\":\"a\",\"max_distance\":1,\"distance\":2}\n{\"hash\":\"a\",\"labels\":[],\"labels\":[\"x\"]}\n\
            {\"value\":null,\"hash\":\"b\"}\n{\"v\\u0061lue\":\"a\",\"value\":\"a\"}\n{\"hash\":\"b\",\"note\":\"x\"}\n";
        let lines = shown(text, Format::Ndjson);
        let told = |reason: &str| Err(reason.to_owned());
        let twice = |key: &str| told(&format!("The key `{key}` stands more than once in one object."));
        assert_eq!(lines[0], (1, told("it has both `hash` and `value`, which are the same")));
        assert_eq!(lines[1], (2, twice("value")));
        assert_eq!(lines[2], (3, told("it has both `distance` and `max_distance`, which are the same")));
        assert_eq!(lines[3], (4, twice("labels")));
        assert_eq!(lines[4], (5, told("it has both `hash` and `value`, which are the same")));
        assert_eq!(lines[5], (6, twice("value")));
        assert_eq!(lines[6], (7, add(json!({"value": "b", "note": "x"}))));
    }
}

//! Reads what exchanges of hashes hand out: ThreatExchange, NCMEC, StopNCII and Tech Against Terrorism.
//!
//! It fetches nothing. An entry that was withdrawn there is to be removed here.

use std::{collections::BTreeMap, io::BufRead};

use anyhow::{anyhow, bail};
use quick_xml::{Reader, XmlVersion, escape::resolve_xml_entity, events::Event, name::QName};
use serde_json::{Map, Value, json};
use tidegate_schemas::banks::BankKind;

use super::{
    Format, Line, Lines, Place, What,
    bounded::{Bound, Bounded, bounded},
    kind_named,
    pages::records,
};

/// JSON: pages, lists, or single records, one after the other.
pub(super) fn pages(file: impl BufRead + Send + 'static, format: Format, kind: BankKind) -> Lines {
    let records = (1..).zip(records(file));
    Box::new(records.map(move |(number, record)| {
        let (line, record) = record?;
        let entry = record.and_then(|record| match record {
            Value::Object(record) => match format {
                Format::Stopncii => stop_ncii(&record, kind),
                Format::Tat => tat(&record, kind),
                _ => threat_exchange(&record, kind),
            },
            _ => Err("it is no object".to_owned()),
        });
        Ok(Line { place: Place { line, record: Some(number) }, entry })
    }))
}

fn text<'r>(record: &'r Map<String, Value>, key: &str) -> Option<&'r str> {
    record.get(key).and_then(Value::as_str)
}

fn needed<'r>(record: &'r Map<String, Value>, key: &str) -> Result<&'r str, String> {
    text(record, key).ok_or_else(|| format!("its `{key}` is no text"))
}

/// Numbers, too, are names.
fn name(record: &Map<String, Value>, key: &str) -> Result<Option<String>, String> {
    match record.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(Value::Number(number)) => Ok(Some(number.to_string())),
        _ => Err(format!("its `{key}` is no name")),
    }
}

/// What is neither might be meant as yes, and a hash that was taken back is not added by mistake.
fn is_so(record: &Map<String, Value>, key: &str) -> Result<bool, String> {
    match record.get(key) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(is_so)) => Ok(*is_so),
        _ => Err(format!("its `{key}` is neither true nor false")),
    }
}

fn entry(value: &str, source: &str, reference: Option<String>, labels: &[String]) -> What {
    let mut entry = json!({"value": value, "source": source});
    let labels: Vec<_> = labels.iter().filter(|label| !label.trim().is_empty()).collect();
    if !labels.is_empty() {
        entry["labels"] = json!(labels);
    }
    if let Some(reference) = reference {
        entry["reference"] = json!(reference);
    }
    What::Add(entry)
}

/// What is taken back is judged here: the service only says whether it was there.
fn gone(value: &str, source: &str, reference: Option<&str>, kind: BankKind) -> Result<What, String> {
    let value = kind.canonical(value)?;
    Ok(What::Withdraw(json!({"value": value, "source": source, "reference": reference})))
}

fn stop_ncii(record: &Map<String, Value>, kind: BankKind) -> Result<What, String> {
    let value = needed(record, "hashValue")?;
    if kind_named(needed(record, "signalType")?) != kind.hash() {
        return Ok(What::Other);
    }
    let is_gone = match needed(record, "hashStatus")? {
        "Active" => false,
        "Withdrawn" | "Deleted" => true,
        _ => return Err("its `hashStatus` is none of Active, Withdrawn and Deleted".to_owned()),
    };
    if is_gone { gone(value, "stopncii", None, kind) } else { Ok(entry(value, "stopncii", None, &[])) }
}

fn tat(record: &Map<String, Value>, kind: BankKind) -> Result<What, String> {
    let value = needed(record, "hash_digest")?;
    if kind_named(needed(record, "algorithm")?) != kind.hash() {
        return Ok(What::Other);
    }
    let reference = name(record, "id")?;
    if is_so(record, "deleted")? {
        return gone(value, "tat", reference.as_deref(), kind);
    }
    let labels: Vec<String> = name(record, "ideology")?.into_iter().collect();
    Ok(entry(value, "tat", reference, &labels))
}

fn threat_exchange(record: &Map<String, Value>, kind: BankKind) -> Result<What, String> {
    // Descriptors hold the indicator as an object, updates as a text.
    let nested = record.get("indicator").and_then(Value::as_object);
    let (value, type_name) = match nested {
        Some(inner) => (needed(inner, "indicator")?, text(inner, "type")),
        None => (needed(record, "indicator")?, None),
    };
    let type_name = type_name.map_or_else(|| needed(record, "type"), Ok)?;
    if kind_named(type_name) != kind.hash() {
        return Ok(What::Other);
    }
    let reference = name(record, "id")?;
    if is_so(record, "should_delete")? {
        return gone(value, "threatexchange", reference.as_deref(), kind);
    }
    let mut labels = tags(record);
    if let Some(descriptors) =
        record.get("descriptors").and_then(|it| it.get("data")).and_then(Value::as_array)
    {
        labels.extend(descriptors.iter().filter_map(Value::as_object).flat_map(tags));
    }
    labels.sort_unstable();
    labels.dedup();
    Ok(entry(value, "threatexchange", reference, &labels))
}

/// A list of texts, or of objects with a `text`, with or without `data` around it.
fn tags(record: &Map<String, Value>) -> Vec<String> {
    let tags = record.get("tags").map(|tags| tags.get("data").unwrap_or(tags));
    let all = tags.and_then(Value::as_array).into_iter().flatten();
    all.filter_map(|tag| tag.as_str().or_else(|| tag.get("text")?.as_str())).map(str::to_owned).collect()
}

/// What is read of an image or a video; of one that is gone there are only the names.
#[derive(Default)]
struct Record {
    /// `member`, `id` and `classification`.
    said: BTreeMap<&'static str, String>,
    twice: Option<&'static str>,
    /// As the elements are called.
    fingerprints: Vec<(String, String)>,
}

/// XML, record by record. A record with several hashes of the kind is one entry for each.
pub(super) fn ncmec(file: impl BufRead + 'static, kind: BankKind) -> Lines {
    let (file, bound) = bounded(file);
    let mut reader = Reader::from_reader(file);
    reader.config_mut().expand_empty_elements = true;
    let mut xml = Xml { reader, bound, around: Vec::new(), has_root: false };
    let mut number = 0;
    let mut place = Place { line: 1, record: None };
    let mut waiting: Vec<What> = Vec::new();
    let mut is_over = false;
    Box::new(std::iter::from_fn(move || {
        loop {
            if let Some(what) = waiting.pop() {
                return Some(Ok(Line { place, entry: Ok(what) }));
            }
            if is_over {
                return None;
            }
            xml.bound.renew();
            match xml.next_record() {
                Ok(Some(Open { record, is_gone, line, .. })) => {
                    number += 1;
                    place = Place { line, record: Some(number) };
                    match record.entries(kind, is_gone) {
                        Ok(entries) => waiting = entries,
                        Err(reason) => return Some(Ok(Line { place, entry: Err(reason) })),
                    }
                }
                Ok(None) if number == 0 && !xml.has_root => {
                    is_over = true;
                    return Some(Err(anyhow!(
                        "it is none of NCMEC: it has no image, no video and no `{ROOT}`"
                    )));
                }
                Ok(None) => is_over = true,
                Err(error) => {
                    is_over = true;
                    return Some(Err(error.context(format!("line {}", xml.bound.line()))));
                }
            }
        }
    }))
}

struct Xml<R> {
    reader: Reader<Bounded<R>>,
    bound: Bound,
    /// The elements that records are in.
    around: Vec<String>,
    /// The outermost is what NCMEC calls it, so that a file without records is one.
    has_root: bool,
}

const ROOT: &str = "queryResult";

/// An image or a video that is being read.
struct Open {
    record: Record,
    is_gone: bool,
    name: String,
    /// Where it begins.
    line: u64,
}

/// Without the name space.
fn local(name: QName<'_>) -> String {
    name.0.rsplit(':').next().unwrap_or(name.0).to_owned()
}

impl<R: BufRead> Xml<R> {
    fn next_record(&mut self) -> anyhow::Result<Option<Open>> {
        let (mut buffer, mut path, mut said): (Vec<u8>, Vec<String>, _) =
            (Vec::new(), Vec::new(), String::new());
        let mut open: Option<Open> = None;
        loop {
            buffer.clear();
            let line = self.bound.line();
            match self.reader.read_event_into(&mut buffer)? {
                Event::Start(start) => {
                    let name = local(start.name());
                    match &mut open {
                        Some(Open { record, .. }) => {
                            // Who gave feedback is a member, too.
                            if path.is_empty() && name == "member" {
                                let id = start.attributes().flatten().find(|it| local(it.key) == "id");
                                let id =
                                    id.map(|it| it.normalized_value(XmlVersion::Implicit1_0)).transpose()?;
                                record.say("member", &id.unwrap_or_default());
                            }
                            path.push(name);
                            said.clear();
                        }
                        None if matches!(
                            name.as_str(),
                            "image" | "video" | "deletedImage" | "deletedVideo"
                        ) =>
                        {
                            let is_gone = name.starts_with("deleted");
                            open = Some(Open { record: Record::default(), is_gone, name, line });
                        }
                        None => {
                            self.has_root |= self.around.is_empty() && name == ROOT;
                            self.around.push(name);
                        }
                    }
                }
                // A text may come in pieces.
                Event::Text(text) => said.push_str(&text),
                Event::CData(text) => said.push_str(&text),
                Event::GeneralRef(name) => match name.resolve_char_ref()? {
                    Some(letter) => said.push(letter),
                    None => match resolve_xml_entity(&name) {
                        Some(text) => said.push_str(text),
                        None => bail!("nobody says what `&{};` is", &*name),
                    },
                },
                Event::End(end) => {
                    let name = local(end.name());
                    match &mut open {
                        Some(Open { name: opened, .. }) if path.is_empty() && *opened == name => {
                            return Ok(open);
                        }
                        Some(Open { record, .. }) => {
                            record.take(&path, said.trim());
                            path.pop();
                        }
                        None => drop(self.around.pop()),
                    }
                    said.clear();
                }
                Event::Eof if open.is_some() => bail!("the file ends within an entry"),
                Event::Eof => match self.around.last() {
                    Some(name) => bail!("the file ends within `{name}`"),
                    None => return Ok(None),
                },
                _ => {}
            }
        }
    }
}

impl Record {
    fn take(&mut self, path: &[String], text: &str) {
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        match path.as_slice() {
            ["id"] => self.say("id", text),
            ["classification"] => self.say("classification", text),
            ["fingerprints", name] if !text.is_empty() => {
                self.fingerprints.push(((*name).to_owned(), text.to_owned()));
            }
            _ => {}
        }
    }

    fn say(&mut self, what: &'static str, text: &str) {
        if self.said.insert(what, text.to_owned()).is_some() {
            self.twice.get_or_insert(what);
        }
    }

    fn entries(mut self, kind: BankKind, is_gone: bool) -> Result<Vec<What>, String> {
        if let Some(twice) = self.twice {
            return Err(format!("it has `{twice}` twice"));
        }
        let mut said = |what: &str| self.said.remove(what).filter(|text| !text.is_empty());
        let id = said("id").ok_or("it has no `id`")?;
        let source = format!("ncmec:{}", said("member").unwrap_or_default());
        if is_gone {
            return Ok(vec![What::WithdrawName { source, reference: id }]);
        }
        let labels: Vec<String> = said("classification").into_iter().collect();
        let fingerprints = self.fingerprints.iter().map(|(name, value)| {
            if kind_named(name) != kind.hash() {
                return What::Other;
            }
            entry(value, &source, Some(id.clone()), &labels)
        });
        let mut entries: Vec<_> = fingerprints.collect();
        if entries.is_empty() {
            return Err("it has no fingerprints".to_owned());
        }
        // They are handed out from the end.
        entries.reverse();
        Ok(entries)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::{super::lines, *};

    fn of(text: &'static str, format: Format, kind: BankKind) -> Vec<Result<What, String>> {
        lines(text.as_bytes(), format, kind).unwrap().map(|line| line.unwrap().entry).collect()
    }

    fn add(entry: Value) -> Result<What, String> {
        Ok(What::Add(entry))
    }

    const HASH: &str = "00112233445566778899aabbccddeeff";

    fn taken_back(source: &str, reference: Option<&str>) -> Result<What, String> {
        Ok(What::Withdraw(json!({"value": HASH, "source": source, "reference": reference})))
    }

    #[test]
    fn stop_ncii_withdraws_what_it_once_gave() {
        let text = r#"{"count": 4, "hashRecords": [
            {"hashValue": "aa", "hashStatus": "Active", "signalType": "VideoMD5"},
            {"hashValue": "00112233445566778899AABBCCDDEEFF", "hashStatus": "Withdrawn", "signalType": "VideoMD5"},
            {"hashValue": "cc", "hashStatus": "Active", "signalType": "ImagePDQ"},
            {"hashValue": "dd", "hashStatus": "Odd", "signalType": "VideoMD5"}, 7]}"#;
        let read = of(text, Format::Stopncii, BankKind::Md5);
        assert_eq!(read[0], add(json!({"value": "aa", "source": "stopncii"})));
        assert_eq!(read[1..3], [taken_back("stopncii", None), Ok(What::Other)]);
        assert!(read[3].is_err() && read[4].is_err() && read.len() == 5);
    }

    #[test]
    fn tat_and_threat_exchange_keep_names_and_labels() {
        let text = r#"[{"id": 9, "hash_digest": "aa", "algorithm": "MD5", "ideology": "far-right", "deleted": false},
            {"id": 8, "hash_digest": "00112233445566778899aabbccddeeff", "algorithm": "MD5", "deleted": true}]"#;
        let read = of(text, Format::Tat, BankKind::Md5);
        let first = json!({"value": "aa", "source": "tat", "labels": ["far-right"], "reference": "9"});
        assert_eq!(read, [add(first), taken_back("tat", Some("8"))]);
        let text = r#"{"data": [{"id": "1", "indicator": "aa", "type": "HASH_MD5", "descriptors": {"data": [{"tags": ["b", "a"]}]}}]}
            {"data": [{"id": "2", "indicator": {"indicator": "00112233445566778899aabbccddeeff", "type": "HASH_MD5"}, "should_delete": true}]}"#;
        let read = of(text, Format::Threatexchange, BankKind::Md5);
        let first =
            json!({"value": "aa", "source": "threatexchange", "labels": ["a", "b"], "reference": "1"});
        assert_eq!(read, [add(first), taken_back("threatexchange", Some("2"))]);
    }

    #[test]
    fn ncmec_has_several_hashes_an_entry_and_names_what_is_gone() {
        let text = r#"<?xml version="1.0"?><queryResult xmlns="https://example.org/v2"><images count="3">
            <image><member id="42">Some Member</member><timestamp>2026-01-01T00:00:00Z</timestamp><id>i1</id>
              <classification>A&amp;<![CDATA[1]]></classification><fingerprints><md5>aa</md5><sha1>bb</sha1></fingerprints></image>
            <image><member id="42">Some Member</member><id>i2</id><fingerprints/></image>
            <deletedImage><member id="43">Other</member><id>i3</id></deletedImage></images>
            <videos><video><member id="42"/><id>v1</id><fingerprints><md5>cc</md5></fingerprints></video></videos></queryResult>"#;
        let read = of(text, Format::Ncmec, BankKind::Md5);
        let first = json!({"value": "aa", "source": "ncmec:42", "labels": ["A&1"], "reference": "i1"});
        assert_eq!(read[..2], [add(first), Ok(What::Other)]);
        assert!(read[2].is_err());
        let gone = What::WithdrawName { source: "ncmec:43".into(), reference: "i3".into() };
        assert_eq!(read[3], Ok(gone));
        assert_eq!(read.len(), 5);
    }

    #[test]
    fn a_record_of_ncmec_is_of_the_member_who_lists_it_and_not_of_who_voted_on_it() {
        let feedback = r#"<feedback><affirmativeFeedback type="Md5"><members><member id="77">O</member></members>
            </affirmativeFeedback></feedback>"#;
        let of_record = |rest: &str| {
            let text = format!("<q><image><member id=\"4&amp;2\"/>{rest}</image></q>");
            of(text.leak(), Format::Ncmec, BankKind::Md5).remove(0)
        };
        let prints = format!("<id>i</id><fingerprints><md5>{HASH}</md5></fingerprints>");
        let listed = json!({"value": HASH, "source": "ncmec:4&2", "reference": "i"});
        for feedback in [format!("{prints}{feedback}"), format!("{feedback}{prints}")] {
            assert_eq!(of_record(&feedback), add(listed.clone()));
        }
        for twice in ["<id>j</id>", "<member id='1'/>", "<classification>A</classification><classification/>"]
        {
            assert!(of_record(&format!("{prints}{twice}")).unwrap_err().contains("twice"), "{twice}");
        }
    }

    #[test]
    fn what_is_no_file_of_an_exchange_is_no_empty_one() {
        for text in ["", "hello", "<html><body/></html>", "<?xml version='1.0'?>", "{}"] {
            let told = told(text, Format::Ncmec);
            assert!(told.len() == 1 && told[0].contains("none of NCMEC"), "{text}: {told:?}");
        }
        for text in ["<queryResult/>", "<n:queryResult xmlns:n='x'><images count='0'/></n:queryResult>"] {
            assert!(told(text, Format::Ncmec).is_empty(), "{text}");
        }
        for format in [Format::Stopncii, Format::Tat, Format::Threatexchange] {
            for text in ["", " \n"] {
                let told = told(text, format);
                assert!(told.len() == 1 && told[0].contains("it is empty"), "{told:?}");
            }
            assert!(told("[]", format).is_empty() && told("{\"data\": []}", format).is_empty());
        }
        let entity = told("<q>\n<image><id>i&x;</id></image></q>", Format::Ncmec);
        assert!(entity.len() == 1 && entity[0].contains("line 2") && entity[0].contains("&x;"), "{entity:?}");
    }

    #[test]
    fn a_flag_that_is_no_truth_value_adds_nothing_that_may_be_taken_back() {
        for flag in ["\"true\"", "1", "[]"] {
            for (format, record) in [
                (Format::Tat, r#"{"hash_digest": "HASH", "algorithm": "MD5", "deleted": FLAG}"#),
                (
                    Format::Threatexchange,
                    r#"{"indicator": "HASH", "type": "HASH_MD5", "should_delete": FLAG}"#,
                ),
            ] {
                let text = record.replace("HASH\", ", &format!("{HASH}\", ")).replace("FLAG", flag);
                let read = of(text.leak(), format, BankKind::Md5);
                assert!(read[0].as_ref().unwrap_err().contains("neither true nor false"), "{read:?}");
            }
        }
    }

    #[test]
    fn a_malformed_hash_that_is_taken_back_is_refused_like_any() {
        for (format, text) in [
            (Format::Stopncii, r#"{"hashValue": "0", "hashStatus": "Deleted", "signalType": "VideoMD5"}"#),
            (Format::Tat, r#"{"hash_digest": "0", "algorithm": "MD5", "deleted": true}"#),
            (Format::Threatexchange, r#"{"indicator": "0", "type": "HASH_MD5", "should_delete": true}"#),
        ] {
            let read = of(text, format, BankKind::Md5);
            assert_eq!(read, [Err("an MD5 hash has 32 hexadecimal digits".to_owned())], "{format:?}");
        }
    }

    #[test]
    fn a_record_that_says_something_twice_is_refused_and_the_others_are_read() {
        for (format, twice, once) in [
            (
                Format::Tat,
                r#"{"algorithm": "MD5", "hash_digest": "aa", "hash_digest": "bb"}"#,
                r#"{"algorithm": "MD5", "hash_digest": "aa"}"#,
            ),
            (
                Format::Stopncii,
                r#"{"hashStatus": "Active", "signalType": "VideoMD5", "hashValue": "aa", "hashStatus": "Deleted"}"#,
                r#"{"hashStatus": "Active", "signalType": "VideoMD5", "hashValue": "aa"}"#,
            ),
            (
                Format::Threatexchange,
                r#"{"indicator": {"type": "HASH_MD5", "indicator": "aa", "\u0069ndicator": "bb"}}"#,
                r#"{"indicator": {"type": "HASH_MD5", "indicator": "aa"}}"#,
            ),
        ] {
            for text in [format!("{{\"data\": [{twice}, {once}]}}"), format!("{twice}\n{once}")] {
                let read = of(text.leak(), format, BankKind::Md5);
                let told = read[0].as_ref().unwrap_err();
                assert!(told.contains("stands more than once"), "{format:?}: {told}");
                assert!(matches!(read[1..], [Ok(What::Add(_))]), "{format:?}: {read:?}");
            }
        }
    }

    #[test]
    fn a_mark_before_a_page_is_passed_over() {
        for format in [Format::Stopncii, Format::Tat, Format::Threatexchange] {
            assert_eq!(told("\u{feff}[7,\n8]", format), ["line 1, record 1", "line 2, record 2"]);
            let twice = told("\u{feff}\u{feff}[7]", format);
            assert!(twice.len() == 1 && twice[0].contains("no JSON"), "{twice:?}");
        }
    }

    fn told(text: &'static str, format: Format) -> Vec<String> {
        let told = lines(text.as_bytes(), format, BankKind::Md5).unwrap();
        let told =
            told.map(|line| line.map_or_else(|fault| format!("{fault:#}"), |line| line.place.to_string()));
        told.collect()
    }

    #[test]
    fn a_record_is_told_by_the_line_that_it_begins_in() {
        let xml = "<?xml version='1.0'?>\n<q>\n\n<image>\n<id>1</id></image>\n<deletedImage\n><id>2</id></deletedImage></q>\n";
        assert_eq!(told(xml, Format::Ncmec), ["line 4, record 1", "line 6, record 2"]);
        let pages = "{\"count\": 2, \"hashRecords\":\n\n[{\n}, 7,\n\n {}]}\n [\n{}]\n{\"id\": \n1}";
        let lines = [3, 4, 6, 8, 9];
        let expected: Vec<_> =
            (1..).zip(lines).map(|(nth, line)| format!("line {line}, record {nth}")).collect();
        for format in [Format::Stopncii, Format::Tat, Format::Threatexchange] {
            assert_eq!(told(pages, format), expected);
        }
    }

    #[test]
    fn what_stands_before_a_fault_is_read_and_the_fault_has_its_line() {
        let image = "<q><images>\n<image><id>1</id><fingerprints><md5>a</md5></fingerprints></image>\n";
        for rest in ["", "<image><id>b", "</q>", "<image>\n&#0;</image></images></q>", "</images>"] {
            let text: &'static str = format!("{image}{rest}").leak();
            let told = told(text, Format::Ncmec);
            assert_eq!((told.len(), &*told[0]), (2, "line 2, record 1"), "{text}: {told:?}");
            let line = if rest.contains('\n') { "line 4: " } else { "line 3: " };
            assert!(told[1].starts_with(line), "{text}: {told:?}");
        }
        for (rest, place) in
            [("{\"id\"", "line 2 column 5"), ("}", "line 2 column 1"), ("", "line 2 column 0")]
        {
            let text: &'static str = format!("[{{\"id\": 1}},\n{rest}").leak();
            let told = told(text, Format::Tat);
            assert_eq!((told.len(), &*told[0]), (2, "line 1, record 1"), "{text}");
            assert!(told[1].contains(place), "{told:?}");
        }
    }
}

//! Tests of the changes that the records of each exchange request.

#![allow(clippy::unwrap_used)]

use std::error::Error as _;

use serde_json::{Value, json};
use tidegate_schemas::banks::BankKind;

use crate::{Change, FileError, Format, read_entries};

fn read_changes(text: &'static str, format: Format, kind: BankKind) -> Vec<Result<Change, String>> {
    read_entries(text.as_bytes(), format, kind).unwrap().map(|line| line.unwrap().change).collect()
}

fn add(entry: Value) -> Result<Change, String> {
    Ok(Change::Add(entry))
}

const HASH: &str = "00112233445566778899aabbccddeeff";

fn withdrawal(source: &str, reference: Option<&str>) -> Result<Change, String> {
    Ok(Change::Withdraw(json!({"value": HASH, "source": source, "reference": reference})))
}

#[test]
fn stop_ncii_status_adds_or_withdraws() {
    let text = r#"{"count": 4, "hashRecords": [
        {"hashValue": "aa", "hashStatus": "Active", "signalType": "VideoMD5"},
        {"hashValue": "00112233445566778899AABBCCDDEEFF", "hashStatus": "Withdrawn", "signalType": "VideoMD5"},
        {"hashValue": "cc", "hashStatus": "Active", "signalType": "ImagePDQ"},
        {"hashValue": "dd", "hashStatus": "Odd", "signalType": "VideoMD5"}, 7]}"#;
    let read = read_changes(text, Format::Stopncii, BankKind::Md5);
    assert_eq!(read[0], add(json!({"value": "aa", "source": "stopncii"})));
    assert_eq!(read[1..3], [withdrawal("stopncii", None), Ok(Change::OtherKind)]);
    assert!(read[3].is_err() && read[4].is_err() && read.len() == 5);
}

#[test]
fn tat_and_threat_exchange_keep_names_and_labels() {
    let text = r#"[{"id": 9, "hash_digest": "aa", "algorithm": "MD5", "ideology": "far-right", "deleted": false},
        {"id": 8, "hash_digest": "00112233445566778899aabbccddeeff", "algorithm": "MD5", "deleted": true}]"#;
    let read = read_changes(text, Format::Tat, BankKind::Md5);
    let first = json!({"value": "aa", "source": "tat", "labels": ["far-right"], "reference": "9"});
    assert_eq!(read, [add(first), withdrawal("tat", Some("8"))]);
    let text = r#"{"data": [{"id": "1", "indicator": "aa", "type": "HASH_MD5", "descriptors": {"data": [{"tags": ["b", "a"]}]}}]}
        {"data": [{"id": "2", "indicator": {"indicator": "00112233445566778899aabbccddeeff", "type": "HASH_MD5"}, "should_delete": true}]}"#;
    let read = read_changes(text, Format::Threatexchange, BankKind::Md5);
    let first = json!({"value": "aa", "source": "threatexchange", "labels": ["a", "b"], "reference": "1"});
    assert_eq!(read, [add(first), withdrawal("threatexchange", Some("2"))]);
}

#[test]
fn ncmec_records_have_several_hashes_or_are_withdrawn() {
    let text = r#"<?xml version="1.0"?><queryResult xmlns="https://example.org/v2"><images count="3">
        <image><member id="42">Some Member</member><timestamp>2026-01-01T00:00:00Z</timestamp><id>i1</id>
          <classification>A&amp;<![CDATA[1]]></classification><fingerprints><md5>aa</md5><sha1>bb</sha1></fingerprints></image>
        <image><member id="42">Some Member</member><id>i2</id><fingerprints/></image>
        <deletedImage><member id="43">Other</member><id>i3</id></deletedImage></images>
        <videos><video><member id="42"/><id>v1</id><fingerprints><md5>cc</md5></fingerprints></video></videos></queryResult>"#;
    let read = read_changes(text, Format::Ncmec, BankKind::Md5);
    let first = json!({"value": "aa", "source": "ncmec:42", "labels": ["A&1"], "reference": "i1"});
    assert_eq!(read[..2], [add(first), Ok(Change::OtherKind)]);
    assert!(read[2].is_err());
    let withdrawal_by_reference =
        Change::WithdrawByReference { source: "ncmec:43".into(), reference: "i3".into() };
    assert_eq!(read[3], Ok(withdrawal_by_reference));
    assert_eq!(read.len(), 5);
}

#[test]
fn ncmec_record_belongs_to_the_listing_member() {
    let feedback = r#"<feedback><affirmativeFeedback type="Md5"><members><member id="77">O</member></members>
        </affirmativeFeedback></feedback>"#;
    let of_record = |rest: &str| {
        let text = format!("<q><image><member id=\"4&amp;2\"/>{rest}</image></q>");
        read_changes(text.leak(), Format::Ncmec, BankKind::Md5).remove(0)
    };
    let prints = format!("<id>i</id><fingerprints><md5>{HASH}</md5></fingerprints>");
    let listed = json!({"value": HASH, "source": "ncmec:4&2", "reference": "i"});
    for feedback in [format!("{prints}{feedback}"), format!("{feedback}{prints}")] {
        assert_eq!(of_record(&feedback), add(listed.clone()));
    }
    for twice in ["<id>j</id>", "<member id='1'/>", "<classification>A</classification><classification/>"] {
        assert!(of_record(&format!("{prints}{twice}")).unwrap_err().contains("twice"), "{twice}");
    }
}

#[test]
fn file_of_another_format_is_not_an_empty_file() {
    for text in ["", "hello", "<html><body/></html>", "<?xml version='1.0'?>", "{}"] {
        let told = outcomes(text, Format::Ncmec);
        assert!(told.len() == 1 && told[0].contains("none of NCMEC"), "{text}: {told:?}");
    }
    for text in ["<queryResult/>", "<n:queryResult xmlns:n='x'><images count='0'/></n:queryResult>"] {
        assert!(outcomes(text, Format::Ncmec).is_empty(), "{text}");
    }
    for format in [Format::Stopncii, Format::Tat, Format::Threatexchange] {
        for text in ["", " \n"] {
            let told = outcomes(text, format);
            assert!(told.len() == 1 && told[0].contains("it is empty"), "{told:?}");
        }
        assert!(outcomes("[]", format).is_empty() && outcomes("{\"data\": []}", format).is_empty());
    }
    let entity = outcomes("<q>\n<image><id>i&x;</id></image></q>", Format::Ncmec);
    assert!(entity.len() == 1 && entity[0].contains("line 2") && entity[0].contains("&x;"), "{entity:?}");
}

#[test]
fn invalid_withdrawal_flag_refuses_the_record() {
    for flag in ["\"true\"", "1", "[]"] {
        for (format, record) in [
            (Format::Tat, r#"{"hash_digest": "HASH", "algorithm": "MD5", "deleted": FLAG}"#),
            (Format::Threatexchange, r#"{"indicator": "HASH", "type": "HASH_MD5", "should_delete": FLAG}"#),
        ] {
            let text = record.replace("HASH\", ", &format!("{HASH}\", ")).replace("FLAG", flag);
            let read = read_changes(text.leak(), format, BankKind::Md5);
            assert!(read[0].as_ref().unwrap_err().contains("neither true nor false"), "{read:?}");
        }
    }
}

#[test]
fn withdrawal_of_a_malformed_hash_is_refused() {
    for (format, text) in [
        (Format::Stopncii, r#"{"hashValue": "0", "hashStatus": "Deleted", "signalType": "VideoMD5"}"#),
        (Format::Tat, r#"{"hash_digest": "0", "algorithm": "MD5", "deleted": true}"#),
        (Format::Threatexchange, r#"{"indicator": "0", "type": "HASH_MD5", "should_delete": true}"#),
    ] {
        let read = read_changes(text, format, BankKind::Md5);
        assert_eq!(read, [Err("an MD5 hash has 32 hexadecimal digits".to_owned())], "{format:?}");
    }
}

#[test]
fn only_the_record_with_a_repeated_key_is_refused() {
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
            let read = read_changes(text.leak(), format, BankKind::Md5);
            let told = read[0].as_ref().unwrap_err();
            assert!(told.contains("occurs more than once"), "{format:?}: {told}");
            assert!(matches!(read[1..], [Ok(Change::Add(_))]), "{format:?}: {read:?}");
        }
    }
}

#[test]
fn byte_order_mark_is_skipped() {
    for format in [Format::Stopncii, Format::Tat, Format::Threatexchange] {
        assert_eq!(outcomes("\u{feff}[7,\n8]", format), ["line 1, record 1", "line 2, record 2"]);
        let twice = outcomes("\u{feff}\u{feff}[7]", format);
        assert!(twice.len() == 1 && twice[0].contains("no JSON"), "{twice:?}");
    }
}

/// Returns the error with its cause, as the program shows it.
fn error_chain(error: &FileError) -> String {
    error.source().map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}

fn outcomes(text: &'static str, format: Format) -> Vec<String> {
    let entries = read_entries(text.as_bytes(), format, BankKind::Md5).unwrap();
    let outcomes =
        entries.map(|line| line.map_or_else(|fault| error_chain(&fault), |line| line.position.to_string()));
    outcomes.collect()
}

#[test]
fn record_position_is_its_first_line() {
    let xml = "<?xml version='1.0'?>\n<q>\n\n<image>\n<id>1</id></image>\n<deletedImage\n><id>2</id></deletedImage></q>\n";
    assert_eq!(outcomes(xml, Format::Ncmec), ["line 4, record 1", "line 6, record 2"]);
    let pages = "{\"count\": 2, \"hashRecords\":\n\n[{\n}, 7,\n\n {}]}\n [\n{}]\n{\"id\": \n1}";
    let lines = [3, 4, 6, 8, 9];
    let expected: Vec<_> = (1..).zip(lines).map(|(nth, line)| format!("line {line}, record {nth}")).collect();
    for format in [Format::Stopncii, Format::Tat, Format::Threatexchange] {
        assert_eq!(outcomes(pages, format), expected);
    }
}

#[test]
fn records_before_a_fault_are_read() {
    let image = "<q><images>\n<image><id>1</id><fingerprints><md5>a</md5></fingerprints></image>\n";
    for rest in ["", "<image><id>b", "</q>", "<image>\n&#0;</image></images></q>", "</images>"] {
        let text: &'static str = format!("{image}{rest}").leak();
        let told = outcomes(text, Format::Ncmec);
        assert_eq!((told.len(), &*told[0]), (2, "line 2, record 1"), "{text}: {told:?}");
        let line = if rest.contains('\n') { "line 4: " } else { "line 3: " };
        assert!(told[1].starts_with(line), "{text}: {told:?}");
    }
    for (rest, place) in [("{\"id\"", "line 2 column 5"), ("}", "line 2 column 1"), ("", "line 2 column 0")] {
        let text: &'static str = format!("[{{\"id\": 1}},\n{rest}").leak();
        let told = outcomes(text, Format::Tat);
        assert_eq!((told.len(), &*told[0]), (2, "line 1, record 1"), "{text}");
        assert!(told[1].contains(place), "{told:?}");
    }
}

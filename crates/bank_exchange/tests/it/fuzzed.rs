//! Runs the bodies of the fuzz targets from seeds: valid files, garbled.

use tidegate_test_support::garbled::run;

#[path = "../../../../fuzz/src/banks.rs"]
#[allow(unreachable_pub, reason = "a crate of its own elsewhere")]
mod targets;

const PDQ: &str = "f8f8f0cee0f4a84f06370a22038f63f0b36e2ed596621e1d33e6b39c4e9c9b22";

const LINES: &[&[u8]] = &[
    b"pdq f8f8f0cee0f4a84f06370a22038f63f0b36e2ed596621e1d33e6b39c4e9c9b22\n\nvideo_md5 d41d8cd98f00b204e9800998ecf8427e\r\n",
    b"\xef\xbb\xbff8f8f0cee0f4a84f06370a22038f63f0b36e2ed596621e1d33e6b39c4e9c9b22,a.jpg\n1,80,f8f8,1.5\n",
    b"bad.example\n52.52,13.405,500\nu33dc\nfree coins\n",
];

const TABLES: &[&[u8]] = &[
    b"signal_type,hash,content_id,labels,note,max_distance\npdq,f8f8,7,a|b,why,12\nmd5,d41d,,,,\n",
    b"labels,value,expires_at,disabled\na|b,\"one, two\",2026-01-01T00:00:00Z,true\n,\"over\nlines\",,\nx\n",
    b"value\r\nx\r\n\"\"\"y\"\"\"\r\n",
];

const JSON_LINES: &[&[u8]] = &[
    b"\"one\"\n{\"value\":\"two\",\"labels\":[\"a\"],\"source\":null,\"max_distance\":3}\n[1]\n{\n",
    b"{\"value\":\"a\",\"hash\":\"b\",\"labels\":[],\"labels\":[\"x\"]}\n",
    b"{\"hash\":\"f8f8\",\"signalType\":\"pdq\",\"disabled\":false,\"note\":\"\\u00e9\"}\n",
];

const PAGES: &[&[u8]] = &[
    br#"{"count":2,"hashRecords":[{"hashValue":"aa","hashStatus":"Active","signalType":"ImagePDQ"},{"hashValue":"bb","hashStatus":"Withdrawn","signalType":"VideoMD5"}]}"#,
    br#"[{"id":9,"hash_digest":"aa","algorithm":"MD5","ideology":"x","deleted":true}]{"hash_digest":1}"#,
    br#"{"data":[{"id":"1","indicator":{"indicator":"aa","type":"HASH_PDQ"},"descriptors":{"data":[{"tags":["b",{"text":"a"}]}]},"should_delete":false}]}"#,
];

const XML: &[&[u8]] = &[
    br#"<?xml version="1.0"?><q xmlns="https://example.org/v2"><images><image><member id="42">M</member><id>i&amp;1</id><classification>A1</classification><fingerprints><md5>aa</md5><pdna>bb</pdna><sha1><![CDATA[cc]]></sha1></fingerprints></image></images></q>"#,
    br#"<q><deletedImage><member id="43"/><id>i3</id></deletedImage><videos><n:video xmlns:n="x"><n:id>&#118;</n:id></n:video></videos></q>"#,
];

const PIECES: &[&[u8]] = &[
    b"\"",
    b"'",
    b",",
    b"\n",
    b"\r",
    b"\0",
    b"|",
    b"{",
    b"}",
    b"[",
    b"]",
    b":",
    b"null",
    b"1e400",
    b"<",
    b">",
    b"</",
    b"/>",
    b"&",
    b"&x;",
    b"&#0;",
    b"&#x110000;",
    b"<!--",
    b"<![CDATA[",
    b"]]>",
    b"<?",
    b"\xff",
    b"\xc3",
    b"\xef\xbb\xbf",
    b"\\u",
    b"\\ud800",
    b"pdq ",
    b"netclean x",
    b"99999999999999999999",
    PDQ.as_bytes(),
    b"<image>",
    b"</image>",
    b"<id>",
];

#[test]
fn a_garbled_file_of_lines_is_read_to_its_end() {
    run(3_000, LINES, PIECES, targets::lines);
}

#[test]
fn a_garbled_table_is_read_to_its_end() {
    run(3_000, TABLES, PIECES, targets::table);
}

#[test]
fn garbled_lines_of_json_are_read_to_their_end() {
    run(3_000, JSON_LINES, PIECES, targets::json_lines);
}

#[test]
fn a_garbled_page_is_read_to_its_end() {
    run(2_000, PAGES, PIECES, targets::pages);
}

#[test]
fn garbled_xml_is_read_to_its_end() {
    run(3_000, XML, PIECES, targets::xml);
}

#[test]
fn a_garbled_value_is_kept_in_its_own_form_or_refused() {
    let all: Vec<&[u8]> = LINES.iter().chain(PIECES).copied().collect();
    run(5_000, &all, PIECES, targets::value);
}

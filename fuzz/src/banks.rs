//! What must hold for every file of entries: no panic, an end, each entry with its place and a reason where it is refused.
#![allow(clippy::unwrap_used, reason = "a panic is a finding")]

use std::io::Cursor;

use tidegate_schemas::banks::{BankKind, HashKind};

use tidegate_bank_exchange::{Change, Format, read_entries};

const KINDS: [BankKind; 6] =
    [BankKind::Text, BankKind::Geo, BankKind::Domain, BankKind::Pdq, BankKind::Md5, BankKind::Photodna];

fn read(bytes: &[u8], format: Format) {
    for kind in KINDS {
        // A file that is none as a whole says so at once.
        let Ok(lines) = read_entries(Cursor::new(bytes.to_vec()), format, kind) else { continue };
        let (mut last, mut count) = (None, 0);
        for line in lines {
            count += 1;
            assert!(count <= bytes.len() + 1, "more entries than bytes");
            // Nothing follows what cannot be read.
            let Ok(line) = line else { break };
            assert!(Some(line.position) >= last, "entries come in their order");
            last = Some(line.position);
            match line.change {
                Ok(Change::Add(entry)) => {
                    let value = entry.as_str().or_else(|| entry.get("value")?.as_str());
                    canonical(kind, value.unwrap());
                }
                Ok(_) => {}
                Err(reason) => assert!(!reason.is_empty()),
            }
        }
    }
}

/// What is kept is its own form, and an entry's id is that of what is compared.
fn canonical(kind: BankKind, value: &str) {
    let Ok(kept) = kind.canonical(value) else { return };
    assert_eq!(kind.canonical(&kept).as_deref(), Ok(&*kept), "{value:?}");
    if let Some(kind) = kind.hash_kind() {
        assert!(tidegate_media::banks::Hash::parse(kind, &kept).is_some(), "{value:?}");
    }
}

/// An entry, of any kind.
pub fn value(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    KINDS.into_iter().for_each(|kind| canonical(kind, text));
    HashKind::ALL.into_iter().for_each(|kind| drop(kind.canonical(text)));
}

pub fn lines(bytes: &[u8]) {
    read(bytes, Format::Lines);
}

pub fn table(bytes: &[u8]) {
    read(bytes, Format::Csv);
}

pub fn json_lines(bytes: &[u8]) {
    read(bytes, Format::Ndjson);
}

/// All exchanges that hand out JSON.
pub fn pages(bytes: &[u8]) {
    [Format::Threatexchange, Format::Stopncii, Format::Tat]
        .into_iter()
        .for_each(|format| read(bytes, format));
}

pub fn xml(bytes: &[u8]) {
    read(bytes, Format::Ncmec);
}

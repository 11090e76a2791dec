//! Does the reader refuse what does not fit, name the place, and show no content?

use bytes::Bytes;

use super::{
    super::{
        AvroError, Coordinates, Evaluation, ItemEntry, Items, Record, Source, Variant,
        avro::{Field, Reader, decode_datum, write_long},
    },
    decoded, encoded,
};
use crate::ids::{ConfigVersion, ItemKey, Millis, OrgId, SubmissionId};

fn items(data: &'static [u8]) -> Items {
    Items {
        org: OrgId::new("acme"),
        config_version: ConfigVersion(7),
        source: Source::Api,
        received_at: Millis(1_700_000_000_000),
        request_id: "r-1".into(),
        report_id: None,
        items: vec![ItemEntry {
            submission_id: SubmissionId::from(uuid::Uuid::from_u128(7)),
            type_id: "post".into(),
            id: "1".into(),
            type_version: None,
            variant: Variant::Original,
            data: Bytes::from_static(data),
            origin: Some(Coordinates { append_ms: Millis(1), offset: 2, position: 3 }),
            keyed: true,
        }],
    }
}

fn longs(values: &[i64]) -> Bytes {
    let mut out = Vec::new();
    values.iter().for_each(|value| write_long(&mut out, *value));
    Bytes::from(out)
}

fn error<F: Field + std::fmt::Debug>(datum: &Bytes) -> AvroError {
    decode_datum::<F>(datum).unwrap_err().error().clone()
}

#[test]
fn item_data_is_a_slice_of_the_datum() {
    let datum = Bytes::from(encoded(&items(br#"{"text":"hi"}"#)));
    let data = Items::decode(&datum).unwrap().items[0].data.clone();
    let start = data.as_ptr() as usize - datum.as_ptr() as usize;
    assert_eq!(datum.slice(start..start + data.len()), data);
}

#[test]
fn items_of_one_type_share_its_text() {
    let mut items = items(b"{}");
    let other = ItemEntry { type_id: "comment".into(), ..items.items[0].clone() };
    items.items = vec![items.items[0].clone(), items.items[0].clone(), other, items.items[0].clone()];
    let read = decoded::<Items>(&encoded(&items)).unwrap();
    assert_eq!(read, items);
    let text = |at: usize| read.items[at].type_id.as_str().as_ptr();
    assert_eq!(text(0), text(1));
    assert_ne!(text(1), text(3));
}

#[test]
fn error_has_its_path_and_no_content() {
    let mut datum = encoded(&items(br#"{"text":"secret"}"#));
    let keyed = datum.len() - 2;
    datum[keyed] = 7;
    let malformed = decoded::<Items>(&datum).unwrap_err();
    assert_eq!(malformed.path(), "items[0].keyed");
    assert_eq!(malformed.tag(), "bad_boolean");
    assert_eq!(
        malformed.to_string(),
        "malformed record `items` at `items[0].keyed`: a boolean is neither 0 nor 1"
    );
    assert!(!format!("{malformed:?}").contains("secret"));
}

#[test]
fn every_strict_prefix_of_a_datum_is_refused() {
    let datum = encoded(&items(b"{}"));
    for end in 0..datum.len() {
        decoded::<Items>(&datum[..end]).unwrap_err();
    }
    let longer = [datum.as_slice(), &[0]].concat();
    assert_eq!(
        decoded::<Items>(&longer).unwrap_err().to_string(),
        "malformed record `items`: bytes follow the datum"
    );
}

#[test]
fn length_beyond_the_datum_is_refused() {
    for length in [-1, 3, i64::MAX, i64::MIN] {
        let datum = [longs(&[length]).as_ref(), b"ab"].concat();
        assert_eq!(error::<String>(&Bytes::from(datum.clone())), AvroError::Length);
        assert_eq!(error::<Bytes>(&Bytes::from(datum)), AvroError::Length);
    }
}

#[test]
fn array_count_is_bounded_by_the_remaining_bytes() {
    assert_eq!(error::<Vec<i64>>(&longs(&[i64::MAX, 0])), AvroError::Block);
    assert_eq!(error::<Vec<i64>>(&longs(&[i64::MIN, 1, 0])), AvroError::Block);
    assert_eq!(error::<Vec<SubmissionId>>(&longs(&[2, 0, 0, 0, 0])), AvroError::Block);
    assert_eq!(error::<Vec<i64>>(&longs(&[1, 5])), AvroError::Truncated);
}

#[test]
fn arrays_may_have_several_blocks_with_sizes() {
    assert_eq!(decode_datum::<Vec<i64>>(&longs(&[1, 5, -2, 2, 6, 7, 1, 8, 0])), Ok(vec![5, 6, 7, 8]));
    assert_eq!(error::<Vec<i64>>(&longs(&[-2, 3, 6, 7, 0])), AvroError::Block);
    assert_eq!(error::<Vec<i64>>(&longs(&[-2, -1, 6, 7, 0])), AvroError::Block);
}

#[test]
fn an_integer_has_at_most_64_bits() {
    let mut nine_full = vec![0xff; 9];
    nine_full.push(1);
    assert_eq!(decode_datum::<i64>(&Bytes::from(nine_full.clone())), Ok(i64::MIN));
    nine_full[9] = 2;
    assert_eq!(error::<i64>(&Bytes::from(nine_full)), AvroError::Varint);
    assert_eq!(error::<i64>(&Bytes::from(vec![0x80; 11])), AvroError::Varint);
    assert_eq!(error::<i32>(&longs(&[1 << 31])), AvroError::Range);
    assert_eq!(decode_datum::<i32>(&longs(&[i64::from(i32::MIN)])), Ok(i32::MIN));
}

#[test]
fn unknown_symbols_branches_and_text_are_refused() {
    assert_eq!(error::<Source>(&longs(&[5])), AvroError::Symbol);
    assert_eq!(error::<Source>(&longs(&[-1])), AvroError::Symbol);
    assert_eq!(error::<Option<i64>>(&longs(&[2, 0])), AvroError::Branch);
    assert_eq!(error::<String>(&Bytes::from_static(&[2, 0xff])), AvroError::Utf8);
    let whole = Bytes::from_static(&[2]);
    assert!(Reader::new(&whole).end().is_err());
}

#[test]
fn a_symbol_is_found_by_its_name() {
    for source in Source::ALL {
        assert_eq!(source.as_str().parse::<Source>().ok(), Some(*source));
    }
    assert_eq!("Api".parse::<Source>().ok(), None);
}

#[test]
fn debug_shows_ids_but_only_the_length_of_content() {
    let shown = format!("{:?}", items(br#"{"text":"secret"}"#));
    assert!(shown.contains("acme") && shown.contains("data: 17 bytes"), "{shown}");
    assert!(!shown.contains("secret"));
    let evaluation = Evaluation {
        org: OrgId::new("acme"),
        submission_id: SubmissionId::from(uuid::Uuid::nil()),
        item: ItemKey::new("post", "1"),
        evaluated_at: Millis(1),
        config_version: ConfigVersion(1),
        matched: "secret".into(),
        errored: String::new(),
        left_out: None,
    };
    let shown = format!("{evaluation:?}");
    assert!(shown.contains("post/1") && shown.contains("matched: 6 bytes"), "{shown}");
    assert!(!shown.contains("secret"));
}

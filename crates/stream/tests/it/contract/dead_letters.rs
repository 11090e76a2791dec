//! Dead letters keep unprocessable records with their origin.

use tidegate_schemas::{
    ids::{OrgId, SubmissionId},
    records::DeadLetter,
};
use tidegate_stream::{
    Record, Topic,
    consumer::ticket::DeadLetterReason,
    page_reader::{Order, Query},
};

use crate::{
    contract::fixture::{Fixture, contract},
    support::{BUDGET, complete, consume, items, receive, stop},
};

contract! {
    dead_letter_carries_its_origin_and_is_durable
}

async fn dead_letter_carries_its_origin_and_is_durable(fixture: &Fixture) {
    let log = fixture.open().await;
    let headers: [(&str, &[u8]); 1] = [("traceparent", b"00-abc")];
    let record = |value: &'static [u8]| Record::new(b"the key", value).with_headers(&headers);
    log.append(&[(items(2), record(b"first")), (items(2), record(b"whole"))]).await.unwrap();
    let mut inbox = consume(&log, BUDGET);
    let records = receive(&mut inbox, 2).await;
    let submission = SubmissionId::random();
    let reason = DeadLetterReason {
        stage: "evaluate",
        tag: "unknown_type",
        detail: "item type post is not known".to_owned(),
        org: Some(OrgId::new("org-1")),
        submission_id: Some(submission),
    };
    records[1].ticket.dead_letter(b"failing part", reason).await.unwrap();
    let written_at = records[1].written_at;
    complete(records);
    stop(inbox).await;
    fixture.close(log).await;

    let log = fixture.open().await;
    let query = Query { topic: Topic::DeadLetters, order: Order::Newest, limit: 10, after: None };
    let page = log.read_page(query).await.unwrap();
    assert_eq!((page.records.len(), page.next), (1, None));
    assert_eq!(&page.records[0].key[..], b"the key", "the dead letter keeps the key");
    let letter: DeadLetter = page.records[0].decode().unwrap();
    assert_eq!(
        (letter.topic.as_str(), letter.partition, letter.offset, letter.written_at),
        ("items", 2, 1, written_at)
    );
    assert_eq!((letter.stage.as_str(), letter.reason.as_str()), ("evaluate", "unknown_type"));
    assert_eq!(letter.detail, "item type post is not known");
    assert_eq!((letter.org, letter.submission_id), (Some(OrgId::new("org-1")), Some(submission)));
    assert_eq!(&letter.key[..], b"the key");
    assert_eq!(letter.headers.len(), 1);
    assert_eq!(
        (letter.headers[0].name.as_str(), &letter.headers[0].value[..]),
        ("traceparent", &b"00-abc"[..])
    );
    // Framed as a record of its own topic, so that a replay appends it as it is.
    assert_eq!((letter.value[0], &letter.value[5..]), (0, &b"failing part"[..]));
    assert!(letter.failed_at >= written_at);
    fixture.close(log).await;
}

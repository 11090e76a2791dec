//! Errors for data and settings with which a log does not open.

use tidegate_stream::{error::OpenError, settings::Settings};

use crate::contract::fixture::{Fixture, contract};

contract! {
    another_partition_count_is_refused_naming_both
}

async fn another_partition_count_is_refused_naming_both(fixture: &Fixture) {
    let log = fixture.open().await;
    fixture.close(log).await;
    let changed_settings = Settings { partitions: Some(8), ..fixture.settings() };
    let error = fixture.open_with(&changed_settings).await.unwrap_err();
    assert!(matches!(error, OpenError::PartitionCount { configured: 8, found: 4, .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("has 4 partitions") && text.contains("stream.partitions is 8"), "{text}");
    let log = fixture.open().await;
    fixture.close(log).await;
}

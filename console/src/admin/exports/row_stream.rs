//! Body of an export: reads a page of rows when the client has taken the lines of the last one.

use std::{collections::VecDeque, mem};

use axum::{body::Body, http::StatusCode};
use bytes::Bytes;
use futures::{Stream, stream};
use tidegate_history::{Column, Dataset, RowReader, StoredRow, Value, ndjson};
use tidegate_store::tables::catalog::audit::AuditEntry;
use tokio::{sync::OwnedSemaphorePermit, task::yield_now};

use crate::{admin::access::audit, api::Api};

/// Bytes of lines that are sent at once. Long exports then share the threads with short requests.
const CHUNK_BYTES: usize = 64 << 10;

/// Rows of one export that are still to be sent.
pub(super) struct RowStream {
    api: Api,
    reader: RowReader,
    dataset: Dataset,
    columns: LineColumns,
    /// Rows of the current page.
    rows: VecDeque<StoredRow>,
    /// Number of rows that were written to lines.
    written_rows: u64,
    entry: AuditEntry,
    _permit: OwnedSemaphorePermit,
}

/// Columns of the lines, and their places in a row.
struct LineColumns {
    columns: Vec<Column>,
    places: Vec<usize>,
}

impl LineColumns {
    fn new(dataset: Dataset, columns: &[&'static Column]) -> Self {
        let place = |column: &&'static Column| {
            dataset.columns().iter().position(|declared| declared.name == column.name)
        };
        Self {
            columns: columns.iter().map(|column| **column).collect(),
            places: columns.iter().filter_map(place).collect(),
        }
    }

    fn write_line(&self, values: &[Value<'_>], out: &mut Vec<u8>) {
        let is_start_of_row = self.places.iter().enumerate().all(|(nth, place)| nth == *place);
        if is_start_of_row {
            return ndjson::write_row(&self.columns, values, out);
        }
        let selected_values: Vec<_> = self.places.iter().map(|place| values[*place].clone()).collect();
        ndjson::write_row(&self.columns, &selected_values, out);
    }
}

impl RowStream {
    pub(super) fn new(
        api: Api,
        dataset: Dataset,
        reader: RowReader,
        columns: &[&'static Column],
        entry: AuditEntry,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        let columns = LineColumns::new(dataset, columns);
        let rows = VecDeque::new();
        Self { api, reader, dataset, columns, rows, written_rows: 0, entry, _permit: permit }
    }

    pub(super) fn into_body(self) -> Body {
        Body::from_stream(self.into_chunks())
    }

    /// An error ends the body without its last chunk, so that the client sees that rows are missing.
    fn into_chunks(self) -> impl Stream<Item = Result<Bytes, tidegate_history::Error>> {
        stream::try_unfold(self, |mut rows| async move {
            match rows.write_chunk().await {
                Ok(Some(chunk)) => Ok(Some((chunk, rows))),
                Ok(None) => {
                    rows.record_end().await;
                    Ok(None)
                }
                Err(error) => {
                    rows.log_failure(&error);
                    Err(error)
                }
            }
        })
    }

    /// Returns the lines of the next rows; `None` after the last row.
    async fn write_chunk(&mut self) -> Result<Option<Bytes>, tidegate_history::Error> {
        let mut lines = Vec::with_capacity(CHUNK_BYTES + (CHUNK_BYTES >> 3));
        loop {
            while let Some(row) = self.rows.pop_front() {
                row.read(self.dataset, |values| self.columns.write_line(values, &mut lines))?;
                self.written_rows += 1;
                if lines.len() >= CHUNK_BYTES {
                    // A client that reads at once would otherwise keep the thread until the end of the page.
                    yield_now().await;
                    return Ok(Some(Bytes::from(mem::take(&mut lines))));
                }
            }
            match self.reader.next_page().await? {
                Some(page) => self.rows = page.into(),
                None if lines.is_empty() => return Ok(None),
                None => return Ok(Some(lines.into())),
            }
        }
    }

    /// Adds status and row count to the entry in the audit. The entry of an incomplete export has none.
    async fn record_end(&mut self) {
        let detail = self.entry.detail.as_deref().and_then(|detail| serde_json::from_str(detail).ok());
        let mut detail: serde_json::Value = detail.unwrap_or_default();
        detail["rows"] = self.written_rows.into();
        self.entry.detail = Some(detail.to_string());
        self.entry.status = Some(StatusCode::OK.as_u16().into());
        audit::record_outcome(&self.api, &self.entry).await;
    }

    fn log_failure(&self, error: &tidegate_history::Error) {
        let (org, dataset, rows) = (&self.entry.org, self.dataset, self.written_rows);
        tracing::error!(tag = error.tag(), %error, %org, %dataset, rows, "an export was ended before its last row");
    }
}

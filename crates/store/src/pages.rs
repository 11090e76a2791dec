//! Reads the rows of a scan page by page, from either engine.

use std::{marker::PhantomData, sync::Arc};

use futures::{FutureExt as _, Stream, StreamExt, TryStreamExt, future::BoxFuture, stream};

use crate::{Cursor, Error, Row, cql, embedded, range::Cells};

/// Running scan. The first read happens with the first page.
///
/// Dropping the future of a page ends the scan with an error; continue with a new scan from [`Pages::cursor`].
pub struct Pages<R> {
    source: Source,
    page_rows: usize,
    remaining_rows: Option<usize>,
    /// False for scans of whole tables, which have no cursors.
    has_cursor: bool,
    last_cursor: Option<Cursor>,
    is_ended: bool,
    marker: PhantomData<fn() -> R>,
}

pub(crate) enum Source {
    Failed(Error),
    Cql(cql::CqlScan),
    Embedded(embedded::walk::KeyRangeScan),
    /// A page is being read, or its future was dropped.
    InUse,
}

/// Undecoded rows of one page.
enum RawPage {
    Cql(cql::CqlPage),
    Embedded(Arc<embedded::Slot>, Vec<embedded::walk::Entry>),
}

impl Source {
    /// Reads up to `max_rows` rows. Boxed: the engines' futures are compiled here only, and not with every row type.
    fn read_page(&mut self, max_rows: usize) -> BoxFuture<'_, Result<RawPage, Error>> {
        async move {
            // A dropped or failed read loses its position, so the scan stays unusable then.
            match std::mem::replace(self, Self::InUse) {
                // The scan could not be started. `scan` itself returns no error, so the first page reports it.
                Self::Failed(error) => Err(error),
                Self::InUse => Err(Error::Engine("a page of this scan was abandoned or failed".to_owned())),
                Self::Cql(mut scan) => {
                    let page = scan.read_page(max_rows).await?;
                    *self = Self::Cql(scan);
                    Ok(RawPage::Cql(page))
                }
                Self::Embedded(scan) => {
                    let (scan, entries) = scan.read_page(max_rows).await;
                    let page = RawPage::Embedded(Arc::clone(scan.slot()), entries?);
                    *self = Self::Embedded(scan);
                    Ok(page)
                }
            }
        }
        .boxed()
    }
}

impl RawPage {
    fn decode<R: Row>(&self) -> Result<Vec<R>, Error> {
        match self {
            Self::Cql(page) => page.decode(),
            Self::Embedded(slot, entries) => {
                entries.iter().map(|entry| embedded::decode(slot, entry)).collect()
            }
        }
    }
}

impl<R: Row> Pages<R> {
    pub(crate) fn new(
        source: Result<Source, Error>,
        page_rows: usize,
        limit: Option<usize>,
        has_cursor: bool,
    ) -> Self {
        let source = source.unwrap_or_else(Source::Failed);
        Self {
            source,
            page_rows,
            remaining_rows: limit,
            has_cursor,
            last_cursor: None,
            is_ended: false,
            marker: PhantomData,
        }
    }

    /// Reads the next rows; `None` after the last. A page is never empty.
    pub async fn next_page(&mut self) -> Result<Option<Vec<R>>, Error> {
        if self.is_ended || self.remaining_rows == Some(0) {
            self.is_ended = true;
            return Ok(None);
        }
        let max_rows =
            self.remaining_rows.map_or(self.page_rows, |remaining_rows| remaining_rows.min(self.page_rows));
        let page = self.source.read_page(max_rows).await?;
        let rows = page.decode::<R>().inspect_err(|_| self.source = Source::InUse)?;
        // A short page is the end of the range, so no further read is needed.
        self.is_ended = rows.len() < max_rows;
        self.remaining_rows = self.remaining_rows.map(|remaining_rows| remaining_rows - rows.len());
        match rows.last() {
            Some(last) if self.has_cursor => self.last_cursor = Some(Cursor::after(last)),
            Some(_) => {}
            None => return Ok(None),
        }
        Ok(Some(rows))
    }

    /// Reads all remaining rows within the limit.
    pub async fn all(&mut self) -> Result<Vec<R>, Error> {
        let mut rows = Vec::new();
        while let Some(page) = self.next_page().await? {
            if rows.is_empty() {
                // Most scans have one page, which is moved and not copied.
                rows = page;
            } else {
                rows.extend(page);
            }
        }
        Ok(rows)
    }

    /// Returns the rows one by one. The next page is read once all rows of the previous one are taken.
    pub fn stream(self) -> impl Stream<Item = Result<R, Error>> + Send {
        stream::try_unfold(self, |mut pages| async move {
            let page = pages.next_page().await?;
            Ok::<_, Error>(page.map(|page| (stream::iter(page).map(Ok), pages)))
        })
        .try_flatten()
    }

    /// Returns the cursor after the rows that were read; `None` after the last one, and for scans of whole tables.
    pub fn cursor(&self) -> Option<Cursor> {
        // A scan that ended at its limit may have more rows, so it keeps its cursor.
        if self.is_ended && self.remaining_rows != Some(0) { None } else { self.last_cursor.clone() }
    }
}

impl Cursor {
    /// Returns the cursor after a row. It stays at that row even if earlier rows are added or removed.
    pub fn after<R: Row>(row: &R) -> Self {
        let cluster = row.to_cluster();
        let mut cells = Vec::new();
        cluster.cells(&mut cells);
        let mut bytes = Vec::new();
        embedded::key::push_all(&mut bytes, &cells, R::TABLE.cluster_columns());
        Self(bytes)
    }
}

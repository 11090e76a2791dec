//! The rows of a scan, page by page.
//!
//! It does not know where rows come from; each engine has a walk that it drives.

use std::marker::PhantomData;

use futures::{Stream, StreamExt, TryStreamExt, stream};

use crate::{Cursor, Error, Row, cql, embedded, range::Cells};

/// A running scan. Nothing is read before the first page is asked for.
///
/// A page that is asked for and then dropped before it is there ends the scan with an error; continue from
/// [`Pages::cursor`] with a new one.
pub struct Pages<R> {
    source: Source,
    page: usize,
    left: Option<usize>,
    /// End of the last page; `None` for scans of whole tables, which have no cursors.
    resumable: bool,
    last: Option<Cursor>,
    ended: bool,
    of: PhantomData<fn() -> R>,
}

pub(crate) enum Source {
    Failed(Error),
    Cql(cql::Walk),
    Embedded(embedded::walk::Walk),
    /// A page is being read, or its reader was dropped.
    Away,
}

impl<R: Row> Pages<R> {
    pub(crate) fn new(
        source: Result<Source, Error>,
        page: usize,
        limit: Option<usize>,
        resumable: bool,
    ) -> Self {
        let source = source.unwrap_or_else(Source::Failed);
        Self { source, page, left: limit, resumable, last: None, ended: false, of: PhantomData }
    }

    /// The next rows, or `None` after the last. A page is only empty when there are no more.
    pub async fn next_page(&mut self) -> Result<Option<Vec<R>>, Error> {
        if self.ended || self.left == Some(0) {
            self.ended = true;
            return Ok(None);
        }
        let want = self.left.map_or(self.page, |left| left.min(self.page));
        let rows: Vec<R> = match std::mem::replace(&mut self.source, Source::Away) {
            Source::Failed(error) => return Err(error),
            Source::Away => {
                return Err(Error::Engine("a page of this scan was abandoned or failed".to_owned()));
            }
            Source::Cql(mut walk) => {
                let rows = Box::pin(walk.page(want)).await?;
                self.source = Source::Cql(walk);
                rows
            }
            Source::Embedded(walk) => {
                let (walk, entries) = walk.page(want).await;
                let entries = entries?;
                let rows = entries
                    .iter()
                    .map(|entry| embedded::decode(walk.slot(), entry))
                    .collect::<Result<_, _>>()?;
                self.source = Source::Embedded(walk);
                rows
            }
        };
        self.ended = rows.len() < want;
        self.left = self.left.map(|left| left - rows.len());
        match rows.last() {
            Some(last) if self.resumable => self.last = Some(Cursor::after(last)),
            Some(_) => {}
            None => return Ok(None),
        }
        Ok(Some(rows))
    }

    /// Every row that is left, as far as the limit allows.
    pub async fn all(&mut self) -> Result<Vec<R>, Error> {
        let mut rows = Vec::new();
        while let Some(page) = self.next_page().await? {
            if rows.is_empty() {
                rows = page;
            } else {
                rows.extend(page);
            }
        }
        Ok(rows)
    }

    /// Row by row. A page is read when the one before is used up.
    pub fn stream(self) -> impl Stream<Item = Result<R, Error>> + Send {
        stream::try_unfold(self, |mut pages| async move {
            let page = pages.next_page().await?;
            Ok::<_, Error>(page.map(|page| (stream::iter(page).map(Ok), pages)))
        })
        .try_flatten()
    }

    /// Returns the cursor behind the rows that were read; `None` after the last one, and for scans of whole tables.
    pub fn cursor(&self) -> Option<Cursor> {
        if self.ended && self.left != Some(0) { None } else { self.last.clone() }
    }
}

impl Cursor {
    /// Returns the cursor behind a row, whatever is written before that row meanwhile.
    pub fn after<R: Row>(row: &R) -> Self {
        let cluster = row.to_cluster();
        let mut cells = Vec::new();
        cluster.cells(&mut cells);
        let mut bytes = Vec::new();
        embedded::key::push_all(&mut bytes, &cells, R::TABLE.cluster_columns());
        Self(bytes)
    }
}

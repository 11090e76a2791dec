//! Rows for an export: from the admin API of a running process, or directly from the tables of a cluster.

use std::{collections::VecDeque, time::Duration};

use anyhow::{Context as _, bail};
use bytes::{Buf as _, BytesMut};
use reqwest::Response;
use tidegate_catalog::LiveConfigs;
use tidegate_exporter::{
    deliberation::{Line, LineSource, Policy},
    error::ConvertError,
};
use tidegate_history::{
    Column, Dataset, Part, RowPosition, RowReader, RowRequest, StoredRow, Value, Visibility, ndjson,
};
use tidegate_moderation::child_safety;
use tidegate_schemas::{
    ids::{Millis, OrgId},
    item_types::datetime,
};
use tidegate_store::Store;
use tokio::{runtime::Handle, time::Instant};

use crate::client::Client;

/// Place that an export reads from.
pub(crate) enum HistorySource {
    Server(Client),
    Tables { store: Store, org: OrgId, with_child_safety: bool, catalog: Box<tidegate_catalog::Settings> },
}

/// Rows to read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SourceRequest {
    pub(crate) dataset: Dataset,
    pub(crate) since: Millis,
    pub(crate) until: Millis,
    pub(crate) part: Part,
    /// False to leave child-safety material out even for a caller with its scope.
    pub(crate) with_child_safety: bool,
}

/// Running read of a dataset.
pub(crate) enum Rows {
    Server { response: Box<Response>, columns: &'static [Column], buffer: BytesMut, has_ended: bool },
    Tables { reader: Box<RowReader>, dataset: Dataset },
}

/// Some rows of a dataset.
pub(crate) enum RowPage {
    Lines { lines: VecDeque<BytesMut>, columns: &'static [Column] },
    Stored { rows: Vec<StoredRow>, dataset: Dataset },
}

impl HistorySource {
    /// Returns the newest time before which all events are stored.
    pub(crate) async fn load_snapshot_time(&self) -> anyhow::Result<Millis> {
        match self {
            Self::Server(client) => {
                let overview: Overview = client.get("/exports", &[]).await?;
                datetime::parse(&overview.settled_until).with_context(|| {
                    format!("the service names no instant as the end of exports: {}", overview.settled_until)
                })
            }
            Self::Tables { store, .. } => Ok(tidegate_history::load_snapshot_time(store).await?.time),
        }
    }

    /// Returns the end of the period: the given one, or by default the snapshot time. A later one than that is refused, because
    /// events of the time in between may still be missing.
    pub(crate) async fn resolve_until(&self, until: Option<Millis>) -> anyhow::Result<Millis> {
        let snapshot_time = self.load_snapshot_time().await?;
        match until {
            Some(until) if until > snapshot_time => bail!(
                "--until {} is later than {}, the newest time whose events are all stored: leave --until out, or \
                 export later",
                until.iso(),
                snapshot_time.iso()
            ),
            Some(until) => Ok(until),
            None => Ok(snapshot_time),
        }
    }

    /// Returns the policies of the organisation.
    pub(crate) async fn load_policies(&self) -> anyhow::Result<Vec<Policy>> {
        match self {
            Self::Server(client) => {
                let overview: Overview = client.get("/exports", &[]).await?;
                Ok(overview.policies)
            }
            Self::Tables { store, org, catalog, .. } => {
                let live = LiveConfigs::open(store.clone(), (**catalog).clone()).await?;
                let config = live.load_latest(org).await?;
                let policies = config.policies().iter().map(|policy| Policy {
                    id: policy.id.to_string(),
                    name: policy.name.clone(),
                    parent_id: policy.parent_id.as_ref().map(ToString::to_string),
                });
                Ok(policies.collect())
            }
        }
    }

    /// Returns the organisation, for pseudonyms.
    pub(crate) async fn load_org(&self) -> anyhow::Result<OrgId> {
        match self {
            Self::Server(client) => {
                let overview: Overview = client.get("/exports", &[]).await?;
                Ok(overview.org)
            }
            Self::Tables { org, .. } => Ok(org.clone()),
        }
    }

    pub(crate) async fn open(&self, request: SourceRequest) -> anyhow::Result<Rows> {
        let SourceRequest { dataset, since, until, part, with_child_safety } = request;
        match self {
            Self::Server(client) => {
                let mut query = vec![
                    ("since", since.iso()),
                    ("until", until.iso()),
                    (
                        "columns",
                        dataset.columns().iter().map(|column| column.name).collect::<Vec<_>>().join(","),
                    ),
                ];
                if part != Part::WHOLE {
                    query.push(("part", part.to_string()));
                }
                if !with_child_safety {
                    query.push(("childSafety", "false".to_owned()));
                }
                let response = client.get_stream(&format!("/exports/{dataset}"), &query).await?;
                Ok(Rows::Server {
                    response: Box::new(response),
                    columns: dataset.columns(),
                    buffer: BytesMut::new(),
                    has_ended: false,
                })
            }
            Self::Tables { store, org, with_child_safety: is_cleared, .. } => {
                let visibility = if *is_cleared && with_child_safety {
                    Visibility::All
                } else {
                    Visibility::WithoutChildSafety(|store, org, items| {
                        child_safety::find_restricted(store, org, items)
                    })
                };
                if dataset == Dataset::Audit && !*is_cleared {
                    bail!(
                        "the dataset audit needs --child-safety, because its entries name child-safety jobs"
                    );
                }
                let after: Option<RowPosition> = None;
                let request = RowRequest { org: org.clone(), dataset, since, until, part, after, visibility };
                Ok(Rows::Tables { reader: Box::new(RowReader::new(store, request)), dataset })
            }
        }
    }

    pub(crate) async fn close(self) -> anyhow::Result<()> {
        if let Self::Tables { store, .. } = self {
            store.close().await?;
        }
        Ok(())
    }
}

/// Answer of `GET /exports`.
#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct Overview {
    org: OrgId,
    settled_until: String,
    policies: Vec<Policy>,
}

impl Rows {
    /// Returns the next rows; `None` after the last.
    pub(crate) async fn next_page(&mut self) -> anyhow::Result<Option<RowPage>> {
        match self {
            Self::Tables { reader, dataset } => {
                let page = reader.next_page().await?;
                Ok(page.map(|rows| RowPage::Stored { rows, dataset: *dataset }))
            }
            Self::Server { response, columns, buffer, has_ended } => {
                if *has_ended {
                    return Ok(None);
                }
                let chunk = response.chunk().await.context(
                    "the export was cut off: the service stopped or failed; run the command again",
                )?;
                match chunk {
                    Some(chunk) => buffer.extend_from_slice(&chunk),
                    None => {
                        *has_ended = true;
                        if !buffer.is_empty() {
                            bail!("the export ends inside of a row: run the command again");
                        }
                    }
                }
                Ok(Some(RowPage::Lines { lines: split_lines(buffer), columns }))
            }
        }
    }
}

/// Removes the complete lines from the buffer.
fn split_lines(buffer: &mut BytesMut) -> VecDeque<BytesMut> {
    let mut lines = VecDeque::new();
    while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
        lines.push_back(buffer.split_to(end));
        buffer.advance(1);
    }
    lines
}

impl RowPage {
    /// Calls `receive` with the values of each row.
    pub(crate) fn for_each_row(
        &self,
        mut receive: impl FnMut(&[Value<'_>]) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        match self {
            Self::Stored { rows, dataset } => {
                for row in rows {
                    row.read(*dataset, &mut receive)??;
                }
            }
            Self::Lines { lines, columns } => {
                for line in lines {
                    let values =
                        ndjson::parse_row(columns, line).context("the service sent an invalid row")?;
                    receive(&values)?;
                }
            }
        }
        Ok(())
    }
}

/// Reads all rows of a request, and calls `receive` with each.
pub(crate) async fn copy_rows(
    source: &HistorySource,
    request: SourceRequest,
    pace: Option<Pace>,
    mut receive: impl FnMut(&[Value<'_>]) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut rows = source.open(request).await?;
    // Exact up to 2^53 rows.
    let mut row_count = 0.0;
    while let Some(page) = rows.next_page().await? {
        page.for_each_row(|row| {
            row_count += 1.0;
            receive(row)
        })?;
        if let Some(pace) = &pace {
            pace.wait(row_count).await;
        }
    }
    Ok(())
}

/// Returns the time of a row, which is its second value.
pub(crate) fn time_of(row: &[Value<'_>]) -> Millis {
    match row.get(1) {
        Some(Value::Time(at)) => *at,
        _ => Millis(0),
    }
}

/// Limit on the rows that are read in a second.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    rows_per_second: f64,
    started_at: Instant,
}

impl Pace {
    pub(crate) fn new(rows_per_second: u32) -> Self {
        Self { rows_per_second: rows_per_second.max(1).into(), started_at: Instant::now() }
    }

    /// Waits until this number of rows is due.
    async fn wait(&self, rows: f64) {
        let due = Duration::from_secs_f64(rows / self.rows_per_second);
        tokio::time::sleep_until(self.started_at + due).await;
    }
}

/// Lines of the datasets for a bundle. Its methods block, so they run on a thread without tasks.
pub(crate) struct HistoryLines<'s> {
    pub(crate) handle: Handle,
    pub(crate) source: &'s HistorySource,
    pub(crate) pace: Option<Pace>,
    pub(crate) since: Millis,
    pub(crate) until: Millis,
}

impl LineSource for HistoryLines<'_> {
    fn read_lines(
        &mut self,
        dataset: Dataset,
        on_line: &mut dyn FnMut(Line<'_>) -> Result<(), ConvertError>,
    ) -> Result<(), ConvertError> {
        let request = SourceRequest {
            dataset,
            since: self.since,
            until: self.until,
            part: Part::WHOLE,
            // Child-safety material is never part of a bundle.
            with_child_safety: false,
        };
        let (mut text, mut number) = (Vec::new(), 0);
        let copy = copy_rows(self.source, request, self.pace, |row| {
            text.clear();
            ndjson::write_row(dataset.columns(), row, &mut text);
            number += 1;
            let line = Line { text: text.trim_ascii_end(), source: dataset.as_str(), number };
            Ok(on_line(line)?)
        });
        self.handle.block_on(copy).map_err(|error| match error.downcast::<ConvertError>() {
            Ok(error) => error,
            Err(error) => ConvertError::Refused(format!("{error:#}")),
        })
    }
}

//! Reads stored items: the newest version, a given submission, and the API's view of it.

use std::time::Duration;

use async_recursion::async_recursion as boxed;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
pub use tidegate_rules::Omissions;
use tidegate_schemas::{
    ids::{
        ActionId, EventId, ItemId, ItemKey, Millis, OrgId, PolicyId, ReportId, RuleId, SubmissionId, TypeId,
    },
    records::{self, Coordinates, ItemEntry, Source, Variant},
};
use tidegate_store::{
    OpenEnum, RowRange, Store,
    tables::{
        callbacks::deliveries::Delivery,
        items::items::{Item, ItemPlace, Stage, SubmissionPlace, SubmissionState},
    },
};

use super::{context, waiting};
use crate::{Error, rules::stats::Suppression};

/// Number of index rows per read, of about a hundred bytes each.
const STEP: usize = 500;

/// Header that marks a record as a replayed dead letter.
pub const RESENT: &str = "tidegate-resent";

/// Header that marks items whose media are not fetched, because a client waits for their evaluation.
pub const WITHOUT_MEDIA: &str = "tidegate-without-media";

/// Item of a record, with its coordinates in the log.
#[derive(Clone, Copy, Debug)]
pub struct Submission<'a> {
    pub header: &'a records::Items,
    pub entry: &'a ItemEntry,
    /// Coordinates of the first record of the submission.
    pub at: Coordinates,
    /// Append time of the record in processing, which is later than `at` for a record that was sent on.
    pub recorded_at: Millis,
    /// True if the item waited for its media on the slow path.
    pub is_late: bool,
}

impl<'a> Submission<'a> {
    pub fn new(header: &'a records::Items, entry: &'a ItemEntry, coordinates: Coordinates) -> Self {
        let at = entry.origin.unwrap_or(coordinates);
        Self { header, entry, at, recorded_at: coordinates.append_ms, is_late: false }
    }

    pub(crate) fn stage(&self) -> Stage {
        if self.is_late { Stage::EvaluatedLate } else { Stage::Evaluated }
    }

    pub(crate) fn coordinates(&self) -> (Millis, i64, i64) {
        (self.at.append_ms, self.at.offset, i64::from(self.at.position))
    }
}

/// Loads a submission, or the newest version if none is given.
#[boxed]
pub async fn find_version(
    store: &Store,
    org: &OrgId,
    item: &ItemKey,
    submission: Option<SubmissionId>,
) -> Result<Option<Item>, Error> {
    match submission {
        Some(submission_id) => find_since(store, org, item, submission_id, Millis(i64::MIN)).await,
        None => match find_newest(store, org, item, Precedence::for_view).await? {
            Some(place) => get_row(store, org, item, coordinates(&place)).await,
            None => Ok(None),
        },
    }
}

/// Loads a submission that was appended at `since` or later.
async fn find_since(
    store: &Store,
    org: &OrgId,
    item: &ItemKey,
    submission_id: SubmissionId,
    since: Millis,
) -> Result<Option<Item>, Error> {
    if let Some(place) = load_place(store, org, submission_id).await? {
        let is_of_item = place.type_id == item.type_id && place.item_id == item.id;
        return if is_of_item { get_row(store, org, item, coordinates_of(&place)).await } else { Ok(None) };
    }
    // Newest first, because callers look for recent submissions.
    let range = RowRange::starting_at(since).page_size(STEP);
    let mut places = store.scan::<ItemPlace>(&partition(org, item), range);
    while let Some(page) = places.next_page().await? {
        if let Some(place) = page.into_iter().find(|place| place.submission_id == submission_id) {
            return get_row(store, org, item, coordinates(&place)).await;
        }
    }
    Ok(None)
}

async fn get_row(
    store: &Store,
    org: &OrgId,
    item: &ItemKey,
    (append_ms, offset, position): (Millis, i64, i64),
) -> Result<Option<Item>, Error> {
    let (org, type_id, id) = partition(org, item);
    Ok(store.get::<Item>(&(org, type_id, id, append_ms, offset, position)).await?)
}

fn partition(org: &OrgId, item: &ItemKey) -> (OrgId, TypeId, ItemId) {
    (org.clone(), item.type_id.clone(), item.id.clone())
}

/// Loads the coordinates of a keyed submission.
pub(crate) async fn load_place(
    store: &Store,
    org: &OrgId,
    submission: SubmissionId,
) -> Result<Option<SubmissionPlace>, Error> {
    Ok(store.get::<SubmissionPlace>(&(org.clone(), submission)).await?)
}

pub(crate) fn coordinates_of(place: &SubmissionPlace) -> (Millis, i64, i64) {
    (place.append_ms, place.offset, place.position)
}

/// Returns the coordinates of the row's first record.
pub fn coordinates(row: &ItemPlace) -> (Millis, i64, i64) {
    (row.append_ms, row.offset, row.position)
}

/// Returns the index row of the newest complete version. Partial versions only count without a complete one, fetched
/// versions only without a submitted one.
#[boxed]
pub async fn find_newest_place(
    store: &Store,
    org: &OrgId,
    item: &ItemKey,
) -> Result<Option<ItemPlace>, Error> {
    find_newest(store, org, item, Precedence::for_findings).await
}

/// Returns the index row of the newest data, submitted or fetched.
pub(crate) async fn find_newest_data_place(
    store: &Store,
    org: &OrgId,
    item: &ItemKey,
) -> Result<Option<ItemPlace>, Error> {
    find_newest(store, org, item, |_| Precedence::First).await
}

/// Precedence of versions. The lowest value is preferred; among equal values, the newest version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Precedence {
    First,
    SubmittedPart,
    Fetched,
    FetchedPart,
}

impl Precedence {
    /// Precedence in the view of an item: all submitted versions before all fetched ones. Fetched data is a
    /// supplement and not a newer version.
    fn for_view(place: &ItemPlace) -> Self {
        match Self::for_findings(place) {
            Self::SubmittedPart => Self::First,
            other => other,
        }
    }

    /// Precedence for findings and derived data: complete versions before partial ones as well.
    fn for_findings(place: &ItemPlace) -> Self {
        let is_fetched = place.source == Source::PartialItems;
        let is_part = place.variant == Variant::Partial;
        match (is_fetched, is_part) {
            (false, false) => Self::First,
            (false, true) => Self::SubmittedPart,
            (true, false) => Self::Fetched,
            (true, true) => Self::FetchedPart,
        }
    }
}

/// Returns the newest submission with the lowest precedence value.
async fn find_newest(
    store: &Store,
    org: &OrgId,
    item: &ItemKey,
    precedence: impl Fn(&ItemPlace) -> Precedence + Send,
) -> Result<Option<ItemPlace>, Error> {
    let mut best: Option<(Precedence, ItemPlace)> = None;
    // The first row nearly always has the best precedence, so only one row is read at first.
    let mut step = 1;
    let mut after = None;
    loop {
        let range = RowRange::all().limit(step).page_size(step).after(after);
        let mut places = store.scan::<ItemPlace>(&partition(org, item), range);
        for place in places.all().await? {
            // A submission of a retroaction repeats an old version.
            if place.source == Source::Retroact {
                continue;
            }
            let row_precedence = precedence(&place);
            let is_better = best.as_ref().is_none_or(|(best, _)| row_precedence < *best);
            if is_better && is_of_first_record(store, &place).await? {
                if row_precedence == Precedence::First {
                    return Ok(Some(place));
                }
                best = Some((row_precedence, place));
            }
        }
        after = places.cursor();
        if after.is_none() {
            return Ok(best.map(|(_, place)| place));
        }
        step = STEP;
    }
}

/// True if the row belongs to the submission's first record. A submission that was sent again has a second row, with
/// content older than its coordinates.
async fn is_of_first_record(store: &Store, row: &ItemPlace) -> Result<bool, Error> {
    let place = load_place(store, &row.org, row.submission_id).await?;
    Ok(place.is_none_or(|place| coordinates_of(&place) == coordinates(row)))
}

/// Loads the version chosen by [`find_newest_place`].
#[boxed]
pub async fn load_newest(store: &Store, org: &OrgId, item: &ItemKey) -> Result<Option<Item>, Error> {
    match find_newest_place(store, org, item).await? {
        Some(place) => get_row(store, org, item, coordinates(&place)).await,
        None => Ok(None),
    }
}

/// Number of newest versions searched for an evaluated one.
const RECENT_VERSIONS: usize = 20;

/// Loads the newest evaluated version that was submitted or reported. Rules do not evaluate fetched versions.
pub(crate) async fn load_newest_evaluated(
    store: &Store,
    org: &OrgId,
    item: &ItemKey,
) -> Result<Option<Item>, Error> {
    let range = RowRange::all().limit(RECENT_VERSIONS).page_size(RECENT_VERSIONS);
    let places = store.scan::<ItemPlace>(&partition(org, item), range).all().await?;
    let is_evaluated = |place: &&ItemPlace| {
        place.state == SubmissionState::Evaluated
            && place.source != Source::Retroact
            && place.source != Source::PartialItems
    };
    match places.iter().find(is_evaluated) {
        Some(place) => get_row(store, org, item, coordinates(place)).await,
        None => Ok(None),
    }
}

/// JSON view of an item.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ItemResponse {
    pub id: ItemId,
    pub type_id: TypeId,
    pub submission_id: SubmissionId,
    pub state: OpenEnum<SubmissionState>,
    pub source: OpenEnum<Source>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub type_version: Option<String>,
    pub type_schema_variant: OpenEnum<Variant>,
    pub data: Box<RawValue>,
    pub config_version: i64,
    pub received_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evaluated_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report_id: Option<ReportId>,
    pub matched_rules: Vec<MatchedRule>,
    pub errored_rules: Box<RawValue>,
    #[serde(flatten)]
    pub left_out: Omissions,
    pub actions: Vec<ListedAction>,
    pub media: Box<RawValue>,
    pub deliveries: Vec<DeliveryState>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListedAction {
    pub id: ActionId,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub event_id: Option<EventId>,
    pub rules: Vec<RuleId>,
    /// Number of rules that `rules` omits.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rules_more: Option<u64>,
    pub policies: Vec<PolicyId>,
    /// Reason why the action was not taken.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub suppressed: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeliveryState {
    pub event_id: EventId,
    pub state: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct MatchedRule {
    #[serde(rename(deserialize = "rule"))]
    pub id: RuleId,
    pub name: String,
    /// Reason why the rule does not act.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub suppressed: Option<Suppression>,
    /// True if the match is in the sample for human review.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub sampled: bool,
}

/// Loads the view of a submission or of the newest version. `None` until a processor has stored it.
#[boxed]
pub async fn load_answer(
    store: &Store,
    org: &OrgId,
    item: &ItemKey,
    submission: Option<SubmissionId>,
) -> Result<Option<ItemResponse>, Error> {
    match find_version(store, org, item, submission).await? {
        Some(row) => Ok(Some(render_row(store, row).await?)),
        None => Ok(None),
    }
}

/// Waits up to `wait` for the evaluation of the submission. Returns the view of its present state.
#[boxed]
pub async fn wait_for_answer(
    store: &Store,
    org: &OrgId,
    item: &ItemKey,
    submission: Option<SubmissionId>,
    wait: Duration,
) -> Result<Option<ItemResponse>, Error> {
    let deadline = tokio::time::Instant::now() + wait;
    let waiter = submission.map(waiting::wait_for);
    // Most items are evaluated within milliseconds, so the first look-ups follow quickly. On the embedded store this
    // process evaluates all items and wakes the waiter, so intermediate look-ups would be in vain.
    let is_woken = waiter.is_some() && matches!(store, Store::Embedded(_));
    let mut pause = if is_woken { Duration::from_millis(250) } else { Duration::from_millis(2) };
    // Except for a replayed dead letter, the submission is newer than all stored rows. Only the last look-up searches
    // older rows, so that polling is cheap.
    let newest_stored =
        store.scan::<ItemPlace>(&partition(org, item), RowRange::all().limit(1)).all().await?.pop();
    let mut oldest_searched = Millis(i64::MIN);
    loop {
        let row = match submission {
            Some(submission_id) => find_since(store, org, item, submission_id, oldest_searched).await?,
            None => find_version(store, org, item, None).await?,
        };
        // A version that the same request replaces is not the newest one.
        let is_replaced = |row: &Item| submission.is_none() && row.followed_by.is_some();
        let is_evaluated =
            row.as_ref().is_some_and(|row| row.state == SubmissionState::Evaluated && !is_replaced(row));
        let now = tokio::time::Instant::now();
        oldest_searched = match &newest_stored {
            Some(newest_stored) if now + pause < deadline => newest_stored.append_ms,
            _ => Millis(i64::MIN),
        };
        if is_evaluated || now >= deadline {
            return match row {
                Some(row) => Ok(Some(render_row(store, row).await?)),
                None => Ok(None),
            };
        }
        let wake_up = async {
            match &waiter {
                Some(waiter) => waiter.wait_until_woken().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = wake_up => {}
            () = tokio::time::sleep(pause.min(deadline - now)) => {}
        }
        // Growing pauses, because an item with media can take seconds.
        pause = (pause * 3 / 2).min(Duration::from_millis(250));
    }
}

/// Builds the view of a stored submission.
pub async fn render_row(store: &Store, row: Item) -> Result<ItemResponse, Error> {
    let matched_rules: Vec<MatchedRule> =
        serde_json::from_str(&row.matched).map_err(Error::corrupt("item"))?;
    let actions: Vec<ListedAction> = serde_json::from_str(&row.actions).map_err(Error::corrupt("item"))?;
    let left_out = row.left_out.as_deref().map(serde_json::from_str).transpose();
    let left_out: Option<Omissions> = left_out.map_err(Error::corrupt("item"))?;
    let events: Vec<_> =
        actions.iter().filter_map(|action| action.event_id).map(|id| (row.org.clone(), id)).collect();
    let deliveries = store.get_many::<Delivery>(&events).await?;
    Ok(ItemResponse {
        id: row.item_id,
        type_id: row.type_id,
        submission_id: row.submission_id,
        state: row.state,
        source: row.source,
        type_version: row.type_version,
        type_schema_variant: row.variant,
        data: context::raw(&row.data)?,
        config_version: row.config_version.0,
        received_at: row.received_at.iso(),
        evaluated_at: row.evaluated_at.map(Millis::iso),
        report_id: row.report_id,
        matched_rules,
        errored_rules: context::raw(row.errored.as_bytes())?,
        left_out: left_out.unwrap_or_default(),
        actions,
        media: context::raw(row.media.as_bytes())?,
        deliveries: deliveries
            .into_iter()
            .flatten()
            .map(|delivery| DeliveryState { event_id: delivery.event_id, state: delivery.state.to_string() })
            .collect(),
    })
}

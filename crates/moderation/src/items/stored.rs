//! Reads stored items: the newest submission, a given one, and the API's view of it.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
pub use tidegate_rules::Omissions;
use tidegate_schemas::{
    ids::{
        ActionId, EventId, ItemId, ItemKey, Millis, OrgId, PolicyId, ReportId, RuleId, SubmissionId, TypeId,
    },
    records::{self, Coordinates, ItemEntry},
};
use tidegate_store::{
    At, Store,
    tables::{
        callbacks::deliveries::Delivery,
        items::items::{EVALUATED, Item, ItemPlace, Stage, SubmissionPlace},
    },
};

use super::{context, waiting};
use crate::{Error, rules::stats::Suppressed};

/// Number of index rows read at once; each has some hundred bytes.
const STEP: usize = 500;

/// Header of a record that is a replayed dead letter.
pub const RESENT: &str = "tidegate-resent";

/// Header of a record of items whose media are not fetched: somebody waits for their evaluation.
pub const WITHOUT_MEDIA: &str = "tidegate-without-media";

/// An item of a record, with its coordinates in the log.
#[derive(Clone, Copy, Debug)]
pub struct Submission<'a> {
    pub header: &'a records::Items,
    pub entry: &'a ItemEntry,
    /// Coordinates of the first record of the submission.
    pub at: Coordinates,
    /// True if it waited for its media on the slow path.
    pub is_late: bool,
}

impl<'a> Submission<'a> {
    pub fn new(header: &'a records::Items, entry: &'a ItemEntry, here: Coordinates) -> Self {
        Self { header, entry, at: entry.origin.unwrap_or(here), is_late: false }
    }

    pub(crate) fn stage(&self) -> Stage {
        if self.is_late { Stage::EvaluatedLate } else { Stage::Evaluated }
    }

    pub(crate) fn coordinates(&self) -> (Millis, i64, i64) {
        (self.at.append_ms, self.at.offset, i64::from(self.at.position))
    }
}

/// Returns the row of a submission, or of the newest one if none is given.
pub async fn find(
    store: &Store,
    org: &OrgId,
    item: &ItemKey,
    submission: Option<SubmissionId>,
) -> Result<Option<Item>, Error> {
    match submission {
        Some(wanted) => find_since(store, org, item, wanted, Millis(i64::MIN)).await,
        None => match newest_of(store, org, item, Precedence::of_shown).await? {
            Some(place) => get(store, org, item, coordinates(&place)).await,
            None => Ok(None),
        },
    }
}

/// Returns the row of a submission that was appended at `since` or later.
async fn find_since(
    store: &Store,
    org: &OrgId,
    item: &ItemKey,
    wanted: SubmissionId,
    since: Millis,
) -> Result<Option<Item>, Error> {
    if let Some(place) = place_of(store, org, wanted).await? {
        let of_item = place.type_id == item.type_id && place.item_id == item.id;
        return if of_item { get(store, org, item, coordinates_of(&place)).await } else { Ok(None) };
    }
    // Scanned newest first, because callers ask about recent submissions.
    let range = At::since(since).page_size(STEP);
    let mut places = store.scan::<ItemPlace>(&partition(org, item), range);
    while let Some(page) = places.next_page().await? {
        if let Some(found) = page.into_iter().find(|place| place.submission_id == wanted) {
            return get(store, org, item, coordinates(&found)).await;
        }
    }
    Ok(None)
}

async fn get(
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

/// Returns the coordinates of a submission that has an idempotency key, if it is stored.
pub(crate) async fn place_of(
    store: &Store,
    org: &OrgId,
    submission: SubmissionId,
) -> Result<Option<SubmissionPlace>, Error> {
    Ok(store.get::<SubmissionPlace>(&(org.clone(), submission)).await?)
}

pub(crate) fn coordinates_of(place: &SubmissionPlace) -> (Millis, i64, i64) {
    (place.append_ms, place.offset, place.position)
}

/// Returns the coordinates of a row's first record.
pub fn coordinates(row: &ItemPlace) -> (Millis, i64, i64) {
    (row.append_ms, row.offset, row.position)
}

/// Returns the index row of the newest complete version of an item. Partial versions count only without a complete one, and
/// fetched versions only without a submitted one.
pub async fn newest_place(store: &Store, org: &OrgId, item: &ItemKey) -> Result<Option<ItemPlace>, Error> {
    newest_of(store, org, item, Precedence::of_whole).await
}

/// Returns the index row of the newest data of an item, whether it was submitted or fetched.
pub(crate) async fn newest_data_place(
    store: &Store,
    org: &OrgId,
    item: &ItemKey,
) -> Result<Option<ItemPlace>, Error> {
    newest_of(store, org, item, |_| Precedence::First).await
}

/// Precedence of versions; the lowest comes first, and of equal ones the newest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Precedence {
    First,
    SubmittedPart,
    Fetched,
    FetchedPart,
}

impl Precedence {
    /// Precedence for the view of an item: any submitted version is in front of any fetched one. Fetched data completes what was sent,
    /// and is no newer version of it.
    fn of_shown(place: &ItemPlace) -> Self {
        match Self::of_whole(place) {
            Self::SubmittedPart => Self::First,
            other => other,
        }
    }

    /// Precedence for what is derived from a version: a complete one is in front of a partial one too.
    fn of_whole(place: &ItemPlace) -> Self {
        let is_fetched = place.source == records::Source::PartialItems.as_str();
        let is_part = place.variant == records::Variant::Partial.as_str();
        match (is_fetched, is_part) {
            (false, false) => Self::First,
            (false, true) => Self::SubmittedPart,
            (true, false) => Self::Fetched,
            (true, true) => Self::FetchedPart,
        }
    }
}

/// Returns the newest submission of the first precedence, or else the newest of the next one that there is.
async fn newest_of(
    store: &Store,
    org: &OrgId,
    item: &ItemKey,
    precedence: impl Fn(&ItemPlace) -> Precedence + Send,
) -> Result<Option<ItemPlace>, Error> {
    // A repeated submission is no newer version.
    let repeated = records::Source::Retroact.as_str();
    let mut best: Option<(Precedence, ItemPlace)> = None;
    // The first row nearly always matches, so only one is read at first.
    let mut step = 1;
    let mut after = None;
    loop {
        let range = At::all().limit(step).page_size(step).after(after);
        let mut places = store.scan::<ItemPlace>(&partition(org, item), range);
        for place in places.all().await? {
            if place.source == repeated {
                continue;
            }
            let own = precedence(&place);
            let is_better = best.as_ref().is_none_or(|(best, _)| own < *best);
            if is_better && is_first(store, &place).await? {
                if own == Precedence::First {
                    return Ok(Some(place));
                }
                best = Some((own, place));
            }
        }
        after = places.cursor();
        if after.is_none() {
            return Ok(best.map(|(_, place)| place));
        }
        step = STEP;
    }
}

/// True if the row is the first of its submission. A second row exists where a submission was sent again, and its content
/// is older than its coordinates say.
async fn is_first(store: &Store, row: &ItemPlace) -> Result<bool, Error> {
    let place = place_of(store, &row.org, row.submission_id).await?;
    Ok(place.is_none_or(|place| coordinates_of(&place) == coordinates(row)))
}

/// Returns the version of an item that `newest_place` chooses.
pub async fn newest(store: &Store, org: &OrgId, item: &ItemKey) -> Result<Option<Item>, Error> {
    match newest_place(store, org, item).await? {
        Some(place) => get(store, org, item, coordinates(&place)).await,
        None => Ok(None),
    }
}

/// Number of newest versions among which an evaluated one is looked for.
const RECENT_VERSIONS: usize = 20;

/// Returns the newest version of an item that was submitted or reported and is evaluated. Rules do not see fetched ones.
pub(crate) async fn newest_evaluated(
    store: &Store,
    org: &OrgId,
    item: &ItemKey,
) -> Result<Option<Item>, Error> {
    let unseen = [records::Source::Retroact, records::Source::PartialItems].map(records::Source::as_str);
    let range = At::all().limit(RECENT_VERSIONS).page_size(RECENT_VERSIONS);
    let places = store.scan::<ItemPlace>(&partition(org, item), range).all().await?;
    let is_evaluated =
        |place: &&ItemPlace| place.state == EVALUATED && !unseen.contains(&place.source.as_str());
    match places.iter().find(is_evaluated) {
        Some(place) => get(store, org, item, coordinates(place)).await,
        None => Ok(None),
    }
}

/// An item as the API shows it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    pub id: ItemId,
    pub type_id: TypeId,
    pub submission_id: SubmissionId,
    pub state: String,
    pub source: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub type_version: Option<String>,
    pub type_schema_variant: String,
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
    /// Rules beyond those listed.
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
    pub suppressed: Option<Suppressed>,
    /// True if moderators review this match as a sample.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub sampled: bool,
}

/// Returns the API's view of a submission or of the newest one; `None` until a processor has stored it.
pub async fn answer(
    store: &Store,
    org: &OrgId,
    item: &ItemKey,
    submission: Option<SubmissionId>,
) -> Result<Option<Answer>, Error> {
    match find(store, org, item, submission).await? {
        Some(row) => Ok(Some(render(store, row).await?)),
        None => Ok(None),
    }
}

/// Waits until the submission is evaluated, at most for `wait`, and returns the API's view of its state.
pub async fn answer_when_evaluated(
    store: &Store,
    org: &OrgId,
    item: &ItemKey,
    submission: Option<SubmissionId>,
    wait: Duration,
) -> Result<Option<Answer>, Error> {
    let give_up = tokio::time::Instant::now() + wait;
    let waiter = submission.map(waiting::wait_for);
    // Most items are evaluated within milliseconds, so the first look-ups come quickly. Where only this process evaluates,
    // each evaluation wakes its waiter, and look-ups in between are in vain.
    let is_woken = waiter.is_some() && matches!(store, Store::Embedded(_));
    let mut pause = if is_woken { Duration::from_millis(250) } else { Duration::from_millis(2) };
    // The submission is newer than all stored rows unless it was a dead letter. Only the last look-up searches the older
    // rows, so that polling stays cheap.
    let newest = store.scan::<ItemPlace>(&partition(org, item), At::all().limit(1)).all().await?.pop();
    let mut since = Millis(i64::MIN);
    loop {
        let row = match submission {
            Some(wanted) => find_since(store, org, item, wanted, since).await?,
            None => find(store, org, item, None).await?,
        };
        // A version that the same request replaces is not the newest that was accepted.
        let is_replaced = |row: &Item| submission.is_none() && row.followed_by.is_some();
        let evaluated = row.as_ref().is_some_and(|row| row.state == EVALUATED && !is_replaced(row));
        let now = tokio::time::Instant::now();
        since = match &newest {
            Some(newest) if now + pause < give_up => newest.append_ms,
            _ => Millis(i64::MIN),
        };
        if evaluated || now >= give_up {
            return match row {
                Some(row) => Ok(Some(render(store, row).await?)),
                None => Ok(None),
            };
        }
        let woken = async {
            match &waiter {
                Some(waiter) => waiter.woken().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = woken => {}
            () = tokio::time::sleep(pause.min(give_up - now)) => {}
        }
        pause = (pause * 3 / 2).min(Duration::from_millis(250));
    }
}

/// Returns the API's view of a stored submission.
pub async fn render(store: &Store, row: Item) -> Result<Answer, Error> {
    let matched: Vec<MatchedRule> = serde_json::from_str(&row.matched).map_err(Error::corrupt("item"))?;
    let actions: Vec<ListedAction> = serde_json::from_str(&row.actions).map_err(Error::corrupt("item"))?;
    let left_out = row.left_out.as_deref().map(serde_json::from_str).transpose();
    let left_out: Option<Omissions> = left_out.map_err(Error::corrupt("item"))?;
    let events: Vec<_> =
        actions.iter().filter_map(|action| action.event_id).map(|id| (row.org.clone(), id)).collect();
    let deliveries = store.get_many::<Delivery>(&events).await?;
    Ok(Answer {
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
        matched_rules: matched,
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

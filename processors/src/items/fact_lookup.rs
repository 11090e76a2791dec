//! Counts items in their windows, and looks up what undecided rules wait for: who asks for the same standing at once has
//! one answer.
//!
//! It remembers nothing beyond the look-ups that are under way.

use futures::future::{try_join, try_join_all};
use tidegate_moderation::{
    self as moderation,
    media::Judged,
    rules::windows::{self, Moment, Question as WindowQuestion},
    single_flight::SingleFlight,
    strikes,
};
use tidegate_rules::{Amount, Facts, Need, Plan, Scan, WindowEntry, WindowKey, Within};
use tidegate_schemas::ids::{ItemKey, Millis, OrgId, WindowId};
use tidegate_store::Store;

use crate::items::window_order::{WindowGuard, WindowOrder};

/// Key of a look-up of strikes: the user, and the instant since which strikes count.
type StrikeQuery = (OrgId, ItemKey, Millis);

/// The item that asks.
#[derive(Clone, Copy)]
pub(crate) struct FactRequest<'a> {
    pub(crate) org: &'a OrgId,
    pub(crate) moment: Moment,
    pub(crate) plan: &'a Plan,
    pub(crate) media: &'a Judged,
}

#[derive(Clone)]
pub(crate) struct FactLookup {
    store: Store,
    window_rows: usize,
    /// Look-ups of strikes that are under way; `None` if the store failed, as its errors cannot be shared.
    strike_lookups: SingleFlight<StrikeQuery, Option<i64>>,
    turns: WindowOrder,
}

impl FactLookup {
    pub(crate) fn new(store: Store, window_rows: usize) -> Self {
        Self { store, window_rows, strike_lookups: SingleFlight::default(), turns: WindowOrder::default() }
    }

    pub(crate) const fn window_rows(&self) -> usize {
        self.window_rows
    }

    /// The item's turn to be counted. Taken in the log's order, those that ask about windows ask in that order.
    pub(crate) fn turn(&self, org: &OrgId, item: Moment) -> WindowGuard {
        self.turns.take(org, item)
    }

    /// Counts items of an org in their windows.
    pub(crate) async fn count<'a>(
        &self,
        org: &OrgId,
        items: impl IntoIterator<Item = (Moment, &'a [WindowEntry])> + Send,
    ) -> Result<(), moderation::Error> {
        let counted: Vec<_> = items.into_iter().filter(|(_, entries)| !entries.is_empty()).collect();
        if !counted.is_empty() {
            windows::add_all(&self.store, org, counted).await?;
            tidegate_stream::failpoint!("after_count");
        }
        Ok(())
    }

    /// Answers what the rules ask for an item that was counted.
    pub(crate) async fn fetch(
        &self,
        asking: FactRequest<'_>,
        scan: &Scan,
    ) -> Result<Facts, moderation::Error> {
        let now = asking.moment.append_ms();
        if scan.needs().iter().any(|need| matches!(need, Need::Count { .. })) {
            self.turns.before(asking.org, asking.moment).await;
        }
        let mut facts = Facts::new();
        let (mut standings, mut counts) = (Vec::new(), Vec::new());
        for need in scan.needs() {
            match need {
                Need::Strikes { user, within } => {
                    let standing = self.standing(asking.org, user, *within, now);
                    standings.push(async move { standing.await.map(|points| (need, points)) });
                }
                Need::Count { window, key, at_least } => {
                    let counted = self.counted(asking, window, key, *at_least);
                    counts.push(async move { counted.await.map(|counted| (need, counted)) });
                }
                // Nobody looks at addresses in fields that are of no media.
                Need::Media { url } => match asking.media.known(url) {
                    Some(known) => facts.media(need.clone(), known.clone()),
                    None => facts.unknown(need.clone()),
                },
                Need::Score { .. } => facts.unknown(need.clone()),
            }
        }
        let (standings, counts) = try_join(try_join_all(standings), try_join_all(counts)).await?;
        for (need, points) in standings {
            facts.strikes(need.clone(), points);
        }
        for (need, counted) in counts {
            match counted {
                Some(counted) => facts.count(need.clone(), counted),
                None => facts.failed(need.clone(), "too_many_rows"),
            }
        }
        Ok(facts)
    }

    /// Each item reads for itself: a look-up that is under way may have begun before the item was counted.
    async fn counted(
        &self,
        asking: FactRequest<'_>,
        window: &WindowId,
        key: &WindowKey,
        at_least: Amount,
    ) -> Result<Option<Amount>, moderation::Error> {
        // The plan that asks is the one that has the window.
        let Some(window) = asking.plan.window(window) else { return Ok(None) };
        let question = WindowQuestion {
            org: asking.org,
            window,
            key,
            at_least,
            moment: asking.moment,
            most_rows: self.window_rows,
        };
        windows::counted(&self.store, &question).await
    }

    async fn standing(
        &self,
        org: &OrgId,
        user: &ItemKey,
        within: Option<Within>,
        now: Millis,
    ) -> Result<i64, moderation::Error> {
        let since = within.map_or(Millis(0), |within| within.since(now));
        let query = (org.clone(), user.clone(), since);
        let (lookup, _) = self.strike_lookups.join(&query, || {
            let (store, (org, user, since)) = (self.store.clone(), query.clone());
            async move { strikes::total(&store, &org, &user, since).await.ok() }
        });
        match lookup.await {
            Some(points) => Ok(points),
            // The look-up is repeated by each waiting item, for an error of its own.
            None => strikes::total(&self.store, org, user, since).await,
        }
    }
}

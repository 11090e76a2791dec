//! Counts items in their windows, and looks up what undecided rules wait for: who asks for the same standing at once has
//! one answer.
//!
//! It remembers nothing beyond the look-ups that are under way.

use std::{io, sync::Arc};

use futures::future::{try_join, try_join_all};
use tidegate_moderation::{
    self as moderation,
    media::Judged,
    rules::windows::{self, Moment, Question as WindowQuestion, RowBudget},
    single_flight::SingleFlight,
    strikes,
};
use tidegate_rules::{Amount, Facts, Need, Plan, Scan, WindowEntry, WindowKey, Within};
use tidegate_schemas::ids::{ItemKey, Millis, OrgId, SubmissionId, WindowId};
use tidegate_store::Store;
use tokio::sync::Semaphore;

use crate::{
    items::{
        counting_threads::CountingThreads,
        window_order::{WindowGuard, WindowOrder},
    },
    settings::Settings,
};

/// Milliseconds by which the clock of another process may be ahead.
const CLOCK_SKEW_MS: i64 = 60_000;

/// Number of windows that one item reads at once. The first ones of an item that asks for too much have the rows.
const COUNTS_AT_ONCE: usize = 8;

/// Key of a look-up of strikes: the user, and the instant since which strikes count.
type StrikeQuery = (OrgId, ItemKey, Millis);

/// The item that asks.
#[derive(Clone, Copy)]
pub(crate) struct FactRequest<'a> {
    pub(crate) org: &'a OrgId,
    pub(crate) moment: Moment,
    pub(crate) plan: &'a Plan,
    pub(crate) media: &'a Judged,
    /// Place of the item among those that are counted; none if its org had no windows when it started.
    pub(crate) guard: Option<&'a Arc<WindowGuard>>,
}

#[derive(Clone)]
pub(crate) struct FactLookup {
    store: Store,
    window_rows: usize,
    /// Look-ups of strikes that are under way; `None` if the store failed, as its errors cannot be shared.
    strike_lookups: SingleFlight<StrikeQuery, Option<i64>>,
    order: WindowOrder,
    counting: CountingThreads,
}

impl FactLookup {
    pub(crate) fn new(store: Store, settings: &Settings) -> io::Result<Self> {
        Ok(Self {
            store,
            window_rows: settings.window_rows,
            strike_lookups: SingleFlight::default(),
            order: WindowOrder::default(),
            counting: CountingThreads::new(settings.counting_threads, settings.window_lookups_per_org)?,
        })
    }

    pub(crate) const fn window_rows(&self) -> usize {
        self.window_rows
    }

    /// Returns the item's place among those that are counted. Items are counted in the order in which they take it.
    pub(crate) fn place(&self, org: &OrgId, submission: SubmissionId, may_be_replay: bool) -> WindowGuard {
        self.order.take(org, submission, may_be_replay)
    }

    /// Counts items of an org in their windows. `are_new` promises that none of them was counted before.
    pub(crate) async fn count<'a>(
        &self,
        org: &OrgId,
        items: impl IntoIterator<Item = (Moment, &'a [WindowEntry])> + Send,
        are_new: bool,
    ) -> Result<(), moderation::Error> {
        let counted: Vec<_> = items.into_iter().filter(|(_, entries)| !entries.is_empty()).collect();
        if !counted.is_empty() {
            windows::add_all(&self.store, org, counted, are_new).await?;
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
        if let Some(guard) = asking.guard
            && scan.needs().iter().any(|need| matches!(need, Need::Count { .. }))
        {
            guard.wait_for_earlier().await;
        }
        let budget = Arc::new(RowBudget::new(self.window_rows));
        let at_once = Semaphore::new(COUNTS_AT_ONCE);
        let mut facts = Facts::new();
        let (mut standings, mut counts) = (Vec::new(), Vec::new());
        for need in scan.needs() {
            match need {
                Need::Strikes { user, within } => {
                    let standing = self.standing(asking.org, user, *within, now);
                    standings.push(async move { standing.await.map(|points| (need, points)) });
                }
                Need::Count { window, key, at_least } => {
                    let counted = self.counted(asking, &budget, window, key, *at_least);
                    let permit = at_once.acquire();
                    counts.push(async move {
                        // Never closed, and first come, first served.
                        let _permit = permit.await;
                        counted.await.map(|counted| (need, counted))
                    });
                }
                // Nobody looks at addresses in fields that are of no media.
                Need::Media { url } => match asking.media.known(url) {
                    Some(known) => facts.media(need.clone(), known.clone()),
                    None => facts.unknown(need.clone()),
                },
                // Asked for once the rest is known, since models are slow and cost money.
                Need::Score { .. } => {}
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
        budget: &Arc<RowBudget>,
        window: &WindowId,
        key: &WindowKey,
        at_least: Amount,
    ) -> Result<Option<Amount>, moderation::Error> {
        // The plan that asks is the one that has the window.
        let Some(window) = asking.plan.window(window).cloned() else { return Ok(None) };
        let (store, org, key) = (self.store.clone(), asking.org.clone(), key.clone());
        let (budget, guard) = (Arc::clone(budget), asking.guard.cloned());
        let times = window.around(asking.moment.append_ms());
        // Later rows than now can only be there if clocks differ.
        let latest = Millis(Millis::now().0.saturating_add(CLOCK_SKEW_MS)).max(asking.moment.append_ms());
        let times = *times.start()..=latest.min(*times.end());
        let counting = async move {
            let select = |rows: &mut Vec<_>| {
                if let Some(guard) = &guard {
                    guard.drop_later(rows);
                }
            };
            let (org, window, key) = (&org, &window, &key);
            let question =
                WindowQuestion { org, window, key, at_least, times, select: &select, budget: &budget };
            windows::counted(&store, &question).await
        };
        self.counting.run(asking.org, counting).await
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

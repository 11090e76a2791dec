//! Counts items in their windows and looks up the facts of undecided rules. Concurrent look-ups of the same strikes
//! share one read; results are not cached.

use std::{io, sync::Arc};

use futures::future::{try_join, try_join_all};
use tidegate_moderation::{
    self as moderation,
    effects::strike_points,
    media::MatchedMedia,
    outbound::single_flight::SingleFlight,
    rules::windows::{self, RowBudget, SubmissionPosition, WindowQuery as WindowQuestion},
};
use tidegate_rules::{Amount, Facts, Lookback, Need, Plan, Scan, WindowEntry, WindowKey};
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

/// Time in milliseconds by which the clock of another process may be ahead.
const CLOCK_SKEW_MS: i64 = 60_000;

/// Number of windows that one item reads concurrently. If an item exceeds its row budget, its first windows get the rows.
const CONCURRENT_COUNTS: usize = 8;

/// Key of a look-up of strikes: the user, and the time from which strikes count.
type StrikeQuery = (OrgId, ItemKey, Millis);

/// Item that requests facts.
#[derive(Clone, Copy)]
pub(crate) struct FactRequest<'a> {
    pub(crate) org: &'a OrgId,
    pub(crate) moment: SubmissionPosition,
    pub(crate) plan: &'a Plan,
    pub(crate) media: &'a MatchedMedia,
    /// Place of the item in the order of window counts. `None` if its org had no windows at the start of the item.
    pub(crate) guard: Option<&'a Arc<WindowGuard>>,
}

#[derive(Clone)]
pub(crate) struct FactLookup {
    store: Store,
    window_rows: usize,
    /// Running look-ups of strikes. Their result is `None` if the store failed, because its errors cannot be cloned.
    running_strike_lookups: SingleFlight<StrikeQuery, Option<i64>>,
    window_order: WindowOrder,
    counting_threads: CountingThreads,
}

impl FactLookup {
    pub(crate) fn new(store: Store, settings: &Settings) -> io::Result<Self> {
        Ok(Self {
            store,
            window_rows: settings.window_rows,
            running_strike_lookups: SingleFlight::default(),
            window_order: WindowOrder::default(),
            counting_threads: CountingThreads::new(
                settings.counting_threads,
                settings.window_lookups_per_org,
            )?,
        })
    }

    pub(crate) const fn window_rows(&self) -> usize {
        self.window_rows
    }

    /// Takes the item's place in the order of window counts.
    pub(crate) fn take_place(
        &self,
        org: &OrgId,
        submission: SubmissionId,
        may_be_replay: bool,
    ) -> WindowGuard {
        self.window_order.take_place(org, submission, may_be_replay)
    }

    /// Adds items of an org to their windows. `are_new`: none of them was counted before.
    pub(crate) async fn count_items<'a>(
        &self,
        org: &OrgId,
        items: impl IntoIterator<Item = (SubmissionPosition, &'a [WindowEntry])> + Send,
        are_new: bool,
    ) -> Result<(), moderation::Error> {
        let counted_items: Vec<_> = items.into_iter().filter(|(_, entries)| !entries.is_empty()).collect();
        if !counted_items.is_empty() {
            windows::put_entries_of_items(&self.store, org, counted_items, are_new).await?;
            tidegate_stream::failpoint!("after_count");
        }
        Ok(())
    }

    /// Looks up the facts that the scan needs. The item must be counted before, so its own rows are included.
    pub(crate) async fn fetch_facts(
        &self,
        request: FactRequest<'_>,
        scan: &Scan,
    ) -> Result<Facts, moderation::Error> {
        let now = request.moment.append_ms();
        if let Some(guard) = request.guard
            && scan.pending_needs().iter().any(|need| matches!(need, Need::Count { .. }))
        {
            guard.wait_for_earlier().await;
        }
        let budget = Arc::new(RowBudget::new(self.window_rows));
        let count_permits = Semaphore::new(CONCURRENT_COUNTS);
        let mut facts = Facts::new();
        let (mut strike_lookups, mut count_lookups) = (Vec::new(), Vec::new());
        for need in scan.pending_needs() {
            match need {
                Need::Strikes { user, within } => {
                    let strike_points = self.total_strikes(request.org, user, *within, now);
                    strike_lookups.push(async move { strike_points.await.map(|points| (need, points)) });
                }
                Need::Count { window, key, at_least } => {
                    let amount = self.count_window(request, &budget, window, key, *at_least);
                    let permit = count_permits.acquire();
                    count_lookups.push(async move {
                        // The semaphore is fair, so windows read in the order of the rules' needs. It is never closed.
                        let _permit = permit.await;
                        amount.await.map(|amount| (need, amount))
                    });
                }
                // An address in a field that is not of a media type is never inspected.
                Need::Media { url } => match request.media.facts_for(url) {
                    Some(inspection) => facts.set_media(need.clone(), inspection.clone()),
                    None => facts.set_unknown(need.clone()),
                },
                // Models are called after all other facts are known, because they are slow and cost money.
                Need::Score { .. } => {}
            }
        }
        let (strike_totals, window_counts) =
            try_join(try_join_all(strike_lookups), try_join_all(count_lookups)).await?;
        for (need, points) in strike_totals {
            facts.set_strikes(need.clone(), points);
        }
        for (need, amount) in window_counts {
            match amount {
                Some(amount) => facts.set_count(need.clone(), amount),
                None => facts.set_failed(need.clone(), "too_many_rows"),
            }
        }
        Ok(facts)
    }

    /// Counts one window. Each item reads for itself: a shared look-up might have started before this item was counted.
    async fn count_window(
        &self,
        request: FactRequest<'_>,
        budget: &Arc<RowBudget>,
        window: &WindowId,
        key: &WindowKey,
        at_least: Amount,
    ) -> Result<Option<Amount>, moderation::Error> {
        // The need comes from the same plan, so the window exists; `None` is not expected.
        let Some(window) = request.plan.window(window).cloned() else { return Ok(None) };
        let (store, org, key) = (self.store.clone(), request.org.clone(), key.clone());
        let (budget, guard) = (Arc::clone(budget), request.guard.cloned());
        let times = window.around(request.moment.append_ms());
        // Rows after now exist only if clocks differ, so the range ends at now plus the largest skew.
        let latest = Millis(Millis::now().0.saturating_add(CLOCK_SKEW_MS)).max(request.moment.append_ms());
        let times = *times.start()..=latest.min(*times.end());
        let count_rows = async move {
            let select = |rows: &mut Vec<_>| {
                if let Some(guard) = &guard {
                    guard.drop_later_rows(rows);
                }
            };
            let (org, window, key) = (&org, &window, &key);
            let question =
                WindowQuestion { org, window, key, at_least, times, select: &select, budget: &budget };
            windows::count_window(&store, &question).await
        };
        self.counting_threads.run(request.org, count_rows).await
    }

    async fn total_strikes(
        &self,
        org: &OrgId,
        user: &ItemKey,
        within: Option<Lookback>,
        now: Millis,
    ) -> Result<i64, moderation::Error> {
        let counted_from = within.map_or(Millis(0), |within| within.start(now));
        let query = (org.clone(), user.clone(), counted_from);
        let (lookup, _) = self.running_strike_lookups.join(&query, || {
            let (store, (org, user, counted_from)) = (self.store.clone(), query.clone());
            async move { strike_points::load_total(&store, &org, &user, counted_from).await.ok() }
        });
        match lookup.await {
            Some(points) => Ok(points),
            // The shared look-up failed. Each item repeats it to receive an error of its own.
            None => strike_points::load_total(&self.store, org, user, counted_from).await,
        }
    }
}

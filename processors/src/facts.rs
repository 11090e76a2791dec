//! Looks up what undecided rules wait for: equal needs of many items at once have one answer.
//!
//! It remembers nothing beyond the look-ups that are under way.

use std::{collections::HashMap, sync::Arc};

use futures::{
    FutureExt as _,
    future::{BoxFuture, Shared, try_join_all},
};
use parking_lot::Mutex;
use tidegate_moderation::{self as moderation, strikes};
use tidegate_rules::{Facts, Need, Within};
use tidegate_schemas::ids::{ItemKey, Millis, OrgId};
use tidegate_store::Store;

/// A look-up that several items may wait for. The store's errors cannot be shared: whoever meets one asks again.
type Flight = Shared<BoxFuture<'static, Option<i64>>>;

/// Whose standing, and since when.
type Question = (OrgId, ItemKey, Millis);

#[derive(Clone)]
pub(crate) struct Desk {
    store: Store,
    flights: Arc<Mutex<HashMap<Question, Flight>>>,
}

impl Desk {
    pub(crate) fn new(store: Store) -> Self {
        Self { store, flights: Arc::default() }
    }

    pub(crate) async fn fetch(
        &self,
        org: &OrgId,
        needs: &[Need],
        now: Millis,
    ) -> Result<Facts, moderation::Error> {
        let mut facts = Facts::new();
        let mut standings = Vec::new();
        for need in needs {
            match need {
                Need::Strikes { user, within } => {
                    let standing = self.standing(org, user, *within, now);
                    standings.push(async move { standing.await.map(|points| (need, points)) });
                }
                Need::Count { .. } => facts.failed(need.clone(), "not_kept"),
                Need::Media { .. } | Need::Score { .. } => facts.unknown(need.clone()),
            }
        }
        for (need, points) in try_join_all(standings).await? {
            facts.strikes(need.clone(), points);
        }
        Ok(facts)
    }

    async fn standing(
        &self,
        org: &OrgId,
        user: &ItemKey,
        within: Option<Within>,
        now: Millis,
    ) -> Result<i64, moderation::Error> {
        let since = within.map_or(Millis(0), |within| within.since(now));
        match self.join((org.clone(), user.clone(), since)).await {
            Some(points) => Ok(points),
            None => strikes::standing(&self.store, org, user, since).await,
        }
    }

    fn join(&self, question: Question) -> Flight {
        let mut flights = self.flights.lock();
        if let Some(flight) = flights.get(&question) {
            return flight.clone();
        }
        let (store, all, asked) = (self.store.clone(), Arc::clone(&self.flights), question.clone());
        let flight = async move {
            let (org, user, since) = &asked;
            let points = strikes::standing(&store, org, user, *since).await.ok();
            all.lock().remove(&asked);
            points
        };
        let flight = flight.boxed().shared();
        flights.insert(question, flight.clone());
        flight
    }
}

//! Reads callback deliveries for operators, and asks their owner for another attempt.
//!
//! It writes no delivery: the owner of the partition is the only writer, and takes commands from the topic.

use std::{fmt, str::FromStr};

use tidegate_moderation::{Deps, Error};
use tidegate_schemas::{
    ids::{EventId, Millis, OrgId},
    records::{Callback, Command},
};
use tidegate_store::{
    At, Cursor, Store,
    tables::callbacks::deliveries::{Attempt, Delivery, DeliveryByDay},
};
use tidegate_stream::{Record, Topic};

const DAY_MS: i64 = 86_400_000;
/// Rows of deliveries live so long.
const DAYS: i64 = 30;
/// Rows that are read at once.
const STEP: usize = 500;

/// Where a page ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    day: i64,
    /// Nothing of the day was read yet, if there is none.
    after: Option<Cursor>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}~", self.day)?;
        self.after.as_ref().map_or(Ok(()), |after| write!(f, "{after}"))
    }
}

impl FromStr for Place {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (day, after) = text.split_once('~').ok_or(())?;
        let after = if after.is_empty() { None } else { Some(after.parse().map_err(drop)?) };
        Ok(Self { day: day.parse().map_err(drop)?, after })
    }
}

pub(crate) struct Query<F> {
    pub(crate) wants: F,
    pub(crate) limit: usize,
    /// Rows that the page may cost.
    pub(crate) rows: usize,
    pub(crate) from: Option<Place>,
}

/// Deliveries, the newest first, and where to go on.
pub(crate) async fn page(
    store: &Store,
    org: &OrgId,
    query: Query<impl Fn(&Delivery) -> bool>,
    now: Millis,
) -> Result<(Vec<Delivery>, Option<Place>), tidegate_store::Error> {
    let Query { wants, limit, mut rows, from } = query;
    let today = now.0.div_euclid(DAY_MS);
    let mut place = from.unwrap_or(Place { day: today, after: None });
    place.day = place.day.min(today);
    let mut found = Vec::new();
    while place.day >= today - DAYS {
        let step = rows.min(STEP);
        if step == 0 || found.len() >= limit {
            return Ok((found, Some(place)));
        }
        let scan = |after: Option<Cursor>, rows: usize| {
            store.scan::<DeliveryByDay>(&(org.clone(), place.day), At::all().limit(rows).after(after))
        };
        let mut entries = scan(place.after.clone(), step);
        let listed = entries.all().await?;
        rows -= listed.len();
        let keys: Vec<_> = listed.iter().map(|entry| (org.clone(), entry.event_id)).collect();
        for (at, delivery) in store.get_many::<Delivery>(&keys).await?.into_iter().enumerate() {
            let Some(delivery) = delivery.filter(&wants) else { continue };
            if found.len() >= limit {
                let mut again = scan(place.after, at);
                again.all().await?;
                return Ok((found, Some(Place { day: place.day, after: again.cursor() })));
            }
            found.push(delivery);
        }
        place = match entries.cursor() {
            Some(after) => Place { day: place.day, after: Some(after) },
            None => Place { day: place.day - 1, after: None },
        };
    }
    Ok((found, None))
}

/// A delivery and its attempts, the first one first.
pub(crate) async fn one(
    store: &Store,
    org: &OrgId,
    event_id: EventId,
) -> Result<Option<(Delivery, Vec<Attempt>)>, tidegate_store::Error> {
    let key = (org.clone(), event_id);
    let Some(delivery) = store.get::<Delivery>(&key).await? else { return Ok(None) };
    let attempts = store.scan::<Attempt>(&key, At::all()).all().await?;
    Ok(Some((delivery, attempts)))
}

/// Asks the owner of a delivery for something. `false`: there is no such delivery.
pub(crate) async fn command(
    deps: &Deps,
    org: &OrgId,
    event_id: EventId,
    command: Command,
) -> Result<bool, Error> {
    let Some(delivery) = deps.store.get::<Delivery>(&(org.clone(), event_id)).await? else {
        return Ok(false);
    };
    let record = Callback {
        org: org.clone(),
        command,
        event_id,
        event_type: delivery.event_type,
        endpoint: delivery.endpoint,
        occurred_at: delivery.occurred_at,
        body: bytes::Bytes::new(),
        subject: delivery.subject,
    };
    let key = record.subject.log_key(org);
    let partition = deps.log.partition(Topic::Callbacks, &key);
    deps.log.append(&[(partition, Record::of(&key, &record))]).await?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_place_survives_its_text_and_nothing_else_is_one() {
        for place in
            [Place { day: 20_778, after: None }, Place { day: 20_778, after: Some("00ff".parse().unwrap()) }]
        {
            assert_eq!(place.to_string().parse::<Place>().unwrap(), place);
        }
        for text in ["", "1", "a~", "1~xyz"] {
            assert!(text.parse::<Place>().is_err(), "{text}");
        }
    }
}

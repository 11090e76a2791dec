//! Limits of rules: actions per day, cooldown per user, and matches per hour up to the alarm.
//!
//! Limits are used up before the plan is stored. After a crash in between, an action of the day is wasted, while a
//! cooldown recognises its submission. So no limit is ever exceeded, and what a stored plan allows stays allowed.

use tidegate_schemas::ids::{DAY_MS, HOUR_MS, ItemKey, Millis, OrgId, RuleId, SubmissionId};
use tidegate_store::{
    Inserted, Replaced, Store, Version, Versioned,
    tables::items::limits::{Cooldown, RuleAlarm, RuleDay, RuleHour},
};

use crate::Error;

/// Period of a counter, by the append time in UTC.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Unit {
    Day,
    /// Per version of the rule, because matches of another version say nothing about it.
    HourOf(String),
}

/// A rule on a day, or a rule version in an hour.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Span {
    pub org: OrgId,
    pub rule: RuleId,
    pub unit: Unit,
    pub number: i64,
}

impl Span {
    pub fn of(org: &OrgId, rule: &RuleId, unit: Unit, at: Millis) -> Self {
        let length = match unit {
            Unit::Day => DAY_MS,
            Unit::HourOf(_) => HOUR_MS,
        };
        Self { org: org.clone(), rule: rule.clone(), unit, number: at.0.div_euclid(length) }
    }
}

/// Last known state of a counter's row. The count only grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    pub taken: i64,
    version: Version,
}

/// Takes as many of `wanted` as the limit leaves. Returns that number and the row's new state. `known` is the state that
/// the last call returned, if there was one.
pub async fn take(
    store: &Store,
    span: &Span,
    limit: i64,
    wanted: i64,
    known: Option<Known>,
) -> Result<(i64, Known), Error> {
    let (org, rule, number) = (span.org.clone(), span.rule.clone(), span.number);
    match &span.unit {
        Unit::Day => {
            let row = RuleDay { org, rule, day: number, taken: 0, version: 1 };
            take_of(store, row, limit, wanted, known).await
        }
        Unit::HourOf(rule_version) => {
            let rule_version = rule_version.clone();
            let row = RuleHour { org, rule, rule_version, hour: number, taken: 0, version: 1 };
            take_of(store, row, limit, wanted, known).await
        }
    }
}

trait Places: Versioned {
    fn taken(&self) -> i64;
    fn with(&self, taken: i64) -> Self;

    fn known(&self) -> Known {
        Known { taken: self.taken(), version: self.version() }
    }
}

impl Places for RuleDay {
    fn taken(&self) -> i64 {
        self.taken
    }

    fn with(&self, taken: i64) -> Self {
        Self { taken, ..self.clone() }
    }
}

impl Places for RuleHour {
    fn taken(&self) -> i64 {
        self.taken
    }

    fn with(&self, taken: i64) -> Self {
        Self { taken, ..self.clone() }
    }
}

async fn take_of<R: Places>(
    store: &Store,
    row: R,
    limit: i64,
    wanted: i64,
    known: Option<Known>,
) -> Result<(i64, Known), Error> {
    let mut there = match known {
        Some(known) => Some(known),
        None => store.get::<R>(&row.to_key()).await?.map(|row| row.known()),
    };
    loop {
        let Some(Known { taken, version }) = there else {
            let granted = limit.min(wanted);
            match store.insert_new(&row.with(granted)).await? {
                Inserted::New => return Ok((granted, Known { taken: granted, version: 1 })),
                Inserted::Existing(current) => there = Some(current.known()),
            }
            continue;
        };
        let granted = (limit - taken).clamp(0, wanted);
        if granted == 0 {
            return Ok((0, Known { taken, version }));
        }
        let taken = taken + granted;
        match store.replace(&row.with(taken), version).await? {
            Replaced::Yes => return Ok((granted, Known { taken, version: version + 1 })),
            Replaced::No(current) => there = Some(current.known()),
            Replaced::Gone => there = None,
        }
    }
}

/// A version of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Watched {
    pub org: OrgId,
    pub rule: RuleId,
    pub version: String,
}

/// True if the rule version has raised its alarm.
pub async fn is_alarmed(store: &Store, watched: &Watched) -> Result<bool, Error> {
    let key = (watched.org.clone(), watched.rule.clone(), watched.version.clone());
    Ok(store.get::<RuleAlarm>(&key).await?.is_some())
}

/// Stops the rule version in all processes until its document changes. Returns true if it acted until now.
pub async fn raise_alarm(
    store: &Store,
    watched: &Watched,
    submission: SubmissionId,
    at: Millis,
) -> Result<bool, Error> {
    let row = RuleAlarm {
        org: watched.org.clone(),
        rule: watched.rule.clone(),
        rule_version: watched.version.clone(),
        hour: at.hour(),
        submission_id: submission,
        raised_at: at,
        version: 1,
    };
    Ok(store.insert_new(&row).await?.is_new())
}

/// Request to act on a user.
#[derive(Clone, Copy, Debug)]
pub struct Asker<'a> {
    pub org: &'a OrgId,
    pub rule: &'a RuleId,
    pub user: &'a ItemKey,
    pub holder: SubmissionId,
    pub at: Millis,
}

impl Asker<'_> {
    fn may_follow(&self, row: &Cooldown) -> bool {
        // A late submission from before the holder must not act either.
        row.holder == self.holder || self.at >= row.until
    }
}

/// True if no other submission holds the user's cooldown. Takes nothing.
pub async fn is_free(store: &Store, asker: &Asker<'_>) -> Result<bool, Error> {
    let key = (asker.org.clone(), asker.rule.clone(), asker.user.clone());
    let row = store.get::<Cooldown>(&key).await?;
    Ok(row.is_none_or(|row| asker.may_follow(&row)))
}

/// Takes the user's cooldown until the given time, unless another submission holds it.
pub async fn hold(store: &Store, asker: &Asker<'_>, until: Millis) -> Result<bool, Error> {
    let own = Cooldown {
        org: asker.org.clone(),
        rule: asker.rule.clone(),
        user: asker.user.clone(),
        holder: asker.holder,
        since: asker.at,
        until,
        version: 1,
    };
    let mut there = None;
    loop {
        let Some(row) = there else {
            match store.insert_new(&own).await? {
                Inserted::New => return Ok(true),
                Inserted::Existing(row) => there = Some(row),
            }
            continue;
        };
        if row.holder == own.holder || !asker.may_follow(&row) {
            return Ok(row.holder == own.holder);
        }
        match store.replace(&own, row.version).await? {
            Replaced::Yes => return Ok(true),
            Replaced::No(current) => there = Some(current),
            Replaced::Gone => there = None,
        }
    }
}

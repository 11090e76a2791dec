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
pub enum PeriodUnit {
    Day,
    /// Per version of the rule, because matches of another version say nothing about it.
    HourOfVersion(String),
}

/// A rule on a day, or a rule version in an hour.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LimitPeriod {
    pub org: OrgId,
    pub rule: RuleId,
    pub unit: PeriodUnit,
    pub number: i64,
}

impl LimitPeriod {
    pub fn of(org: &OrgId, rule: &RuleId, unit: PeriodUnit, at: Millis) -> Self {
        let length = match unit {
            PeriodUnit::Day => DAY_MS,
            PeriodUnit::HourOfVersion(_) => HOUR_MS,
        };
        Self { org: org.clone(), rule: rule.clone(), unit, number: at.0.div_euclid(length) }
    }
}

/// Last known state of a counter's row. The count only grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CounterState {
    pub taken: i64,
    version: Version,
}

/// Takes as many of `wanted` as the limit leaves. Returns that number and the row's new state. `known` is the state that
/// the last call returned, if there was one.
pub async fn take(
    store: &Store,
    period: &LimitPeriod,
    limit: i64,
    wanted: i64,
    known: Option<CounterState>,
) -> Result<(i64, CounterState), Error> {
    let (org, rule, number) = (period.org.clone(), period.rule.clone(), period.number);
    match &period.unit {
        PeriodUnit::Day => {
            let row = RuleDay { org, rule, day: number, taken: 0, version: 1 };
            take_from(store, row, limit, wanted, known).await
        }
        PeriodUnit::HourOfVersion(rule_version) => {
            let rule_version = rule_version.clone();
            let row = RuleHour { org, rule, rule_version, hour: number, taken: 0, version: 1 };
            take_from(store, row, limit, wanted, known).await
        }
    }
}

trait Counter: Versioned {
    fn taken(&self) -> i64;
    fn with(&self, taken: i64) -> Self;

    fn state(&self) -> CounterState {
        CounterState { taken: self.taken(), version: self.version() }
    }
}

impl Counter for RuleDay {
    fn taken(&self) -> i64 {
        self.taken
    }

    fn with(&self, taken: i64) -> Self {
        Self { taken, ..self.clone() }
    }
}

impl Counter for RuleHour {
    fn taken(&self) -> i64 {
        self.taken
    }

    fn with(&self, taken: i64) -> Self {
        Self { taken, ..self.clone() }
    }
}

async fn take_from<R: Counter>(
    store: &Store,
    row: R,
    limit: i64,
    wanted: i64,
    known: Option<CounterState>,
) -> Result<(i64, CounterState), Error> {
    let mut there = match known {
        Some(known) => Some(known),
        None => store.get::<R>(&row.to_key()).await?.map(|row| row.state()),
    };
    loop {
        let Some(CounterState { taken, version }) = there else {
            let granted = limit.min(wanted);
            match store.insert_new(&row.with(granted)).await? {
                Inserted::New => return Ok((granted, CounterState { taken: granted, version: 1 })),
                Inserted::Existing(current) => there = Some(current.state()),
            }
            continue;
        };
        let granted = (limit - taken).clamp(0, wanted);
        if granted == 0 {
            return Ok((0, CounterState { taken, version }));
        }
        let taken = taken + granted;
        match store.replace(&row.with(taken), version).await? {
            Replaced::Yes => return Ok((granted, CounterState { taken, version: version + 1 })),
            Replaced::No(current) => there = Some(current.state()),
            Replaced::Gone => there = None,
        }
    }
}

/// A version of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RuleVersion {
    pub org: OrgId,
    pub rule: RuleId,
    pub version: String,
}

/// True if the rule version has raised its alarm.
pub async fn is_alarmed(store: &Store, version: &RuleVersion) -> Result<bool, Error> {
    let key = (version.org.clone(), version.rule.clone(), version.version.clone());
    Ok(store.get::<RuleAlarm>(&key).await?.is_some())
}

/// Stops the rule version in all processes until its document changes. Returns true if it acted until now.
pub async fn raise_alarm(
    store: &Store,
    version: &RuleVersion,
    submission: SubmissionId,
    at: Millis,
) -> Result<bool, Error> {
    let row = RuleAlarm {
        org: version.org.clone(),
        rule: version.rule.clone(),
        rule_version: version.version.clone(),
        hour: at.hour(),
        submission_id: submission,
        raised_at: at,
        version: 1,
    };
    Ok(store.insert_new(&row).await?.is_new())
}

/// Request to act on a user.
#[derive(Clone, Copy, Debug)]
pub struct CooldownRequest<'a> {
    pub org: &'a OrgId,
    pub rule: &'a RuleId,
    pub user: &'a ItemKey,
    pub holder: SubmissionId,
    pub at: Millis,
}

impl CooldownRequest<'_> {
    fn may_follow(&self, row: &Cooldown) -> bool {
        // A late submission from before the holder must not act either.
        row.holder == self.holder || self.at >= row.until
    }
}

/// True if no other submission holds the user's cooldown. Takes nothing.
pub async fn is_cooldown_free(store: &Store, request: &CooldownRequest<'_>) -> Result<bool, Error> {
    let key = (request.org.clone(), request.rule.clone(), request.user.clone());
    let row = store.get::<Cooldown>(&key).await?;
    Ok(row.is_none_or(|row| request.may_follow(&row)))
}

/// Takes the user's cooldown until the given time, unless another submission holds it.
pub async fn take_cooldown(
    store: &Store,
    request: &CooldownRequest<'_>,
    until: Millis,
) -> Result<bool, Error> {
    let own = Cooldown {
        org: request.org.clone(),
        rule: request.rule.clone(),
        user: request.user.clone(),
        holder: request.holder,
        since: request.at,
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
        if row.holder == own.holder || !request.may_follow(&row) {
            return Ok(row.holder == own.holder);
        }
        match store.replace(&own, row.version).await? {
            Replaced::Yes => return Ok(true),
            Replaced::No(current) => there = Some(current),
            Replaced::Gone => there = None,
        }
    }
}

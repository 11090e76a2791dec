//! Limits of rules: actions per day, cooldown per user, and matches per hour up to the alarm.
//!
//! Limits are taken before the plan is stored. A crash in between wastes a place of the day, while a cooldown
//! recognises its submission. So no limit is ever exceeded, and a stored plan keeps its permission.

use tidegate_schemas::ids::{DAY_MS, HOUR_MS, ItemKey, Millis, OrgId, RuleId, SubmissionId};
use tidegate_store::{
    InsertOutcome, ReplaceOutcome, Store, Version, Versioned,
    tables::items::limits::{Cooldown, RuleAlarm, RuleDay, RuleHour},
};

use crate::Error;

/// Period of a counter, by the append time in UTC.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PeriodUnit {
    Day,
    /// Per version of the rule, because the matches of another version are no evidence.
    HourOfVersion(String),
}

/// Period of a limit: a rule on a day, or a rule version in an hour.
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

/// Last seen state of a counter's row. The count only grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CounterState {
    pub count: i64,
    version: Version,
}

/// Takes up to `requested` places within the limit. Returns the granted number and the row's new state. `cached` is
/// the state from the last call, which saves a read.
pub async fn take_places(
    store: &Store,
    period: &LimitPeriod,
    limit: i64,
    requested: i64,
    cached: Option<CounterState>,
) -> Result<(i64, CounterState), Error> {
    let (org, rule, number) = (period.org.clone(), period.rule.clone(), period.number);
    match &period.unit {
        PeriodUnit::Day => {
            let row = RuleDay { org, rule, day: number, taken: 0, version: 1 };
            take_from_counter(store, row, limit, requested, cached).await
        }
        PeriodUnit::HourOfVersion(rule_version) => {
            let rule_version = rule_version.clone();
            let row = RuleHour { org, rule, rule_version, hour: number, taken: 0, version: 1 };
            take_from_counter(store, row, limit, requested, cached).await
        }
    }
}

trait Counter: Versioned {
    fn count(&self) -> i64;
    fn with_count(&self, taken: i64) -> Self;

    fn state(&self) -> CounterState {
        CounterState { count: self.count(), version: self.version() }
    }
}

impl Counter for RuleDay {
    fn count(&self) -> i64 {
        self.taken
    }

    fn with_count(&self, taken: i64) -> Self {
        Self { taken, ..self.clone() }
    }
}

impl Counter for RuleHour {
    fn count(&self) -> i64 {
        self.taken
    }

    fn with_count(&self, taken: i64) -> Self {
        Self { taken, ..self.clone() }
    }
}

async fn take_from_counter<R: Counter>(
    store: &Store,
    row: R,
    limit: i64,
    requested: i64,
    cached: Option<CounterState>,
) -> Result<(i64, CounterState), Error> {
    let mut state = match cached {
        Some(cached_state) => Some(cached_state),
        None => store.get::<R>(&row.to_key()).await?.map(|row| row.state()),
    };
    loop {
        let Some(CounterState { count, version }) = state else {
            let granted = limit.min(requested);
            match store.insert_new(&row.with_count(granted)).await? {
                InsertOutcome::New => return Ok((granted, CounterState { count: granted, version: 1 })),
                InsertOutcome::Existing(current) => state = Some(current.state()),
            }
            continue;
        };
        let granted = (limit - count).clamp(0, requested);
        // The count only grows, so a full row needs no write and later calls can trust the cached state.
        if granted == 0 {
            return Ok((0, CounterState { count, version }));
        }
        let count = count + granted;
        match store.replace(&row.with_count(count), version).await? {
            ReplaceOutcome::Done => return Ok((granted, CounterState { count, version: version + 1 })),
            ReplaceOutcome::Conflict(current) => state = Some(current.state()),
            // The row expired between read and write.
            ReplaceOutcome::Missing => state = None,
        }
    }
}

/// Version of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RuleVersion {
    pub org: OrgId,
    pub rule: RuleId,
    pub version: String,
}

/// True if the alarm of the rule version is raised.
pub async fn is_alarm_raised(store: &Store, version: &RuleVersion) -> Result<bool, Error> {
    let key = (version.org.clone(), version.rule.clone(), version.version.clone());
    Ok(store.get::<RuleAlarm>(&key).await?.is_some())
}

/// Stops the rule version in all processes until its document changes. Returns true if the alarm was not raised
/// before.
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
    // Only the first insert succeeds, so one process reports the alarm.
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
    fn is_allowed_after(&self, row: &Cooldown) -> bool {
        // A late submission from before the holder is refused too.
        row.holder == self.holder || self.at >= row.until
    }
}

/// True if no other submission holds the user's cooldown. Read-only.
pub async fn is_cooldown_free(store: &Store, request: &CooldownRequest<'_>) -> Result<bool, Error> {
    let key = (request.org.clone(), request.rule.clone(), request.user.clone());
    let row = store.get::<Cooldown>(&key).await?;
    Ok(row.is_none_or(|row| request.is_allowed_after(&row)))
}

/// Takes the user's cooldown until `until`, unless another submission holds it.
pub async fn take_cooldown(
    store: &Store,
    request: &CooldownRequest<'_>,
    until: Millis,
) -> Result<bool, Error> {
    let requested = Cooldown {
        org: request.org.clone(),
        rule: request.rule.clone(),
        user: request.user.clone(),
        holder: request.holder,
        since: request.at,
        until,
        version: 1,
    };
    let mut current_row = None;
    loop {
        let Some(row) = current_row else {
            match store.insert_new(&requested).await? {
                InsertOutcome::New => return Ok(true),
                InsertOutcome::Existing(row) => current_row = Some(row),
            }
            continue;
        };
        // The submission holds the cooldown already: a replay after a crash.
        if row.holder == requested.holder || !request.is_allowed_after(&row) {
            return Ok(row.holder == requested.holder);
        }
        match store.replace(&requested, row.version).await? {
            ReplaceOutcome::Done => return Ok(true),
            ReplaceOutcome::Conflict(current) => current_row = Some(current),
            ReplaceOutcome::Missing => current_row = None,
        }
    }
}

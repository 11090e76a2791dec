//! Takes what a rule's limits leave: places of a day, and the time in which a user is left alone.
//!
//! It does not decide which rules ask (`effects`), and gathers no askers (`processors`).
//!
//! Both are taken before the plan is stored. Who dies in between has taken for nothing; a place of a day is then
//! wasted, and a user's cooldown is found again by its holder. So neither limit is ever exceeded, and what a plan says
//! was allowed stays allowed.

use tidegate_schemas::ids::{ItemKey, Millis, OrgId, RuleId, SubmissionId};
use tidegate_store::{
    Inserted, Replaced, Store,
    tables::items::limits::{Cooldown, RuleDay},
};

use crate::{Error, queues::DAY_MS};

/// A rule on a day (UTC) of the log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Day {
    pub org: OrgId,
    pub rule: RuleId,
    pub day: i64,
}

impl Day {
    pub fn of(org: &OrgId, rule: &RuleId, at: Millis) -> Self {
        Self { org: org.clone(), rule: rule.clone(), day: at.0.div_euclid(DAY_MS) }
    }
}

/// Takes as many of `wanted` places as the day has left, and says how many, and how many are taken now. `known` is
/// what the last call said of the row, if there was one.
pub async fn take(
    store: &Store,
    day: &Day,
    limit: i64,
    wanted: i64,
    known: Option<RuleDay>,
) -> Result<(i64, RuleDay), Error> {
    let key = (day.org.clone(), day.rule.clone(), day.day);
    let mut there = match known {
        Some(known) => Some(known),
        None => store.get::<RuleDay>(&key).await?,
    };
    loop {
        let Some(row) = there else {
            let granted = limit.min(wanted);
            let (org, rule, day) = key.clone();
            let first = RuleDay { org, rule, day, taken: granted, version: 1 };
            match store.insert_new(&first).await? {
                Inserted::New => return Ok((granted, first)),
                Inserted::Existing(row) => there = Some(row),
            }
            continue;
        };
        let granted = (limit - row.taken).clamp(0, wanted);
        if granted == 0 {
            return Ok((0, row));
        }
        let next = RuleDay { taken: row.taken + granted, ..row.clone() };
        match store.replace(&next, row.version).await? {
            Replaced::Yes => return Ok((granted, RuleDay { version: row.version + 1, ..next })),
            Replaced::No(current) => there = Some(current),
            Replaced::Gone => there = None,
        }
    }
}

/// Who asks to act on a user.
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
        // Somebody who comes late, from before the holder, is one too many as well.
        row.holder == self.holder || self.at >= row.until
    }
}

/// Whether nobody else holds the user now. It takes nothing.
pub async fn is_free(store: &Store, asker: &Asker<'_>) -> Result<bool, Error> {
    let key = (asker.org.clone(), asker.rule.clone(), asker.user.clone());
    let row = store.get::<Cooldown>(&key).await?;
    Ok(row.is_none_or(|row| asker.may_follow(&row)))
}

/// Holds the user until then, unless somebody else does.
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

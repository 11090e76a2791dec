//! When each life of a process ends: at a place in the code, or at a moment under load; a seed repeats the choice.
//!
//! The processes themselves belong to `installation`.

use std::{collections::BTreeMap, fmt, time::Duration};

use anyhow::{Result, bail};
use tidegate_test_support::Process;
use tokio::time::{Instant, sleep};

use crate::seeded::Seeded;

/// A failpoint that kills the process, and the highest hit at which it does.
pub(crate) type Place = (&'static str, u64);

/// Failpoints between the append of a request, its plan, the effects, the commit of its record, and the callback.
pub(crate) const PLACES: [Place; 17] = [
    ("after_append", 60),
    ("after_poll", 12),
    ("after_accepted", 12),
    ("after_slow_append", 12),
    ("after_count", 40),
    ("after_limits", 25),
    ("after_plan", 25),
    ("after_apply_rows", 25),
    ("after_callback_append", 25),
    ("before_complete", 60),
    ("after_commit", 12),
    ("after_due_release", 2),
    ("after_partial_due", 6),
    ("after_partial_append", 6),
    ("after_callback_rows", 25),
    ("before_callback", 25),
    ("after_callback", 25),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    At {
        place: &'static str,
        hit: u64,
    },
    /// Time after the start of the process, which may not be ready yet.
    After(Duration),
}

impl End {
    /// The value of `TIDEGATE_FAILPOINTS`.
    pub(crate) fn failpoints(self) -> Option<String> {
        match self {
            Self::At { place, hit } => Some(format!("{place}=kill@{hit}")),
            Self::After(_) => None,
        }
    }
}

/// Places that a role reaches, with few hits each, because its share of the load is small.
pub(crate) fn places_of(role: &str) -> Vec<Place> {
    let of = |names: &[&str]| {
        let role_places = PLACES.into_iter().filter(|(name, _)| names.contains(name));
        role_places.map(|(name, most)| (name, most.div_ceil(5))).collect()
    };
    match role {
        "ingest" => of(&["after_append"]),
        "deliver" => of(&["after_callback_rows", "before_callback", "after_callback"]),
        "process" => of(&[
            "after_poll",
            "after_accepted",
            "after_slow_append",
            "after_count",
            "after_limits",
            "after_plan",
            "after_apply_rows",
            "after_callback_append",
            "before_complete",
            "after_due_release",
            "after_partial_due",
            "after_partial_append",
        ]),
        _ => Vec::new(),
    }
}

/// Ends of `kills` lives: places and moments in turn. Half of the ends are places, and each place is used.
pub(crate) fn plan(seed: u64, kills: usize, places: &[Place], longest: Duration) -> Vec<End> {
    let mut seeded = Seeded::new(seed).branch(1);
    let longest = u64::try_from(longest.as_millis()).unwrap_or(u64::MAX);
    (0..kills)
        .map(|life| {
            if life % 2 == 0 && !places.is_empty() {
                let (place, most) = places[life / 2 % places.len()];
                End::At { place, hit: 1 + seeded.below(most) }
            } else {
                End::After(Duration::from_millis(seeded.below(longest)))
            }
        })
        .collect()
}

/// Kills by their cause.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kills {
    pub(crate) at: BTreeMap<&'static str, usize>,
    pub(crate) random: usize,
    /// Lives with an acknowledged request.
    pub(crate) under_load: usize,
}

impl Kills {
    pub(crate) fn at_places(&self) -> usize {
        self.at.values().sum()
    }

    pub(crate) fn all(&self) -> usize {
        self.at_places() + self.random
    }

    /// # Errors
    /// Fewer kills than `wanted`, less than a third of them at places, or less than half of them under load.
    pub(crate) fn suffice(&self, wanted: usize) -> Result<()> {
        if self.all() < wanted || self.at_places() * 3 < self.all() || self.under_load * 2 < self.all() {
            bail!("{wanted} kills were wanted, a third of them at places, half of them under load: {self}");
        }
        Ok(())
    }

    /// # Errors
    /// A place at which no life ended.
    pub(crate) fn reached(&self, places: &[Place]) -> Result<()> {
        match places.iter().find(|(place, _)| !self.at.contains_key(place)) {
            Some((place, _)) => bail!("no kill at {place}: {self}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Kills {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} kills: {} at random moments, {} under load, {} at places",
            self.all(),
            self.random,
            self.under_load,
            self.at_places()
        )?;
        for (place, times) in &self.at {
            write!(f, ", {times} {place}")?;
        }
        Ok(())
    }
}

/// Waits for the end of one life. If the load does not reach the place within `patience`, the process is killed then.
///
/// # Errors
/// The process exited without a kill.
pub(crate) async fn finish(
    process: &mut Process,
    end: End,
    patience: Duration,
    kills: &mut Kills,
) -> Result<()> {
    match end {
        End::After(moment) => {
            sleep(moment).await;
            if !process.runs() {
                bail!("the process exited without a kill:\n{}", tail(process));
            }
        }
        End::At { place, .. } => {
            let deadline = Instant::now() + patience;
            while process.runs() && Instant::now() < deadline {
                sleep(Duration::from_millis(5)).await;
            }
            if !process.runs() {
                let status = process.exit(Duration::from_secs(1)).await?;
                let killed = std::os::unix::process::ExitStatusExt::signal(&status) == Some(9);
                if !killed {
                    bail!("the process exited without a kill: {status}\n{}", tail(process));
                }
                *kills.at.entry(place).or_default() += 1;
                return Ok(());
            }
        }
    }
    process.kill().await?;
    kills.random += 1;
    Ok(())
}

pub(crate) fn tail(process: &Process) -> String {
    const LINES: usize = 30;
    let output = process.output().unwrap_or_default();
    let lines: Vec<_> = output.lines().collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seed_determines_the_kills() {
        let ends = |seed| plan(seed, 40, &PLACES, Duration::from_secs(1));
        assert_eq!(ends(7), ends(7));
        assert_ne!(ends(7), ends(8));
    }

    #[test]
    fn half_of_the_kills_are_at_places_and_use_each_place() {
        let ends = plan(3, 60, &PLACES, Duration::from_secs(1));
        let at: Vec<_> = ends
            .iter()
            .filter_map(|end| match end {
                End::At { place, .. } => Some(*place),
                End::After(_) => None,
            })
            .collect();
        assert_eq!(at.len(), 30);
        assert!(PLACES.iter().all(|(place, _)| at.contains(place)));
    }

    #[test]
    fn too_few_kills_at_places_do_not_suffice() {
        let kills = |places, random, under_load| Kills {
            at: BTreeMap::from([("after_plan", places)]),
            random,
            under_load,
        };
        assert!(kills(20, 40, 30).suffice(60).is_ok());
        assert!(kills(19, 41, 60).suffice(60).is_err());
        assert!(kills(29, 30, 59).suffice(60).is_err());
        assert!(kills(20, 40, 29).suffice(60).is_err());
        assert!(kills(20, 40, 60).reached(&[("after_plan", 1)]).is_ok());
        assert!(kills(20, 40, 60).reached(&[("after_plan", 1), ("after_poll", 1)]).is_err());
    }
}

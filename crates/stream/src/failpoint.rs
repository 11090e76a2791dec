//! Failpoints: named places in the code at which a fault test kills the process.
//!
//! Without the feature `failpoints`, `failpoint!` expands to no code.
//!
//! `TIDEGATE_FAILPOINTS=after_plan=kill@3,before_complete=kill@1` kills the process with SIGKILL when `after_plan` is
//! reached for the third time, or `before_complete` for the first.

/// Kills the process here if the environment asks for it.
#[cfg(not(feature = "failpoints"))]
#[macro_export]
macro_rules! failpoint {
    ($name:literal) => {};
}

/// Kills the process here if the environment asks for it.
#[cfg(feature = "failpoints")]
#[macro_export]
macro_rules! failpoint {
    ($name:literal) => {
        $crate::failpoint::reach($name)
    };
}

#[cfg(feature = "failpoints")]
pub use armed::reach;

#[cfg(feature = "failpoints")]
mod armed {
    use std::{
        collections::BTreeMap,
        process::{Command, exit, id},
        sync::{
            LazyLock,
            atomic::{AtomicU64, Ordering},
        },
        thread,
    };

    const VARIABLE: &str = "TIDEGATE_FAILPOINTS";

    /// By name of the failpoint: the hit that kills the process, and the number of hits so far.
    type KillPoints = BTreeMap<String, (u64, AtomicU64)>;

    static ARMED: LazyLock<KillPoints> = LazyLock::new(|| {
        let text = std::env::var(VARIABLE).unwrap_or_default();
        parse(&text).unwrap_or_else(|error| {
            tracing::error!("{VARIABLE}: {error}");
            exit(2);
        })
    });

    pub fn reach(name: &str) {
        let Some((at, hits)) = ARMED.get(name) else { return };
        if hits.fetch_add(1, Ordering::Relaxed) + 1 == *at {
            kill(name);
        }
    }

    /// Kills the process with SIGKILL: no handler runs, no buffer is flushed, no destructor is called.
    fn kill(name: &str) -> ! {
        tracing::error!(failpoint = name, "killing this process");
        let killed = Command::new("kill").args(["-KILL", &id().to_string()]).status();
        tracing::error!(?killed, "the process could not be killed");
        loop {
            thread::park();
        }
    }

    fn parse(text: &str) -> Result<KillPoints, String> {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        let armed = parts.map(|part| {
            let (name, at) =
                part.split_once("=kill@").ok_or_else(|| format!("{part:?} is not <place>=kill@<hit>"))?;
            let at = at.parse().ok().filter(|at| *at > 0);
            let at = at.ok_or_else(|| format!("{part:?}: the hit is a number from 1"))?;
            Ok((name.to_owned(), (at, AtomicU64::new(0))))
        });
        armed.collect()
    }

    #[cfg(test)]
    mod tests {
        #![allow(clippy::unwrap_used)]

        use super::*;

        #[test]
        fn failpoints_are_named_with_their_hit() {
            let armed = parse("after_plan=kill@3, before_complete=kill@1").unwrap();
            assert_eq!(armed["after_plan"].0, 3);
            assert_eq!(armed["before_complete"].0, 1);
            assert!(parse("").unwrap().is_empty());
        }

        #[test]
        fn invalid_failpoints_are_refused() {
            for text in ["after_plan", "after_plan=kill", "after_plan=kill@0", "after_plan=stop@1"] {
                assert!(parse(text).is_err(), "{text}");
            }
        }
    }
}

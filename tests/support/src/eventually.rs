//! Waiting for a condition with a bound, with an error that names the condition.
//! Unfit for measuring time: bounds are generous, so that a busy machine fails no test.

use std::time::Duration;

use anyhow::{Result, anyhow};
use tokio::time::{Instant, sleep, timeout_at};

/// A bound that only a real fault reaches, also on a machine that compiles meanwhile.
pub const PATIENCE: Duration = Duration::from_secs(60);

const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// Asks `probe` until it answers `Some`. Await it in the test itself: its future is not `Send`.
///
/// # Errors
/// The condition did not hold within the bound; the error names `condition`.
pub async fn eventually<T>(
    condition: &str,
    within: Duration,
    mut probe: impl AsyncFnMut() -> Option<T>,
) -> Result<T> {
    retry(condition, within, async || probe().await.ok_or(None)).await
}

/// Asks `probe` until it answers `Ok`.
///
/// # Errors
/// No `Ok` within the bound; the error names `condition` and carries the last answer.
pub async fn eventually_ok<T>(
    condition: &str,
    within: Duration,
    mut probe: impl AsyncFnMut() -> Result<T>,
) -> Result<T> {
    retry(condition, within, async || probe().await.map_err(Some)).await
}

async fn retry<T>(
    condition: &str,
    within: Duration,
    mut probe: impl AsyncFnMut() -> Result<T, Option<anyhow::Error>>,
) -> Result<T> {
    let deadline = Instant::now() + within;
    let mut pause = FIRST_PAUSE;
    let mut last = None;
    loop {
        match timeout_at(deadline, probe()).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(fault)) => last = fault.or(last),
            Err(_) => last = last.or_else(|| Some(anyhow!("the probe itself did not answer"))),
        }
        if Instant::now() + pause >= deadline {
            return Err(match last {
                Some(fault) => fault.context(format!("waited {within:?} for {condition}")),
                None => anyhow!("waited {within:?} for {condition}"),
            });
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use anyhow::bail;

    use super::*;

    #[tokio::test]
    async fn answers_as_soon_as_the_condition_holds() {
        let mut asked = 0;
        let answer = eventually("the third question", PATIENCE, async || {
            asked += 1;
            (asked == 3).then_some(asked)
        });
        assert_eq!(answer.await.unwrap(), 3);
    }

    #[tokio::test]
    async fn error_names_the_condition_and_the_last_fault() {
        let fault =
            eventually_ok::<()>("the sea to part", Duration::from_millis(20), async || bail!("still wet"))
                .await
                .unwrap_err();
        let text = format!("{fault:#}");
        assert!(text.contains("the sea to part") && text.contains("still wet"), "{text}");
    }

    #[tokio::test]
    async fn a_probe_that_hangs_is_bounded_too() {
        let fault = eventually::<()>("an answer", Duration::from_millis(20), async || {
            std::future::pending::<Option<()>>().await
        });
        assert!(format!("{:#}", fault.await.unwrap_err()).contains("did not answer"));
    }
}

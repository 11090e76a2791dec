//! The whole service in one process on embedded data, killed again and again under load.
//!
//! Long: `tests/faults/run` calls it.

use std::{env, sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use tidegate_test_support::eventually;

use crate::{
    documents,
    installation::{Installation, LONG, UP},
    killer::{self, Kills},
    load::{Clients, Pace},
    observe, oracle,
    pictures::Pictures,
    platform::Platform,
    receiver::{Manner, Receiver},
};

/// A number that the caller may set.
pub(crate) fn number(variable: &str, default: u64) -> u64 {
    match env::var(variable) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{variable} = {text:?} is not a number")),
        Err(_) => default,
    }
}

pub(crate) const SEED: u64 = 20_260_102;

/// Longest life of a process that no place ends.
const LONGEST_LIFE: Duration = Duration::from_millis(1_500);

/// Time for the load to reach a place. A later place is not in the path of the load.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs a first process that creates the key, the configuration, and the secrets for the receiver.
pub(crate) async fn first_life(more: &str, receiver: &Receiver, scam_endpoint: &str) -> Result<Installation> {
    let mut installation = Installation::new(more, &[UP])?;
    let mut process = installation.up(None)?;
    installation.ready(&mut process).await?;
    installation.learn_key(&mut process).await?;
    installation.apply(&documents::all(receiver, scam_endpoint)).await?;
    for endpoint in ["all", scam_endpoint] {
        receiver.trust(&installation.secret(endpoint).await?);
    }
    installation.stop(&mut process).await?;
    Ok(installation)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: tests/faults/run"]
async fn acknowledged_ids_survive_kills_on_embedded_data() -> Result<()> {
    let (seed, kill_count) = (number("TIDEGATE_FAULTS_SEED", SEED), number("TIDEGATE_FAULTS_KILLS", 68));
    let kill_count = usize::try_from(kill_count)?;
    println!("embedded: seed {seed}, {kill_count} kills");
    let (receiver, pictures) = (Receiver::start().await?, Pictures::start().await?);
    let platform = Platform::start().await?;
    // Some events need a second attempt, so kills also hit the time between attempts.
    receiver.behave("all", Manner::Fail(1));
    let installation =
        Arc::new(first_life(&(pictures.settings() + &platform.settings()), &receiver, "scams").await?);
    let pace = Pace { clients: 6, requests: 100 * kill_count as u64, pause: Duration::from_millis(25) };
    let mut clients = Clients::start(&installation, &pictures, seed, pace);
    let mut kills = Kills::default();
    for (life, end) in killer::plan(seed, kill_count, &killer::PLACES, LONGEST_LIFE).into_iter().enumerate() {
        let before = clients.count_accepted();
        let mut process = installation.up(end.failpoints())?;
        killer::finish(&mut process, end, PATIENCE, &mut kills)
            .await
            .with_context(|| format!("life {life}, {end:?}"))?;
        kills.under_load += usize::from(clients.count_accepted() > before);
        clients.check()?;
    }
    println!("embedded: {kills}");

    let mut process = installation.up(None)?;
    installation.ready(&mut process).await?;
    println!("embedded: {} appeals against scams were accepted under kills", clients.overturned());
    // At least one appeal must be accepted, at the latest now.
    eventually("an appeal against a scam to be accepted", LONG, async || {
        (clients.overturned() > 0).then_some(())
    })
    .await?;
    let requests = clients.finish().await?;
    // A second start, because a replay at a start could repeat effects.
    observe::wait_until_drained(&installation, &mut process).await?;
    installation.stop(&mut process).await?;
    let mut process = installation.up(None)?;
    installation.ready(&mut process).await?;
    observe::wait_until_drained(&installation, &mut process).await?;
    let mut observations = observe::observe_api(&installation, &receiver, &platform, &requests).await?;
    installation.stop(&mut process).await?;
    observe::embedded_rows(&installation, &requests, &mut observations).await?;
    observations.callbacks = receiver.callbacks();

    let verdict = oracle::judge(&requests, &observations);
    let counts = oracle::counts(&requests, &observations);
    println!("embedded: {counts}; {} looks at pictures", pictures.count_requests());
    println!("embedded: {verdict}");
    kills.suffice(kill_count)?;
    if kill_count >= 4 * killer::PLACES.len() {
        kills.reached(&killer::PLACES)?;
        assert!(counts.reversals > 0, "no strike was reversed: {counts}");
    }
    counts.suffice(kill_count)?;
    assert!(verdict.is_clean(), "{verdict}\nrepeat it with TIDEGATE_FAULTS_SEED={seed}");
    Ok(())
}

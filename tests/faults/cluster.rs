//! The roles in processes of their own, on real Kafka and real Cassandra: roles, broker and node are killed under load.
//!
//! Long: `tests/faults/run` calls it. The servers are its own, in a folder of its own, on free ports.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use tempfile::TempDir;
use tidegate_store::{Store, cql};
use tidegate_test_support::{Process, servers};
use tokio::{process::Command, time::sleep};

use crate::{
    documents,
    embedded::{SEED, number},
    installation::{Installation, LONG},
    killer::{self, End, Kills},
    load::{Clients, Pace},
    observe, oracle,
    pictures::Pictures,
    platform::Platform,
    receiver::{Manner, Receiver},
};

const ROLES: [&str; 4] = ["ingest", "process", "deliver", "console"];

/// Which roles die, in turn: those with more state more often.
const TURNS: [&str; 5] = ["process", "deliver", "ingest", "process", "console"];

/// Time for the load to reach a place. It holds several sessions: the partitions of a killed member move to another
/// member only when its session has ended.
const PATIENCE: Duration = Duration::from_secs(45);

const KEYSPACE: &str = "tidegate_faults";

/// Kafka and Cassandra of this test, which no other test uses.
struct Servers {
    dir: TempDir,
    kafka: String,
    cql: String,
}

impl Drop for Servers {
    fn drop(&mut self) {
        let stopped =
            std::process::Command::new(script()).args(["stop", "all", "--dir"]).arg(self.dir.path()).status();
        if !stopped.is_ok_and(|status| status.success()) {
            println!("the servers in {} could not be stopped", self.dir.path().display());
        }
    }
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/servers/servers")
}

impl Servers {
    async fn start() -> Result<Self> {
        let mut servers = Self { dir: tempfile::tempdir()?, kafka: String::new(), cql: String::new() };
        servers.call(&["start", "kafka"]).await?;
        servers.call(&["start", "cassandra"]).await?;
        let env = servers.call(&["env"]).await?;
        let read_address = |variable: &str| {
            let line = env.lines().find_map(|line| line.strip_prefix(&format!("export {variable}=")));
            line.map(str::to_owned).with_context(|| format!("{variable} is not named: {env}"))
        };
        (servers.kafka, servers.cql) =
            (read_address("TIDEGATE_TEST_KAFKA")?, read_address("TIDEGATE_TEST_CQL")?);
        Ok(servers)
    }

    async fn call(&self, words: &[&str]) -> Result<String> {
        let output = Command::new(script())
            .args(words)
            .arg("--dir")
            .arg(self.dir.path())
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .await?;
        if !output.status.success() {
            bail!("servers {words:?}: {}", output.status);
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Kills the server with SIGKILL and starts it again on its data after a pause.
    async fn kill_and_start(&self, server: &str) -> Result<()> {
        self.call(&["kill", server]).await?;
        sleep(Duration::from_secs(3)).await;
        self.call(&["start", server]).await?;
        println!("cluster: killed and started {server} under load");
        Ok(())
    }

    fn settings(&self) -> String {
        let Self { kafka, cql, .. } = self;
        format!(
            r#"
[security]
master_key = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
[stream]
engine = "kafka"
partitions = 4
[stream.consume]
drain_timeout_ms = 4000
commit_timeout_ms = 1000
[stream.kafka]
brokers = ["{kafka}"]
statistics_interval_ms = 250
[stream.kafka.topics]
replication = 1
min_insync_replicas = 1
[stream.kafka.consumer]
group_protocol = "classic"
session_timeout_ms = 6000
librdkafka = {{ "heartbeat.interval.ms" = "500" }}
[store]
engine = "cql"
[store.cql]
contact_points = ["{cql}"]
keyspace = "{KEYSPACE}"
replication = {{ simple = 1 }}
"#
        )
    }

    async fn store(&self) -> Result<Store> {
        let settings = cql::Settings {
            contact_points: vec![self.cql.clone()],
            keyspace: KEYSPACE.to_owned(),
            ..cql::Settings::default()
        };
        Ok(Store::open_cql(settings).await?)
    }
}

/// Processes of the roles, and the planned ends of their lives.
struct Crew {
    installation: Arc<Installation>,
    lives: BTreeMap<&'static str, Process>,
    ends: BTreeMap<&'static str, Vec<End>>,
}

impl Crew {
    fn start(&mut self, role: &'static str) -> Result<()> {
        let next = self.ends.get(role).and_then(|ends| ends.last());
        let failpoints = next.and_then(|end| end.failpoints());
        self.lives.insert(role, self.installation.start(role, failpoints)?);
        Ok(())
    }

    /// Waits for the planned end of the role's process, and starts the next process.
    async fn kill(&mut self, role: &'static str, kills: &mut Kills) -> Result<()> {
        let end = self.ends.get_mut(role).and_then(Vec::pop).context("each turn has an end")?;
        let process = self.lives.get_mut(role).context("each role runs")?;
        killer::finish(process, end, PATIENCE, kills).await.with_context(|| format!("{role}, {end:?}"))?;
        self.start(role)
    }

    async fn ready(&mut self) -> Result<()> {
        for (role, process) in &mut self.lives {
            self.installation
                .process_ready(role, process)
                .await
                .with_context(|| format!("{role} is not ready"))?;
        }
        Ok(())
    }

    /// Checks that no role ended because a server was down, not even a role that was starting.
    async fn check_roles_survived_outage(&mut self) -> Result<()> {
        for role in ROLES {
            let process = self.lives.get_mut(role).context("each role runs")?;
            if process.runs() {
                continue;
            }
            let status = process.exit(LONG).await?;
            // No exit code: a place killed the role, and it is started again at its turn.
            if status.code().is_some() {
                bail!("{role} exited during the outage: {status}\n{}", killer::tail(process));
            }
        }
        Ok(())
    }

    /// Starts all roles without a planned end.
    async fn start_unharmed(&mut self) -> Result<()> {
        self.ends.clear();
        for role in ROLES {
            self.start(role)?;
        }
        self.ready().await
    }

    /// Kills the roles that still run. A place may have killed some already.
    async fn kill_all(&mut self) -> Result<()> {
        for (_, mut process) in std::mem::take(&mut self.lives) {
            if process.runs() {
                process.kill().await?;
            }
        }
        Ok(())
    }

    async fn stop(&mut self) -> Result<()> {
        for (role, mut process) in std::mem::take(&mut self.lives) {
            self.installation.stop(&mut process).await.with_context(|| format!("{role} does not drain"))?;
        }
        Ok(())
    }
}

async fn run_once(installation: &Installation, words: &[&str]) -> Result<()> {
    let (command, rest) = words.split_first().context("a command")?;
    let program = tidegate_test_support::Program::new(
        crate::installation::binary(),
        installation.dir.path().join("commands.log"),
    )
    .arg(command)
    .args(rest)
    .arg("--config")
    .arg(installation.dir.path().join("tidegate.toml"));
    let mut process = program.start()?;
    let status = process.exit(LONG).await?;
    if !status.success() {
        bail!("{words:?}: {status}: {}", killer::tail(&process));
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: tests/faults/run"]
async fn acknowledged_ids_survive_kills_of_roles_broker_and_node() -> Result<()> {
    const SUITE: &str = "kills of a cluster";
    // If real servers are configured, this test can start servers of its own.
    if servers::kafka(SUITE).is_none() || servers::cql(SUITE).is_none() {
        return Ok(());
    }
    let seed = number("TIDEGATE_FAULTS_SEED", SEED);
    let kill_count = usize::try_from(number("TIDEGATE_FAULTS_CLUSTER_KILLS", 15))?;
    println!("cluster: seed {seed}, {kill_count} kills of roles");
    let servers = Servers::start().await?;
    let (receiver, pictures) = (Receiver::start().await?, Pictures::start().await?);
    let platform = Platform::start().await?;
    receiver.behave("all", Manner::Fail(1));

    let mut installation =
        Installation::new(&(servers.settings() + &pictures.settings() + &platform.settings()), &ROLES)?;
    run_once(&installation, &["topics", "create"]).await?;
    run_once(&installation, &["store", "migrate"]).await?;
    let mut console = installation.start("console", None)?;
    installation.process_ready("console", &mut console).await?;
    installation.learn_key(&mut console).await?;
    installation.apply(&documents::all(&receiver, "scams")).await?;
    for endpoint in ["all", "scams"] {
        receiver.trust(&installation.secret(endpoint).await?);
    }
    installation.stop(&mut console).await?;

    let installation = Arc::new(installation);
    let ends = TURNS.iter().map(|role| {
        let places = killer::places_of(role);
        (*role, killer::plan(seed ^ role.len() as u64, 2 * kill_count, &places, Duration::from_secs(2)))
    });
    let mut crew =
        Crew { installation: Arc::clone(&installation), lives: BTreeMap::new(), ends: ends.collect() };
    for role in ROLES {
        crew.start(role)?;
    }
    // Only load reaches the places, so the load lasts as long as the kills. While a role or a server is down, most
    // clients wait for the outcome of a content: with few clients the load would stop.
    let pace = Pace { clients: 12, requests: u64::MAX, pause: Duration::from_millis(150) };
    let mut clients = Clients::start(&installation, &pictures, seed, pace);
    let (mut kills, mut before) = (Kills::default(), BTreeMap::new());
    // Adds lives if the load reached too few places, or if a slow machine accepted too few requests.
    for turn in 0..2 * kill_count {
        if turn >= kill_count
            && kills.suffice(kill_count).is_ok()
            && oracle::suffices(clients.count_accepted(), kill_count)
        {
            break;
        }
        let role = TURNS[turn % TURNS.len()];
        crew.kill(role, &mut kills).await?;
        // A role runs on while others are killed, so the load is counted since the last kill of this role.
        let accepted = clients.count_accepted();
        kills.under_load += usize::from(accepted > before.insert(role, accepted).unwrap_or(0));
        clients.check()?;
        let server = if turn == kill_count / 3 {
            "kafka"
        } else if turn == 2 * kill_count / 3 {
            "cassandra"
        } else {
            continue;
        };
        servers.kill_and_start(server).await?;
        crew.check_roles_survived_outage().await.with_context(|| format!("{server} was down"))?;
    }
    println!("cluster: {kills}");
    crew.kill_all().await?;
    crew.start_unharmed().await?;
    let requests = clients.finish().await?;
    // A second start, because a replay at a start could repeat effects.
    observe::wait_until_quiet(&installation).await?;
    crew.stop().await?;
    crew.start_unharmed().await?;
    observe::wait_until_quiet(&installation).await?;
    let mut observations = observe::observe_api(&installation, &receiver, &platform, &requests).await?;
    crew.stop().await?;
    let store = servers.store().await?;
    observe::observe_rows(&store, &requests, &mut observations).await?;
    store.close().await?;
    observations.callbacks = receiver.callbacks();

    let verdict = oracle::judge(&requests, &observations);
    let counts = oracle::counts(&requests, &observations);
    println!("cluster: {counts}; {} looks at pictures", pictures.count_requests());
    println!("cluster: {verdict}");
    kills.suffice(kill_count)?;
    counts.suffice(kill_count)?;
    assert!(verdict.is_clean(), "{verdict}\nrepeat it with TIDEGATE_FAULTS_SEED={seed}");
    Ok(())
}

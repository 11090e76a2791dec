//! Kafka and Cassandra for one run, in a folder of its own, started and stopped by `deploy/servers/servers`.
//!
//! It sets up no topic and no table.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use tempfile::TempDir;

use crate::process::run;

pub struct Servers {
    script: PathBuf,
    dir: TempDir,
    pub kafka: String,
    pub cql: String,
}

impl Servers {
    pub async fn start(repository: &Path) -> Result<Self> {
        let script = repository.join("deploy/servers/servers");
        let mut servers =
            Self { script, dir: tempfile::tempdir()?, kafka: String::new(), cql: String::new() };
        eprintln!("starting kafka and cassandra");
        servers.call(&["start", "kafka"]).await?;
        servers.call(&["start", "cassandra"]).await?;
        let env = servers.call(&["env"]).await?;
        let named = |variable: &str| {
            let line = env.lines().find_map(|line| line.strip_prefix(&format!("export {variable}=")));
            line.map(str::to_owned).with_context(|| format!("{variable} is not named: {env}"))
        };
        (servers.kafka, servers.cql) = (named("TIDEGATE_TEST_KAFKA")?, named("TIDEGATE_TEST_CQL")?);
        Ok(servers)
    }

    async fn call(&self, words: &[&str]) -> Result<String> {
        let dir = self.dir.path().display().to_string();
        let args: Vec<&str> = words.iter().copied().chain(["--dir", &dir]).collect();
        run(&self.script, args).await
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        let mut stop = std::process::Command::new(&self.script);
        let stopped = stop.args(["stop", "all", "--dir"]).arg(self.dir.path()).status();
        if !stopped.is_ok_and(|status| status.success()) {
            eprintln!("the servers in {} could not be stopped", self.dir.path().display());
        }
    }
}

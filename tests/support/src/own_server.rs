//! A real server that a test may kill, started by `deploy/servers/servers` in a folder of its own and removed with it.
//! Works for any kind of server.

use std::path::PathBuf;
use std::process::{Output, Stdio};

use anyhow::{Context as _, Result, ensure};
use tokio::process::Command;
use tokio::time::timeout;

use crate::eventually::PATIENCE;

pub struct OwnServer {
    folder: tempfile::TempDir,
    server: &'static str,
    variables: &'static [(&'static str, &'static str)],
}

impl OwnServer {
    /// `server` is a name for `servers start`; `variables` are environment variables of its settings.
    ///
    /// # Errors
    /// It does not start.
    pub async fn start(
        server: &'static str,
        variables: &'static [(&'static str, &'static str)],
    ) -> Result<Self> {
        let own_server = Self { folder: tempfile::tempdir()?, server, variables };
        own_server.start_again().await?;
        Ok(own_server)
    }

    /// Starts the server again at its old address, with its data. Returns when it answers.
    ///
    /// # Errors
    /// It does not start.
    pub async fn start_again(&self) -> Result<()> {
        self.run(&["start", self.server]).await.map(drop)
    }

    /// # Errors
    /// It does not end.
    pub async fn kill(&self) -> Result<()> {
        self.run(&["kill", self.server]).await.map(drop)
    }

    /// Value of a variable that `servers env` prints, such as an address.
    ///
    /// # Errors
    /// The variable is missing.
    pub async fn told(&self, variable: &str) -> Result<String> {
        let lines = String::from_utf8(self.run(&["env"]).await?.stdout)?;
        let value = lines.lines().find_map(|line| line.strip_prefix(&format!("export {variable}=")));
        value.map(str::to_owned).with_context(|| format!("{variable} is not in {lines}"))
    }

    async fn run(&self, words: &[&str]) -> Result<Output> {
        let output = timeout(3 * PATIENCE, self.command(words).output()).await;
        let output = output.with_context(|| format!("{words:?} does not end"))??;
        ensure!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(output)
    }

    fn command(&self, words: &[&str]) -> Command {
        let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy/servers/servers");
        let mut command = Command::new(script);
        command.args(words).arg("--dir").arg(self.folder.path()).envs(self.variables.iter().copied());
        command.stdin(Stdio::null());
        command
    }
}

impl Drop for OwnServer {
    fn drop(&mut self) {
        let stopped = self.command(&["kill", "all"]).as_std_mut().status();
        if !stopped.is_ok_and(|status| status.success()) {
            eprintln!("the test's own {} may still run", self.server);
        }
    }
}

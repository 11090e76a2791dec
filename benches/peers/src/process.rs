//! Child processes: started, waited for, asked to end.
//!
//! It knows no particular program.

use std::{
    ffi::OsStr,
    fs::{self, File},
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use tokio::{
    process::{Child, Command},
    time::{sleep, timeout},
};

use crate::clock;

/// How long a process may take to start or to drain, on a machine that compiles meanwhile.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A running program; killed when dropped.
pub struct Process {
    child: Child,
    pub id: u32,
    output: PathBuf,
}

impl Process {
    /// Starts a program whose output goes into a file. It inherits no `TIDEGATE_` variable.
    pub fn start<A: AsRef<OsStr>>(
        program: &Path,
        args: impl IntoIterator<Item = A>,
        output: &Path,
    ) -> Result<Self> {
        let out = File::create(output)?;
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("TIDEGATE_") {
                command.env_remove(name);
            }
        }
        let child = command
            .args(args)
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let id = child.id().context("it has ended already")?;
        Ok(Self { child, id, output: output.to_owned() })
    }

    pub fn output(&self) -> String {
        fs::read_to_string(&self.output).unwrap_or_default()
    }

    /// The first whole line of the output that holds the text.
    pub async fn line(&mut self, text: &str) -> Result<String> {
        let until = Instant::now() + PATIENCE;
        loop {
            let ended = self.child.try_wait()?;
            let output = self.output();
            let whole = output.rfind('\n').map_or("", |end| &output[..end]);
            if let Some(line) = whole.lines().find(|line| line.contains(text)) {
                return Ok(line.to_owned());
            }
            if let Some(status) = ended {
                bail!("waited for {text:?}, but it ended: {status}\n{output}");
            }
            if Instant::now() > until {
                bail!("waited for {text:?} in vain\n{output}");
            }
            sleep(Duration::from_millis(2)).await;
        }
    }

    pub fn cpu_seconds(&self) -> Result<f64> {
        clock::cpu_seconds(self.id)
    }

    pub fn resident_mib(&self) -> Result<f64> {
        clock::resident_mib(self.id)
    }

    /// SIGTERM, and holds it to a clean end.
    pub async fn stop(mut self) -> Result<()> {
        Command::new("kill").arg("-TERM").arg(self.id.to_string()).status().await?;
        match timeout(PATIENCE, self.child.wait()).await {
            Ok(status) if status.as_ref().is_ok_and(std::process::ExitStatus::success) => Ok(()),
            Ok(status) => bail!("it did not end well: {status:?}\n{}", self.output()),
            Err(_) => bail!("it did not drain in {PATIENCE:?}"),
        }
    }
}

/// Runs a command to its end and gives its standard output.
pub async fn run<A: AsRef<OsStr>>(program: &Path, args: impl IntoIterator<Item = A>) -> Result<String> {
    let output = Command::new(program).args(args).stdin(Stdio::null()).output().await?;
    if !output.status.success() {
        bail!("{}: {}\n{}", program.display(), output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// A port that is free now.
pub fn free_port() -> Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

//! Child processes of a test: started, waited for, killed, and their output kept in a file.
//! Works for any program.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, Read, Seek, SeekFrom};
use std::net::TcpListener;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::eventually::eventually_ok;

/// Command line of a child. `start` may be called again for the next life of the same program.
#[derive(Clone, Debug)]
pub struct Program {
    binary: PathBuf,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    output: PathBuf,
}

impl Program {
    /// Output of every life is appended to `output`.
    #[must_use]
    pub fn new(binary: impl Into<PathBuf>, output: impl Into<PathBuf>) -> Self {
        Self { binary: binary.into(), args: Vec::new(), env: Vec::new(), output: output.into() }
    }

    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    #[must_use]
    pub fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Starts the program. It inherits no `TIDEGATE_` variable, so that a caller's settings change no test.
    ///
    /// # Errors
    /// The program or its output file cannot be opened.
    pub fn start(&self) -> Result<Process> {
        let out = OpenOptions::new().create(true).append(true).open(&self.output)?;
        let begins_at = out.metadata()?.len();
        let mut command = Command::new(&self.binary);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("TIDEGATE_") {
                command.env_remove(name);
            }
        }
        let child = command
            .args(&self.args)
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", self.binary.display()))?;
        Ok(Process { child, name: self.name(), output: self.output.clone(), begins_at })
    }

    fn name(&self) -> String {
        self.binary.file_name().unwrap_or(self.binary.as_os_str()).to_string_lossy().into_owned()
    }
}

/// One life of a program; killed when dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    name: String,
    output: PathBuf,
    begins_at: u64,
}

impl Process {
    /// The process id; `None` if the process has ended.
    #[must_use]
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// True if the process has not ended yet.
    #[must_use]
    pub fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Output of this life so far.
    ///
    /// # Errors
    /// The output file cannot be read.
    pub fn output(&self) -> io::Result<String> {
        read_from(&self.output, self.begins_at)
    }

    /// The first line of this life's output that contains `text`.
    ///
    /// # Errors
    /// The process ended without it, or the bound passed.
    pub async fn line(&mut self, text: &str, within: Duration) -> Result<String> {
        let condition = format!("{} to write {text:?}", self.name);
        self.wait_until(&condition, within, async |output| {
            let complete = output.rfind('\n').map_or("", |end| &output[..end]);
            complete
                .lines()
                .find(|line| line.contains(text))
                .map(str::to_owned)
                .ok_or_else(|| anyhow!("not yet"))
        })
        .await
    }

    /// Waits until a plain `GET` of `path` at `address` answers 200.
    ///
    /// # Errors
    /// The process ended, or the bound passed.
    pub async fn http_ok(&mut self, address: &str, path: &str, within: Duration) -> Result<()> {
        let condition = format!("{} to answer 200 at {path}", self.name);
        self.wait_until(&condition, within, async |_| match status(address, path).await? {
            200 => Ok(()),
            other => bail!("answered {other}"),
        })
        .await
    }

    /// Sends SIGKILL and waits for the end of the process.
    ///
    /// # Errors
    /// The process cannot be signalled or waited for.
    pub async fn kill(&mut self) -> Result<()> {
        self.child.kill().await.with_context(|| format!("cannot kill {}", self.name))
    }

    /// Sends SIGTERM without waiting.
    ///
    /// # Errors
    /// It has ended already, or cannot be signalled.
    pub async fn terminate(&self) -> Result<()> {
        let id = self.id().with_context(|| format!("{} has ended already", self.name))?;
        let kill_status = Command::new("/bin/sh").arg("-c").arg(format!("kill -TERM {id}")).status().await?;
        if kill_status.success() { Ok(()) } else { bail!("cannot signal {}", self.name) }
    }

    /// Waits for the end of the process.
    ///
    /// # Errors
    /// The process has not ended within the bound.
    pub async fn exit(&mut self, within: Duration) -> Result<ExitStatus> {
        match timeout(within, self.child.wait()).await {
            Ok(status) => Ok(status?),
            Err(_) => bail!("waited {within:?} for {} to end; {}", self.name, self.last_lines()),
        }
    }

    async fn wait_until<T>(
        &mut self,
        condition: &str,
        within: Duration,
        probe: impl AsyncFn(&str) -> Result<T>,
    ) -> Result<T> {
        let mut ended = None;
        let answer = eventually_ok(condition, within, async || {
            // Read the status before the output, so that the output contains all lines written before the end.
            let status = self.child.try_wait()?;
            let result = probe(&read_from(&self.output, self.begins_at)?).await;
            match (result, status) {
                (Ok(value), _) => Ok(Some(value)),
                (Err(_), Some(status)) => {
                    ended = Some(status);
                    Ok(None)
                }
                (Err(fault), None) => Err(fault),
            }
        })
        .await;
        match answer {
            Ok(Some(value)) => Ok(value),
            Ok(None) => {
                let exit_status = ended.map_or_else(String::new, |status| status.to_string());
                bail!("waited for {condition}, but it ended: {exit_status}; {}", self.last_lines())
            }
            Err(fault) => Err(fault.context(self.last_lines())),
        }
    }

    fn last_lines(&self) -> String {
        let output = self.output().unwrap_or_default();
        let lines: Vec<_> = output.lines().collect();
        format!("last output:\n{}", lines[lines.len().saturating_sub(15)..].join("\n"))
    }
}

fn read_from(path: &Path, start: u64) -> io::Result<String> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Status of the answer to a plain `GET` of `path` at `address`.
///
/// # Errors
/// No connection, or no HTTP answer, within ten seconds.
pub async fn status(address: &str, path: &str) -> Result<u16> {
    let ask = async {
        let mut stream = TcpStream::connect(address).await?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut head = Vec::new();
        while head.len() < 12 && stream.read_buf(&mut head).await? > 0 {}
        let status = head.get(9..12).and_then(|digits| std::str::from_utf8(digits).ok());
        status.and_then(|digits| digits.parse().ok()).context("no HTTP answer")
    };
    timeout(Duration::from_secs(10), ask).await.context("no answer in ten seconds")?
}

/// The ports that `free_port` gives: below those that Linux hands out to outgoing connections, so that none of these
/// takes the port between two lives of its listener, and a client that calls the dead port does not reach itself.
/// The servers of `deploy/servers` have those above.
const GIVEN_PORTS: Range<u16> = 10_000..20_000;

/// A port without a listener, never the same twice in one process. If a program accepts port 0, prefer that.
///
/// # Errors
/// No port can be bound.
pub fn free_port() -> io::Result<u16> {
    static GIVEN: LazyLock<Mutex<HashSet<u16>>> = LazyLock::new(Mutex::default);
    // Concurrent processes begin at different ports.
    static BEGIN: LazyLock<u16> = LazyLock::new(|| {
        u16::try_from(RandomState::new().hash_one(std::process::id()) % GIVEN_PORTS.len() as u64).unwrap_or(0)
    });
    let mut used_ports = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    let (before, after) =
        (GIVEN_PORTS.start..GIVEN_PORTS.start + *BEGIN, GIVEN_PORTS.start + *BEGIN..GIVEN_PORTS.end);
    let candidate = after
        .chain(before)
        .find(|port| !used_ports.contains(port) && TcpListener::bind(("127.0.0.1", *port)).is_ok());
    let port = candidate.ok_or_else(|| io::Error::new(io::ErrorKind::AddrInUse, "no port is free"))?;
    used_ports.insert(port);
    Ok(port)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::PATIENCE;

    fn shell(dir: &tempfile::TempDir, script: &str) -> Program {
        Program::new("/bin/sh", dir.path().join("out")).args(["-c", script])
    }

    #[tokio::test]
    async fn a_line_is_found_in_the_output_of_this_life_only() {
        let dir = tempfile::tempdir().unwrap();
        let mut first = shell(&dir, "echo ready $LIFE").env("LIFE", "one").start().unwrap();
        assert_eq!(first.line("ready", PATIENCE).await.unwrap(), "ready one");
        first.exit(PATIENCE).await.unwrap();
        let mut second =
            shell(&dir, "echo ready $LIFE >&2; exec sleep 600").env("LIFE", "two").start().unwrap();
        assert_eq!(second.line("ready", PATIENCE).await.unwrap(), "ready two");
        assert!(second.runs());
    }

    #[tokio::test]
    async fn early_exit_is_reported_with_its_last_output() {
        let dir = tempfile::tempdir().unwrap();
        let mut process = shell(&dir, "echo no such disk; exit 3").start().unwrap();
        let fault = format!("{:#}", process.line("ready", PATIENCE).await.unwrap_err());
        assert!(fault.contains("no such disk") && fault.contains("exit status: 3"), "{fault}");
    }

    #[tokio::test]
    async fn terminate_is_gentle_and_kill_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let script = "trap 'exit 7' TERM; echo up; while :; do sleep 0.05; done";
        let mut gentle = shell(&dir, script).start().unwrap();
        gentle.line("up", PATIENCE).await.unwrap();
        gentle.terminate().await.unwrap();
        assert_eq!(gentle.exit(PATIENCE).await.unwrap().code(), Some(7));
        let mut killed = shell(&dir, script).start().unwrap();
        killed.line("up", PATIENCE).await.unwrap();
        killed.kill().await.unwrap();
        assert_eq!(killed.exit(PATIENCE).await.unwrap().code(), None);
    }

    #[tokio::test]
    async fn http_ok_waits_for_status_200() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let serve = tokio::spawn(async move {
            for answer in ["HTTP/1.1 503 Busy\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n"] {
                let (mut stream, _) = listener.accept().await.unwrap();
                stream.read_u8().await.unwrap();
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        let dir = tempfile::tempdir().unwrap();
        let mut process = shell(&dir, "exec sleep 600").start().unwrap();
        process.http_ok(&address, "/readyz", PATIENCE).await.unwrap();
        serve.await.unwrap();
    }

    #[test]
    fn free_ports_differ() {
        let ports: HashSet<_> = (0..50).map(|_| free_port().unwrap()).collect();
        assert_eq!(ports.len(), 50);
        assert!(ports.iter().all(|port| GIVEN_PORTS.contains(port)));
    }
}

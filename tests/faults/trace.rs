//! System calls of the process on embedded data: the record is written and synced before the 202 is sent.
//!
//! SIGKILL spares the page cache, so no kill shows this. It needs strace: `tests/faults/trace-fsync` calls it.

use std::{collections::BTreeMap, fs};

use anyhow::{Context as _, Result, bail};
use reqwest::{Method, StatusCode};
use serde_json::json;
use tidegate_test_support::Program;

use crate::{
    embedded::first_life,
    installation::{LONG, UP, binary},
    receiver::Receiver,
};

const REQUESTS: usize = 20;

/// Relevant system calls of a trace, in order.
#[derive(Debug, PartialEq, Eq)]
enum Call {
    /// Bytes were written to a file.
    Write { file: String, text: String },
    /// A sync of a file has returned.
    Synced { file: String },
    /// Bytes are about to be written to a socket.
    Answer { text: String },
}

/// Reads the output of `strace -f -y`. A call counts when it has returned, an answer when it begins.
fn read(trace: &str) -> Vec<Call> {
    let mut unfinished_calls: BTreeMap<&str, (&str, &str)> = BTreeMap::new();
    let mut calls = Vec::new();
    for line in trace.lines() {
        let Some((thread, rest)) = line.split_once(char::is_whitespace) else { continue };
        let rest = rest.trim_start();
        let (name, arguments, has_returned) = if let Some(resumed) = rest.strip_prefix("<... ") {
            let Some((name, arguments)) = unfinished_calls.remove(thread) else { continue };
            if !resumed.starts_with(name) {
                continue;
            }
            (name, arguments, true)
        } else {
            let Some((name, arguments)) = rest.split_once('(') else { continue };
            let is_begun = arguments.ends_with("<unfinished ...>");
            if is_begun {
                unfinished_calls.insert(thread, (name, arguments));
            }
            (name, arguments, !is_begun)
        };
        let is_resumed = rest.starts_with("<... ");
        let Some(file) = arguments.split_once('<').and_then(|(_, file)| file.split_once('>')) else {
            continue;
        };
        let (file, text) = (file.0.to_owned(), arguments.to_owned());
        let is_socket = file.starts_with("socket:") || file.starts_with("TCP");
        match name {
            "fsync" | "fdatasync" | "msync" if has_returned => {
                let succeeded = rest.trim_end().ends_with("= 0");
                if succeeded {
                    calls.push(Call::Synced { file });
                }
            }
            "write" | "writev" | "pwrite64" | "pwritev" | "sendto" | "sendmsg" => {
                if is_socket && !is_resumed {
                    calls.push(Call::Answer { text });
                } else if !is_socket && has_returned {
                    calls.push(Call::Write { file, text });
                }
            }
            _ => {}
        }
    }
    calls
}

/// Checks that the record with this mark is written and synced before the next acknowledgement.
fn is_synced_first(calls: &[Call], mark: &str) -> Result<()> {
    let write_index = calls
        .iter()
        .position(|call| matches!(call, Call::Write { text, .. } if text.contains(mark)))
        .with_context(|| format!("{mark} is written to no file"))?;
    let Call::Write { file, .. } = &calls[write_index] else { bail!("a write") };
    for call in &calls[write_index..] {
        match call {
            Call::Synced { file: synced } if synced == file => return Ok(()),
            Call::Answer { text } if text.contains("HTTP/1.1 202") => {
                bail!("{mark} is acknowledged before {file} is synced")
            }
            _ => {}
        }
    }
    bail!("{mark} is never synced")
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs strace: tests/faults/trace-fsync"]
async fn record_is_synced_before_its_acknowledgement() -> Result<()> {
    let receiver = Receiver::start().await?;
    let installation = first_life("", &receiver, "scams").await?;
    let trace = installation.dir.path().join("trace");
    let program = Program::new("strace", installation.dir.path().join("strace.log"))
        .args(["-D", "-f", "-y", "-s", "65536", "-e"])
        .arg("trace=write,writev,pwrite64,pwritev,sendto,sendmsg,fsync,fdatasync,msync")
        .arg("-o")
        .arg(&trace)
        .arg(binary())
        .arg("up")
        .arg("--config")
        .arg(installation.dir.path().join("tidegate.toml"))
        .arg("--ops-listen")
        .arg(installation.ops_of(UP)?);
    let mut process = program.start()?;
    installation.ready(&mut process).await?;
    let marks: Vec<_> =
        (0..REQUESTS).map(|number| format!("mark{number:04}of{}", std::process::id())).collect();
    for mark in &marks {
        let data = json!({ "text": mark });
        let body = json!({ "items": [{ "id": mark, "typeId": "post", "data": data }] });
        let answer = installation.platform(Method::POST, "/api/v1/items/async/").json(&body).send().await?;
        if answer.status() != StatusCode::ACCEPTED {
            bail!("{mark}: {}", answer.status());
        }
    }
    process.terminate().await?;
    process.exit(LONG).await?;
    let calls = read(&String::from_utf8_lossy(&fs::read(&trace)?));
    for mark in &marks {
        is_synced_first(&calls, mark)?;
    }
    println!("trace: {REQUESTS} records, each synced between its write and its 202");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "\
10 write(9</d/journal/0>, \"..mark1..\", 90) = 90
11 write(8<socket:[3]>, \"HTTP/1.1 200 OK\", 15) = 15
10 fdatasync(9</d/journal/0> <unfinished ...>
11 write(7</d/log>, \"x\", 1) = 1
10 <... fdatasync resumed>) = 0
11 sendto(8<socket:[3]>, \"HTTP/1.1 202 Accepted\", 21, MSG_NOSIGNAL, NULL, 0) = 21
";

    #[test]
    fn sync_before_the_acknowledgement_is_accepted() {
        is_synced_first(&read(GOOD), "mark1").unwrap();
    }

    #[test]
    fn acknowledgement_before_the_sync_is_a_fault() {
        let lines: Vec<_> = GOOD.lines().collect();
        let early = [lines[0], lines[2], lines[5], lines[4]].join("\n");
        let fault = is_synced_first(&read(&early), "mark1").unwrap_err().to_string();
        assert!(fault.contains("acknowledged before"), "{fault}");
    }

    #[test]
    fn failed_or_unrelated_sync_does_not_count() {
        for other in [
            GOOD.replace("fdatasync(9</d/journal/0>", "fdatasync(7</d/log>"),
            GOOD.replace("= 0", "= -1 EIO"),
        ] {
            assert!(is_synced_first(&read(&other), "mark1").is_err());
        }
        assert!(is_synced_first(&read(GOOD), "mark2").is_err());
    }
}

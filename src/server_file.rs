//! `server.json` in the data folder: where the admin API of the running process is, and a token for this machine.
//!
//! It is only for commands of the same user: nobody else may read it.

use std::{
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use tidegate_catalog::write_private;

const FILE: &str = "server.json";

#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ServerFile {
    /// Such as `http://127.0.0.1:8081`.
    pub(crate) admin_url: String,
    pub(crate) token: String,
    pub(crate) pid: u32,
}

pub(crate) fn path(folder: &Path) -> PathBuf {
    folder.join(FILE)
}

/// The file as long as the process runs; a clean end takes it away.
pub(crate) struct Written(PathBuf);

impl Drop for Written {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.0) {
            tracing::debug!(%error, "server.json stays behind");
        }
    }
}

pub(crate) fn write(folder: &Path, admin: SocketAddr, token: &str) -> anyhow::Result<Written> {
    let content = ServerFile {
        admin_url: format!("http://{}", reachable(admin)),
        token: token.to_owned(),
        pid: std::process::id(),
    };
    let path = path(folder);
    write_private(&path, &serde_json::to_vec_pretty(&content)?)
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(Written(path))
}

/// `None`: no process runs on this folder, or it ended in order.
pub(crate) fn read(folder: &Path) -> anyhow::Result<Option<ServerFile>> {
    let path = path(folder);
    match fs::read(&path) {
        Ok(bytes) => {
            serde_json::from_slice(&bytes).map(Some).with_context(|| format!("{} is damaged", path.display()))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// A listener on every address is reached on this machine's own.
pub(crate) fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
        });
    }
    address
}

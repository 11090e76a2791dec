//! `server.json` in the data folder: address of the running process's admin API, and a token for local commands.
//!
//! Only its owner may read it, because it holds a token.

use std::{
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};
use tidegate_catalog::write_private;

const FILE: &str = "server.json";

/// Addresses of the servers, with the real ports if the settings have port 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addresses {
    pub(crate) api: Option<SocketAddr>,
    pub(crate) console: Option<SocketAddr>,
    pub(crate) ops: SocketAddr,
    pub(crate) receiver: Option<SocketAddr>,
}

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

/// Guard of the file while the process runs; a clean end removes it.
pub(crate) struct ServerFileGuard {
    folder: PathBuf,
    token: String,
    /// Released by the system when the process ends, even after a crash.
    _lock: fs::File,
}

impl Drop for ServerFileGuard {
    fn drop(&mut self) {
        // The folder may have been replaced, and the new one may have the file of another process.
        if !read(&self.folder).is_ok_and(|file| file.is_some_and(|file| file.token == self.token)) {
            return;
        }
        if let Err(error) = fs::remove_file(path(&self.folder)) {
            tracing::debug!(%error, "server.json cannot be removed");
        }
    }
}

pub(crate) fn write(folder: &Path, admin: SocketAddr, token: &str) -> anyhow::Result<ServerFileGuard> {
    let content = ServerFile {
        admin_url: format!("http://{}", reachable_address(admin)),
        token: token.to_owned(),
        pid: std::process::id(),
    };
    let path = path(folder);
    // Locked first, so that the file of a running process is not overwritten.
    let lock = lock(folder)?;
    write_private(&path, &serde_json::to_vec_pretty(&content)?)
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(ServerFileGuard { folder: folder.to_owned(), token: token.to_owned(), _lock: lock })
}

/// Locks the folder for one process, so that commands on the folder always reach the same one.
fn lock(folder: &Path) -> anyhow::Result<fs::File> {
    let path = folder.join("server.lock");
    let lock = fs::File::options().write(true).create(true).truncate(false).open(&path);
    let lock = lock.with_context(|| format!("cannot open {}", path.display()))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(fs::TryLockError::WouldBlock) => bail!(
            "another process serves the admin API of {}: set another data.folder for this one",
            folder.display()
        ),
        Err(fs::TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("cannot lock {}", path.display()))
        }
    }
}

/// Returns `None` if no process runs on this folder, or it ended in order.
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

/// Replaces an unspecified address by the loopback address, through which this machine reaches the listener.
pub(crate) fn reachable_address(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
        });
    }
    address
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn file_of_another_process_in_a_replaced_folder_stays() {
        let place = tempfile::tempdir().unwrap();
        let (folder, aside) = (place.path().join("data"), place.path().join("aside"));
        fs::create_dir(&folder).unwrap();
        let first = write(&folder, "127.0.0.1:1".parse().unwrap(), "a").unwrap();
        fs::rename(&folder, &aside).unwrap();
        fs::create_dir(&folder).unwrap();
        let second = write(&folder, "127.0.0.1:2".parse().unwrap(), "b").unwrap();
        drop(first);
        assert_eq!(read(&folder).unwrap().unwrap().token, "b");
        drop(second);
        assert!(read(&folder).unwrap().is_none());
    }

    #[test]
    fn second_process_cannot_replace_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let first = write(folder, "127.0.0.1:1".parse().unwrap(), "a").unwrap();
        let refused = write(folder, "127.0.0.1:2".parse().unwrap(), "b").err().unwrap().to_string();
        assert!(refused.contains("another process") && refused.contains("data.folder"), "{refused}");
        assert_eq!(read(folder).unwrap().unwrap().token, "a");
        drop(first);
        assert!(read(folder).unwrap().is_none());
        let _next = write(folder, "127.0.0.1:3".parse().unwrap(), "c").unwrap();
        assert_eq!(read(folder).unwrap().unwrap().token, "c");
    }
}

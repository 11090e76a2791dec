//! `server.json` in the data folder: where the admin API of the running process is, and a token for this machine.
//!
//! It is only for commands of the same user: nobody else may read it.

use std::{
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};
use tidegate_catalog::write_private;

const FILE: &str = "server.json";

/// Addresses that the servers listen on; the real ports if the settings say port 0.
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

/// The file as long as the process runs; a clean end takes it away.
pub(crate) struct Written {
    folder: PathBuf,
    token: String,
    /// Ends with the process, however that ends.
    _lock: fs::File,
}

impl Drop for Written {
    fn drop(&mut self) {
        // The folder may be another one by now, with a process of its own.
        if !read(&self.folder).is_ok_and(|file| file.is_some_and(|file| file.token == self.token)) {
            return;
        }
        if let Err(error) = fs::remove_file(path(&self.folder)) {
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
    let lock = lock(folder)?;
    write_private(&path, &serde_json::to_vec_pretty(&content)?)
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(Written { folder: folder.to_owned(), token: token.to_owned(), _lock: lock })
}

/// Commands on a folder ask one process, and it should be known which.
fn lock(folder: &Path) -> anyhow::Result<fs::File> {
    let path = folder.join("server.lock");
    let lock = fs::File::options().write(true).create(true).truncate(false).open(&path);
    let lock = lock.with_context(|| format!("cannot open {}", path.display()))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(fs::TryLockError::WouldBlock) => bail!(
            "another process on {} has the admin API: give this one a folder of its own (data.folder)",
            folder.display()
        ),
        Err(fs::TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("cannot lock {}", path.display()))
        }
    }
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_file_of_another_process_in_the_folders_place_stays() {
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
    fn the_file_stays_that_of_the_process_that_came_first() {
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

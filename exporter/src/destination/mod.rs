//! Destination of finished files: a folder, or a bucket of an S3-compatible server.
//!
//! An object is visible under its key only once it is complete. `schedule` decides which objects are written and deleted.

mod address;
mod bucket;
mod error;
mod folder;
mod http_client;
mod settings;

use std::path::Path;

use bytes::Bytes;
use futures::{FutureExt as _, future::BoxFuture};

pub use self::{
    address::Address,
    error::DestinationError,
    settings::{DestinationProblem, DestinationSettings},
};
use self::{bucket::Bucket, folder::Folder};

/// Folder or bucket to which files are written.
#[derive(Clone, Debug)]
pub struct Destination(Place);

#[derive(Clone, Debug)]
enum Place {
    Folder(Folder),
    Bucket(Bucket),
}

impl Destination {
    /// Writes a finished local file under a key. Large files are sent to a bucket in parts.
    pub fn put_file<'a>(
        &'a self,
        key: &'a str,
        file: &'a Path,
    ) -> BoxFuture<'a, Result<(), DestinationError>> {
        async move {
            self.check_key(key)?;
            match &self.0 {
                Place::Folder(folder) => folder.put_file(key, file).await,
                Place::Bucket(bucket) => bucket.put_file(key, file).await,
            }
        }
        .boxed()
    }

    /// Writes bytes under a key.
    pub fn put_bytes<'a>(
        &'a self,
        key: &'a str,
        bytes: Bytes,
    ) -> BoxFuture<'a, Result<(), DestinationError>> {
        async move {
            self.check_key(key)?;
            match &self.0 {
                Place::Folder(folder) => folder.put_bytes(key, bytes).await,
                Place::Bucket(bucket) => bucket.put_bytes(key, bytes).await,
            }
        }
        .boxed()
    }

    /// Reads an object; `None` if it does not exist.
    pub fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Bytes>, DestinationError>> {
        async move {
            self.check_key(key)?;
            match &self.0 {
                Place::Folder(folder) => folder.get(key).await,
                Place::Bucket(bucket) => bucket.get(key).await,
            }
        }
        .boxed()
    }

    /// Lists the keys below a prefix, sorted. The prefix ends at a `/` of the keys.
    pub fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<String>, DestinationError>> {
        async move {
            self.check_key(prefix)?;
            let mut keys = match &self.0 {
                Place::Folder(folder) => folder.list(prefix).await?,
                Place::Bucket(bucket) => bucket.list(prefix).await?,
            };
            keys.sort_unstable();
            Ok(keys)
        }
        .boxed()
    }

    /// Deletes an object. An object that does not exist counts as deleted.
    pub fn delete<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(), DestinationError>> {
        async move {
            self.check_key(key)?;
            match &self.0 {
                Place::Folder(folder) => folder.delete(key).await,
                Place::Bucket(bucket) => bucket.delete(key).await,
            }
        }
        .boxed()
    }

    fn check_key(&self, key: &str) -> Result<(), DestinationError> {
        if is_relative_key(key) {
            return Ok(());
        }
        let place = match &self.0 {
            Place::Folder(folder) => folder.describe(),
            Place::Bucket(bucket) => bucket.describe(),
        };
        Err(DestinationError::invalid_key(place, key))
    }
}

/// True for a key of non-empty parts between slashes that stays inside of its destination.
pub(crate) fn is_relative_key(key: &str) -> bool {
    let is_name = |part: &str| {
        !part.is_empty()
            && part != "."
            && part != ".."
            && part
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'='))
    };
    key.split('/').all(is_name)
}

#[cfg(test)]
mod tests {
    use super::is_relative_key;

    #[test]
    fn key_cannot_leave_the_destination() {
        for key in ["a", "a/b", "day=2026-11-28/part-0001-of-0001.parquet", "_manifests/x.json"] {
            assert!(is_relative_key(key), "{key}");
        }
        for key in ["", "/a", "a/", "a//b", "..", "a/../b", "./a", "a\\b", "a b", "a\0", "a%2e%2e"] {
            assert!(!is_relative_key(key), "{key}");
        }
    }
}

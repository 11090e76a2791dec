//! The file `env` in the demo's data folder: addresses and keys, one `NAME=value` a line.
//!
//! Only its owner may read it.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::Context as _;

use tidegate_catalog::write_private;

// Without `Debug`: its values are keys, which must not reach a log line.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct EnvFile {
    pub(crate) url: String,
    pub(crate) api_key: String,
    pub(crate) admin_url: String,
    pub(crate) admin_key: String,
    pub(crate) receiver_url: String,
    pub(crate) webhook_secret: String,
}

impl EnvFile {
    pub(crate) fn path(folder: &Path) -> PathBuf {
        folder.join("env")
    }

    /// True if the receiver has a secret to verify with. Without one, no callbacks are sent to it.
    pub(crate) fn can_verify(&self) -> bool {
        !self.webhook_secret.is_empty()
    }

    fn pairs(&self) -> [(&'static str, &str); 6] {
        [
            ("TIDEGATE_URL", &self.url),
            ("TIDEGATE_API_KEY", &self.api_key),
            ("TIDEGATE_ADMIN_URL", &self.admin_url),
            ("TIDEGATE_ADMIN_KEY", &self.admin_key),
            ("TIDEGATE_RECEIVER_URL", &self.receiver_url),
            ("TIDEGATE_WEBHOOK_SECRET", &self.webhook_secret),
        ]
    }

    fn render(&self) -> String {
        self.pairs().map(|(name, value)| format!("{name}={value}\n")).concat()
    }

    fn parse(text: &str) -> Option<Self> {
        // Split at the first `=`, because keys may end with others.
        let pairs: BTreeMap<_, _> = text.lines().filter_map(|line| line.split_once('=')).collect();
        let value = |name: &str| pairs.get(name).map(|value| (*value).to_owned());
        Some(Self {
            url: value("TIDEGATE_URL")?,
            api_key: value("TIDEGATE_API_KEY")?,
            admin_url: value("TIDEGATE_ADMIN_URL")?,
            admin_key: value("TIDEGATE_ADMIN_KEY")?,
            receiver_url: value("TIDEGATE_RECEIVER_URL")?,
            webhook_secret: value("TIDEGATE_WEBHOOK_SECRET")?,
        })
    }

    pub(super) fn write(&self, folder: &Path) -> anyhow::Result<()> {
        let path = Self::path(folder);
        write_private(&path, self.render().as_bytes())
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// Returns `None` if the file is missing or does not hold these variables.
    pub(crate) fn read(folder: &Path) -> anyhow::Result<Option<Self>> {
        let path = Self::path(folder);
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Self::parse(&text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn written_file_is_private_and_can_be_read() {
        let folder = tempfile::tempdir().unwrap();
        assert!(EnvFile::read(folder.path()).unwrap().is_none());
        let env = EnvFile {
            url: "http://127.0.0.1:1".to_owned(),
            api_key: "k".to_owned(),
            admin_url: "http://127.0.0.1:2".to_owned(),
            admin_key: "a=b".to_owned(),
            receiver_url: "http://127.0.0.1:3".to_owned(),
            webhook_secret: "whsec_x==".to_owned(),
        };
        env.write(folder.path()).unwrap();
        assert!(EnvFile::read(folder.path()).unwrap() == Some(env));
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = fs::metadata(EnvFile::path(folder.path())).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        fs::write(EnvFile::path(folder.path()), "A=b\n").unwrap();
        assert!(EnvFile::read(folder.path()).unwrap().is_none());
    }
}

//! Master key that seals secrets: read from the settings or a file, or created once for embedded data.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
};

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use tidegate_schemas::hex;

use crate::private_file::write_private;

/// The section `security` of the service's settings.
#[derive(Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Security {
    /// Base64 of 32 random bytes, as printed by `openssl rand -base64 32`. Best given in the environment, as
    /// `TIDEGATE__SECURITY__MASTER_KEY`. All processes of an installation need the same key.
    pub master_key: Option<String>,
    /// File that contains the key. Without either setting, embedded data gets a key file of its own;
    /// otherwise the service refuses to start.
    pub master_key_file: Option<PathBuf>,
    /// Fingerprint of a lost master key. The service refuses to start with another key than the one its
    /// secrets are sealed under, unless that one is named here. Secrets sealed under it remain unreadable.
    pub lost_master_key: Option<String>,
}

impl Security {
    /// Loads the configured key.
    pub fn load_configured(&self) -> Result<Option<MasterKey>, MasterKeyError> {
        match (&self.master_key, &self.master_key_file) {
            (Some(_), Some(_)) => Err(MasterKeyError::Both),
            (Some(text), None) => MasterKey::parse(text, "security.master_key").map(Some),
            (None, Some(path)) => match MasterKey::read(path)? {
                Some(key) => Ok(Some(key)),
                None => {
                    Err(MasterKeyError::File { path: path.clone(), error: io::ErrorKind::NotFound.into() })
                }
            },
            (None, None) => Ok(None),
        }
    }
}

/// Master key of 32 bytes, with an id derived from them that reveals no part of the key.
#[derive(Clone)]
pub struct MasterKey {
    bytes: [u8; 32],
    id: String,
}

#[derive(Debug, thiserror::Error)]
pub enum MasterKeyError {
    #[error("set security.master_key or security.master_key_file, not both")]
    Both,
    #[error("set security.master_key (or TIDEGATE__SECURITY__MASTER_KEY), or security.master_key_file")]
    Missing,
    #[error("{place} is not the base64 of 32 bytes, such as `openssl rand -base64 32` prints")]
    Malformed { place: String },
    #[error("cannot use the master key file {}: {error}", path.display())]
    File { path: PathBuf, error: io::Error },
    #[error("the master key file {} is open to every user of the machine (mode {mode:o}): allow its owner, at most its group", path.display())]
    Open { path: PathBuf, mode: u32 },
    #[error("the system gives no random bytes")]
    NoRandomness,
}

impl MasterKeyError {
    pub fn tag(&self) -> &'static str {
        match self {
            Self::Both => "master_key_both",
            Self::Missing => "master_key_missing",
            Self::Malformed { .. } => "master_key_malformed",
            Self::File { .. } => "master_key_file",
            Self::Open { .. } => "master_key_open",
            Self::NoRandomness => "no_randomness",
        }
    }
}

/// Name of the key file in the folder of embedded data.
const KEY_FILE_NAME: &str = "master.key";

impl MasterKey {
    pub fn new(bytes: [u8; 32]) -> Self {
        let digest = Sha256::new().chain_update("tidegate master key id").chain_update(bytes).finalize();
        let id = hex(&digest[..4]);
        Self { bytes, id }
    }

    /// Loads the configured key, or else the key file of `embedded_data`, which is created if necessary.
    pub fn load(settings: &Security, embedded_data: Option<&Path>) -> Result<Self, MasterKeyError> {
        match (settings.load_configured()?, embedded_data) {
            (Some(key), _) => Ok(key),
            (None, Some(folder)) => Self::load_or_create(&Self::key_file_path(folder)),
            (None, None) => Err(MasterKeyError::Missing),
        }
    }

    /// Returns the path of the key file of embedded data.
    pub fn key_file_path(folder: &Path) -> PathBuf {
        folder.join(KEY_FILE_NAME)
    }

    /// Returns the id of the key. Sealed values name it, which tells a wrong key from a tampered value.
    pub fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn bytes(&self) -> &[u8; 32] {
        &self.bytes
    }

    fn parse(text: &str, place: &str) -> Result<Self, MasterKeyError> {
        let bytes = BASE64.decode(text.trim()).ok().and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self::new).ok_or_else(|| MasterKeyError::Malformed { place: place.to_owned() })
    }

    fn read(path: &Path) -> Result<Option<Self>, MasterKeyError> {
        match fs::read_to_string(path) {
            Ok(text) => {
                require_private_mode(path)?;
                Self::parse(&text, &path.display().to_string()).map(Some)
            }
            // Any other error must not lead to a second key.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(MasterKeyError::File { path: path.to_owned(), error }),
        }
    }

    /// Loads the key file or creates it. The caller excludes concurrent calls. The file is written
    /// atomically: secrets sealed under a key that a crash truncated could never be opened again.
    fn load_or_create(path: &Path) -> Result<Self, MasterKeyError> {
        if let Some(key) = Self::read(path)? {
            return Ok(key);
        }
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(|_| MasterKeyError::NoRandomness)?;
        write_private(path, format!("{}\n", BASE64.encode(bytes)).as_bytes())
            .map_err(|error| MasterKeyError::File { path: path.to_owned(), error })?;
        Ok(Self::new(bytes))
    }
}

/// Refuses a key file that all users can read. Group access is allowed, as mounted secrets often have it.
#[cfg(unix)]
fn require_private_mode(path: &Path) -> Result<(), MasterKeyError> {
    use std::os::unix::fs::PermissionsExt;
    let metadata =
        fs::metadata(path).map_err(|error| MasterKeyError::File { path: path.to_owned(), error })?;
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o007 == 0 { Ok(()) } else { Err(MasterKeyError::Open { path: path.to_owned(), mode }) }
}

#[cfg(not(unix))]
fn require_private_mode(_: &Path) -> Result<(), MasterKeyError> {
    Ok(())
}

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MasterKey({})", self.id)
    }
}

impl fmt::Debug for Security {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Security")
            .field("master_key", &self.master_key.as_ref().map(|_| "****"))
            .field("master_key_file", &self.master_key_file)
            .field("lost_master_key", &self.lost_master_key)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn embedded_data_keeps_its_first_key() {
        let folder = tempfile::tempdir().unwrap();
        let first = MasterKey::load(&Security::default(), Some(folder.path())).unwrap();
        let again = MasterKey::load(&Security::default(), Some(folder.path())).unwrap();
        assert_eq!(first.bytes(), again.bytes());
        assert_eq!(first.id(), again.id());
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
            let path = folder.path().join(KEY_FILE_NAME);
            assert_eq!(mode(&path), 0o600);
            fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
            let refused = MasterKey::load(&Security::default(), Some(folder.path())).unwrap_err();
            assert_eq!(refused.tag(), "master_key_open");
        }
    }

    #[test]
    fn a_broken_key_file_is_never_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(KEY_FILE_NAME);
        MasterKey::load(&Security::default(), Some(folder.path())).unwrap();
        fs::write(&path, "").unwrap();
        let refused = MasterKey::load(&Security::default(), Some(folder.path())).unwrap_err();
        assert_eq!(refused.tag(), "master_key_malformed");
    }

    #[test]
    fn exactly_one_key_is_required_without_embedded_data() {
        let load = |key: Option<&str>, file: Option<&Path>| {
            let master_key_file = file.map(Path::to_owned);
            let master_key = key.map(str::to_owned);
            MasterKey::load(&Security { master_key, master_key_file, lost_master_key: None }, None)
        };
        let text = BASE64.encode([7; 32]);
        assert_eq!(load(Some(&text), None).unwrap().id(), MasterKey::new([7; 32]).id());
        assert_eq!(load(None, None).unwrap_err().tag(), "master_key_missing");
        assert_eq!(load(Some("c2hvcnQ="), None).unwrap_err().tag(), "master_key_malformed");
        assert_eq!(load(Some(&text), Some(Path::new("x"))).unwrap_err().tag(), "master_key_both");
        assert_eq!(load(None, Some(Path::new("no-such-file"))).unwrap_err().tag(), "master_key_file");
    }

    #[test]
    fn debug_output_hides_the_master_key() {
        let text = BASE64.encode([7; 32]);
        let settings = Security { master_key: Some(text.clone()), ..Security::default() };
        assert!(!format!("{settings:?}").contains(&text));
        assert_eq!(format!("{:?}", MasterKey::new([7; 32])).len(), "MasterKey(00000000)".len());
    }
}

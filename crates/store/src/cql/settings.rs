//! Settings of the CQL engine. The binary merges the settings file with the environment.

use std::{collections::BTreeMap, fmt, path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};

use super::tls::{self, NO_TLS, Tls};
use crate::Error;

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// `host:port` of some nodes; the others are found through them.
    pub contact_points: Vec<String>,
    pub keyspace: String,
    /// Nodes of this datacenter are asked first. With several datacenters it should be set: quorums are local.
    pub local_dc: Option<String>,
    /// Replication of the keyspace. With it, `store migrate` creates a missing keyspace; without it, a missing keyspace
    /// is an error.
    pub replication: Option<Replication>,
    pub username: Option<String>,
    /// Prefer the environment or `password_file` over the settings file.
    pub password: Option<Secret>,
    pub password_file: Option<PathBuf>,
    /// TLS to the nodes, in builds with the feature `tls`. The presence of the section enables it.
    pub tls: Option<Tls>,
    pub connect_timeout_ms: u64,
    pub request_timeout_ms: u64,
    /// Milliseconds for which a conditional write with an unknown outcome is retried before it is reported as an
    /// outage.
    pub settle_timeout_ms: u64,
    /// Maximum number of requests in flight, over all tables.
    pub max_in_flight: usize,
    /// Default number of rows a page of a scan.
    pub page_rows: usize,
    /// Size limit of a batch of rows of one partition, in bytes; a larger row is sent alone. Cassandra refuses batches over
    /// 50 KiB unless told otherwise.
    pub batch_bytes: usize,
    /// Size limit of a row, in bytes. The record of a larger row becomes a dead letter. The limit must be below the servers' limits
    /// on a mutation and on a request: both are 16 MiB in Cassandra unless told otherwise, counted with their overhead.
    pub max_row_bytes: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Replication {
    /// Number of copies, for clusters of one datacenter.
    Simple(u8),
    /// Number of copies in each named datacenter.
    Datacenters(BTreeMap<String, u8>),
}

/// Value that is never printed or serialized.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub(super) fn reveal(&self) -> &str {
        &self.0
    }
}

impl Serialize for Secret {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("***")
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            contact_points: vec!["127.0.0.1:9042".to_owned()],
            keyspace: "tidegate".to_owned(),
            local_dc: None,
            replication: None,
            username: None,
            password: None,
            password_file: None,
            tls: None,
            connect_timeout_ms: 5_000,
            request_timeout_ms: 10_000,
            settle_timeout_ms: 30_000,
            max_in_flight: 512,
            page_rows: 1_000,
            batch_bytes: 40 << 10,
            max_row_bytes: 15 << 20,
        }
    }
}

impl Settings {
    pub fn validate(&self) -> Result<(), Error> {
        let invalid = |text: String| Err(Error::Settings(text));
        if self.contact_points.is_empty() {
            return invalid("contact_points names no node".to_owned());
        }
        if !is_keyspace_name(&self.keyspace) {
            return invalid(format!(
                "keyspace `{}` is not a name of 1 to 48 lower-case letters, digits and underscores that begins \
                 with a letter",
                self.keyspace
            ));
        }
        if self.password.is_some() && self.password_file.is_some() {
            return invalid("password and password_file are both set".to_owned());
        }
        if self.username.is_none() && (self.password.is_some() || self.password_file.is_some()) {
            return invalid("a password is set, but no username".to_owned());
        }
        if self.username.is_some() && self.password.is_none() && self.password_file.is_none() {
            return invalid("username is set, but neither password nor password_file".to_owned());
        }
        if let Some(tls) = &self.tls {
            if !cfg!(feature = "tls") {
                return invalid(NO_TLS.to_owned());
            }
            if tls.certificate_file.is_some() != tls.key_file.is_some() {
                return invalid(
                    "of tls.certificate_file and tls.key_file one is set without the other".to_owned(),
                );
            }
        }
        if let Some(Replication::Datacenters(centers)) = &self.replication {
            if centers.is_empty() || centers.values().any(|copies| *copies == 0) {
                return invalid("replication names no datacenter, or one with 0 copies".to_owned());
            }
            // Names are quoted into the CREATE KEYSPACE statement.
            if let Some(name) = centers.keys().find(|name| name.contains('\'')) {
                return invalid(format!("replication: `{name}` is not the name of a datacenter"));
            }
            if let Some(local) = &self.local_dc
                && !centers.contains_key(local)
            {
                return invalid(format!("local_dc is `{local}`, but replication keeps no copy there"));
            }
        }
        if self.replication == Some(Replication::Simple(0)) {
            return invalid("replication keeps 0 copies".to_owned());
        }
        for (name, value) in [
            ("connect_timeout_ms", self.connect_timeout_ms),
            ("request_timeout_ms", self.request_timeout_ms),
            ("max_in_flight", self.max_in_flight as u64),
            ("page_rows", self.page_rows as u64),
            ("batch_bytes", self.batch_bytes as u64),
            ("max_row_bytes", self.max_row_bytes as u64),
        ] {
            if value == 0 {
                return invalid(format!("{name} is 0"));
            }
        }
        if i32::try_from(self.page_rows).is_err() {
            return invalid(format!("page_rows is {}, at most {} are possible", self.page_rows, i32::MAX));
        }
        // Servers apply their size limit to a batch as a whole.
        if self.batch_bytes > self.max_row_bytes {
            return invalid(format!(
                "batch_bytes ({}) is above max_row_bytes ({}): rows together would be larger than a row may be",
                self.batch_bytes, self.max_row_bytes
            ));
        }
        // The first attempt alone may take the request timeout.
        if self.settle_timeout_ms < self.request_timeout_ms {
            return invalid(format!(
                "settle_timeout_ms ({}) is shorter than request_timeout_ms ({}): no unknown outcome could be settled",
                self.settle_timeout_ms, self.request_timeout_ms
            ));
        }
        Ok(())
    }

    /// Reads the configured files, as a connection would.
    pub fn check_files(&self) -> Result<(), Error> {
        self.password()?;
        self.tls.as_ref().map_or(Ok(()), tls::check_files)
    }

    pub(super) fn connect_timeout(&self) -> Duration {
        Duration::from_millis(self.connect_timeout_ms)
    }

    pub(super) fn request_timeout(&self) -> Duration {
        Duration::from_millis(self.request_timeout_ms)
    }

    pub(super) fn settle_timeout(&self) -> Duration {
        Duration::from_millis(self.settle_timeout_ms)
    }

    pub(super) fn password(&self) -> Result<Option<Secret>, Error> {
        let Some(path) = &self.password_file else { return Ok(self.password.clone()) };
        match std::fs::read_to_string(path) {
            // Editors and secret managers end the file with a newline.
            Ok(text) => Ok(Some(Secret(text.trim_end_matches(['\r', '\n']).to_owned()))),
            Err(error) => Err(Error::Settings(format!("password_file {}: {error}", path.display()))),
        }
    }
}

fn is_keyspace_name(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    text.len() <= 48
        && text.bytes().all(is_allowed)
        && text.as_bytes().first().is_some_and(u8::is_ascii_lowercase)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn defaults_are_valid_and_contradictions_are_named() {
        Settings::default().validate().unwrap();
        let refusal = |change: fn(&mut Settings)| {
            let mut settings = Settings::default();
            change(&mut settings);
            settings.validate().unwrap_err().to_string()
        };
        assert!(refusal(|s| s.keyspace = "Drop; table".to_owned()).contains("keyspace"));
        assert!(refusal(|s| s.password = Some(Secret::new("p"))).contains("no username"));
        assert!(refusal(|s| s.settle_timeout_ms = 1).contains("settle_timeout_ms (1)"));
        assert!(refusal(|s| s.max_row_bytes = 1_000).contains("max_row_bytes (1000)"));
        assert!(refusal(|s| s.max_in_flight = 0).contains("max_in_flight is 0"));
        let without_local_copies = |s: &mut Settings| {
            s.local_dc = Some("north".to_owned());
            s.replication = Some(Replication::Datacenters(BTreeMap::from([("south".to_owned(), 3)])));
        };
        assert!(refusal(without_local_copies).contains("local_dc is `north`"));
    }

    #[test]
    fn tls_needs_a_build_with_the_feature() {
        let tls = Tls { ca_file: "ca.pem".into(), certificate_file: None, key_file: None };
        let with = |tls: Tls| Settings { tls: Some(tls), ..Settings::default() }.validate();
        if cfg!(feature = "tls") {
            with(tls.clone()).unwrap();
            let error = with(Tls { key_file: Some("us.key".into()), ..tls }).unwrap_err().to_string();
            assert!(error.contains("tls.certificate_file and tls.key_file"), "{error}");
        } else {
            let error = with(tls).unwrap_err().to_string();
            assert!(error.contains("the feature `tls`"), "{error}");
        }
    }

    #[test]
    fn a_password_is_never_printed() {
        let settings = Settings { password: Some(Secret::new("hunter2")), ..Settings::default() };
        assert!(!format!("{settings:?}").contains("hunter2"));
    }
}

//! `tidegate up --demo`: sets up sample documents, keys, and a platform that receives callbacks, all on this machine.
//!
//! It uses only interfaces that an operator has too.

mod env_file;
mod receiver;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use tidegate_catalog::{
    Keys, LiveConfigs, Scope, Scopes, Secrets,
    change::{Change, Changes, File},
    first_start,
    keys::NewKey,
    secrets::SecretError,
};
use tidegate_egress::Secret;
use tidegate_schemas::{
    documents::{self, DocumentKind},
    ids::{EndpointId, OrgId},
};
use tidegate_store::{Store, system_clock};
use tokio::net::TcpListener;

pub(crate) use self::env_file::EnvFile;
use self::receiver::Receiver;
use crate::{
    output::print_line,
    roles::{Phase, Role},
    server_file::Addresses,
    settings::Override,
};

/// Default data folder of the demo.
pub(crate) const DEFAULT_FOLDER: &str = "./tidegate-demo";
const ENDPOINT: &str = "demo-receiver";

/// Documents in the form that `tidegate apply` sends. The endpoint is added once the receiver's address is known.
const DOCUMENTS: [(&str, &str); 6] = [
    ("item_types.yaml", include_str!("documents/item_types.yaml")),
    ("policies.yaml", include_str!("documents/policies.yaml")),
    ("actions.yaml", include_str!("documents/actions.yaml")),
    ("rules.yaml", include_str!("documents/rules.yaml")),
    ("thresholds.yaml", include_str!("documents/thresholds.yaml")),
    ("queues.yaml", include_str!("documents/queues.yaml")),
];

/// Returns the settings that the demo changes.
pub(crate) fn overrides(uses_default_folder: bool) -> Vec<Override> {
    // Callbacks to loopback addresses are refused by default.
    let mut overrides = vec![Override {
        path: &["egress", "allow_cidrs"],
        flag: "--demo",
        value: vec!["127.0.0.0/8".to_owned()].into(),
    }];
    if uses_default_folder {
        overrides.push(Override { path: &["data", "folder"], flag: "--demo", value: DEFAULT_FOLDER.into() });
    }
    overrides
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Demo {
    pub(crate) receiver: SocketAddr,
}

/// Parts of the service that set up the demo.
pub(crate) struct DemoDeps<'a> {
    pub(crate) store: &'a Store,
    pub(crate) live: &'a LiveConfigs,
    pub(crate) keys: &'a Keys,
    pub(crate) secrets: &'a Secrets,
    pub(crate) changes: &'a Changes,
}

/// Demo that is set up, with the listener of its receiver.
pub(crate) struct PreparedDemo {
    listener: TcpListener,
    receiver: Receiver,
}

impl Demo {
    /// Creates missing documents and keys. Those from an earlier start stay as they are.
    pub(crate) async fn prepare(
        self,
        folder: &Path,
        deps: DemoDeps<'_>,
        addresses: &Addresses,
        listener: TcpListener,
    ) -> anyhow::Result<PreparedDemo> {
        require_loopback(addresses)?;
        let earlier_env = EnvFile::read(folder)?;
        let org = OrgId::new(tidegate_catalog::DEFAULT_ORG);
        let first_org = first_start(deps.store, deps.keys, &system_clock()).await?;
        let api_key = match first_org {
            // The key of a new organisation is only available now; later starts read it from the env file.
            Some(first_org) => first_org.key.reveal(),
            None => {
                reuse_or_create_key(
                    deps.keys,
                    &org,
                    "demo platform",
                    Scopes::platform(),
                    earlier_env.as_ref().map(|env| &env.api_key),
                )
                .await?
            }
        };
        let admin_scopes: Scopes =
            [Scope::Admin, Scope::ChildSafety, Scope::ExportsRead].into_iter().collect();
        let admin_key = reuse_or_create_key(
            deps.keys,
            &org,
            "demo admin",
            admin_scopes,
            earlier_env.as_ref().map(|env| &env.admin_key),
        )
        .await?;

        let receiver_address = listener.local_addr()?;
        seed(deps.changes, &org, receiver_address).await?;
        // The documents must be live before the demo is announced as ready.
        deps.live.load_latest(&org).await?;
        let secret = match deps.secrets.reveal(&org, &EndpointId::new(ENDPOINT)).await {
            // The settings declare the master key of this secret as lost: callbacks are held, and the rest of the demo works.
            Err(error @ SecretError::OtherMasterKey { .. }) => {
                tracing::warn!("the demo's receiver cannot verify callbacks: {error}");
                None
            }
            secret => secret?,
        };
        let receiver = Receiver::open(folder, secret.as_deref().map(Secret::parse).transpose()?).await?;

        let url = |address: Option<SocketAddr>| {
            address.map(|address| format!("http://{address}")).context("the demo runs every role")
        };
        let env = EnvFile {
            url: url(addresses.api)?,
            api_key,
            admin_url: url(addresses.console)?,
            admin_key,
            receiver_url: format!("http://{receiver_address}"),
            webhook_secret: secret.unwrap_or_default(),
        };
        env.write(folder)?;
        print_instructions(folder, &env);
        Ok(PreparedDemo { listener, receiver })
    }
}

impl PreparedDemo {
    /// Returns the role of the receiver: a worker, so that it ends after the servers.
    pub(crate) fn role(self) -> Role {
        Role::new("demo-receiver", Phase::Worker, move |stop| self.receiver.serve(self.listener, stop))
    }
}

fn require_loopback(addresses: &Addresses) -> anyhow::Result<()> {
    let listen_addresses = [addresses.api, addresses.console, Some(addresses.ops), addresses.receiver];
    match listen_addresses.into_iter().flatten().find(|address| !address.ip().is_loopback()) {
        Some(public_address) => {
            bail!(
                "the demo may only listen on this machine, but {public_address} can be reached from elsewhere"
            )
        }
        None => Ok(()),
    }
}

/// Returns the key of an earlier start if it still works, otherwise a new one.
async fn reuse_or_create_key(
    keys: &Keys,
    org: &OrgId,
    name: &str,
    scopes: Scopes,
    earlier_key: Option<&String>,
) -> anyhow::Result<String> {
    if let Some(earlier_key) = earlier_key
        && let Ok(caller) = keys.authenticate(earlier_key).await
        // The key of an earlier version may lack a scope.
        && scopes.iter().all(|scope| caller.has_scope(scope))
    {
        return Ok(earlier_key.clone());
    }
    let new_key = NewKey { org: org.clone(), name: name.to_owned(), scopes, expires_at: None };
    Ok(keys.create(new_key).await?.token.reveal())
}

/// Applies all documents to an empty configuration. A later start only updates the receiver's address, if its endpoint still exists.
async fn seed(changes: &Changes, org: &OrgId, receiver: SocketAddr) -> anyhow::Result<()> {
    let pulled = changes.pull(org).await?;
    // The receiver plays the platform, to which all decisions are sent.
    let endpoint = format!("endpoint: {ENDPOINT}\nurl: http://{receiver}/callbacks\nchild_safety: true\n");
    let mut files: Vec<File> = Vec::new();
    if pulled.files.is_empty() {
        files.extend(DOCUMENTS.map(|(name, text)| (name.to_owned(), text.to_owned())));
        files.push(("endpoints.yaml".to_owned(), endpoint));
    } else if has_receiver(&pulled.files) {
        files.push(("endpoints.yaml".to_owned(), endpoint));
    } else {
        // The receiver's endpoint was removed, so the demo does not add it again.
        return Ok(());
    }
    // Expects the pulled version: changes that were applied meanwhile are not overwritten.
    let change =
        Change { files, author: "demo".to_owned(), expected_version: Some(pulled.version), prune: false };
    changes.apply(org, change).await.context("the demo's documents are refused")?;
    Ok(())
}

fn has_receiver(files: &[File]) -> bool {
    let documents = documents::parse(files).unwrap_or_default();
    documents
        .iter()
        .any(|(_, document)| document.kind() == DocumentKind::Endpoint && document.key() == ENDPOINT)
}

fn print_instructions(folder: &Path, env: &EnvFile) {
    let data = if folder == Path::new(DEFAULT_FOLDER) {
        String::new()
    } else {
        format!(" --data {}", folder.display())
    };
    let callbacks = if env.can_verify() { "printed here" } else { "held" };
    print_line(format!(
        "the demo is ready; callbacks are {callbacks}. In another terminal:

  tidegate demo send scam{data}      a post that a rule acts on: a callback
  tidegate demo send report{data}    a user reports a post: a job for a moderator
  tidegate demo send appeal{data}    a user appeals: a job, and its decision is called back

  . {}      addresses and keys as variables, then for example
  curl -H \"Authorization: Bearer $TIDEGATE_ADMIN_KEY\" \"$TIDEGATE_ADMIN_URL/admin/v1/jobs\"
  curl {}/received
",
        EnvFile::path(folder).display(),
        env.receiver_url
    ));
}

/// Returns the data folder of the demo: the given one or the default.
pub(crate) fn folder_or_default(given_folder: Option<PathBuf>) -> PathBuf {
    given_folder.unwrap_or_else(|| PathBuf::from(DEFAULT_FOLDER))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use tidegate_catalog::{Settings, change::lint_files};
    use tidegate_schemas::ids::Millis;

    use super::*;

    #[test]
    fn documents_are_valid_and_their_tests_pass() {
        let mut files = DOCUMENTS.map(|(name, text)| (name.to_owned(), text.to_owned())).to_vec();
        let endpoint = format!("endpoint: {ENDPOINT}\nurl: http://127.0.0.1:8090/callbacks\n");
        files.push(("endpoints.yaml".to_owned(), endpoint));
        let warnings = lint_files(&files, &[], &Settings::default(), Millis(0), usize::MAX).unwrap();
        assert_eq!(warnings.listed_warnings, []);
        assert!(has_receiver(&files));
        assert!(!has_receiver(&files[..6]));
    }

    #[test]
    fn public_address_is_refused() {
        let local: SocketAddr = "127.0.0.1:1".parse().unwrap();
        let mut addresses =
            Addresses { api: Some(local), console: Some(local), ops: local, receiver: Some(local) };
        require_loopback(&addresses).unwrap();
        addresses.api = Some("0.0.0.0:1".parse().unwrap());
        assert!(require_loopback(&addresses).unwrap_err().to_string().contains("0.0.0.0:1"));
    }
}

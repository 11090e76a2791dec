//! `tidegate up --demo`: sample documents, keys, and a platform that receives callbacks, all on this machine.
//!
//! It changes nothing about how the service works: what it sets up, an operator could have.

mod env_file;
mod receiver;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use tidegate_catalog::{
    Keys, Live, Scope, Scopes, Secrets,
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

/// Data folder of the demo by default.
pub(crate) const FOLDER: &str = "./tidegate-demo";
const ENDPOINT: &str = "demo-receiver";

/// Documents as `tidegate apply` would send them. The endpoint's address is known only when the receiver listens.
const DOCUMENTS: [(&str, &str); 6] = [
    ("item_types.yaml", include_str!("documents/item_types.yaml")),
    ("policies.yaml", include_str!("documents/policies.yaml")),
    ("actions.yaml", include_str!("documents/actions.yaml")),
    ("rules.yaml", include_str!("documents/rules.yaml")),
    ("thresholds.yaml", include_str!("documents/thresholds.yaml")),
    ("queues.yaml", include_str!("documents/queues.yaml")),
];

/// Returns the settings that the demo changes.
pub(crate) fn overrides(in_its_own_folder: bool) -> Vec<Override> {
    let mut set = vec![Override {
        path: &["egress", "allow_cidrs"],
        flag: "--demo",
        value: vec!["127.0.0.0/8".to_owned()].into(),
    }];
    if in_its_own_folder {
        set.push(Override { path: &["data", "folder"], flag: "--demo", value: FOLDER.into() });
    }
    set
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Demo {
    pub(crate) receiver: SocketAddr,
}

/// Parts that the demo is set up with.
pub(crate) struct Wiring<'a> {
    pub(crate) store: &'a Store,
    pub(crate) live: &'a Live,
    pub(crate) keys: &'a Keys,
    pub(crate) secrets: &'a Secrets,
    pub(crate) changes: &'a Changes,
}

/// The platform's side, ready to listen.
pub(crate) struct Begun {
    listener: TcpListener,
    receiver: Receiver,
}

impl Demo {
    /// Sets up what is missing. What is there, from an earlier start or changed since, stays.
    pub(crate) async fn begin(
        self,
        folder: &Path,
        wiring: Wiring<'_>,
        addresses: &Addresses,
        listener: TcpListener,
    ) -> anyhow::Result<Begun> {
        only_this_machine(addresses)?;
        let before = EnvFile::read(folder)?;
        let org = OrgId::new(tidegate_catalog::DEFAULT_ORG);
        let first = first_start(wiring.store, wiring.keys, &system_clock()).await?;
        let api_key = match first {
            Some(first) => first.key.reveal(),
            None => {
                key(
                    wiring.keys,
                    &org,
                    "demo platform",
                    Scopes::platform(),
                    before.as_ref().map(|it| &it.api_key),
                )
                .await?
            }
        };
        let admin: Scopes = [Scope::Admin, Scope::ChildSafety].into_iter().collect();
        let admin_key =
            key(wiring.keys, &org, "demo admin", admin, before.as_ref().map(|it| &it.admin_key)).await?;

        let receiver_address = listener.local_addr()?;
        seed(wiring.changes, &org, receiver_address).await?;
        // What the demo is about must be live before it says that it is ready.
        wiring.live.latest(&org).await?;
        let secret = match wiring.secrets.reveal(&org, &EndpointId::new(ENDPOINT)).await {
            // Its key is lost, as the settings say: callbacks are held, and the rest goes on.
            Err(lost @ SecretError::OtherMasterKey { .. }) => {
                tracing::warn!("the demo's receiver verifies nothing: {lost}");
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
        invite(folder, &env);
        Ok(Begun { listener, receiver })
    }
}

impl Begun {
    /// The receiver drains after everything that may still call it.
    pub(crate) fn role(self) -> Role {
        Role::new("demo-receiver", Phase::Worker, move |stop| self.receiver.serve(self.listener, stop))
    }
}

fn only_this_machine(addresses: &Addresses) -> anyhow::Result<()> {
    let all = [addresses.api, addresses.console, Some(addresses.ops), addresses.receiver];
    match all.into_iter().flatten().find(|address| !address.ip().is_loopback()) {
        Some(open) => {
            bail!("the demo listens on this machine only, and {open} can be reached from elsewhere")
        }
        None => Ok(()),
    }
}

/// The key of an earlier start if it still works, else a new one.
async fn key(
    keys: &Keys,
    org: &OrgId,
    name: &str,
    scopes: Scopes,
    before: Option<&String>,
) -> anyhow::Result<String> {
    if let Some(before) = before
        && let Ok(caller) = keys.authenticate(before).await
        && scopes.iter().all(|scope| caller.may(scope))
    {
        return Ok(before.clone());
    }
    let new = NewKey { org: org.clone(), name: name.to_owned(), scopes, expires_at: None };
    Ok(keys.create(new).await?.token.reveal())
}

/// All documents into an empty configuration; later only the receiver's address, if it is still there.
async fn seed(changes: &Changes, org: &OrgId, receiver: SocketAddr) -> anyhow::Result<()> {
    let pulled = changes.pull(org).await?;
    // The receiver is the platform of the demo, which is told of all decisions.
    let endpoint = format!("endpoint: {ENDPOINT}\nurl: http://{receiver}/callbacks\nchild_safety: true\n");
    let mut files: Vec<File> = Vec::new();
    if pulled.files.is_empty() {
        files.extend(DOCUMENTS.map(|(name, text)| (name.to_owned(), text.to_owned())));
        files.push(("endpoints.yaml".to_owned(), endpoint));
    } else if has_receiver(&pulled.files) {
        files.push(("endpoints.yaml".to_owned(), endpoint));
    } else {
        return Ok(());
    }
    let change =
        Change { files, author: "demo".to_owned(), expected_version: Some(pulled.version), prune: false };
    changes.apply(org, change).await.context("the demo's documents are refused")?;
    Ok(())
}

fn has_receiver(files: &[File]) -> bool {
    let documents = documents::parse(files).unwrap_or_default();
    documents.iter().any(|(_, it)| it.kind() == DocumentKind::Endpoint && it.key() == ENDPOINT)
}

fn invite(folder: &Path, env: &EnvFile) {
    let data =
        if folder == Path::new(FOLDER) { String::new() } else { format!(" --data {}", folder.display()) };
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

/// The data folder of a demo, as commands find it.
pub(crate) fn folder(named: Option<PathBuf>) -> PathBuf {
    named.unwrap_or_else(|| PathBuf::from(FOLDER))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use tidegate_catalog::{Settings, change::lint};
    use tidegate_schemas::ids::Millis;

    use super::*;

    #[test]
    fn the_documents_are_valid_and_their_examples_go_as_they_say() {
        let mut files = DOCUMENTS.map(|(name, text)| (name.to_owned(), text.to_owned())).to_vec();
        let endpoint = format!("endpoint: {ENDPOINT}\nurl: http://127.0.0.1:8090/callbacks\n");
        files.push(("endpoints.yaml".to_owned(), endpoint));
        let warnings = lint(&files, &[], &Settings::default(), Millis(0), usize::MAX).unwrap();
        assert_eq!(warnings.listed, []);
        assert!(has_receiver(&files));
        assert!(!has_receiver(&files[..6]));
    }

    #[test]
    fn an_address_that_others_can_reach_is_refused() {
        let local: SocketAddr = "127.0.0.1:1".parse().unwrap();
        let mut addresses =
            Addresses { api: Some(local), console: Some(local), ops: local, receiver: Some(local) };
        only_this_machine(&addresses).unwrap();
        addresses.api = Some("0.0.0.0:1".parse().unwrap());
        assert!(only_this_machine(&addresses).unwrap_err().to_string().contains("0.0.0.0:1"));
    }
}

//! Changes of a configuration: checked as a whole, kept as a new snapshot, made current under a condition.
//!
//! It makes nothing run (`live` does), and reads no files: who calls hands in their names and texts.

mod check;
mod difference;
mod headers;
mod inline;
mod pulls;
mod render;
mod wait;

use std::{collections::BTreeSet, sync::Arc};

use tidegate_schemas::{
    documents::{self, Document, DocumentFault, DocumentKind, Origin, Parsed, Set, parse_all},
    ids::{BankId, ConfigVersion, EndpointId, Millis, OrgId, QueueId},
};
use tidegate_store::{Clock, Replaced, Store, system_clock, tables::catalog::configs::ConfigHead};

pub use self::{
    check::{Warnings, lint, offline},
    difference::{Difference, How},
    inline::examples,
    pulls::Pulls,
    wait::Waited,
};
use crate::{
    Banks, Compiled, Error, OrgWork, Settings, banks,
    compile::listed,
    content::Content,
    contents::{Contents, Current},
    secrets::{SecretError, Secrets},
    snapshots,
};

/// A file of documents: its name, as faults show it, and its text. A name ending in `.json` means JSON, else YAML.
pub type File = (String, String);

/// Requested change of the configuration.
#[derive(Clone, Debug)]
pub struct Change {
    pub files: Vec<File>,
    pub author: String,
    /// The version that the change was made from; it is refused if that one is not current any more.
    pub expected_version: Option<ConfigVersion>,
    /// True if documents that are not in the files are removed.
    pub prune: bool,
}

impl Change {
    /// A change that is only checked: without an author, and from any version.
    pub fn unsigned(files: Vec<File>, prune: bool) -> Self {
        Self { files, author: String::new(), expected_version: None, prune }
    }
}

/// Result of a change.
#[derive(Clone, Debug)]
pub struct Applied {
    /// The current version now: the old one if nothing was different.
    pub version: ConfigVersion,
    pub differences: Vec<Difference>,
    /// Warnings about what is allowed but hardly meant.
    pub warnings: Vec<DocumentFault>,
    /// Endpoints that got a signing secret; their receivers need it.
    pub new_secrets: Vec<EndpointId>,
}

/// Why a change is not made. Nothing changed then.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    #[error("{} of the documents' faults: {}", .0.len(), crate::content::joined(.0))]
    Invalid(Vec<DocumentFault>),
    #[error("the configuration is at version {}, and the change was made from version {}: pull and try again", .found.0, .expected.0)]
    HeadMoved { expected: ConfigVersion, found: ConfigVersion },
    #[error(transparent)]
    Catalog(#[from] Error),
    #[error(transparent)]
    Secret(#[from] SecretError),
}

impl ApplyError {
    pub fn tag(&self) -> &'static str {
        match self {
            Self::Invalid(_) => "documents_invalid",
            Self::HeadMoved { .. } => "config_head_moved",
            Self::Catalog(error) => error.tag(),
            Self::Secret(error) => error.tag(),
        }
    }

    /// True if the error is an outage, so that a retry may help.
    pub fn is_outage(&self) -> bool {
        match self {
            Self::Catalog(error) => error.is_outage(),
            Self::Secret(error) => error.is_outage(),
            Self::Invalid(_) | Self::HeadMoved { .. } => false,
        }
    }
}

impl From<tidegate_store::Error> for ApplyError {
    fn from(error: tidegate_store::Error) -> Self {
        Self::Catalog(error.into())
    }
}

/// The current configuration as files, and the version to name when they are applied again.
#[derive(Clone, Debug)]
pub struct Pulled {
    pub version: ConfigVersion,
    pub changed_at: Millis,
    pub author: String,
    pub files: Vec<File>,
}

/// Makes changes. Cloning it is cheap.
#[derive(Clone)]
pub struct Changes {
    store: Store,
    contents: Contents,
    secrets: Secrets,
    settings: Arc<Settings>,
    clock: Clock,
}

/// A change that was checked and not made yet: what was current, and what should be.
pub struct Planned {
    head: ConfigHead,
    next: Content,
    /// Length of the documents, by which work with them is judged.
    bytes: usize,
    compiled: Compiled,
    author: String,
    differences: Vec<Difference>,
    warnings: Vec<DocumentFault>,
}

impl Planned {
    /// Returns the documents that differ.
    pub fn differences(&self) -> &[Difference] {
        &self.differences
    }

    /// Returns the queues that would be gone. A queue that every organisation has only loses its settings.
    pub fn removed_queues(&self) -> impl Iterator<Item = QueueId> {
        let is_removed = |it: &&Difference| it.kind == DocumentKind::Queue && it.how == How::Removed;
        let keys = self.differences.iter().filter(is_removed).map(|it| QueueId::new(&it.key));
        keys.filter(|key| self.compiled.queue(key).is_none())
    }
}

/// Configuration that a change would lead to.
#[derive(Debug)]
pub struct Candidate {
    pub compiled: Compiled,
    /// The version that the change was made from.
    pub from: ConfigVersion,
    pub differences: Vec<Difference>,
    pub warnings: Vec<DocumentFault>,
}

impl Changes {
    pub fn new(store: Store, secrets: Secrets, settings: &Settings) -> Self {
        let contents = Contents::new(store.clone(), settings);
        Self { store, contents, secrets, settings: Arc::new(settings.clone()), clock: system_clock() }
    }

    /// The banks of the same configurations.
    pub fn banks(&self) -> Banks {
        Banks::with_contents(
            self.store.clone(),
            self.contents.clone(),
            &self.settings,
            Arc::clone(&self.clock),
        )
    }

    /// Returns the documents that orgs pull, written out by `write`.
    pub fn pulls(&self, write: impl Fn(&OrgId, Pulled) -> Vec<u8> + Send + Sync + 'static) -> Pulls {
        Pulls::new(self.contents.clone(), Arc::new(write), &self.settings)
    }

    /// Turns of the orgs at computations that take long, of which changes are some.
    pub fn work(&self) -> &OrgWork {
        self.contents.work()
    }

    /// Checks the change and makes it, if the head is still where it was read.
    pub async fn apply(&self, org: &OrgId, change: Change) -> Result<Applied, ApplyError> {
        self.commit(self.plan(org, change).await?).await
    }

    /// Makes a change that was checked, if the head is still where it was read.
    pub async fn commit(&self, planned: Planned) -> Result<Applied, ApplyError> {
        let Planned { head, next, bytes, compiled, author, differences, warnings } = planned;
        let org = compiled.org();
        let endpoints: Vec<_> = next.set.endpoints.keys().cloned().collect();
        // Before secrets are made: whoever is refused here is told of the new ones by the next try.
        let text = match differences.is_empty() {
            true => None,
            false => Some(self.work().run(org, bytes, move || next.encode()).await?),
        };
        // Before the endpoints are live: nothing may wait for a secret that nobody makes.
        let mut new_secrets = Vec::new();
        for endpoint in endpoints {
            if self.secrets.ensure(org, &endpoint).await? {
                new_secrets.push(endpoint);
            }
        }
        let Some(text) = text else {
            return Ok(Applied { version: head.config_version, differences, warnings, new_secrets });
        };
        let now = (self.clock)();
        let version = ConfigVersion(head.config_version.0 + 1);
        let snapshot_id = snapshots::write(&self.store, org, version, &text, &author, now).await?;
        let next_head =
            ConfigHead { config_version: version, snapshot_id, changed_at: now, author, ..head.clone() };
        match self.store.replace(&next_head, head.version).await? {
            Replaced::Yes => {}
            Replaced::No(moved) => {
                let found = moved.config_version;
                return Err(ApplyError::HeadMoved { expected: head.config_version, found });
            }
            Replaced::Gone => return Err(Error::NoSuchOrg(org.clone()).into()),
        }
        // The change is made: without the bump it is seen a little later.
        if let Err(error) = snapshots::bump(&self.store, now).await {
            tracing::warn!(tag = error.tag(), %org, version = version.0, "processes see the change late");
        }
        tracing::info!(%org, version = version.0, changes = differences.len(), "the configuration changed");
        Ok(Applied { version, differences, warnings, new_secrets })
    }

    /// Returns the documents that applying the files would change, after the same checks.
    pub async fn diff(
        &self,
        org: &OrgId,
        files: Vec<File>,
        prune: bool,
    ) -> Result<Vec<Difference>, ApplyError> {
        Ok(self.plan(org, Change::unsigned(files, prune)).await?.differences)
    }

    /// Returns the configuration that applying the files would lead to, checked and ready to run.
    pub async fn candidate(
        &self,
        org: &OrgId,
        files: Vec<File>,
        prune: bool,
    ) -> Result<Candidate, ApplyError> {
        let Planned { head, compiled, differences, warnings, .. } =
            self.plan(org, Change::unsigned(files, prune)).await?;
        Ok(Candidate { compiled, from: head.config_version, differences, warnings })
    }

    /// The current documents in their canonical form, one file a kind.
    pub async fn pull(&self, org: &OrgId) -> Result<Pulled, Error> {
        let current = self.contents.current(org).await?;
        self.work().run(org, current.bytes, move || pulls::pulled(current)).await
    }

    /// Waits until every process that lives runs this version or a later one.
    pub async fn wait(
        &self,
        org: &OrgId,
        version: ConfigVersion,
        within: std::time::Duration,
    ) -> Result<Waited, Error> {
        wait::wait(&self.store, org, version, within, (self.clock)()).await
    }

    /// Checks a change and makes nothing.
    pub async fn plan(&self, org: &OrgId, change: Change) -> Result<Planned, ApplyError> {
        let Change { files, author, expected_version: expected, prune } = change;
        let Current { head, content: current, bytes } = self.contents.current(org).await?;
        let bytes = bytes + files.iter().map(|(_, text)| text.len()).sum::<usize>();
        if let Some(expected) = expected.filter(|expected| *expected != head.config_version) {
            return Err(ApplyError::HeadMoved { expected, found: head.config_version });
        }
        let (work_org, org, settings, now) = (org, org.clone(), Arc::clone(&self.settings), (self.clock)());
        let (version, secrets) = (ConfigVersion(head.config_version.0 + 1), self.secrets.clone());
        // In the turn: entries may be many, and whoever waits must not hold them.
        let turn = self.work().turn(work_org).await?;
        let held = banks::all(&self.store, &org, &current).await?;
        let check = move || {
            let parsed = parse_all(&files);
            let next = succession(&current, &parsed, prune, &settings);
            let (entries, _) = banks::entries(&held, now);
            let (compiled, warnings) = check::whole(&org, version, &next, &parsed, &settings, &entries, now)
                .map_err(ApplyError::Invalid)?;
            let mut next = next.content;
            let turned = turned(&current.set, &next.set);
            if !turned.is_empty() {
                return Err(ApplyError::Invalid(turned));
            }
            let warnings = listed(warnings, check::LISTED);
            headers::seal(&secrets, &org, &current.set, &mut next.set)?;
            let differences = difference::between(&current, &next);
            Ok::<_, ApplyError>((next, compiled, differences, warnings))
        };
        // Banks may be long beside short documents, so that these are no bound of the work.
        let (checked, _turn) = turn.run(usize::MAX, check).await?;
        let (next, compiled, differences, warnings) = checked?;
        Ok(Planned { head, next, bytes, compiled, author, differences, warnings })
    }
}

/// Banks of another kind than before: their entries would stay, and match nothing.
fn turned(before: &Set, after: &Set) -> Vec<DocumentFault> {
    let fault = |(key, (origin, bank)): (&BankId, &(Origin, documents::Bank))| {
        let (_, old) = before.banks.get(key)?;
        let name = old.kind.name();
        let detail = format!("The bank is of kind `{name}`, and so are its entries: make another bank.");
        (bank.kind != old.kind).then(|| DocumentFault::new(origin, "kind", detail))
    };
    after.banks.iter().filter_map(fault).collect()
}

/// The content after a change, of what could be read.
struct Next {
    content: Content,
    /// Documents whose keys were taken.
    doubled: Vec<DocumentFault>,
}

/// Returns the next content. Without `prune`, documents that are not in the files stay as they are.
fn succession(current: &Content, parsed: &Parsed, prune: bool, settings: &Settings) -> Next {
    let given = &parsed.documents;
    let created = created_policies(given);
    let (mut set, doubled) = Set::gather(given.clone());
    if !prune {
        let named: BTreeSet<_> =
            given.iter().map(|(_, document)| (document.kind(), document.key())).collect();
        let kept = current.set.documents().into_iter();
        let kept = kept.filter(|(_, document)| !named.contains(&(document.kind(), document.key())));
        // Those that are doubled among the given are told already.
        (set, _) = Set::gather(kept.chain(given.iter().cloned()).collect());
    }
    Next { content: current.succeeded_by(set, &created, settings.item_type_versions), doubled }
}

/// The keys of the policies in the order of the files.
fn created_policies(given: &[(Origin, Document)]) -> Vec<String> {
    let key = |document: &Document| match document {
        Document::Policy(policy) => Some(policy.key.clone()),
        _ => None,
    };
    given.iter().filter_map(|(_, document)| key(document)).collect()
}

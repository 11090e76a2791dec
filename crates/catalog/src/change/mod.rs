//! Changes of a configuration: checked as a whole, stored as a new snapshot, made current by a conditional
//! write. `live` makes them run.

mod check;
mod difference;
mod headers;
mod inline;
mod pulls;
mod render;
mod wait;

use std::{collections::BTreeSet, sync::Arc};

use async_recursion::async_recursion as boxed;
use tidegate_schemas::{
    documents::{
        self, Document, DocumentFault, DocumentKind, DocumentSet, Origin, ParsedDocuments, parse_all,
    },
    ids::{BankId, ConfigVersion, EndpointId, Millis, OrgId, QueueId},
};
use tidegate_store::{Clock, ReplaceOutcome, Store, system_clock, tables::catalog::configs::ConfigHead};

pub use self::{
    check::{Warnings, compile_offline, lint_files},
    difference::{Difference, DifferenceKind},
    inline::run_examples,
    pulls::Pulls,
    wait::WaitOutcome,
};
use crate::{
    Banks, Compiled, Error, OrgWork, Settings, banks,
    compile::limit_warnings,
    content::Content,
    contents::{Contents, CurrentConfig},
    secrets::{SecretError, Secrets},
    snapshots,
};

/// File of documents: its name, as shown in faults, and its text. A name ending in `.json` means JSON; other
/// names mean YAML.
pub type File = (String, String);

/// Requested change of the configuration.
#[derive(Clone, Debug)]
pub struct Change {
    pub files: Vec<File>,
    pub author: String,
    /// Version that the change is based on. The change is refused if another version is current.
    pub expected_version: Option<ConfigVersion>,
    /// True to remove documents that are not in the files.
    pub prune: bool,
}

impl Change {
    /// Creates a change that is only checked: without an author, and based on any version.
    pub fn for_check(files: Vec<File>, prune: bool) -> Self {
        Self { files, author: String::new(), expected_version: None, prune }
    }
}

/// Result of an applied change.
#[derive(Clone, Debug)]
pub struct AppliedChange {
    /// Current version: the old one if the files changed no document.
    pub version: ConfigVersion,
    pub differences: Vec<Difference>,
    /// Warnings about documents that are valid but probably unintended.
    pub warnings: Vec<DocumentFault>,
    /// Endpoints with a new signing secret, which their receivers need.
    pub new_secrets: Vec<EndpointId>,
}

/// Error of a change. The configuration is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    #[error("{} of the documents' faults: {}", .0.len(), crate::content::join_faults(.0))]
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

/// Current configuration as files, and the version to name when they are applied again.
#[derive(Clone, Debug)]
pub struct PulledConfig {
    pub version: ConfigVersion,
    pub changed_at: Millis,
    pub author: String,
    pub files: Vec<File>,
}

/// Service that checks and applies changes. Clones share one cache.
#[derive(Clone)]
pub struct Changes {
    store: Store,
    contents: Contents,
    secrets: Secrets,
    settings: Arc<Settings>,
    clock: Clock,
}

/// Change that passed all checks and is not applied yet.
pub struct PlannedChange {
    head: ConfigHead,
    next_content: Content,
    /// Length of the documents, used as the cost of work with them.
    work_bytes: usize,
    compiled: Compiled,
    author: String,
    differences: Vec<Difference>,
    warnings: Vec<DocumentFault>,
}

impl PlannedChange {
    /// Returns the documents that differ.
    pub fn differences(&self) -> &[Difference] {
        &self.differences
    }

    /// Returns the queues that the change removes. A built-in queue only loses its settings and is not among
    /// them.
    pub fn removed_queues(&self) -> impl Iterator<Item = QueueId> {
        let is_removed = |it: &&Difference| {
            it.kind == DocumentKind::Queue && it.difference_kind == DifferenceKind::Removed
        };
        let keys = self.differences.iter().filter(is_removed).map(|it| QueueId::new(&it.key));
        keys.filter(|key| self.compiled.queue(key).is_none())
    }
}

/// Configuration that would result from a change.
#[derive(Debug)]
pub struct Candidate {
    pub compiled: Compiled,
    /// Version that the change is based on.
    pub base_version: ConfigVersion,
    pub differences: Vec<Difference>,
    pub warnings: Vec<DocumentFault>,
}

impl Changes {
    pub fn new(store: Store, secrets: Secrets, settings: &Settings) -> Self {
        let contents = Contents::new(store.clone(), settings);
        Self { store, contents, secrets, settings: Arc::new(settings.clone()), clock: system_clock() }
    }

    /// Returns the banks of the same configurations, with the same cache.
    pub fn banks(&self) -> Banks {
        Banks::with_contents(
            self.store.clone(),
            self.contents.clone(),
            &self.settings,
            Arc::clone(&self.clock),
        )
    }

    /// Returns the cache of pulled documents. `write` serialises them.
    pub fn pulls(&self, write: impl Fn(&OrgId, PulledConfig) -> Vec<u8> + Send + Sync + 'static) -> Pulls {
        Pulls::new(self.contents.clone(), Arc::new(write), &self.settings)
    }

    /// Returns the queue of long computations, which changes use too.
    pub fn work(&self) -> &OrgWork {
        self.contents.work()
    }

    /// Checks and applies a change, unless another change is committed in between.
    #[boxed]
    pub async fn apply(&self, org: &OrgId, change: Change) -> Result<AppliedChange, ApplyError> {
        self.commit(self.plan(org, change).await?).await
    }

    /// Applies a checked change, unless another change was committed since the check.
    #[boxed]
    pub async fn commit(&self, planned: PlannedChange) -> Result<AppliedChange, ApplyError> {
        let PlannedChange { head, next_content, work_bytes, compiled, author, differences, warnings } =
            planned;
        let org = compiled.org();
        let endpoints: Vec<_> = next_content.set.endpoints.keys().cloned().collect();
        // Encoded before secrets are created: if encoding is refused because the service is busy, the next
        // attempt still reports the secrets as new.
        let changed_text = match differences.is_empty() {
            true => None,
            false => Some(self.work().run(org, work_bytes, move || next_content.encode()).await?),
        };
        // Created before the endpoints are live: deliveries wait for a missing secret.
        let mut new_secrets = Vec::new();
        for endpoint in endpoints {
            if self.secrets.ensure_secret(org, &endpoint).await? {
                new_secrets.push(endpoint);
            }
        }
        let Some(changed_text) = changed_text else {
            return Ok(AppliedChange { version: head.config_version, differences, warnings, new_secrets });
        };
        let changed_at = (self.clock)();
        let version = ConfigVersion(head.config_version.0 + 1);
        let snapshot_id =
            snapshots::write_snapshot(&self.store, org, version, &changed_text, &author, changed_at).await?;
        let next_head =
            ConfigHead { config_version: version, snapshot_id, changed_at, author, ..head.clone() };
        // `head.version` counts the writes of the head's row; `config_version` counts the configurations.
        match self.store.replace(&next_head, head.version).await? {
            ReplaceOutcome::Done => {}
            // Another change was committed since the check.
            ReplaceOutcome::Conflict(current_head) => {
                let current_version = current_head.config_version;
                return Err(ApplyError::HeadMoved { expected: head.config_version, found: current_version });
            }
            ReplaceOutcome::Missing => return Err(Error::NoSuchOrg(org.clone()).into()),
        }
        // The change is committed. Without the bump, processes notice it at their next full read.
        if let Err(error) = snapshots::bump_epoch(&self.store, changed_at).await {
            tracing::warn!(tag = error.tag(), %org, version = version.0, "processes see the change late");
        }
        tracing::info!(%org, version = version.0, changes = differences.len(), "the configuration changed");
        Ok(AppliedChange { version, differences, warnings, new_secrets })
    }

    /// Returns the documents that applying the files would change, after the same checks.
    #[boxed]
    pub async fn diff(
        &self,
        org: &OrgId,
        files: Vec<File>,
        prune: bool,
    ) -> Result<Vec<Difference>, ApplyError> {
        Ok(self.plan(org, Change::for_check(files, prune)).await?.differences)
    }

    /// Returns the configuration that applying the files would lead to, checked and ready to run.
    #[boxed]
    pub async fn build_candidate(
        &self,
        org: &OrgId,
        files: Vec<File>,
        prune: bool,
    ) -> Result<Candidate, ApplyError> {
        let PlannedChange { head, compiled, differences, warnings, .. } =
            self.plan(org, Change::for_check(files, prune)).await?;
        Ok(Candidate { compiled, base_version: head.config_version, differences, warnings })
    }

    /// Returns the current documents in their canonical form, one file per kind.
    #[boxed]
    pub async fn pull(&self, org: &OrgId) -> Result<PulledConfig, Error> {
        let current = self.contents.load_current(org).await?;
        self.work().run(org, current.text_bytes, move || pulls::pulled_config(current)).await
    }

    /// Waits until every live process runs this version or a later one.
    #[boxed]
    pub async fn wait_until_live(
        &self,
        org: &OrgId,
        version: ConfigVersion,
        within: std::time::Duration,
    ) -> Result<WaitOutcome, Error> {
        wait::wait_until_live(&self.store, org, version, within, (self.clock)()).await
    }

    /// Checks a change without applying it.
    #[boxed]
    pub async fn plan(&self, org: &OrgId, change: Change) -> Result<PlannedChange, ApplyError> {
        let Change { files, author, expected_version, prune } = change;
        let CurrentConfig { head, content: current, text_bytes: current_bytes } =
            self.contents.load_current(org).await?;
        let work_bytes = current_bytes + files.iter().map(|(_, text)| text.len()).sum::<usize>();
        if let Some(expected_version) = expected_version.filter(|version| *version != head.config_version) {
            return Err(ApplyError::HeadMoved { expected: expected_version, found: head.config_version });
        }
        // The check runs on another thread, so it owns its inputs.
        let (owned_org, settings, now) = (org.clone(), Arc::clone(&self.settings), (self.clock)());
        let (version, secrets) = (ConfigVersion(head.config_version.0 + 1), self.secrets.clone());
        // Acquired before loading: waiting requests must not keep millions of bank entries in memory.
        let permit = self.work().acquire(org).await?;
        let loaded_banks = banks::load_all(&self.store, org, &current).await?;
        let check = move || {
            let parsed = parse_all(&files);
            let next = build_next_content(&current, &parsed, prune, &settings);
            let (entries, _) = banks::active_entries(&loaded_banks, now);
            let (compiled, warnings) =
                check::check_content(&owned_org, version, &next, &parsed, &settings, &entries, now)
                    .map_err(ApplyError::Invalid)?;
            let mut next_content = next.content;
            let kind_faults = find_kind_changes(&current.set, &next_content.set);
            if !kind_faults.is_empty() {
                return Err(ApplyError::Invalid(kind_faults));
            }
            let warnings = limit_warnings(warnings, check::MAX_WARNINGS_PER_KIND);
            // Sealed before the comparison: an unchanged value keeps its sealed text and is no difference.
            headers::seal_all_headers(&secrets, &owned_org, &current.set, &mut next_content.set)?;
            let differences = difference::compare_contents(&current, &next_content);
            Ok::<_, ApplyError>((next_content, compiled, differences, warnings))
        };
        // Banks can be far larger than the documents, so the document length does not bound the work.
        let (result, _permit) = permit.run(usize::MAX, check).await?;
        let (next_content, compiled, differences, warnings) = result?;
        Ok(PlannedChange { head, next_content, work_bytes, compiled, author, differences, warnings })
    }
}

/// Finds banks that change their kind. Their stored entries would remain and match no item.
fn find_kind_changes(old_set: &DocumentSet, new_set: &DocumentSet) -> Vec<DocumentFault> {
    let fault = |(key, (origin, bank)): (&BankId, &(Origin, documents::Bank))| {
        let (_, old) = old_set.banks.get(key)?;
        let name = old.kind.name();
        let detail = format!("The bank is of kind `{name}`, and so are its entries: make another bank.");
        (bank.kind != old.kind).then(|| DocumentFault::new(origin, "kind", detail))
    };
    new_set.banks.iter().filter_map(fault).collect()
}

/// Content after a change, built from the documents that could be read.
struct NextContent {
    content: Content,
    /// Faults of documents with the key of another document.
    duplicates: Vec<DocumentFault>,
}

/// Builds the next content. Without `prune`, documents that are not in the files stay.
fn build_next_content(
    current: &Content,
    parsed: &ParsedDocuments,
    prune: bool,
    settings: &Settings,
) -> NextContent {
    let documents = &parsed.documents;
    let policy_keys = list_policy_keys(documents);
    let (mut set, duplicates) = DocumentSet::gather(documents.clone());
    if !prune {
        let document_names: BTreeSet<_> =
            documents.iter().map(|(_, document)| (document.kind(), document.key())).collect();
        let current_documents = current.set.documents().into_iter();
        let kept_documents = current_documents
            .filter(|(_, document)| !document_names.contains(&(document.kind(), document.key())));
        // Duplicates among the new documents were already reported by the first call.
        (set, _) = DocumentSet::gather(kept_documents.chain(documents.iter().cloned()).collect());
    }
    NextContent {
        content: current.with_successor(set, &policy_keys, settings.item_type_versions),
        duplicates,
    }
}

/// Returns the keys of policies in the order of the files, in which new policies are listed.
fn list_policy_keys(documents: &[(Origin, Document)]) -> Vec<String> {
    let key = |document: &Document| match document {
        Document::Policy(policy) => Some(policy.key.clone()),
        _ => None,
    };
    documents.iter().filter_map(|(_, document)| key(document)).collect()
}

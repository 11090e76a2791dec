//! `tidegate pull DIR`: writes the live configuration into a folder, one file per kind, in canonical form.
//!
//! The service does not store comments or file layout. Files that were not written by a pull are left alone.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Component, Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, bail};
use clap::Args;
use serde::Deserialize;
use tidegate_schemas::documents::{Document, named_files, parse};

use super::{
    documents::{self, File},
    pull_state::{FileHashes, PullState, sha256_hex, write_atomically},
};
use crate::{
    client::Connection,
    output::{print_error, print_line},
};

/// Removes files of an earlier pull that the configuration no longer contains. Fails if a file was edited since that pull.
#[derive(Debug, Args)]
pub(crate) struct Pull {
    /// Folder to write to
    folder: PathBuf,
    /// Overwrite and remove files even if they were edited since the last pull or come from elsewhere
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Deserialize)]
struct Configuration {
    version: i64,
    /// Not sent by older servers.
    org: Option<String>,
    files: Vec<File>,
}

impl Pull {
    pub(crate) async fn run(self) -> anyhow::Result<ExitCode> {
        let client = self.connection.open()?;
        let configuration: Configuration = client.get("/config", &[]).await?;
        fs::create_dir_all(&self.folder)
            .with_context(|| format!("the folder {} cannot be created", self.folder.display()))?;
        let previous_state = PullState::read(&self.folder)?;
        // Documents from elsewhere could be overwritten without a way back.
        if previous_state.is_none() && !self.force && !documents::read_all(&self.folder)?.is_empty() {
            bail!(
                "{} holds documents that were not pulled: choose another folder, or use --force",
                self.folder.display()
            );
        }
        let plan = Plan::new(&self.folder, previous_state, configuration)?;
        if !self.force && !plan.refusals.is_empty() {
            plan.refusals.iter().for_each(print_error);
            bail!("no file was written: use `--force` to overwrite these files, or choose another folder");
        }
        plan.carry_out(&self.folder)?;
        plan.describe_unpulled_files(&self.folder)?.iter().for_each(print_error);
        print_line(format!("version {}", plan.configuration.version));
        Ok(ExitCode::SUCCESS)
    }
}

/// Changes that a pull makes in a folder.
struct Plan {
    previous_state: Option<PullState>,
    configuration: Configuration,
    /// Hashes of the existing files that the pull writes or removes.
    existing_files: FileHashes,
    /// Indices of the files of `configuration` that are missing or differ.
    files_to_write: Vec<usize>,
    files_to_remove: Vec<String>,
    /// Reasons against writing, one per file.
    refusals: Vec<String>,
}

impl Plan {
    fn new(
        folder: &Path,
        previous_state: Option<PullState>,
        configuration: Configuration,
    ) -> anyhow::Result<Self> {
        let recorded_names =
            previous_state.iter().flat_map(PullState::written_files).map(|(name, _)| name.clone());
        // The state file can be edited, so its names are not trusted either.
        let recorded_names = recorded_names.filter(|name| is_plain_file_name(name));
        let mut plan = Self {
            existing_files: FileHashes::new(),
            files_to_write: Vec::new(),
            files_to_remove: recorded_names.collect::<BTreeSet<_>>().into_iter().collect(),
            refusals: Vec::new(),
            previous_state,
            configuration,
        };
        for (index, file) in plan.configuration.files.iter().enumerate() {
            if !is_plain_file_name(&file.name) {
                bail!("the server sent an invalid file name: {:?}", file.name);
            }
            // A file of the new configuration is overwritten, not removed.
            plan.files_to_remove.retain(|name| *name != file.name);
            let existing_hash = content_hash(&folder.join(&file.name))?;
            plan.existing_files.extend(existing_hash.clone().map(|hash| (file.name.clone(), hash)));
            if existing_hash != Some(sha256_hex(file.text.as_bytes())) {
                plan.files_to_write.push(index);
                plan.refusals.extend(describe_refusal(
                    plan.previous_state.as_ref(),
                    folder,
                    &file.name,
                    existing_hash,
                ));
            }
        }
        for name in std::mem::take(&mut plan.files_to_remove) {
            if let Some(existing_hash) = content_hash(&folder.join(&name))? {
                plan.refusals.extend(describe_refusal(
                    plan.previous_state.as_ref(),
                    folder,
                    &name,
                    Some(existing_hash.clone()),
                ));
                plan.existing_files.insert(name.clone(), existing_hash);
                plan.files_to_remove.push(name);
            }
        }
        Ok(plan)
    }

    /// Writes the files. Until the last step the pull state names both versions: after a crash `apply` refuses the folder,
    /// and the next pull recognises both contents of each file.
    fn carry_out(&self, folder: &Path) -> anyhow::Result<()> {
        let new_files = self.configuration.files.iter();
        let new_hashes: FileHashes =
            new_files.map(|file| (file.name.clone(), sha256_hex(file.text.as_bytes()))).collect();
        let Configuration { version, org, .. } = &self.configuration;
        let (version, org) = (*version, org.clone());
        let (old_version, old_org) =
            self.previous_state.as_ref().map_or((version, &org), |state| (state.version, &state.org));
        // The state is written first: a crash then leaves a folder that is known to hold two versions.
        let unfinished_hashes = Some(new_hashes.clone());
        PullState {
            version: old_version,
            org: old_org.clone(),
            files: self.existing_files.clone(),
            writing: unfinished_hashes,
        }
        .write(folder)?;
        for file in self.files_to_write.iter().map(|index| &self.configuration.files[*index]) {
            let path = folder.join(&file.name);
            write_atomically(&path, file.text.as_bytes())?;
            print_line(path.display());
        }
        for name in &self.files_to_remove {
            let path = folder.join(name);
            fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
            print_line(format!("removed {}", path.display()));
        }
        PullState { version, org, files: new_hashes, writing: None }.write(folder)
    }

    /// Describes the effect of the next `apply` for files that were not pulled.
    fn describe_unpulled_files(&self, folder: &Path) -> anyhow::Result<Vec<String>> {
        let document_key = |document: &Document| (document.kind(), document.key().to_owned());
        let mut file_by_document = BTreeMap::new();
        for file in &self.configuration.files {
            let documents = parse(&[(&file.name, &file.text)]).unwrap_or_default();
            file_by_document
                .extend(documents.iter().map(|(_, document)| (document_key(document), file.name.as_str())));
        }
        let files = documents::read_all(folder)?;
        let pairs: Vec<_> = files.iter().map(|file| (file.name.as_str(), file.text.as_str())).collect();
        let entries = named_files(&pairs);
        let is_pulled = |name: &str| self.configuration.files.iter().any(|file| file.name == name);
        let mut descriptions = Vec::new();
        for (name, text) in pairs {
            // Files of entries contain no documents.
            if is_pulled(name) || entries.iter().any(|entries| entries == name) {
                continue;
            }
            let path = folder.join(name);
            let mut describe = |effect: String| {
                descriptions.push(format!("{} was not pulled, and {effect}", path.display()));
            };
            let Ok(documents) = parse(&[(name, text)]) else {
                describe("cannot be read as documents".to_owned());
                continue;
            };
            for key in documents.iter().map(|(_, document)| document_key(document)) {
                let document = format!("{}: {}", key.0.name(), key.1);
                describe(match file_by_document.get(&key) {
                    None => format!("holds `{document}`, which the service does not have: `apply` adds it"),
                    Some(file) => {
                        format!("holds `{document}`, as {file} does: `apply` refuses both together")
                    }
                });
            }
        }
        Ok(descriptions)
    }
}

/// Returns the reason why a file must not be written or removed without `--force`.
fn describe_refusal(
    previous_state: Option<&PullState>,
    folder: &Path,
    name: &str,
    existing_hash: Option<String>,
) -> Option<String> {
    let written_files = previous_state.into_iter().flat_map(PullState::written_files);
    let written_hashes: Vec<_> =
        written_files.filter(|(written_name, _)| *written_name == name).map(|(_, hash)| hash).collect();
    let was_pulled = previous_state.is_some_and(|state| state.files.contains_key(name));
    let reason = match existing_hash {
        // A pull wrote this content, so it can be written again.
        Some(hash) if written_hashes.contains(&&hash) => return None,
        Some(_) if written_hashes.is_empty() => "exists, but was not pulled",
        Some(_) => "was changed since it was pulled",
        None if was_pulled => "was removed since it was pulled",
        None => return None,
    };
    Some(format!("{} {reason}", folder.join(name).display()))
}

/// True if the name is a plain file name, so that it cannot lead out of the folder.
fn is_plain_file_name(name: &str) -> bool {
    matches!(Path::new(name).components().collect::<Vec<_>>()[..], [Component::Normal(_)])
}

fn content_hash(path: &Path) -> anyhow::Result<Option<String>> {
    match fs::read(path) {
        Ok(content) => Ok(Some(sha256_hex(&content))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn plan(folder: &Path, version: i64, files: &[(&str, &str)]) -> Plan {
        let file = |(name, text): &(&str, &str)| File { name: (*name).into(), text: (*text).into() };
        let configuration = Configuration { version, org: None, files: files.iter().map(file).collect() };
        Plan::new(folder, PullState::read(folder).unwrap(), configuration).unwrap()
    }

    #[test]
    fn interrupted_pull_blocks_apply_until_the_next_pull() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        plan(path, 1, &[("a.yaml", "queue: a\n"), ("b.yaml", "queue: b\n")]).carry_out(path).unwrap();
        let second = [("a.yaml", "queue: other\n"), ("c.yaml", "queue: c\n")];
        let broken = plan(path, 2, &second);
        assert_eq!(broken.refusals, [""; 0]);
        // Something in the way of the second file that it writes.
        fs::create_dir_all(path.join("c.yaml/x")).unwrap();
        broken.carry_out(path).unwrap_err();
        assert_eq!(fs::read_to_string(path.join("a.yaml")).unwrap(), "queue: other\n");
        let refused = PullState::read_complete(path).unwrap_err().to_string();
        assert!(refused.contains("was interrupted") && refused.contains("pull again"), "{refused}");

        fs::remove_dir_all(path.join("c.yaml")).unwrap();
        let again = plan(path, 3, &[("a.yaml", "queue: a\n"), ("c.yaml", "queue: c\n")]);
        assert_eq!(again.refusals, [""; 0]);
        again.carry_out(path).unwrap();
        assert!(!path.join("b.yaml").exists());
        let pulled = PullState::read_complete(path).unwrap().unwrap();
        assert_eq!((pulled.version, pulled.files.len()), (3, 2));
    }

    #[test]
    fn edits_after_an_interrupted_pull_are_reported() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        plan(path, 1, &[("a.yaml", "queue: a\n")]).carry_out(path).unwrap();
        let broken = plan(path, 2, &[("a.yaml", "queue: b\n"), ("c.yaml", "queue: c\n")]);
        fs::create_dir_all(path.join("c.yaml/x")).unwrap();
        broken.carry_out(path).unwrap_err();
        fs::remove_dir_all(path.join("c.yaml")).unwrap();
        fs::write(path.join("a.yaml"), "queue: mine\n").unwrap();
        let again = plan(path, 2, &[("a.yaml", "queue: b\n"), ("c.yaml", "queue: c\n")]);
        assert!(again.refusals.len() == 1 && again.refusals[0].contains("a.yaml"), "{:?}", again.refusals);
    }

    #[test]
    fn folder_without_hashes_counts_as_edited_where_it_differs() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        fs::write(path.join(".tidegate.json"), r#"{"version":4}"#).unwrap();
        for name in ["same.yaml", "other.yaml", "gone.yaml"] {
            fs::write(path.join(name), "queue: a\n").unwrap();
        }
        let plan = plan(path, 5, &[("same.yaml", "queue: a\n"), ("other.yaml", "queue: b\n")]);
        assert!(plan.refusals.len() == 1 && plan.refusals[0].contains("other.yaml"), "{:?}", plan.refusals);
        assert_eq!(plan.files_to_remove, [""; 0], "it may be somebody's own");
        let told = plan.describe_unpulled_files(path).unwrap();
        assert!(told.len() == 1 && told[0].contains("gone.yaml") && told[0].contains("queue: a"), "{told:?}");
    }

    #[test]
    fn file_names_of_the_server_stay_within_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["../a.yaml", "/a.yaml", "b/a.yaml", "", ".."] {
            let files = vec![File { name: name.into(), text: String::new() }];
            assert!(
                Plan::new(folder.path(), None, Configuration { version: 1, org: None, files }).is_err(),
                "{name}"
            );
        }
    }
}

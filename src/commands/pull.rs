//! `tidegate pull DIR`: writes the live configuration into a folder, one file per kind, in canonical form.
//!
//! The service does not store comments or file layout. Files that no pull wrote are neither changed nor removed.

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
    /// Earlier versions do not tell it.
    org: Option<String>,
    files: Vec<File>,
}

impl Pull {
    pub(crate) async fn run(self) -> anyhow::Result<ExitCode> {
        let client = self.connection.open()?;
        let configuration: Configuration = client.get("/config", &[]).await?;
        fs::create_dir_all(&self.folder)
            .with_context(|| format!("the folder {} cannot be made", self.folder.display()))?;
        let before = PullState::read(&self.folder)?;
        if before.is_none() && !self.force && !documents::all(&self.folder)?.is_empty() {
            bail!(
                "{} holds documents that were not pulled: name another folder, or --force",
                self.folder.display()
            );
        }
        let plan = Plan::new(&self.folder, before, configuration)?;
        if !self.force && !plan.refusals.is_empty() {
            plan.refusals.iter().for_each(print_error);
            bail!("nothing was written: `--force` writes over these files, or name another folder");
        }
        plan.carry_out(&self.folder)?;
        plan.describe_unpulled_files(&self.folder)?.iter().for_each(print_error);
        print_line(format!("version {}", plan.configuration.version));
        Ok(ExitCode::SUCCESS)
    }
}

/// Changes that a pull makes in a folder.
struct Plan {
    before: Option<PullState>,
    configuration: Configuration,
    /// FileHashes of the existing files whose names the pull knows.
    there: FileHashes,
    /// Indices of the files of `configuration` that are missing or differ.
    write: Vec<usize>,
    remove: Vec<String>,
    /// Reasons against writing, one per file.
    refusals: Vec<String>,
}

impl Plan {
    fn new(folder: &Path, before: Option<PullState>, configuration: Configuration) -> anyhow::Result<Self> {
        let recorded = before.iter().flat_map(PullState::written_files).map(|(name, _)| name.clone());
        let recorded = recorded.filter(|name| is_plain_file_name(name));
        let mut plan = Self {
            there: FileHashes::new(),
            write: Vec::new(),
            remove: recorded.collect::<BTreeSet<_>>().into_iter().collect(),
            refusals: Vec::new(),
            before,
            configuration,
        };
        for (place, file) in plan.configuration.files.iter().enumerate() {
            if !is_plain_file_name(&file.name) {
                bail!("the server names a file that no folder has: {:?}", file.name);
            }
            plan.remove.retain(|name| *name != file.name);
            let there = content_hash(&folder.join(&file.name))?;
            plan.there.extend(there.clone().map(|there| (file.name.clone(), there)));
            if there != Some(sha256_hex(file.text.as_bytes())) {
                plan.write.push(place);
                plan.refusals.extend(describe_refusal(plan.before.as_ref(), folder, &file.name, there));
            }
        }
        for name in std::mem::take(&mut plan.remove) {
            if let Some(there) = content_hash(&folder.join(&name))? {
                plan.refusals.extend(describe_refusal(
                    plan.before.as_ref(),
                    folder,
                    &name,
                    Some(there.clone()),
                ));
                plan.there.insert(name.clone(), there);
                plan.remove.push(name);
            }
        }
        Ok(plan)
    }

    /// Writes the files. Until the last step the pull state names both versions: after a crash `apply` refuses the folder,
    /// and the next pull recognises both contents of each file.
    fn carry_out(&self, folder: &Path) -> anyhow::Result<()> {
        let new = self.configuration.files.iter();
        let new: FileHashes = new.map(|file| (file.name.clone(), sha256_hex(file.text.as_bytes()))).collect();
        let Configuration { version, org, .. } = &self.configuration;
        let (version, org) = (*version, org.clone());
        let (old_version, old_org) =
            self.before.as_ref().map_or((version, &org), |before| (before.version, &before.org));
        let writing = Some(new.clone());
        PullState { version: old_version, org: old_org.clone(), files: self.there.clone(), writing }
            .write(folder)?;
        for file in self.write.iter().map(|place| &self.configuration.files[*place]) {
            let path = folder.join(&file.name);
            write_atomically(&path, file.text.as_bytes())?;
            print_line(path.display());
        }
        for name in &self.remove {
            let path = folder.join(name);
            fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
            print_line(format!("removed {}", path.display()));
        }
        PullState { version, org, files: new, writing: None }.write(folder)
    }

    /// Describes what the next `apply` would do with files that were not pulled.
    fn describe_unpulled_files(&self, folder: &Path) -> anyhow::Result<Vec<String>> {
        let names = |document: &Document| (document.kind(), document.key().to_owned());
        let mut known = BTreeMap::new();
        for file in &self.configuration.files {
            let documents = parse(&[(&file.name, &file.text)]).unwrap_or_default();
            known.extend(documents.iter().map(|(_, document)| (names(document), file.name.as_str())));
        }
        let files = documents::all(folder)?;
        let pairs: Vec<_> = files.iter().map(|file| (file.name.as_str(), file.text.as_str())).collect();
        let entries = named_files(&pairs);
        let is_ours = |name: &str| self.configuration.files.iter().any(|file| file.name == name);
        let mut told = Vec::new();
        for (name, text) in pairs {
            if is_ours(name) || entries.iter().any(|entries| entries == name) {
                continue;
            }
            let path = folder.join(name);
            let mut tell = |what: String| told.push(format!("{} was not pulled, and {what}", path.display()));
            let Ok(documents) = parse(&[(name, text)]) else {
                tell("cannot be read as documents".to_owned());
                continue;
            };
            for named in documents.iter().map(|(_, document)| names(document)) {
                let document = format!("{}: {}", named.0.name(), named.1);
                tell(match known.get(&named) {
                    None => format!("holds `{document}`, which the service has not: `apply` adds it"),
                    Some(file) => {
                        format!("holds `{document}`, as {file} does: `apply` refuses both together")
                    }
                });
            }
        }
        Ok(told)
    }
}

/// Returns the reason why a file must not be written or removed without `--force`.
fn describe_refusal(
    before: Option<&PullState>,
    folder: &Path,
    name: &str,
    there: Option<String>,
) -> Option<String> {
    let known = before.into_iter().flat_map(PullState::written_files);
    let ours: Vec<_> = known.filter(|(known, _)| *known == name).map(|(_, hash)| hash).collect();
    let was_there = before.is_some_and(|before| before.files.contains_key(name));
    let why = match there {
        Some(there) if ours.contains(&&there) => return None,
        Some(_) if ours.is_empty() => "is there, and is not known to be pulled",
        Some(_) => "was changed since it was pulled",
        None if was_there => "was removed since it was pulled",
        None => return None,
    };
    Some(format!("{} {why}", folder.join(name).display()))
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
    fn a_pull_that_broke_off_is_refused_by_apply_and_ended_by_the_next_pull() {
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
        assert!(refused.contains("broke off") && refused.contains("pull again"), "{refused}");

        fs::remove_dir_all(path.join("c.yaml")).unwrap();
        let again = plan(path, 3, &[("a.yaml", "queue: a\n"), ("c.yaml", "queue: c\n")]);
        assert_eq!(again.refusals, [""; 0]);
        again.carry_out(path).unwrap();
        assert!(!path.join("b.yaml").exists());
        let pulled = PullState::read_complete(path).unwrap().unwrap();
        assert_eq!((pulled.version, pulled.files.len()), (3, 2));
    }

    #[test]
    fn what_was_edited_after_a_pull_that_broke_off_is_still_told() {
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
    fn a_folder_of_a_version_that_kept_no_hashes_counts_as_edited_where_it_differs() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        fs::write(path.join(".tidegate.json"), r#"{"version":4}"#).unwrap();
        for name in ["same.yaml", "other.yaml", "gone.yaml"] {
            fs::write(path.join(name), "queue: a\n").unwrap();
        }
        let plan = plan(path, 5, &[("same.yaml", "queue: a\n"), ("other.yaml", "queue: b\n")]);
        assert!(plan.refusals.len() == 1 && plan.refusals[0].contains("other.yaml"), "{:?}", plan.refusals);
        assert_eq!(plan.remove, [""; 0], "it may be somebody's own");
        let told = plan.describe_unpulled_files(path).unwrap();
        assert!(told.len() == 1 && told[0].contains("gone.yaml") && told[0].contains("queue: a"), "{told:?}");
    }

    #[test]
    fn no_name_of_the_server_leads_out_of_the_folder() {
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

//! Options of one conversion, and its report.

use std::{fs::File, path::PathBuf, sync::Arc};

use serde::Serialize;

use crate::{
    bundle::validate::formats::uri,
    error::{ConvertError, ErrorKind},
    form::{K_DEFAULT, Naming, Text},
    input::Limits,
    model::{Source, URN},
    plural::HiddenBelow,
    privacy::{Participants, Profile, Texts, participants::Key},
    sources::{aoi, polis},
    tables::{Cells, TableFormat, VoterIds},
    timestamp::Timestamp,
};

/// The tools whose exports are understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Polis,
    AllOurIdeas,
    Sensemaking,
    PocketPolis,
    /// A bundle, to be turned into something else.
    Bundle,
}

impl Format {
    pub fn name(self) -> &'static str {
        match self {
            Self::Polis => "polis",
            Self::AllOurIdeas => "aoi",
            Self::Sensemaking => "sensemaking",
            Self::PocketPolis => "pocket-polis",
            Self::Bundle => "bundle",
        }
    }
}

#[derive(Clone, Debug)]
pub enum Target {
    File(PathBuf),
    /// Standard output or another stream, which cannot be rewound.
    Stream(Arc<File>),
}

impl Target {
    pub(crate) fn is_stream(&self) -> bool {
        matches!(self, Self::Stream(_))
    }
}

/// Values that replace what the files say of the source.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    pub id: Option<String>,
    pub title: Option<String>,
    pub description: Option<String>,
    pub url: Option<String>,
}

/// A file beside the bundle with the same content in another form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sidecar {
    Parquet,
    Ndjson,
}

impl Sidecar {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Parquet => "parquet",
            Self::Ndjson => "ndjson",
        }
    }
}

/// One conversion.
#[derive(Clone, Debug)]
pub struct Job {
    /// Files, folders and archives; `-` is standard input.
    pub inputs: Vec<PathBuf>,
    pub target: Target,
    /// Format of the input; detected by default.
    pub from: Option<Format>,
    pub polis: polis::Options,
    pub aoi: aoi::Options,
    pub profile: Profile,
    /// Number of people required behind a figure of a public bundle.
    pub k: u64,
    /// Treatment of texts; by default they are kept in a private bundle and redacted in a public one.
    pub texts: Option<Texts>,
    pub text_reviewed_by: Option<String>,
    /// Not to be shared, whatever its content would allow.
    pub withheld: bool,
    pub limitations: Vec<String>,
    pub participants: Participants,
    /// A kept key links bundles; a fresh one is thrown away.
    pub key: Option<Key>,
    /// File of the kept key, which must not be overwritten.
    pub key_file: Option<PathBuf>,
    /// Every answer, not only the latest.
    pub events: bool,
    pub naming: Naming,
    pub schema_url: Option<String>,
    pub bundle_id: Option<String>,
    /// Time of the export in the bundle; the start of the conversion by default.
    pub exported: Option<Timestamp>,
    pub overrides: Overrides,
    /// Cuts titles and descriptions that are too long instead of refusing them.
    pub truncate_metadata: bool,
    pub limits: Limits,
    /// Number of threads. With more than one, rows are formatted and written beside the reading of the rest.
    pub threads: usize,
    pub force: bool,
    pub dry_run: bool,
    /// Files beside the bundle; by default Parquet beside a bundle that is too large for common readers.
    pub sidecars: Option<Vec<Sidecar>>,
    /// Describes the bundle and its sidecars as a package.
    pub package: bool,
    /// License of the package: an id of SPDX's list or an address.
    pub license: Option<String>,
    /// Instead of a bundle; the target is a folder then.
    pub to: Option<TableFormat>,
    pub cells: Cells,
    pub voter_ids: VoterIds,
}

impl Job {
    /// A private bundle of latest answers under fresh pseudonyms.
    pub fn new(inputs: Vec<PathBuf>, target: Target) -> Self {
        Self {
            inputs,
            target,
            from: None,
            polis: polis::Options::default(),
            aoi: aoi::Options::default(),
            profile: Profile::default(),
            k: K_DEFAULT,
            texts: None,
            text_reviewed_by: None,
            withheld: false,
            limitations: Vec::new(),
            participants: Participants::default(),
            key: None,
            key_file: None,
            events: false,
            naming: Naming::default(),
            schema_url: None,
            bundle_id: None,
            exported: None,
            overrides: Overrides::default(),
            truncate_metadata: false,
            limits: Limits::default(),
            threads: 1,
            force: false,
            dry_run: false,
            sidecars: None,
            package: false,
            license: None,
            to: None,
            cells: Cells::default(),
            voter_ids: VoterIds::default(),
        }
    }

    /// Names of the given options that apply to exports only. The time of the export is not among them, since the
    /// environment may set it.
    pub(crate) fn options_for_exports(&self) -> Vec<&'static str> {
        let Overrides { id, title, description, url } = &self.overrides;
        let options = [
            ("--profile", self.profile != Profile::default()),
            ("--k", self.k != K_DEFAULT),
            ("--text", self.texts.is_some()),
            ("--text-reviewed-by", self.text_reviewed_by.is_some()),
            (
                "--participants",
                !matches!(self.participants, Participants::Pseudonyms | Participants::ExternalIds),
            ),
            ("--linkage-key-file", self.key.is_some()),
            ("--not-for-sharing", self.withheld),
            ("--limitation", !self.limitations.is_empty()),
            ("--events", self.events),
            ("--rename-constants", self.naming != Naming::default()),
            ("--schema-url", self.schema_url.is_some()),
            ("--bundle-id", self.bundle_id.is_some()),
            ("--source-id", id.is_some()),
            ("--title", title.is_some()),
            ("--description", description.is_some()),
            ("--source-url", url.is_some()),
            ("--truncate-metadata", self.truncate_metadata),
        ];
        let given_options = options.into_iter().filter_map(|(name, is_given)| is_given.then_some(name));
        given_options.chain(self.options_for_tools().map(|(_, name)| name)).collect()
    }

    /// The options, by name, that only the exports of one tool have a use for.
    pub(crate) fn options_for_tools(&self) -> impl Iterator<Item = (Format, &'static str)> {
        let options = [
            (Format::Polis, "--variant", self.polis.variant.is_some()),
            (Format::Polis, "--vote-sign", self.polis.vote_sign.is_some()),
            (Format::Polis, "--organizer", !self.polis.organizers.is_empty()),
            (Format::Polis, "--participants external-ids", self.participants == Participants::ExternalIds),
            (Format::AllOurIdeas, "--equal-reason", self.aoi != aoi::Options::default()),
        ];
        options.into_iter().filter_map(|(tool, name, is_given)| is_given.then_some((tool, name)))
    }

    /// Standard output, if the bundle goes there as it is made. Without a given id it has to be kept until the id is
    /// known.
    pub(crate) fn stream(&self) -> Option<&Arc<File>> {
        match &self.target {
            Target::Stream(stream) if self.bundle_id.is_some() => Some(stream),
            Target::Stream(_) | Target::File(_) => None,
        }
    }

    /// Threshold below which numbers of people are not shown.
    pub(crate) fn hidden_below(&self) -> HiddenBelow {
        if self.profile == Profile::Public { HiddenBelow(self.k) } else { HiddenBelow::default() }
    }

    pub(crate) fn texts(&self) -> Texts {
        self.texts.unwrap_or(match self.profile {
            Profile::Private => Texts::Keep,
            Profile::Public => Texts::Redact,
        })
    }
}

/// Report of a finished conversion. It names no participant.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Format that was detected or given.
    pub format: &'static str,
    pub variant: Option<&'static str>,
    pub participants: u64,
    pub items: u64,
    pub responses: u64,
    pub coverage: f64,
    /// Number of answers replaced by later ones; `None` if unknown or too few to be shown.
    pub superseded: Option<u64>,
    /// Places in texts that were replaced by tokens.
    pub redacted: u64,
    pub suitable: bool,
    pub publication: &'static str,
    pub notes: Vec<String>,
    pub bundle_id: Option<String>,
    pub bytes: u64,
    /// SHA-256 of everything behind the id.
    pub content_sha256: Option<String>,
    /// Names of the files that were written beside or instead of the bundle, or would be.
    pub files: Vec<String>,
    /// True if nothing was written.
    pub dry_run: bool,
}

impl Overrides {
    /// Completes what the source says of itself, and holds it against the bounds of the form.
    pub(crate) fn apply(
        &self,
        source: &mut Source,
        truncate: bool,
        notes: &mut Vec<String>,
    ) -> Result<(), ConvertError> {
        let set = |field: &mut String, override_value: &Option<String>| {
            if let Some(override_value) = override_value {
                override_value.clone_into(field);
            }
        };
        set(&mut source.title, &self.title);
        set(&mut source.description, &self.description);
        set(&mut source.url, &self.url);
        if source.title.trim().is_empty() {
            notes.push("The source gives no title; its id stands in.".to_owned());
            source.title = source.id.clone();
        }
        if source.url.is_empty() {
            source.url = make_urn(&source.id);
        }
        if !uri(source.url.as_bytes()) {
            if self.url.is_some() {
                return Err(ConvertError::Refused("--source-url is not a URL".to_owned()));
            }
            notes.push(
                "The address that the source gives is not a URL; an invented name stands in.".to_owned(),
            );
            source.url = make_urn(&source.id);
        }
        for (name, field, option, override_value) in [
            ("sourceId", &mut source.id, "--source-id", &self.id),
            ("title", &mut source.title, "--title", &self.title),
            ("description", &mut source.description, "--description", &self.description),
            ("url", &mut source.url, "--source-url", &self.url),
        ] {
            let Some(Text { most, .. }) = text_bound(name) else { continue };
            let length = field.chars().count() as u64;
            if length <= most {
                continue;
            }
            if (!truncate || name == "url") && override_value.is_some() {
                return Err(ConvertError::Refused(format!(
                    "{option} has {length} characters, {most} are allowed"
                )));
            }
            if !truncate || name == "url" {
                let detail = format!(
                    "{name} has {length} characters, {most} are allowed (--truncate-metadata cuts, or give another)"
                );
                return Err(ConvertError::content("the input", None, ErrorKind::TooLong, detail));
            }
            *field = field.chars().take(usize::try_from(most).unwrap_or(usize::MAX)).collect();
            notes.push(format!("{name} was cut from {length} to {most} characters."));
        }
        Ok(())
    }
}

/// A name for what has no address.
fn make_urn(id: &str) -> String {
    let encoded: String = url::form_urlencoded::byte_serialize(id.as_bytes()).collect();
    format!("{URN}{}", encoded.replace('+', "%20"))
}

fn text_bound(name: &str) -> Option<Text> {
    let field = crate::form::SOURCE.fields.iter().find(|field| field.name == name)?;
    match &field.value {
        crate::form::Value::Text(text) => Some(*text),
        _ => None,
    }
}

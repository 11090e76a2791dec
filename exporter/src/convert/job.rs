//! Options and report of a conversion.

use std::{fs::File, path::PathBuf, sync::Arc};

use serde::Serialize;

use crate::{
    bundle::validate::formats::is_uri,
    error::{ConvertError, ErrorKind},
    form::{K_DEFAULT, Naming, Text},
    input::Limits,
    model::{Source, URN},
    plural::HiddenBelow,
    privacy::{ParticipantNaming, Profile, TextTreatment, participants::Key},
    sources::{aoi, polis},
    tables::{Cells, TableFormat, VoterIds},
    timestamp::Timestamp,
};

/// Supported input formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Polis,
    AllOurIdeas,
    Sensemaking,
    PocketPolis,
    /// A data bundle, as input of a conversion to tables.
    Bundle,
    /// The service's own moderation. It has no input files.
    Moderation,
}

impl Format {
    pub fn name(self) -> &'static str {
        match self {
            Self::Polis => "polis",
            Self::AllOurIdeas => "aoi",
            Self::Sensemaking => "sensemaking",
            Self::PocketPolis => "pocket-polis",
            Self::Bundle => "bundle",
            Self::Moderation => "moderation",
        }
    }
}

#[derive(Clone, Debug)]
pub enum Target {
    File(PathBuf),
    /// Standard output or another stream without seeking.
    Stream(Arc<File>),
}

impl Target {
    pub(crate) fn is_stream(&self) -> bool {
        matches!(self, Self::Stream(_))
    }
}

/// Values that replace the source's description in the input files.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    pub id: Option<String>,
    pub title: Option<String>,
    pub description: Option<String>,
    pub url: Option<String>,
}

/// File beside the bundle with the same content in another format.
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

/// Options of one conversion.
#[derive(Clone, Debug)]
pub struct Job {
    /// Files, folders and archives; `-` is standard input.
    pub inputs: Vec<PathBuf>,
    pub target: Target,
    /// Format of the input; detected by default.
    pub input_format: Option<Format>,
    pub polis: polis::Options,
    pub aoi: aoi::Options,
    pub profile: Profile,
    /// Minimum number of people behind a figure of a public bundle.
    pub k: u64,
    /// Treatment of participants' texts. Default: `Keep` for a private bundle, `Redact` for a public one.
    pub texts: Option<TextTreatment>,
    pub text_reviewed_by: Option<String>,
    /// Marks the bundle as not for sharing, even if its content would allow it.
    pub not_for_sharing: bool,
    pub limitations: Vec<String>,
    pub participants: ParticipantNaming,
    /// Key of the pseudonyms. A given key links bundles; by default a random key is generated and discarded.
    pub key: Option<Key>,
    /// File of the given key, which must not be overwritten.
    pub key_file: Option<PathBuf>,
    /// Keeps every answer, not only the latest of each participant.
    pub events: bool,
    pub naming: Naming,
    pub schema_url: Option<String>,
    pub bundle_id: Option<String>,
    /// Time of the export; default: the start of the conversion.
    pub exported_at: Option<Timestamp>,
    pub overrides: Overrides,
    /// Truncates titles and descriptions that are too long instead of refusing them.
    pub truncate_metadata: bool,
    pub limits: Limits,
    /// Number of threads. With more than one, rows are formatted and written while others are read.
    pub threads: usize,
    pub force: bool,
    pub dry_run: bool,
    /// Sidecars to write. Default: Parquet if the bundle is too large for common readers.
    pub sidecars: Option<Vec<Sidecar>>,
    /// Writes a package description of the bundle and its sidecars.
    pub package: bool,
    /// License of the package: an SPDX id, a custom id or a URI.
    pub license: Option<String>,
    /// Writes tables in this format instead of a bundle; the target is then a folder.
    pub table_format: Option<TableFormat>,
    pub cells: Cells,
    pub voter_ids: VoterIds,
}

impl Job {
    /// Job with default options: a private bundle of the latest answers, under pseudonyms of a random key.
    pub fn new(inputs: Vec<PathBuf>, target: Target) -> Self {
        Self {
            inputs,
            target,
            input_format: None,
            polis: polis::Options::default(),
            aoi: aoi::Options::default(),
            profile: Profile::default(),
            k: K_DEFAULT,
            texts: None,
            text_reviewed_by: None,
            not_for_sharing: false,
            limitations: Vec::new(),
            participants: ParticipantNaming::default(),
            key: None,
            key_file: None,
            events: false,
            naming: Naming::default(),
            schema_url: None,
            bundle_id: None,
            exported_at: None,
            overrides: Overrides::default(),
            truncate_metadata: false,
            limits: Limits::default(),
            threads: 1,
            force: false,
            dry_run: false,
            sidecars: None,
            package: false,
            license: None,
            table_format: None,
            cells: Cells::default(),
            voter_ids: VoterIds::default(),
        }
    }

    /// Names of the set options that apply to exports only, not to a bundle as input. The export time is left out,
    /// since the environment may set it.
    pub(crate) fn options_for_exports(&self) -> Vec<&'static str> {
        let Overrides { id, title, description, url } = &self.overrides;
        let options = [
            ("--profile", self.profile != Profile::default()),
            ("--k", self.k != K_DEFAULT),
            ("--text", self.texts.is_some()),
            ("--text-reviewed-by", self.text_reviewed_by.is_some()),
            (
                "--participants",
                // `external-ids` is among the options of its tool.
                !matches!(self.participants, ParticipantNaming::Pseudonyms | ParticipantNaming::ExternalIds),
            ),
            ("--linkage-key-file", self.key.is_some()),
            ("--not-for-sharing", self.not_for_sharing),
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

    /// Set options that apply to exports of one tool only, with that tool.
    pub(crate) fn options_for_tools(&self) -> impl Iterator<Item = (Format, &'static str)> {
        let options = [
            (Format::Polis, "--variant", self.polis.variant.is_some()),
            (Format::Polis, "--vote-sign", self.polis.vote_sign.is_some()),
            (Format::Polis, "--organizer", !self.polis.organizers.is_empty()),
            (
                Format::Polis,
                "--participants external-ids",
                self.participants == ParticipantNaming::ExternalIds,
            ),
            (Format::AllOurIdeas, "--equal-reason", self.aoi != aoi::Options::default()),
        ];
        options.into_iter().filter_map(|(tool, name, is_given)| is_given.then_some((tool, name)))
    }

    /// Standard output, if the bundle is streamed while it is made. Without a given id it is spooled: the id is
    /// derived from the content but written first.
    pub(crate) fn stream(&self) -> Option<&Arc<File>> {
        match &self.target {
            Target::Stream(stream) if self.bundle_id.is_some() => Some(stream),
            Target::Stream(_) | Target::File(_) => None,
        }
    }

    /// Threshold below which notes hide counts of people.
    pub(crate) fn hidden_below(&self) -> HiddenBelow {
        // A private bundle lists its participants anyway.
        if self.profile == Profile::Public { HiddenBelow(self.k) } else { HiddenBelow::default() }
    }

    pub(crate) fn texts(&self) -> TextTreatment {
        self.texts.unwrap_or(match self.profile {
            Profile::Private => TextTreatment::Keep,
            Profile::Public => TextTreatment::Redact,
        })
    }
}

/// Report of a finished conversion. Identifies no participant.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Detected or given input format.
    pub format: &'static str,
    pub variant: Option<&'static str>,
    pub participants: u64,
    pub items: u64,
    pub responses: u64,
    pub coverage: f64,
    /// Number of answers replaced by later ones; `None` if unknown or too small to disclose.
    pub superseded: Option<u64>,
    /// Number of tokens inserted into texts.
    pub redacted: u64,
    pub suitable: bool,
    pub publication: &'static str,
    pub notes: Vec<String>,
    pub bundle_id: Option<String>,
    pub bytes: u64,
    /// SHA-256 of the document behind the bundle id.
    pub content_sha256: Option<String>,
    /// Names of the written files; in a preview, of the files that would be written.
    pub files: Vec<String>,
    /// True for a preview, which writes no file.
    pub dry_run: bool,
}

impl Overrides {
    /// Completes the description of the source and checks it against the limits of the schema.
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
            notes.push("The source has no title; its id is used instead.".to_owned());
            source.title = source.id.clone();
        }
        if source.url.is_empty() {
            source.url = make_urn(&source.id);
        }
        if !is_uri(source.url.as_bytes()) {
            // An invalid URL in the input is replaced; one in an option is a mistake to report.
            if self.url.is_some() {
                return Err(ConvertError::Refused("--source-url is not a URL".to_owned()));
            }
            notes
                .push("The address of the source is not a URL; a generated name is used instead.".to_owned());
            source.url = make_urn(&source.id);
        }
        for (name, field, option, override_value) in [
            ("sourceId", &mut source.id, "--source-id", &self.id),
            ("title", &mut source.title, "--title", &self.title),
            ("description", &mut source.description, "--description", &self.description),
            ("url", &mut source.url, "--source-url", &self.url),
        ] {
            let Some(Text { max_chars: most, .. }) = text_bound(name) else { continue };
            let length = field.chars().count() as u64;
            if length <= most {
                continue;
            }
            // A truncated URL would point elsewhere, so it is refused even with --truncate-metadata.
            if (!truncate || name == "url") && override_value.is_some() {
                return Err(ConvertError::Refused(format!(
                    "{option} has {length} characters, {most} are allowed"
                )));
            }
            if !truncate || name == "url" {
                let detail = format!(
                    "{name} has {length} characters, {most} are allowed: truncate it with \
                        --truncate-metadata or set another one"
                );
                return Err(ConvertError::content("the input", None, ErrorKind::TooLong, detail));
            }
            *field = field.chars().take(usize::try_from(most).unwrap_or(usize::MAX)).collect();
            notes.push(format!("{name} was cut from {length} to {most} characters."));
        }
        Ok(())
    }
}

/// Generated URN for a source without a URL.
fn make_urn(id: &str) -> String {
    let encoded: String = url::form_urlencoded::byte_serialize(id.as_bytes()).collect();
    // Form encoding writes spaces as `+`, which a URN would keep literally.
    format!("{URN}{}", encoded.replace('+', "%20"))
}

fn text_bound(name: &str) -> Option<Text> {
    let field = crate::form::SOURCE.fields.iter().find(|field| field.name == name)?;
    match &field.value {
        crate::form::Value::Text(text) => Some(*text),
        _ => None,
    }
}

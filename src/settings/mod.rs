//! Settings of the service: all sections, read from defaults, file, environment and flags, in ascending precedence.
//!
//! The crate that owns a section documents its settings; `deploy/tidegate.toml` lists all of them.

mod lenient;
mod show;
mod tree;

use std::{
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize, Serializer};
use tidegate_catalog::Security;
use tidegate_stream::settings::EngineKind;

use crate::telemetry::Telemetry;

pub(crate) use self::{
    show::show,
    tree::{Node, Origin},
};

/// Settings file that is read if it exists and no other is named.
pub(crate) const DEFAULT_FILE: &str = "tidegate.toml";

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Settings {
    pub(crate) data: Data,
    pub(crate) runtime: crate::runtime::Settings,
    pub(crate) api: ApiServer,
    pub(crate) console: ConsoleServer,
    pub(crate) ops: Ops,
    pub(crate) stream: tidegate_stream::settings::Settings,
    pub(crate) store: StoreSettings,
    pub(crate) catalog: tidegate_catalog::Settings,
    #[serde(serialize_with = "masked")]
    pub(crate) security: Security,
    pub(crate) egress: tidegate_egress::Settings,
    pub(crate) partial_items: tidegate_egress::settings::PartialItemsEndpoints,
    pub(crate) media: tidegate_media::Limits,
    pub(crate) signals: tidegate_moderation::media::Settings,
    pub(crate) scores: tidegate_moderation::scores::Settings,
    pub(crate) ingest: tidegate_ingest::Settings,
    pub(crate) processors: tidegate_processors::Settings,
    pub(crate) callbacks: tidegate_processors::callbacks::Settings,
    pub(crate) review: tidegate_console::Settings,
    pub(crate) export: tidegate_exporter::schedule::Settings,
    pub(crate) telemetry: Telemetry,
}

/// Folder of embedded data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Data {
    /// The folder of embedded data. It also holds `server.json`, and the master key unless one is given.
    pub(crate) folder: PathBuf,
    /// True if a start accepts that durable data is missing. Only the command line sets it: in a file it would accept every later loss
    /// as well.
    #[serde(skip)]
    pub(crate) accepts_loss: bool,
}

impl Default for Data {
    fn default() -> Self {
        Self { folder: PathBuf::from("./tidegate-data"), accepts_loss: false }
    }
}

/// Section of the API that platforms call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ApiServer {
    pub(crate) listen: SocketAddr,
    pub(crate) http: tidegate_web::Settings,
}

impl Default for ApiServer {
    fn default() -> Self {
        Self { listen: loopback(8080), http: tidegate_web::Settings::default() }
    }
}

/// Section of the console and the admin API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ConsoleServer {
    pub(crate) listen: SocketAddr,
    pub(crate) http: tidegate_web::Settings,
}

impl Default for ConsoleServer {
    fn default() -> Self {
        Self { listen: loopback(8081), http: tidegate_web::Settings::default() }
    }
}

/// Section of probes and metrics.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Ops {
    pub(crate) listen: SocketAddr,
    /// Milliseconds that draining may take after SIGTERM. After that the process ends with an exit code of its own.
    pub(crate) drain_ms: u64,
    /// Milliseconds for which `/readyz` is false before connections are refused, so that load balancers notice.
    pub(crate) linger_ms: u64,
}

impl Default for Ops {
    fn default() -> Self {
        Self { listen: loopback(9464), drain_ms: 60_000, linger_ms: 0 }
    }
}

impl Ops {
    pub(crate) const fn drain(&self) -> Duration {
        Duration::from_millis(self.drain_ms)
    }

    pub(crate) const fn linger(&self) -> Duration {
        Duration::from_millis(self.linger_ms)
    }
}

/// Engine that keeps the tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum StoreEngine {
    #[default]
    Embedded,
    Cql,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct StoreSettings {
    pub(crate) engine: StoreEngine,
    pub(crate) embedded: tidegate_store::embedded::Settings,
    pub(crate) cql: tidegate_store::cql::Settings,
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

fn masked<S: Serializer>(security: &Security, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Masked<'a> {
        master_key: Option<&'static str>,
        master_key_file: Option<&'a Path>,
        lost_master_key: Option<&'a str>,
    }
    let master_key = security.master_key.is_some().then_some("***");
    Masked {
        master_key,
        master_key_file: security.master_key_file.as_deref(),
        lost_master_key: security.lost_master_key.as_deref(),
    }
    .serialize(serializer)
}

/// Reason why the settings are refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SettingsError {
    #[error("cannot read the settings file {}: {error}", path.display())]
    File { path: PathBuf, error: io::Error },
    #[error("the settings file {} is not TOML: {message}", path.display())]
    Toml { path: PathBuf, message: String },
    #[error("{0}")]
    Fault(lenient::Fault),
    #[error("{0}")]
    Contradiction(String),
}

/// Fault that a section finds in its values.
#[derive(Debug)]
pub(crate) struct Refusal {
    /// Section of the names in the text, unless they begin with it themselves.
    section: &'static str,
    text: String,
}

impl Refusal {
    fn new(section: &'static str, text: &impl ToString) -> Self {
        let text = text.to_string();
        let text = if text.starts_with(section) { text } else { format!("{section}: {text}") };
        Self { section, text }
    }

    fn in_section<E: ToString>(section: &'static str) -> impl FnOnce(E) -> Self {
        move |error| Self::new(section, &error)
    }
}

/// Value of a command line flag, which has precedence over file and environment.
pub(crate) struct Override {
    pub(crate) path: &'static [&'static str],
    pub(crate) flag: &'static str,
    pub(crate) value: toml::Value,
}

/// Effective settings, with the layers that they were read from.
pub(crate) struct LoadedSettings {
    pub(crate) settings: Settings,
    pub(crate) layers: Node,
}

/// Reads all layers. A named file must exist; the default one may be missing.
pub(crate) fn load(file: Option<&Path>, overrides: Vec<Override>) -> Result<LoadedSettings, SettingsError> {
    let mut layers = match file {
        Some(path) => read_file(path)?,
        None if Path::new(DEFAULT_FILE).exists() => read_file(Path::new(DEFAULT_FILE))?,
        None => Node::default(),
    };
    let variables = std::env::vars_os()
        // A name or value that is not UTF-8 cannot be a setting.
        .filter_map(|(name, text)| Some((name.into_string().ok()?, text.into_string().ok()?)));
    layers.apply_variables(variables);
    for Override { path, flag, value } in overrides {
        // Set last, because flags have precedence.
        layers.set(path, value, Origin::Flag(flag));
    }
    let settings: Settings = lenient::read(&layers).map_err(SettingsError::Fault)?;
    let loaded = LoadedSettings { settings, layers };
    loaded.settings.validate().map_err(|refusal| loaded.contradiction(&refusal))?;
    Ok(loaded)
}

impl LoadedSettings {
    /// Checks that a service can start with the settings. Also reads the files that they name, which commands other than the service do
    /// not need.
    pub(crate) fn check_start(self) -> Result<Self, SettingsError> {
        match self.settings.check_start() {
            Ok(()) => Ok(self),
            Err(refusal) => Err(self.contradiction(&refusal)),
        }
    }

    /// Checks that a process can start that runs scheduled exports only.
    pub(crate) fn check_exports_start(self) -> Result<Self, SettingsError> {
        match self.settings.check_exports_start() {
            Ok(()) => Ok(self),
            Err(refusal) => Err(self.contradiction(&refusal)),
        }
    }

    fn contradiction(&self, refusal: &Refusal) -> SettingsError {
        SettingsError::Contradiction(with_origins(refusal, &self.layers))
    }
}

fn read_file(path: &Path) -> Result<Node, SettingsError> {
    let text =
        fs::read_to_string(path).map_err(|error| SettingsError::File { path: path.to_owned(), error })?;
    let table: toml::Table = toml::from_str(&text).map_err(|error| SettingsError::Toml {
        path: path.to_owned(),
        message: describe_toml_error(&error, &text),
    })?;
    Ok(Node::of_toml(toml::Value::Table(table), &Origin::File(path.to_owned())))
}

/// Describes a TOML error by place and reason, without the text at that place, because it may be a secret.
fn describe_toml_error(error: &toml::de::Error, text: &str) -> String {
    let Some(preceding_text) = error.span().and_then(|span| text.get(..span.start)) else {
        return error.message().to_owned();
    };
    let (line, column) = preceding_text
        .rsplit_once('\n')
        .map_or((1, preceding_text), |(above, last)| (above.matches('\n').count() + 2, last));
    format!("line {line}, column {}: {}", column.chars().count() + 1, error.message())
}

/// Appends the origin of each setting that the message names.
fn with_origins(Refusal { section, text }: &Refusal, layers: &Node) -> String {
    let is_path = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.".contains(&byte));
    let first_path = text.split(": ").next().filter(|inner| is_path(inner));
    let mut origins = Vec::new();
    for word in text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '.')) {
        let word = word.trim_matches('.');
        let candidates = [Some(""), Some(*section), first_path].into_iter().flatten();
        let origin_note = candidates.into_iter().find_map(|above| {
            let path = if above.is_empty() { word.to_owned() } else { format!("{above}.{word}") };
            let parts: Vec<_> = path.split('.').collect();
            // A quoted name may itself contain dots.
            let quoted_path: Vec<_> = above.split('.').chain([word]).collect();
            // A single word is prose of the message, even if a section has the same name.
            let is_setting = !word.is_empty() && parts.len() > 1;
            let origin = layers
                .exact_origin(&parts)
                .or_else(|| layers.exact_origin(&quoted_path))
                .filter(|_| is_setting)?;
            Some(format!("{path} is set by {origin}"))
        });
        origins.extend(origin_note.filter(|origin| !origins.contains(origin)));
    }
    if origins.is_empty() { text.clone() } else { format!("{text} ({})", origins.join("; ")) }
}

impl Settings {
    /// Refuses values that are invalid alone or in combination; the message names all of them.
    pub(crate) fn validate(&self) -> Result<(), Refusal> {
        if self.data.folder.as_os_str().is_empty() {
            return Err(Refusal::new("data.folder", &"must name a folder"));
        }
        self.stream.validate().map_err(Refusal::in_section("stream"))?;
        // Only the settings of the chosen engine are used.
        match self.store.engine {
            StoreEngine::Embedded => {
                self.store.embedded.validate().map_err(Refusal::in_section("store.embedded"))?;
            }
            StoreEngine::Cql => self.store.cql.validate().map_err(Refusal::in_section("store.cql"))?,
        }
        self.catalog.validate().map_err(Refusal::in_section("catalog"))?;
        self.egress.validate().map_err(Refusal::in_section("egress"))?;
        self.partial_items.validate().map_err(Refusal::in_section("partial_items"))?;
        self.media.validate().map_err(Refusal::in_section("media"))?;
        self.signals.validate().map_err(Refusal::in_section("signals"))?;
        self.scores.validate().map_err(Refusal::in_section("scores"))?;
        self.ingest.validate().map_err(Refusal::in_section("ingest"))?;
        self.processors.validate().map_err(Refusal::in_section("processors"))?;
        self.callbacks.validate().map_err(Refusal::in_section("callbacks"))?;
        self.review.validate().map_err(Refusal::in_section("review"))?;
        self.export.validate().map_err(Refusal::in_section("export"))?;
        for (name, http) in [("api.http", &self.api.http), ("console.http", &self.console.http)] {
            http.validate().map_err(Refusal::in_section(name))?;
        }
        crate::telemetry::check(&self.telemetry).map_err(Refusal::in_section("telemetry"))?;
        self.check_listeners().map_err(Refusal::in_section(""))?;
        // The process must not end before its consumers have finished or given up draining.
        if self.ops.drain_ms < self.stream.consume.drain_timeout_ms {
            let text = format!(
                "ops.drain_ms = {} is below stream.consume.drain_timeout_ms = {}: work in flight would be cut off",
                self.ops.drain_ms, self.stream.consume.drain_timeout_ms
            );
            return Err(Refusal::new("", &text));
        }
        if self.security.master_key.is_some() && self.security.master_key_file.is_some() {
            let text = "security.master_key and security.master_key_file are both set";
            return Err(Refusal::new("security", &text));
        }
        Ok(())
    }

    /// Refuses a start if a file or variable that the settings name is missing or unusable.
    fn check_start(&self) -> Result<(), Refusal> {
        let (named_key, has_embedded_data) =
            (self.security.load_configured(), !self.embedded_parts().is_empty());
        match (named_key, &self.security.master_key_file) {
            (Err(error), Some(path)) => {
                let text = format!("security.master_key_file = {}: {error}", path.display());
                return Err(Refusal::new("security", &text));
            }
            (Err(error), None) => return Err(Refusal::new("security", &error)),
            // With embedded data a key is created in the data folder. Processes that share servers must share a key.
            (Ok(None), _) if !has_embedded_data => {
                return Err(Refusal::new("security", &tidegate_catalog::MasterKeyError::Missing));
            }
            (Ok(_), _) => {}
        }
        self.stream.check_files().map_err(Refusal::in_section("stream"))?;
        if self.store.engine == StoreEngine::Cql {
            self.store.cql.check_files().map_err(Refusal::in_section("store.cql"))?;
        }
        // Read now, so that a missing variable refuses the start and not the first request.
        let resolution = self.partial_items.resolve(|name| std::env::var(name).ok());
        resolution.map_err(Refusal::in_section("partial_items"))?;
        self.egress.check_files().map_err(Refusal::in_section("egress"))?;
        self.check_export_destinations()
    }

    /// Refuses a start if a destination of an export names a missing variable or file.
    fn check_export_destinations(&self) -> Result<(), Refusal> {
        let schedules = self.export.open(|name| std::env::var(name).ok());
        schedules.map(drop).map_err(Refusal::in_section("export"))
    }

    /// Refuses the start of a process that runs scheduled exports only, which needs neither log nor master key.
    fn check_exports_start(&self) -> Result<(), Refusal> {
        if self.export.schedules.is_empty() {
            let text = "export.schedules has no schedule to run: add one, as deploy/tidegate.toml describes";
            return Err(Refusal::new("export", &text));
        }
        // Only one process can open embedded data.
        if self.store.engine == StoreEngine::Embedded {
            let text = "store.engine = embedded is opened by one process only, and `tidegate run-exports` is one of several: run \
                        `tidegate up`, which runs the schedules as well, or set store.engine = \"cql\"";
            return Err(Refusal::new("store", &text));
        }
        self.store.cql.check_files().map_err(Refusal::in_section("store.cql"))?;
        self.check_export_destinations()
    }

    fn check_listeners(&self) -> Result<(), String> {
        let listeners = [
            ("api.listen", self.api.listen),
            ("console.listen", self.console.listen),
            ("ops.listen", self.ops.listen),
        ];
        for (index, (name, address)) in listeners.iter().enumerate() {
            for (other_name, other_address) in &listeners[..index] {
                // Port 0 means any free port, so equal addresses do not conflict.
                if address == other_address && address.port() != 0 {
                    return Err(format!(
                        "{other_name} = {other_address} and {name} = {address} are the same address"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Returns the settings of the parts in the data folder, which only one process can open.
    pub(crate) fn embedded_parts(&self) -> Vec<&'static str> {
        let mut parts = Vec::new();
        if self.stream.engine == EngineKind::Embedded {
            parts.push("stream.engine = embedded");
        }
        if self.store.engine == StoreEngine::Embedded {
            parts.push("store.engine = embedded");
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// Collects each leaf with its path. The label of a process differs per machine, so it is left out.
    fn leaves(value: &toml::Value, path: &str, into: &mut Vec<(String, toml::Value)>) {
        match value {
            toml::Value::Table(table) => {
                for (key, value) in table {
                    leaves(value, &if path.is_empty() { key.clone() } else { format!("{path}.{key}") }, into);
                }
            }
            _ if path == "catalog.member_label" => {}
            leaf => into.push((path.to_owned(), leaf.clone())),
        }
    }

    fn rendered(settings: &Settings) -> Vec<(String, toml::Value)> {
        let mut all = Vec::new();
        leaves(&toml::Value::try_from(settings).unwrap(), "", &mut all);
        all
    }

    #[test]
    fn the_reference_file_lists_every_setting_with_its_default() {
        let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/tidegate.toml"));
        let layers = read_file(path).unwrap();
        let settings: Settings = lenient::read(&layers).unwrap();
        settings.validate().unwrap();
        let defaults = rendered(&Settings::default());
        assert_eq!(rendered(&settings), defaults);
        for (setting, _) in &defaults {
            let parts: Vec<_> = setting.split('.').collect();
            assert!(layers.nearest_origin(&parts).is_some(), "deploy/tidegate.toml does not list {setting}");
        }
    }

    #[test]
    fn the_examples_in_the_reference_file_are_settings_too() {
        let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/tidegate.toml"));
        let text = fs::read_to_string(path).unwrap();
        let is_example = |line: &str| {
            let name = line.split(" = ").next().unwrap_or("");
            line.starts_with('[')
                || line.contains(" = ") && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
        };
        let uncommented = text.lines().map(|line| match line.strip_prefix("# ") {
            Some(example) if is_example(example) => example,
            _ => line,
        });
        let uncommented = uncommented.collect::<Vec<_>>().join("\n");
        let layers = Node::of_toml(toml::from_str(&uncommented).unwrap(), &Origin::File(path.to_owned()));
        lenient::read::<Settings>(&layers).unwrap();
    }

    #[test]
    fn words_of_a_message_are_not_taken_for_settings() {
        let mut layers = Node::default();
        layers.apply_variables([("TIDEGATE__DATA__FOLDER".to_owned(), String::new())].into_iter());
        let settings: Settings = lenient::read(&layers).unwrap();
        let text = with_origins(&settings.validate().unwrap_err(), &layers);
        assert_eq!(text, "data.folder: must name a folder (data.folder is set by TIDEGATE__DATA__FOLDER)");
    }

    #[test]
    fn contradiction_names_the_origin_of_its_settings() {
        let origin = Origin::File("a.toml".into());
        let layers = Node::of_toml(toml::from_str("[ops]\ndrain_ms = 1").unwrap(), &origin);
        let settings: Settings = lenient::read(&layers).unwrap();
        let text = with_origins(&settings.validate().unwrap_err(), &layers);
        assert!(
            text.contains("ops.drain_ms = 1") && text.contains("ops.drain_ms is set by a.toml"),
            "{text}"
        );
    }
}

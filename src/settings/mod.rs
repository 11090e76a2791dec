//! The service's settings: every section in one place, defaults under the file under the environment.
//!
//! What a section's settings mean is documented by the crate that owns them; `deploy/tidegate.toml` lists them all.

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

/// The file that is read when no other is named, if it is there.
pub(crate) const DEFAULT_FILE: &str = "tidegate.toml";

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Settings {
    pub(crate) data: Data,
    pub(crate) runtime: crate::runtime::Settings,
    pub(crate) api: Server,
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
    pub(crate) telemetry: Telemetry,
}

/// Folder of embedded data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Data {
    /// The folder of embedded data; `server.json`, and the master key unless one is given, lie there too.
    pub(crate) folder: PathBuf,
    /// True if a start goes on without data that was durable and is missing. Only the command line sets it: in a file it
    /// would accept every later loss as well.
    #[serde(skip)]
    pub(crate) accepts_loss: bool,
}

impl Default for Data {
    fn default() -> Self {
        Self { folder: PathBuf::from("./tidegate-data"), accepts_loss: false }
    }
}

/// The API that platforms call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Server {
    pub(crate) listen: SocketAddr,
    pub(crate) http: tidegate_web::Settings,
}

impl Default for Server {
    fn default() -> Self {
        Self { listen: loopback(8080), http: tidegate_web::Settings::default() }
    }
}

/// The console and the admin API.
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

/// Probes and metrics.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Ops {
    pub(crate) listen: SocketAddr,
    /// Milliseconds that everything may take to drain after SIGTERM. After that the process ends all the same, with the
    /// exit code that says so.
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

/// Why the service does not start with these settings.
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

/// Objection of a section to its values.
#[derive(Debug)]
pub(crate) struct Refusal {
    /// Section that the names in the text belong to, if they do not begin with it themselves.
    section: &'static str,
    text: String,
}

impl Refusal {
    fn new(section: &'static str, text: &impl ToString) -> Self {
        let text = text.to_string();
        let text = if text.starts_with(section) { text } else { format!("{section}: {text}") };
        Self { section, text }
    }

    fn of<E: ToString>(section: &'static str) -> impl FnOnce(E) -> Self {
        move |error| Self::new(section, &error)
    }
}

/// A value that the command line sets over everything else.
pub(crate) struct Override {
    pub(crate) path: &'static [&'static str],
    pub(crate) flag: &'static str,
    pub(crate) value: toml::Value,
}

/// Effective settings, and the layers that they came from.
pub(crate) struct Loaded {
    pub(crate) settings: Settings,
    pub(crate) layers: Node,
}

/// Reads the layers. A file that was named must be there; the default one may be missing.
pub(crate) fn load(file: Option<&Path>, overrides: Vec<Override>) -> Result<Loaded, SettingsError> {
    let mut layers = match file {
        Some(path) => read_file(path)?,
        None if Path::new(DEFAULT_FILE).exists() => read_file(Path::new(DEFAULT_FILE))?,
        None => Node::default(),
    };
    let variables = std::env::vars_os()
        .filter_map(|(name, text)| Some((name.into_string().ok()?, text.into_string().ok()?)));
    layers.lay_over(variables);
    for Override { path, flag, value } in overrides {
        layers.set(path, value, Origin::Flag(flag));
    }
    let settings: Settings = lenient::read(&layers).map_err(SettingsError::Fault)?;
    let loaded = Loaded { settings, layers };
    loaded.settings.validate().map_err(|refusal| loaded.refused(&refusal))?;
    Ok(loaded)
}

impl Loaded {
    /// Checks that a service can start with the settings. It also reads the files that they name, which commands beside
    /// the service need not have.
    pub(crate) fn check_start(self) -> Result<Self, SettingsError> {
        match self.settings.check_start() {
            Ok(()) => Ok(self),
            Err(refusal) => Err(self.refused(&refusal)),
        }
    }

    fn refused(&self, refusal: &Refusal) -> SettingsError {
        SettingsError::Contradiction(with_origins(refusal, &self.layers))
    }
}

fn read_file(path: &Path) -> Result<Node, SettingsError> {
    let text =
        fs::read_to_string(path).map_err(|error| SettingsError::File { path: path.to_owned(), error })?;
    let table: toml::Table = toml::from_str(&text).map_err(|error| SettingsError::Toml {
        path: path.to_owned(),
        message: without_secrets(&error, &text),
    })?;
    Ok(Node::of_toml(toml::Value::Table(table), &Origin::File(path.to_owned())))
}

/// Describes a TOML error by place and reason, without the text that stands there: it may be a secret.
fn without_secrets(error: &toml::de::Error, text: &str) -> String {
    let Some(before) = error.span().and_then(|span| text.get(..span.start)) else {
        return error.message().to_owned();
    };
    let (line, column) =
        before.rsplit_once('\n').map_or((1, before), |(above, last)| (above.matches('\n').count() + 2, last));
    format!("line {line}, column {}: {}", column.chars().count() + 1, error.message())
}

/// Says of every setting that a message names who set it.
fn with_origins(Refusal { section, text }: &Refusal, layers: &Node) -> String {
    let is_path = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.".contains(&byte));
    let inner = text.split(": ").next().filter(|inner| is_path(inner));
    let mut origins = Vec::new();
    for word in text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '.')) {
        let word = word.trim_matches('.');
        let candidates = [Some(""), Some(*section), inner].into_iter().flatten();
        let found = candidates.into_iter().find_map(|above| {
            let path = if above.is_empty() { word.to_owned() } else { format!("{above}.{word}") };
            let parts: Vec<_> = path.split('.').collect();
            // A name in quotes may have dots of its own.
            let quoted: Vec<_> = above.split('.').chain([word]).collect();
            let named = !word.is_empty() && parts.len() > 1;
            let origin = layers.origin_of(&parts).or_else(|| layers.origin_of(&quoted)).filter(|_| named)?;
            Some(format!("{path} is set by {origin}"))
        });
        origins.extend(found.filter(|origin| !origins.contains(origin)));
    }
    if origins.is_empty() { text.clone() } else { format!("{text} ({})", origins.join("; ")) }
}

impl Settings {
    /// Refuses values that cannot work alone or together, naming every one concerned.
    pub(crate) fn validate(&self) -> Result<(), Refusal> {
        if self.data.folder.as_os_str().is_empty() {
            return Err(Refusal::new("data.folder", &"must name a folder"));
        }
        self.stream.validate().map_err(Refusal::of("stream"))?;
        match self.store.engine {
            StoreEngine::Embedded => {
                self.store.embedded.validate().map_err(Refusal::of("store.embedded"))?;
            }
            StoreEngine::Cql => self.store.cql.validate().map_err(Refusal::of("store.cql"))?,
        }
        self.catalog.validate().map_err(Refusal::of("catalog"))?;
        self.egress.validate().map_err(Refusal::of("egress"))?;
        self.partial_items.validate().map_err(Refusal::of("partial_items"))?;
        self.media.validate().map_err(Refusal::of("media"))?;
        self.signals.validate().map_err(Refusal::of("signals"))?;
        self.scores.validate().map_err(Refusal::of("scores"))?;
        self.ingest.validate().map_err(Refusal::of("ingest"))?;
        self.processors.validate().map_err(Refusal::of("processors"))?;
        self.callbacks.validate().map_err(Refusal::of("callbacks"))?;
        self.review.validate().map_err(Refusal::of("review"))?;
        for (name, http) in [("api.http", &self.api.http), ("console.http", &self.console.http)] {
            http.validate().map_err(Refusal::of(name))?;
        }
        crate::telemetry::check(&self.telemetry).map_err(Refusal::of("telemetry"))?;
        self.check_listeners().map_err(Refusal::of(""))?;
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

    /// Refuses a start for which something that is named is missing or cannot be used.
    fn check_start(&self) -> Result<(), Refusal> {
        let (named, embedded) = (self.security.named(), !self.embedded_parts().is_empty());
        match (named, &self.security.master_key_file) {
            (Err(error), Some(path)) => {
                let text = format!("security.master_key_file = {}: {error}", path.display());
                return Err(Refusal::new("security", &text));
            }
            (Err(error), None) => return Err(Refusal::new("security", &error)),
            (Ok(None), _) if !embedded => {
                return Err(Refusal::new("security", &tidegate_catalog::MasterKeyError::Missing));
            }
            (Ok(_), _) => {}
        }
        self.stream.check_files().map_err(Refusal::of("stream"))?;
        if self.store.engine == StoreEngine::Cql {
            self.store.cql.check_files().map_err(Refusal::of("store.cql"))?;
        }
        let resolved = self.partial_items.resolve(|name| std::env::var(name).ok());
        resolved.map_err(Refusal::of("partial_items"))?;
        self.egress.check_files().map_err(Refusal::of("egress"))
    }

    fn check_listeners(&self) -> Result<(), String> {
        let all = [
            ("api.listen", self.api.listen),
            ("console.listen", self.console.listen),
            ("ops.listen", self.ops.listen),
        ];
        for (at, (name, address)) in all.iter().enumerate() {
            for (other, taken) in &all[..at] {
                if address == taken && address.port() != 0 {
                    return Err(format!("{other} = {taken} and {name} = {address} are the same address"));
                }
            }
        }
        Ok(())
    }

    /// Returns the parts that lie in the data folder, which only one process can open.
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

    /// Every leaf, by its path. The label of a process is its own.
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
            assert!(layers.origin(&parts).is_some(), "deploy/tidegate.toml does not list {setting}");
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
        layers.lay_over([("TIDEGATE__DATA__FOLDER".to_owned(), String::new())].into_iter());
        let settings: Settings = lenient::read(&layers).unwrap();
        let text = with_origins(&settings.validate().unwrap_err(), &layers);
        assert_eq!(text, "data.folder: must name a folder (data.folder is set by TIDEGATE__DATA__FOLDER)");
    }

    #[test]
    fn a_contradiction_names_who_set_what() {
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

//! Settings of scheduled exports.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use tidegate_history::Dataset;
use tidegate_schemas::{ids::OrgId, nearest::nearest, string_enum};

use super::cron::{RunTimes, parse_day};
use crate::destination::{Destination, DestinationProblem, DestinationSettings};

/// Longest name of a schedule.
const MAX_NAME_CHARS: usize = 64;
/// Greatest number of days for which files are kept: a hundred years.
const MAX_RETENTION_DAYS: u32 = 36_525;

/// Section `export` of the service's settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Folder for the files of a day before they are sent. Default: `export` in the data folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub work_folder: Option<PathBuf>,
    /// Time after which another process may take over a schedule after its process died, in milliseconds. Default 60,000.
    pub lease_ms: u64,
    /// First pause after a failed export, in milliseconds; it doubles with each further failure. Default 5,000.
    pub retry_min_ms: u64,
    /// Longest such pause, in milliseconds. Default 600,000.
    pub retry_max_ms: u64,
    /// Exports that run regularly. Default none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub schedules: Vec<ScheduleSettings>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            work_folder: None,
            lease_ms: 60_000,
            retry_min_ms: 5_000,
            retry_max_ms: 600_000,
            schedules: Vec::new(),
        }
    }
}

string_enum! {
    /// Format of exported files.
    #[derive(Default)]
    pub enum FileFormat {
        #[default]
        Parquet = "parquet",
        Ndjson = "ndjson",
        Csv = "csv",
    }
}

string_enum! {
    /// Selection of columns with a name.
    pub enum ColumnProfile {
        /// Fields of a statement of reasons, for the EU transparency database.
        Dsa = "dsa",
    }
}

string_enum! {
    /// Content of a bundle.
    #[derive(Default)]
    pub enum BundleProfile {
        /// Rows of single participants, under pseudonyms.
        #[default]
        Private = "private",
        /// Counts only.
        Public = "public",
    }
}

string_enum! {
    /// Treatment of texts in a bundle.
    #[derive(Default)]
    pub enum TextTreatment {
        Keep = "keep",
        Redact = "redact",
        #[default]
        Omit = "omit",
    }
}

/// Data bundle that a schedule writes for each day.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BundleSettings {
    /// Default `private`.
    pub profile: BundleProfile,
    /// Smallest group that a public bundle counts. Default 5.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub k: Option<u32>,
    /// Default `omit`.
    pub text: TextTreatment,
    /// File with the key of pseudonyms. Without it, pseudonyms of two bundles are unrelated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub linkage_key_file: Option<PathBuf>,
}

/// One export that runs regularly.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScheduleSettings {
    /// Name, unique among all schedules. The stored progress belongs to it.
    pub name: String,
    pub org: OrgId,
    /// Exported datasets; or `bundle`.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "deserialize_datasets")]
    pub datasets: Vec<Dataset>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bundle: Option<BundleSettings>,
    /// Format of the files of datasets. Default `parquet`.
    #[serde(default)]
    pub format: FileFormat,
    /// Columns of the files; only with one dataset. Default: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<String>,
    /// Named selection in place of `columns`; only with the datasets `decisions` and `actions`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<ColumnProfile>,
    /// Times of the runs in UTC, such as `30 2 * * *`.
    pub cron: String,
    /// First day, such as `2026-11-01`. Default: the day before the first start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Days for which files are kept. Default: without limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention_days: Option<u32>,
    pub destination: DestinationSettings,
}

/// Schedule with its parsed times and its open destination.
#[derive(Clone, Debug)]
pub struct Schedule {
    pub settings: ScheduleSettings,
    pub destination: Destination,
    pub(crate) run_times: RunTimes,
    /// First day, since 1970.
    pub(crate) since: Option<i64>,
}

/// Invalid value. Names the schedule and the setting, and tells the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    #[error("export.{name} = {value}: {reason}")]
    Value { name: &'static str, value: u64, reason: &'static str },
    #[error("export.schedules[{schedule}].{setting}: {reason}")]
    Schedule { schedule: String, setting: String, reason: String },
}

impl Settings {
    /// Validates the parts that depend on neither environment nor files.
    pub fn validate(&self) -> Result<(), SettingsError> {
        for (name, value, min, max, reason) in [
            ("lease_ms", self.lease_ms, 5_000, 3_600_000, "must be from 5000 to 3600000"),
            ("retry_min_ms", self.retry_min_ms, 100, 3_600_000, "must be from 100 to 3600000"),
            (
                "retry_max_ms",
                self.retry_max_ms,
                self.retry_min_ms,
                86_400_000,
                "must be from retry_min_ms to 86400000",
            ),
        ] {
            if !(min..=max).contains(&value) {
                return Err(SettingsError::Value { name, value, reason });
            }
        }
        let mut positions = BTreeMap::new();
        let mut places: BTreeMap<_, &str> = BTreeMap::new();
        for (index, schedule) in self.schedules.iter().enumerate() {
            schedule.validate(index)?;
            if let Some(first) = positions.insert(schedule.name.as_str(), index) {
                let reason =
                    format!("is the name of schedules {} and {}: rename one of them", first + 1, index + 1);
                return Err(schedule.error("name", reason));
            }
            let place =
                (schedule.destination.url.trim_end_matches('/'), schedule.destination.endpoint.as_deref());
            if let Some(other) = places.insert(place, &schedule.name) {
                let reason = format!(
                    "is also the destination of the schedule {other}: give each a prefix or folder of its own"
                );
                return Err(schedule.error("destination.url", reason));
            }
        }
        Ok(())
    }

    /// Opens the destinations: replaces references by the values of `variable` (the environment), and reads the files. No request is
    /// sent yet.
    pub fn open(&self, variable: impl Fn(&str) -> Option<String>) -> Result<Vec<Schedule>, SettingsError> {
        self.validate()?;
        self.schedules
            .iter()
            .map(|settings| {
                let run_times = settings
                    .cron
                    .parse::<RunTimes>()
                    .map_err(|problem| settings.error("cron", problem.to_string()))?;
                let destination = settings.destination.open(&variable);
                let destination = destination.map_err(|problem| settings.destination_error(&problem))?;
                let first_day = settings.since.as_deref().and_then(parse_day);
                Ok(Schedule { settings: settings.clone(), destination, run_times, since: first_day })
            })
            .collect()
    }

    pub(crate) const fn lease(&self) -> Duration {
        Duration::from_millis(self.lease_ms)
    }
}

impl ScheduleSettings {
    fn validate(&self, index: usize) -> Result<(), SettingsError> {
        if !is_schedule_name(&self.name) {
            return Err(SettingsError::Schedule {
                schedule: (index + 1).to_string(),
                setting: "name".to_owned(),
                reason: format!("must have 1 to {MAX_NAME_CHARS} lower-case letters, digits and hyphens"),
            });
        }
        if self.org.as_str().is_empty() {
            return Err(self.error("org", "is empty: name an organisation"));
        }
        let _run_times: RunTimes =
            self.cron.parse::<RunTimes>().map_err(|problem| self.error("cron", problem.to_string()))?;
        if let Some(since) = &self.since
            && parse_day(since).is_none()
        {
            return Err(self.error("since", format!("{since:?} is no day: write it as `2026-11-28`")));
        }
        if let Some(days) = self.retention_days
            && !(1..=MAX_RETENTION_DAYS).contains(&days)
        {
            let reason = format!("must be from 1 to {MAX_RETENTION_DAYS}; leave it out to keep all files");
            return Err(self.error("retention_days", reason));
        }
        self.check_content()?;
        self.destination.validate().map_err(|problem| self.destination_error(&problem))
    }

    fn check_content(&self) -> Result<(), SettingsError> {
        match (&self.bundle, self.datasets.as_slice()) {
            (None, []) => return Err(self.error("datasets", "is missing: list datasets, or set `bundle`")),
            (Some(_), [_, ..]) => {
                return Err(self.error("bundle", "is set beside `datasets`: make two schedules of them"));
            }
            (Some(bundle), []) => return self.check_bundle(bundle),
            (None, _) => {}
        }
        let repeated =
            self.datasets.iter().enumerate().find(|(at, dataset)| self.datasets[..*at].contains(dataset));
        if let Some((_, dataset)) = repeated {
            return Err(self.error("datasets", format!("lists `{dataset}` twice: remove one")));
        }
        if self.datasets.contains(&Dataset::Audit) {
            let reason = "lists `audit`, whose entries name child-safety jobs, which a schedule never exports: remove it, and \
                          run `tidegate export audit` with a key of the scope `child_safety`";
            return Err(self.error("datasets", reason));
        }
        if self.profile.is_some() {
            if !self.columns.is_empty() {
                return Err(self.error("profile", "is set beside `columns`: keep one of them"));
            }
            let unsupported_dataset = self
                .datasets
                .iter()
                .find(|dataset| !matches!(dataset, Dataset::Decisions | Dataset::Actions));
            if let Some(dataset) = unsupported_dataset {
                let reason =
                    format!("has no fields of `{dataset}`: use the datasets `decisions` and `actions`");
                return Err(self.error("profile", reason));
            }
        }
        self.check_columns()
    }

    fn check_columns(&self) -> Result<(), SettingsError> {
        let [dataset] = self.datasets.as_slice() else {
            return if self.columns.is_empty() {
                Ok(())
            } else {
                Err(self.error("columns", "is set for several datasets: make a schedule for each of them"))
            };
        };
        for (at, name) in self.columns.iter().enumerate() {
            let names = || dataset.columns().iter().map(|column| column.name);
            if !names().any(|known_name| known_name == name) {
                let hint = suggest_name(name, &names().collect::<Vec<_>>());
                return Err(
                    self.error("columns", format!("the dataset `{dataset}` has no column `{name}`: {hint}"))
                );
            }
            if self.columns[..at].contains(name) {
                return Err(self.error("columns", format!("lists `{name}` twice: remove one")));
            }
        }
        Ok(())
    }

    fn check_bundle(&self, bundle: &BundleSettings) -> Result<(), SettingsError> {
        if !self.columns.is_empty() || self.profile.is_some() {
            let setting = if self.columns.is_empty() { "profile" } else { "columns" };
            return Err(self.error(setting, "is set beside `bundle`: remove it, or list datasets"));
        }
        if self.format != FileFormat::default() {
            return Err(
                self.error("format", "is set beside `bundle`, which has a format of its own: remove it")
            );
        }
        match (bundle.profile, bundle.k) {
            (BundleProfile::Private, Some(_)) => {
                Err(self
                    .error("bundle.k", "is set for a private bundle: remove it, or set profile = \"public\""))
            }
            (BundleProfile::Public, Some(0 | 1)) => Err(self.error("bundle.k", "must be at least 2")),
            _ => Ok(()),
        }
    }

    fn error(&self, setting: impl Into<String>, reason: impl Into<String>) -> SettingsError {
        SettingsError::Schedule {
            schedule: self.name.clone(),
            setting: setting.into(),
            reason: reason.into(),
        }
    }

    fn destination_error(&self, problem: &DestinationProblem) -> SettingsError {
        self.error(format!("destination.{}", problem.setting), &problem.text)
    }
}

/// Reads names of datasets. The error names the unknown one.
fn deserialize_datasets<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Dataset>, D::Error> {
    let names = Vec::<String>::deserialize(from)?;
    let parse = |name: &String| {
        name.parse::<Dataset>().map_err(|_| {
            let dataset_names: Vec<_> = Dataset::ALL.iter().map(|dataset| dataset.as_str()).collect();
            let hint = suggest_name(name, &dataset_names);
            D::Error::custom(format!("datasets: there is no dataset `{name}`: {hint}"))
        })
    };
    names.iter().map(parse).collect()
}

/// Suggests the most similar of the names, or all of them.
fn suggest_name(name: &str, names: &[&str]) -> String {
    match nearest(name, names.iter().copied()) {
        Some(similar_name) => format!("did you mean `{similar_name}`?"),
        None => format!("use some of {}", names.join(", ")),
    }
}

fn is_schedule_name(name: &str) -> bool {
    (1..=MAX_NAME_CHARS).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        && !name.starts_with('-')
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::path::Path;

    use super::*;

    fn schedule(name: &str) -> ScheduleSettings {
        ScheduleSettings {
            name: name.to_owned(),
            org: OrgId::new("acme"),
            datasets: vec![Dataset::Decisions],
            bundle: None,
            format: FileFormat::Parquet,
            columns: Vec::new(),
            profile: None,
            cron: "30 2 * * *".to_owned(),
            since: None,
            retention_days: None,
            destination: DestinationSettings::folder(&Path::new("/exports").join(name)),
        }
    }

    fn refusal(schedules: Vec<ScheduleSettings>) -> String {
        Settings { schedules, ..Settings::default() }.validate().unwrap_err().to_string()
    }

    #[test]
    fn default_settings_and_a_complete_schedule_are_valid() {
        Settings::default().validate().unwrap();
        let complete = ScheduleSettings {
            columns: vec!["decisionId".to_owned(), "verdict".to_owned()],
            since: Some("2026-11-01".to_owned()),
            retention_days: Some(400),
            ..schedule("a")
        };
        let bundle = ScheduleSettings {
            datasets: Vec::new(),
            bundle: Some(BundleSettings {
                profile: BundleProfile::Public,
                k: Some(5),
                ..BundleSettings::default()
            }),
            ..schedule("b")
        };
        let settings = Settings { schedules: vec![complete, bundle], ..Settings::default() };
        assert_eq!(settings.open(|_| None).unwrap().len(), 2);
    }

    #[test]
    fn each_unusable_setting_is_named_with_a_remedy() {
        for (settings, start, remedy) in [
            (ScheduleSettings { name: "A b".to_owned(), ..schedule("a") }, "[1].name", "lower-case"),
            (ScheduleSettings { org: OrgId::new(""), ..schedule("a") }, "[a].org", "name an organisation"),
            (ScheduleSettings { cron: "daily".to_owned(), ..schedule("a") }, "[a].cron", "`30 2 * * *`"),
            (
                ScheduleSettings { since: Some("1.11.2026".to_owned()), ..schedule("a") },
                "[a].since",
                "`2026-11-28`",
            ),
            (
                ScheduleSettings { retention_days: Some(0), ..schedule("a") },
                "[a].retention_days",
                "leave it out",
            ),
            (ScheduleSettings { datasets: Vec::new(), ..schedule("a") }, "[a].datasets", "list datasets"),
            (
                ScheduleSettings { datasets: vec![Dataset::Audit; 2], ..schedule("a") },
                "[a].datasets",
                "remove one",
            ),
            (
                ScheduleSettings { datasets: vec![Dataset::Audit], ..schedule("a") },
                "[a].datasets",
                "never exports",
            ),
            (
                ScheduleSettings { bundle: Some(BundleSettings::default()), ..schedule("a") },
                "[a].bundle",
                "two schedules",
            ),
            (
                ScheduleSettings { columns: vec!["verdct".to_owned()], ..schedule("a") },
                "[a].columns",
                "did you mean `verdict`?",
            ),
            (
                ScheduleSettings {
                    datasets: vec![Dataset::Decisions, Dataset::Actions],
                    columns: vec!["verdict".to_owned()],
                    ..schedule("a")
                },
                "[a].columns",
                "a schedule for each",
            ),
            (
                ScheduleSettings {
                    datasets: vec![Dataset::Jobs],
                    profile: Some(ColumnProfile::Dsa),
                    ..schedule("a")
                },
                "[a].profile",
                "`actions`",
            ),
            (
                ScheduleSettings {
                    datasets: Vec::new(),
                    bundle: Some(BundleSettings { k: Some(5), ..BundleSettings::default() }),
                    ..schedule("a")
                },
                "[a].bundle.k",
                "public",
            ),
            (
                ScheduleSettings {
                    destination: DestinationSettings {
                        url: "s3://exports".to_owned(),
                        ..schedule("a").destination
                    },
                    ..schedule("a")
                },
                "[a].destination.access_key_id",
                "${VARIABLE}",
            ),
        ] {
            let text = refusal(vec![settings]);
            assert!(text.starts_with(&format!("export.schedules{start}: ")), "{start}: {text}");
            assert!(text.contains(remedy), "{text}");
        }
    }

    #[test]
    fn two_schedules_share_neither_name_nor_destination() {
        let text = refusal(vec![schedule("a"), schedule("b"), schedule("a")]);
        assert!(text.contains("schedules 1 and 3"), "{text}");
        let second = ScheduleSettings { destination: schedule("a").destination, ..schedule("b") };
        let text = refusal(vec![schedule("a"), second]);
        assert!(
            text.starts_with("export.schedules[b].destination.url: ") && text.contains("schedule a"),
            "{text}"
        );
    }

    #[test]
    fn pauses_and_lease_have_bounds() {
        for (settings, name) in [
            (Settings { lease_ms: 1, ..Settings::default() }, "export.lease_ms = 1"),
            (Settings { retry_min_ms: 0, ..Settings::default() }, "export.retry_min_ms = 0"),
            (Settings { retry_max_ms: 1_000, ..Settings::default() }, "export.retry_max_ms = 1000"),
        ] {
            let text = settings.validate().unwrap_err().to_string();
            assert!(text.starts_with(name), "{text}");
        }
    }
}

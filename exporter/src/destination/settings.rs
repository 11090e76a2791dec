//! Settings of a destination: its address, and access to the server of a bucket.

use std::{
    fmt, fs,
    net::IpAddr,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize, Serializer};
use url::{Host, Url};

use super::{
    Address, Destination, Place,
    bucket::{Bucket, BucketAccess},
    folder::Folder,
    http_client::create_client,
};

const DEFAULT_REGION: &str = "us-east-1";

/// Table `destination` of a schedule. `Debug` and the serialised form contain no secret.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DestinationSettings {
    /// Path of a folder, or `s3://BUCKET/PREFIX`.
    pub url: String,
    /// Address of the S3-compatible server. Default: AWS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Region of the bucket. Default `us-east-1`, which other servers than AWS accept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Id of the access key, possibly with references to environment variables such as `${EXPORT_KEY_ID}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_key_id: Option<String>,
    /// File with the id of the access key. A trailing line end is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_key_id_file: Option<PathBuf>,
    /// Secret of the access key, possibly with references like those of `access_key_id`.
    #[serde(default, skip_serializing_if = "Option::is_none", serialize_with = "serialize_masked")]
    pub secret_access_key: Option<String>,
    /// File with the secret of the access key. A trailing line end is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_access_key_file: Option<PathBuf>,
    /// PEM file of certificate authorities to trust in addition to those of the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
}

impl fmt::Debug for DestinationSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DestinationSettings").field("url", &self.url).finish_non_exhaustive()
    }
}

fn serialize_masked<S: Serializer>(secret: &Option<String>, serializer: S) -> Result<S::Ok, S::Error> {
    secret.as_ref().map(|_| "***").serialize(serializer)
}

/// Problem of one setting of a destination, with its remedy. It shows no secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DestinationProblem {
    /// Name of the setting.
    pub setting: &'static str,
    pub text: String,
}

impl DestinationProblem {
    fn new(setting: &'static str, text: impl Into<String>) -> Self {
        Self { setting, text: text.into() }
    }
}

impl DestinationSettings {
    /// Settings of a folder.
    pub fn folder(path: &Path) -> Self {
        Self {
            url: path.display().to_string(),
            endpoint: None,
            region: None,
            access_key_id: None,
            access_key_id_file: None,
            secret_access_key: None,
            secret_access_key_file: None,
            ca_file: None,
        }
    }

    /// Validates the parts that depend on neither environment nor files.
    pub fn validate(&self) -> Result<(), DestinationProblem> {
        let address = Address::parse(&self.url).map_err(|text| DestinationProblem::new("url", text))?;
        self.check_credentials(&address)?;
        if let Some(endpoint) = &self.endpoint {
            check_endpoint(endpoint).map_err(|text| DestinationProblem::new("endpoint", text))?;
        }
        if let Some(region) = &self.region
            && (region.is_empty()
                || !region.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_'))
        {
            return Err(DestinationProblem::new("region", "is no name of a region, such as `eu-central-1`"));
        }
        let placeholder = |_: &str| Some("x".to_owned());
        for (setting, text) in
            [("access_key_id", &self.access_key_id), ("secret_access_key", &self.secret_access_key)]
        {
            if let Some(text) = text {
                replace_variables(text, placeholder)
                    .map_err(|text| DestinationProblem::new(setting, text))?;
            }
        }
        Ok(())
    }

    /// Refuses settings of a bucket beside a folder, and a bucket without exactly one source of each credential.
    fn check_credentials(&self, address: &Address) -> Result<(), DestinationProblem> {
        let id_sources = [self.access_key_id.is_some(), self.access_key_id_file.is_some()];
        let secret_sources = [self.secret_access_key.is_some(), self.secret_access_key_file.is_some()];
        if let Address::Folder(_) = address {
            let server_settings = [self.endpoint.is_some(), self.region.is_some(), self.ca_file.is_some()];
            let has_bucket_settings =
                id_sources.into_iter().chain(secret_sources).chain(server_settings).any(|is_set| is_set);
            return if has_bucket_settings {
                let text = "is a folder, which has neither endpoint, region, keys nor ca_file: remove these settings, or \
                            write `s3://BUCKET/PREFIX`";
                Err(DestinationProblem::new("url", text))
            } else {
                Ok(())
            };
        }
        for (setting, sources) in [("access_key_id", id_sources), ("secret_access_key", secret_sources)] {
            match sources {
                [true, true] => {
                    return Err(DestinationProblem::new(
                        setting,
                        format!("is set beside {setting}_file: keep one of them"),
                    ));
                }
                [false, false] => {
                    let text =
                        format!("is missing: set it to `${{VARIABLE}}`, or name a file as {setting}_file");
                    return Err(DestinationProblem::new(setting, text));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Opens the destination: replaces references by the values of `variable` (the environment), and reads the files. No request is
    /// sent yet.
    pub fn open(&self, variable: impl Fn(&str) -> Option<String>) -> Result<Destination, DestinationProblem> {
        self.validate()?;
        let address = Address::parse(&self.url).map_err(|text| DestinationProblem::new("url", text))?;
        let (name, prefix) = match address {
            Address::Folder(path) => return Ok(Destination(Place::Folder(Folder::new(&path)))),
            Address::Bucket { name, prefix } => (name, prefix),
        };
        let read = |setting, file_setting, text: &Option<String>, file: &Option<PathBuf>| {
            let value = match (text, file) {
                (_, Some(path)) => read_secret_file(path),
                (text, None) => replace_variables(text.as_deref().unwrap_or_default(), &variable),
            };
            let setting = if file.is_some() { file_setting } else { setting };
            let value = value.map_err(|text| DestinationProblem::new(setting, text))?;
            if value.is_empty() || value.chars().any(|char| char.is_whitespace() || char.is_control()) {
                let text = "is empty or contains a space or line end: a key has neither";
                return Err(DestinationProblem::new(setting, text));
            }
            Ok(value)
        };
        let access_key_id =
            read("access_key_id", "access_key_id_file", &self.access_key_id, &self.access_key_id_file)?;
        let secret_access_key = read(
            "secret_access_key",
            "secret_access_key_file",
            &self.secret_access_key,
            &self.secret_access_key_file,
        )?;
        let http = create_client(self.ca_file.as_deref())
            .map_err(|text| DestinationProblem::new("ca_file", text))?;
        let access = BucketAccess {
            name,
            prefix,
            endpoint: self.endpoint.as_ref().map(|endpoint| endpoint.trim_end_matches('/').to_owned()),
            region: self.region.clone().unwrap_or_else(|| DEFAULT_REGION.to_owned()),
            access_key_id,
            secret_access_key,
            http,
        };
        let bucket = Bucket::new(access).map_err(|text| DestinationProblem::new("url", text))?;
        Ok(Destination(Place::Bucket(bucket)))
    }
}

/// Refuses an endpoint that is no plain HTTPS address. HTTP is allowed to this machine, where no network can read along.
fn check_endpoint(endpoint: &str) -> Result<(), String> {
    let url = Url::parse(endpoint)
        .map_err(|_| "is no address: write it as `https://storage.example:9000`".to_owned())?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err("contains a user or password: use `access_key_id` and `secret_access_key`".to_owned());
    }
    if url.query().is_some() || url.fragment().is_some() || url.path() != "/" {
        return Err("contains a path or query: the bucket and its prefix belong into `url`".to_owned());
    }
    let is_loopback = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => IpAddr::V4(address).is_loopback(),
        Some(Host::Ipv6(address)) => IpAddr::V6(address).is_loopback(),
        None => false,
    };
    match url.scheme() {
        "https" => Ok(()),
        "http" if is_loopback => Ok(()),
        "http" => Err("uses http, which is allowed to this machine only: use https".to_owned()),
        scheme => Err(format!("has the unknown scheme `{scheme}`: use https")),
    }
}

/// Replaces each `${NAME}` by the value of the variable.
fn replace_variables(text: &str, variable: impl Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut replaced = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, reference)) = rest.split_once("${") {
        let (name, after) = reference
            .split_once('}')
            .filter(|(name, _)| {
                !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
            })
            .ok_or("has a `${` that is not followed by the name of a variable and a `}`")?;
        let value = variable(name)
            .ok_or_else(|| format!("names the environment variable `{name}`, which is not set: set it"))?;
        replaced.push_str(before);
        replaced.push_str(&value);
        rest = after;
    }
    replaced.push_str(rest);
    Ok(replaced)
}

fn read_secret_file(path: &Path) -> Result<String, String> {
    let text = fs::read_to_string(path)
        .map_err(|error| format!("names the file {}, which cannot be read: {error}", path.display()))?;
    Ok(text
        .strip_suffix('\n')
        .map_or(text.as_str(), |line| line.strip_suffix('\r').unwrap_or(line))
        .to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn bucket() -> DestinationSettings {
        DestinationSettings {
            url: "s3://exports/tidegate".to_owned(),
            endpoint: Some("https://storage.example:9000".to_owned()),
            access_key_id: Some("${KEY_ID}".to_owned()),
            secret_access_key: Some("${KEY_SECRET}".to_owned()),
            ..DestinationSettings::folder(Path::new("x"))
        }
    }

    #[test]
    fn each_unusable_setting_is_named_with_a_remedy() {
        bucket().validate().unwrap();
        let folder = DestinationSettings::folder(Path::new("/exports"));
        folder.validate().unwrap();
        for (settings, setting, part) in [
            (DestinationSettings { url: String::new(), ..folder.clone() }, "url", "name a folder"),
            (DestinationSettings { region: Some("x".to_owned()), ..folder.clone() }, "url", "remove these"),
            (DestinationSettings { access_key_id: None, ..bucket() }, "access_key_id", "${VARIABLE}"),
            (DestinationSettings { secret_access_key: None, ..bucket() }, "secret_access_key", "_file"),
            (
                DestinationSettings { secret_access_key_file: Some("x".into()), ..bucket() },
                "secret_access_key",
                "keep one",
            ),
            (
                DestinationSettings { region: Some("eu west".to_owned()), ..bucket() },
                "region",
                "eu-central-1",
            ),
            (
                DestinationSettings { access_key_id: Some("${".to_owned()), ..bucket() },
                "access_key_id",
                "name of a variable",
            ),
        ] {
            let problem = settings.validate().unwrap_err();
            assert_eq!(problem.setting, setting, "{}", problem.text);
            assert!(problem.text.contains(part), "{}", problem.text);
        }
    }

    #[test]
    fn http_is_allowed_to_this_machine_only() {
        for endpoint in
            ["https://storage.example", "http://127.0.0.1:9000", "http://localhost:9000/", "http://[::1]:1"]
        {
            check_endpoint(endpoint).unwrap();
        }
        for (endpoint, part) in [
            ("http://storage.example", "use https"),
            ("http://127.0.0.1.example", "use https"),
            ("http://10.0.0.1", "use https"),
            ("ftp://storage.example", "scheme"),
            ("storage", "no address"),
            ("https://user:hunter2@storage.example", "user or password"),
            ("https://storage.example/bucket", "belong into `url`"),
        ] {
            let error = check_endpoint(endpoint).unwrap_err();
            assert!(error.contains(part) && !error.contains("hunter2"), "{endpoint}: {error}");
        }
    }

    #[test]
    fn secret_is_read_from_variable_or_file_and_never_shown() {
        let folder = tempfile::tempdir().unwrap();
        let variable = |name: &str| (name == "KEY_ID" || name == "KEY_SECRET").then(|| "hunter2".to_owned());
        let destination = bucket().open(variable).unwrap();
        assert!(!format!("{destination:?}{:?}", bucket()).contains("hunter2"));

        let problem = bucket().open(|_| None).unwrap_err();
        assert_eq!(problem.setting, "access_key_id");
        assert!(problem.text.contains("`KEY_ID`"), "{}", problem.text);

        let file = folder.path().join("secret");
        let from_file = DestinationSettings {
            secret_access_key: None,
            secret_access_key_file: Some(file.clone()),
            ..bucket()
        };
        let problem = from_file.open(variable).unwrap_err();
        assert_eq!(problem.setting, "secret_access_key_file");
        for (text, is_usable) in
            [("hunter2\n", true), ("hunter2\r\n", true), ("", false), ("hunter2 x", false)]
        {
            fs::write(&file, text).unwrap();
            let opened = from_file.open(variable);
            assert_eq!(opened.is_ok(), is_usable, "{text:?}");
            assert!(!opened.is_err_and(|problem| problem.text.contains("hunter2")));
        }

        let literal = DestinationSettings { secret_access_key: Some("hunter2".to_owned()), ..bucket() };
        let text = serde_json::to_string(&literal).unwrap();
        assert!(text.contains("***") && !text.contains("hunter2"), "{text}");
    }
}

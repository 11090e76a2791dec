//! Reads what an export says of its conversation and of its own format.
//!
//! Its counts are ignored: they differ from the votes in ways that depend on the exporter.

use std::io::Read as _;

use serde_json::Value;

use super::{
    Variant,
    vote_sign::{DeclaredSign, VoteSign},
};
use crate::{
    error::{ConvertError, ErrorKind},
    input::{Limits, Member, pairs},
    model::URN,
};

#[derive(Debug, Default)]
pub(super) struct Summary {
    pub(super) topic: Option<String>,
    pub(super) url: Option<String>,
    description: Option<String>,
    pub(super) sign: DeclaredSign,
    pub(super) has_views: bool,
}

impl Summary {
    pub(super) fn read(member: Option<&Member>, limits: &Limits) -> Result<Self, ConvertError> {
        let Some(member) = member else { return Ok(Self::default()) };
        let mut summary = Self::default();
        pairs(member, limits, |key, value| match key {
            "topic" => summary.topic = Some(value.to_owned()),
            "url" => summary.url = Some(value.to_owned()).filter(|url| !url.is_empty()),
            "conversationdescription" | "description" => summary.description = Some(value.to_owned()),
            "views" => summary.has_views = true,
            "voteconvention" => summary.sign = summary.sign.and(convention(value)),
            _ => {}
        })?;
        Ok(summary)
    }

    /// The last part of the conversation's address.
    pub(super) fn id(&self) -> Option<String> {
        let url = self.parsed()?;
        let last = url.path_segments()?.rfind(|part| !part.is_empty())?;
        Some(last.to_owned())
    }

    /// Host and whole path, which distinguish the conversation from those of other servers.
    pub(super) fn address(&self) -> Option<String> {
        let url = self.parsed()?;
        let path = url.path().trim_end_matches('/');
        let port = url.port().map_or_else(String::new, |port| format!(":{port}"));
        (!path.is_empty()).then(|| format!("{}{port}{path}", url.host_str().unwrap_or_default()))
    }

    fn parsed(&self) -> Option<url::Url> {
        url::Url::parse(self.url.as_deref().filter(|url| !url.starts_with(URN))?).ok()
    }

    /// Name that an earlier conversion made up for a source without an address.
    pub(super) fn invented(&self) -> Option<String> {
        let name = self.url.as_deref()?.strip_prefix(URN)?;
        let name = url::form_urlencoded::parse(name.as_bytes()).next()?;
        Some(name.0.into_owned()).filter(|id| !id.is_empty())
    }

    pub(super) fn description(&self, variant: Variant) -> String {
        let text = self.description.clone().unwrap_or_default();
        // Other tools write line ends in words.
        if variant == Variant::F { text.replace("\\n", "\n") } else { text }
    }
}

/// `agree=+1;disagree=-1;pass=0;format=polis-export/1`
fn convention(text: &str) -> DeclaredSign {
    let parts = || text.split(';').filter_map(|part| part.split_once('='));
    // What stands twice or is no vote is none that is known.
    let of = |name: &str, unsaid: Option<i8>| {
        let mut said = parts().filter(|(key, _)| key.trim().eq_ignore_ascii_case(name));
        match (said.next(), said.next()) {
            (None, _) => unsaid,
            (Some((_, value)), None) => vote(value),
            (Some(_), Some(_)) => None,
        }
    };
    match (of("agree", None), of("disagree", None), of("pass", Some(0))) {
        (Some(1), Some(-1), Some(0)) => DeclaredSign::One(VoteSign::AgreeIsPlus),
        (Some(-1), Some(1), Some(0)) => DeclaredSign::One(VoteSign::AgreeIsMinus),
        _ => DeclaredSign::Unknown,
    }
}

/// `1`, `+1` and `1.0` are the same vote, and so is a minus of typographers.
fn vote(text: &str) -> Option<i8> {
    let number: f64 = text.trim().replace('\u{2212}', "-").parse().ok()?;
    [-1_i8, 0, 1].into_iter().find(|vote| f64::from(*vote) == number)
}

/// Bytes of a declaration in a file of its own.
const MOST: u64 = 1 << 20;

/// Declaration of the format in a file of its own.
#[derive(Debug, Default)]
pub(super) struct Format {
    pub(super) sign: DeclaredSign,
    pub(super) notes: Vec<String>,
}

impl Format {
    pub(super) fn read(member: Option<&Member>, limits: &Limits) -> Result<Self, ConvertError> {
        let Some(member) = member else { return Ok(Self::default()) };
        let wrong = |wrong, detail: String| ConvertError::content(&member.name, None, wrong, detail);
        let mut text = Vec::new();
        let mut stream = member.open(limits, None)?.take(MOST + 1);
        stream.read_to_end(&mut text).map_err(|error| ConvertError::from_io(&member.name, error))?;
        if text.len() as u64 > MOST {
            return Err(wrong(
                ErrorKind::TooLong,
                "a declaration of the format has 1 MiB at most".to_owned(),
            ));
        }
        let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&text);
        let value: Value = serde_json::from_slice(text).map_err(|error| {
            let detail = format!("line {}, column {}: it is not JSON", error.line(), error.column());
            wrong(ErrorKind::Format, detail)
        })?;
        let sign = sign_in(&value);
        let nothing = format!("{} declares no sign of votes that is understood.", member.name);
        Ok(Self { sign, notes: if sign == DeclaredSign::Nothing { vec![nothing] } else { Vec::new() } })
    }
}

/// Finds the sign of votes. Its place has changed between versions; its name has not, apart from spelling.
fn sign_in(value: &Value) -> DeclaredSign {
    let members = match value {
        Value::Object(members) => members,
        Value::Array(elements) => {
            return elements.iter().map(sign_in).fold(DeclaredSign::Nothing, DeclaredSign::and);
        }
        _ => return DeclaredSign::Nothing,
    };
    let of = |(name, value): (&String, &Value)| {
        let name: String = name.chars().filter(|sign| sign.is_alphanumeric()).collect();
        match (name.to_lowercase().as_str(), value) {
            ("agree", Value::String(_) | Value::Number(_)) => {
                let written = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                match vote(&written) {
                    Some(1) => DeclaredSign::One(VoteSign::AgreeIsPlus),
                    Some(-1) => DeclaredSign::One(VoteSign::AgreeIsMinus),
                    _ => DeclaredSign::Nothing,
                }
            }
            ("voteconvention", Value::String(text)) => convention(text),
            _ => sign_in(value),
        }
    };
    members.iter().map(of).fold(DeclaredSign::Nothing, DeclaredSign::and)
}

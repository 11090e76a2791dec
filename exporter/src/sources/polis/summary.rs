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
    input::{Limits, Member, read_pairs},
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
        read_pairs(member, limits, |key, value| match key {
            "topic" => summary.topic = Some(value.to_owned()),
            "url" => summary.url = Some(value.to_owned()).filter(|url| !url.is_empty()),
            "conversationdescription" | "description" => summary.description = Some(value.to_owned()),
            "views" => summary.has_views = true,
            "voteconvention" => summary.sign = summary.sign.combine(parse_convention(value)),
            _ => {}
        })?;
        Ok(summary)
    }

    /// The last part of the conversation's address.
    pub(super) fn id(&self) -> Option<String> {
        let url = self.parse_url()?;
        let last = url.path_segments()?.rfind(|part| !part.is_empty())?;
        Some(last.to_owned())
    }

    /// Host and whole path, which distinguish the conversation from those of other servers.
    pub(super) fn address(&self) -> Option<String> {
        let url = self.parse_url()?;
        let path = url.path().trim_end_matches('/');
        let port = url.port().map_or_else(String::new, |port| format!(":{port}"));
        (!path.is_empty()).then(|| format!("{}{port}{path}", url.host_str().unwrap_or_default()))
    }

    fn parse_url(&self) -> Option<url::Url> {
        url::Url::parse(self.url.as_deref().filter(|url| !url.starts_with(URN))?).ok()
    }

    /// Name that an earlier conversion made up for a source without an address.
    pub(super) fn made_up_id(&self) -> Option<String> {
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
fn parse_convention(text: &str) -> DeclaredSign {
    let parts = || text.split(';').filter_map(|part| part.split_once('='));
    // What stands twice or is no vote is none that is known.
    let value_of = |name: &str, default: Option<i8>| {
        let mut values = parts().filter(|(key, _)| key.trim().eq_ignore_ascii_case(name));
        match (values.next(), values.next()) {
            (None, _) => default,
            (Some((_, value)), None) => parse_vote(value),
            (Some(_), Some(_)) => None,
        }
    };
    match (value_of("agree", None), value_of("disagree", None), value_of("pass", Some(0))) {
        (Some(1), Some(-1), Some(0)) => DeclaredSign::One(VoteSign::AgreeIsPlus),
        (Some(-1), Some(1), Some(0)) => DeclaredSign::One(VoteSign::AgreeIsMinus),
        _ => DeclaredSign::Unknown,
    }
}

/// `1`, `+1` and `1.0` are the same vote, and so is a minus of typographers.
fn parse_vote(text: &str) -> Option<i8> {
    let number: f64 = text.trim().replace('\u{2212}', "-").parse().ok()?;
    [-1_i8, 0, 1].into_iter().find(|vote| f64::from(*vote) == number)
}

/// Bytes of a declaration in a file of its own.
const MAX_DECLARATION_BYTES: u64 = 1 << 20;

/// Declaration of the format in a file of its own.
#[derive(Debug, Default)]
pub(super) struct Format {
    pub(super) sign: DeclaredSign,
    pub(super) notes: Vec<String>,
}

impl Format {
    pub(super) fn read(member: Option<&Member>, limits: &Limits) -> Result<Self, ConvertError> {
        let Some(member) = member else { return Ok(Self::default()) };
        let content_error = |kind, detail: String| ConvertError::content(&member.name, None, kind, detail);
        let mut text = Vec::new();
        let mut stream = member.open(limits, None)?.take(MAX_DECLARATION_BYTES + 1);
        stream.read_to_end(&mut text).map_err(|error| ConvertError::from_io(&member.name, error))?;
        if text.len() as u64 > MAX_DECLARATION_BYTES {
            return Err(content_error(
                ErrorKind::TooLong,
                "a declaration of the format has 1 MiB at most".to_owned(),
            ));
        }
        let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&text);
        let value: Value = serde_json::from_slice(text).map_err(|error| {
            let detail = format!("line {}, column {}: it is not JSON", error.line(), error.column());
            content_error(ErrorKind::Format, detail)
        })?;
        let sign = find_sign(&value);
        let note = format!("{} declares no sign of votes that is understood.", member.name);
        Ok(Self { sign, notes: if sign == DeclaredSign::Absent { vec![note] } else { Vec::new() } })
    }
}

/// Finds the sign of votes. Its place has changed between versions; its name has not, apart from spelling.
fn find_sign(value: &Value) -> DeclaredSign {
    let members = match value {
        Value::Object(members) => members,
        Value::Array(elements) => {
            return elements.iter().map(find_sign).fold(DeclaredSign::Absent, DeclaredSign::combine);
        }
        _ => return DeclaredSign::Absent,
    };
    let sign_of = |(name, value): (&String, &Value)| {
        let name: String = name.chars().filter(|character| character.is_alphanumeric()).collect();
        match (name.to_lowercase().as_str(), value) {
            ("agree", Value::String(_) | Value::Number(_)) => {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                match parse_vote(&text) {
                    Some(1) => DeclaredSign::One(VoteSign::AgreeIsPlus),
                    Some(-1) => DeclaredSign::One(VoteSign::AgreeIsMinus),
                    _ => DeclaredSign::Absent,
                }
            }
            ("voteconvention", Value::String(text)) => parse_convention(text),
            _ => find_sign(value),
        }
    };
    members.iter().map(sign_of).fold(DeclaredSign::Absent, DeclaredSign::combine)
}

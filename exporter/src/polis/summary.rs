//! What an export says of its conversation, and of its own format.
//!
//! Its counts are not believed: they differ from the votes in ways that depend on the exporter.

use std::io::Read as _;

use serde_json::Value;

use super::{Variant, sign::VoteSign};
use crate::{
    fault::{Fault, Wrong},
    input::{Limits, Member, pairs},
    model::URN,
};

#[derive(Debug, Default)]
pub(super) struct Summary {
    pub(super) topic: Option<String>,
    pub(super) url: Option<String>,
    description: Option<String>,
    pub(super) convention: Option<VoteSign>,
    pub(super) has_views: bool,
}

impl Summary {
    pub(super) fn read(member: Option<&Member>, limits: &Limits) -> Result<Self, Fault> {
        let Some(member) = member else { return Ok(Self::default()) };
        let mut summary = Self::default();
        for (key, value) in pairs(member, limits)? {
            match key.as_str() {
                "topic" => summary.topic = Some(value),
                "url" => summary.url = Some(value).filter(|url| !url.is_empty()),
                "conversationdescription" | "description" => summary.description = Some(value),
                "views" => summary.has_views = true,
                "voteconvention" => {
                    let sign = convention(&value, &member.name)?;
                    if summary.convention.replace(sign).is_some_and(|before| before != sign) {
                        return Err(Fault::content(&member.name, None, Wrong::Sign, TWO_SIGNS));
                    }
                }
                _ => {}
            }
        }
        Ok(summary)
    }

    /// The last part of the conversation's address.
    pub(super) fn id(&self) -> Option<String> {
        let url = url::Url::parse(self.url.as_deref().filter(|url| !url.starts_with(URN))?).ok()?;
        let last = url.path_segments()?.rfind(|part| !part.is_empty())?;
        Some(last.to_owned())
    }

    /// Of what has no address, what is in the name that this exporter has invented: perhaps no more than a file was called.
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

const TWO_SIGNS: &str = "it declares two signs for a vote of agreement";

/// `agree=+1;disagree=-1;pass=0;format=polis-export/1`
fn convention(text: &str, file: &str) -> Result<VoteSign, Fault> {
    let of = |name: &str| {
        let mut parts = text.split(';').filter_map(|part| part.split_once('='));
        parts.find(|(key, _)| key.trim().eq_ignore_ascii_case(name)).and_then(|(_, value)| vote(value))
    };
    match (of("agree"), of("disagree"), of("pass").unwrap_or_default()) {
        (Some(1), Some(-1), 0) => Ok(VoteSign::AgreeIsPlus),
        (Some(-1), Some(1), 0) => Ok(VoteSign::AgreeIsMinus),
        _ => {
            Err(Fault::content(file, None, Wrong::Sign, "the vote convention that it declares is not known"))
        }
    }
}

/// `1`, `+1` and `1.0` are the same vote, and so is a minus of typographers.
fn vote(text: &str) -> Option<i8> {
    let number: f64 = text.trim().replace('\u{2212}', "-").parse().ok()?;
    [-1_i8, 0, 1].into_iter().find(|vote| f64::from(*vote) == number)
}

/// The same, in a file of its own.
#[derive(Debug, Default)]
pub(super) struct Format {
    pub(super) sign: Option<VoteSign>,
    pub(super) notes: Vec<String>,
}

impl Format {
    pub(super) fn read(member: Option<&Member>, limits: &Limits) -> Result<Self, Fault> {
        let Some(member) = member else { return Ok(Self::default()) };
        let wrong = |wrong, detail: String| Fault::content(&member.name, None, wrong, detail);
        let mut text = Vec::new();
        let mut stream = member.open(limits, None)?.take(limits.record as u64);
        stream.read_to_end(&mut text).map_err(|error| Fault::from_io(&member.name, error))?;
        let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&text);
        let value: Value = serde_json::from_slice(text).map_err(|error| {
            let detail = format!("line {}, column {}: it is not JSON", error.line(), error.column());
            wrong(Wrong::Format, detail)
        })?;
        let mut signs = Vec::new();
        signs_in(&value, &member.name, &mut signs)?;
        signs.dedup();
        match signs[..] {
            [] => {
                let note = format!("{} declares no sign of votes that is understood.", member.name);
                Ok(Self { sign: None, notes: vec![note] })
            }
            [sign] => Ok(Self { sign: Some(sign), notes: Vec::new() }),
            _ => Err(wrong(Wrong::Sign, TWO_SIGNS.to_owned())),
        }
    }
}

/// Where exactly it stands has changed; what it is called has not, but for how it is spelled.
fn signs_in(value: &Value, file: &str, into: &mut Vec<VoteSign>) -> Result<(), Fault> {
    let members = match value {
        Value::Object(members) => members,
        Value::Array(elements) => return elements.iter().try_for_each(|value| signs_in(value, file, into)),
        _ => return Ok(()),
    };
    for (name, value) in members {
        let name: String = name.chars().filter(|sign| sign.is_alphanumeric()).collect();
        match (name.to_lowercase().as_str(), value) {
            ("agree", Value::String(_) | Value::Number(_)) => {
                let written = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                match vote(&written) {
                    Some(1) => into.push(VoteSign::AgreeIsPlus),
                    Some(-1) => into.push(VoteSign::AgreeIsMinus),
                    _ => {}
                }
            }
            ("voteconvention", Value::String(text)) => into.push(convention(text, file)?),
            _ => signs_in(value, file, into)?,
        }
    }
    Ok(())
}

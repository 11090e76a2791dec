//! What an export says of its conversation, and of its own format.
//!
//! Its counts are not believed: they differ from the votes in ways that depend on the exporter.

use std::io::Read as _;

use serde_json::Value;

use super::{Variant, sign::VoteSign};
use crate::{
    fault::{Fault, Wrong},
    input::{Limits, Member, pairs},
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
                "conversation-description" | "description" => summary.description = Some(value),
                "views" => summary.has_views = true,
                "vote-convention" => summary.convention = Some(convention(&value, &member.name)?),
                _ => {}
            }
        }
        Ok(summary)
    }

    /// The last part of the conversation's address.
    pub(super) fn id(&self) -> Option<String> {
        let url = url::Url::parse(self.url.as_deref()?).ok()?;
        let last = url.path_segments()?.rfind(|part| !part.is_empty())?;
        Some(last.to_owned())
    }

    pub(super) fn description(&self, variant: Variant) -> String {
        let text = self.description.clone().unwrap_or_default();
        // Other tools write line ends in words.
        if variant == Variant::F { text.replace("\\n", "\n") } else { text }
    }
}

/// `agree=+1;disagree=-1;pass=0;format=polis-export/1`
fn convention(text: &str, file: &str) -> Result<VoteSign, Fault> {
    let of = |name: &str| {
        let mut parts = text.split(';').filter_map(|part| part.trim().split_once('='));
        parts.find(|(key, _)| key.trim() == name).and_then(|(_, value)| value.trim().parse::<i8>().ok())
    };
    match (of("agree"), of("disagree"), of("pass").unwrap_or_default()) {
        (Some(1), Some(-1), 0) => Ok(VoteSign::AgreeIsPlus),
        (Some(-1), Some(1), 0) => Ok(VoteSign::AgreeIsMinus),
        _ => {
            Err(Fault::content(file, None, Wrong::Sign, "the vote convention that it declares is not known"))
        }
    }
}

/// The same, in a file of its own.
pub(super) fn declared_format(member: Option<&Member>, limits: &Limits) -> Result<Option<VoteSign>, Fault> {
    let Some(member) = member else { return Ok(None) };
    let mut text = Vec::new();
    let mut stream = member.open(limits, None)?.take(limits.record as u64);
    stream.read_to_end(&mut text).map_err(|error| Fault::from_io(&member.name, error))?;
    let value: Value = serde_json::from_slice(&text)
        .map_err(|_| Fault::content(&member.name, None, Wrong::Format, "it is not JSON"))?;
    Ok(agree_in(&value))
}

/// Where exactly it stands has changed; what it is called has not.
fn agree_in(value: &Value) -> Option<VoteSign> {
    let Value::Object(members) = value else { return None };
    if let Some(agree) = members.get("agree") {
        let agree = agree.as_i64().or_else(|| agree.as_str()?.parse().ok());
        return match agree {
            Some(1) => Some(VoteSign::AgreeIsPlus),
            Some(-1) => Some(VoteSign::AgreeIsMinus),
            _ => None,
        };
    }
    let text = members.get("vote-convention").and_then(Value::as_str);
    text.and_then(|text| convention(text, "").ok()).or_else(|| members.values().find_map(agree_in))
}

//! Kinds of item types, scalar types of fields, and containers.

use serde::{Deserialize, Serialize};

/// Kind of an item type: content, user or thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Kind {
    Content,
    User,
    Thread,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Content => "CONTENT",
            Self::User => "USER",
            Self::Thread => "THREAD",
        }
    }
}

/// Type of a single value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Scalar {
    Id,
    UserId,
    String,
    Boolean,
    Number,
    Audio,
    Image,
    Video,
    /// Image, audio or video; detected when the service fetches it.
    Media,
    Datetime,
    Geohash,
    Url,
    RelatedItem,
    PolicyId,
    IpAddress,
    EmailAddress,
}

impl Scalar {
    pub const ALL: [Self; 16] = [
        Self::Id,
        Self::UserId,
        Self::String,
        Self::Boolean,
        Self::Number,
        Self::Audio,
        Self::Image,
        Self::Video,
        Self::Media,
        Self::Datetime,
        Self::Geohash,
        Self::Url,
        Self::RelatedItem,
        Self::PolicyId,
        Self::IpAddress,
        Self::EmailAddress,
    ];

    /// Returns the name used in documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::Id => "ID",
            Self::UserId => "USER_ID",
            Self::String => "STRING",
            Self::Boolean => "BOOLEAN",
            Self::Number => "NUMBER",
            Self::Audio => "AUDIO",
            Self::Image => "IMAGE",
            Self::Video => "VIDEO",
            Self::Media => "MEDIA",
            Self::Datetime => "DATETIME",
            Self::Geohash => "GEOHASH",
            Self::Url => "URL",
            Self::RelatedItem => "RELATED_ITEM",
            Self::PolicyId => "POLICY_ID",
            Self::IpAddress => "IP_ADDRESS",
            Self::EmailAddress => "EMAIL_ADDRESS",
        }
    }

    /// True if the value is the URL of media that the service fetches.
    pub fn is_media(self) -> bool {
        // URL fields are links and are not fetched.
        matches!(self, Self::Audio | Self::Image | Self::Video | Self::Media)
    }
}

/// Container of a field with more than one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Container {
    Array,
    /// Object with arbitrary keys, and values of the field's type.
    Map,
}

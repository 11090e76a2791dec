//! The names of things: newtypes for every id, instants, and ids derived from their cause.
//!
//! It does not decide which cause leads to which id's use; it only makes equal causes give equal ids.

mod random;

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

macro_rules! text_id {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            pub fn new(text: impl AsRef<str>) -> Self {
                Self(Arc::from(text.as_ref()))
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self::new(text)
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(Arc::from(text))
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        // Lets a map keyed by the id be asked with a plain `&str`.
        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }
    )*};
}

text_id! {
    /// An organisation. It comes from a credential alone, never from a payload.
    OrgId,
    /// An item type: the key of its document, immutable.
    TypeId,
    /// The platform's id of an item.
    ItemId,
    /// A policy: made by the service, immutable.
    PolicyId,
    /// An action: the key of its document.
    ActionId,
    /// A rule: the key of its document.
    RuleId,
    /// A callback endpoint: the key of its document.
    EndpointId,
    /// A review queue: the key of its document.
    QueueId,
    /// The platform's id of an appeal.
    AppealId,
    /// A window: the key of its document.
    WindowId,
    /// A bank: the key of its document.
    BankId,
    /// A signal, which is a model that scores items: the key of its document.
    SignalId,
}

macro_rules! uuid_id {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl $name {
            pub fn random() -> Self {
                Self(random::uuid())
            }

            pub fn as_bytes(&self) -> &[u8; 16] {
                self.0.as_bytes()
            }
        }

        impl From<Uuid> for $name {
            fn from(id: Uuid) -> Self {
                Self(id)
            }
        }

        impl std::str::FromStr for $name {
            type Err = uuid::Error;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Uuid::parse_str(text).map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    )*};
}

uuid_id! {
    /// One submission of one item: a later edit of the same item is another submission.
    SubmissionId,
    /// A callback event: the same over every attempt and every replay.
    EventId,
    /// Cause of a strike or a job.
    CauseId,
    JobId,
    ReportId,
    DecisionId,
    ApiKeyId,
}

impl JobId {
    /// Job of a decision that closes none: the platform took the actions itself.
    pub const NONE: Self = Self(Uuid::nil());
}

/// An item of an organisation: its type and the platform's id. A user is an item too.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ItemKey {
    pub type_id: TypeId,
    pub id: ItemId,
}

impl ItemKey {
    pub fn new(type_id: impl Into<TypeId>, id: impl Into<ItemId>) -> Self {
        Self { type_id: type_id.into(), id: id.into() }
    }

    /// `typeId/id`. A type id is a document key and so holds no slash: the first slash separates.
    pub fn parse(text: &str) -> Option<Self> {
        text.split_once('/').map(|(type_id, id)| Self::new(type_id, id))
    }

    /// The key under which the log orders everything about this item.
    pub fn log_key(&self, org: &OrgId) -> Vec<u8> {
        let parts = [org.as_str(), self.type_id.as_str(), self.id.as_str()];
        let mut key = Vec::with_capacity(parts.iter().map(|part| part.len() + 4).sum());
        for part in parts {
            key.extend_from_slice(&length(part.as_bytes()));
            key.extend_from_slice(part.as_bytes());
        }
        key
    }
}

impl fmt::Display for ItemKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.type_id, self.id)
    }
}

impl fmt::Debug for ItemKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

pub const MINUTE_MS: i64 = 60_000;
pub const HOUR_MS: i64 = 60 * MINUTE_MS;
pub const DAY_MS: i64 = 24 * HOUR_MS;

/// Milliseconds since 1970, UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Millis(pub i64);

impl Millis {
    /// The wall clock. Pure code takes the instant as an argument instead.
    pub fn now() -> Self {
        Self(jiff::Timestamp::now().as_millisecond())
    }

    /// The last instant that `iso` can write, a day before the year 10000.
    pub const LAST: Self = Self(253_402_207_200_000);

    pub fn plus(self, duration: std::time::Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
    }

    pub fn minus(self, duration: std::time::Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
    }

    /// Number of whole days since 1970.
    pub const fn day(self) -> i64 {
        self.0.div_euclid(DAY_MS)
    }

    /// Number of whole hours since 1970.
    pub const fn hour(self) -> i64 {
        self.0.div_euclid(HOUR_MS)
    }

    /// Number of whole minutes since 1970.
    pub const fn minute(self) -> i64 {
        self.0.div_euclid(MINUTE_MS)
    }

    /// ISO 8601 with milliseconds and `Z`, the only form in which Tidegate writes an instant.
    pub fn iso(self) -> String {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(instant) => format!("{instant:.3}"),
            Err(_) => self.0.to_string(),
        }
    }
}

/// The version of an organisation's configuration: grows by one with each change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ConfigVersion(pub i64);

/// Kind of a derived id. Its name goes into the hash, so ids of two kinds never collide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// org, idempotency key, position, digest of the item
    Submission,
    /// org, idempotency key, digest of the report
    Report,
    /// submission, action
    ActionEvent,
    /// decision, action
    DecisionEvent,
    /// decision
    AppealEvent,
    /// org, user, threshold, cause
    ThresholdEvent,
    /// org, class, subject, generation
    Job,
    /// cause that opened or joined a job: submission and rule, report, or appeal
    JobCause,
    /// job, claim epoch
    Decision,
    /// org, idempotency key, position, digest of the action
    ManualAction,
    /// appeal and the strike it reverses
    Reversal,
    /// org, key of the policy's document
    Policy,
    /// org: the key that is made with the first organisation
    FirstKey,
    /// share of a whole, drawn by salt or rule, and by item, user or submission
    Share,
    /// bank, value in its canonical form
    BankEntry,
    /// a value that a window counts once
    WindowMember,
    /// org, run, the submission that is repeated
    Retroaction,
    /// org, and the report, appeal or claim for which items are asked for
    PartialRequest,
    /// org, and the form of the console that a key is made with
    FormKey,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Submission => "submission",
            Self::Report => "report",
            Self::ActionEvent => "action-event",
            Self::DecisionEvent => "decision-event",
            Self::AppealEvent => "appeal-event",
            Self::ThresholdEvent => "threshold-event",
            Self::Job => "job",
            Self::JobCause => "job-cause",
            Self::Decision => "decision",
            Self::ManualAction => "manual-action",
            Self::Reversal => "reversal",
            Self::Policy => "policy",
            Self::FirstKey => "first-key",
            Self::Share => "share",
            Self::BankEntry => "bank-entry",
            Self::WindowMember => "window-member",
            Self::Retroaction => "retroaction",
            Self::PartialRequest => "partial-request",
            Self::FormKey => "form-key",
        }
    }
}

/// An id that is the same whenever its cause is the same.
///
/// Every part is preceded by its length, so `["ab", "c"]` and `["a", "bc"]` differ.
pub fn derive<T: From<Uuid>>(kind: Kind, cause: &[&[u8]]) -> T {
    let mut hash = Sha256::new();
    hash.update(kind.name().as_bytes());
    for part in cause {
        hash.update(length(part));
        hash.update(part);
    }
    let digest = hash.finalize();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    T::from(uuid::Builder::from_custom_bytes(bytes).into_uuid())
}

fn length(part: &[u8]) -> [u8; 4] {
    u32::try_from(part.len()).unwrap_or(u32::MAX).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_causes_give_equal_ids_and_kinds_never_meet() {
        let submission = SubmissionId::random();
        let event = |action: &str| -> EventId {
            derive(Kind::ActionEvent, &[submission.as_bytes(), action.as_bytes()])
        };
        assert_eq!(event("hide"), event("hide"));
        assert_ne!(event("hide"), event("ban"));
        assert_ne!(event("hide").0, derive::<Uuid>(Kind::DecisionEvent, &[submission.as_bytes(), b"hide"]));
    }

    #[test]
    fn the_border_between_two_parts_is_part_of_the_cause() {
        assert_ne!(derive::<Uuid>(Kind::Job, &[b"ab", b"c"]), derive::<Uuid>(Kind::Job, &[b"a", b"bc"]));
        let org = OrgId::new("o");
        assert_ne!(ItemKey::new("ab", "c").log_key(&org), ItemKey::new("a", "bc").log_key(&org));
    }

    #[test]
    fn an_instant_is_written_with_milliseconds_and_z() {
        assert_eq!(Millis(1_700_000_000_000).iso(), "2023-11-14T22:13:20.000Z");
        assert_eq!(Millis(1_700_000_000_007).iso(), "2023-11-14T22:13:20.007Z");
    }
}

//! Schema of a data bundle: names, order, vocabularies and limits of its fields, for readers and writers.

pub(crate) mod coverage;
pub mod schema;

/// Default value of `schema`.
pub const SCHEMA_URL: &str = "https://tidegate.example/schemas/data-bundle/v1.json";
pub const KIND: &str = "service-data-bundle";

pub const DELIB_SCHEMA_URL: &str = "https://delib.mashbean.net/schemas/delib-data/v1.json";
pub const DELIB_KIND: &str = "delib-data-bundle";
/// Maximum size in bytes of a file for Delib's importer.
pub const DELIB_MAX_BYTES: u64 = 3 << 20;

/// Vendor naming of the schema constants and of one field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Naming {
    #[default]
    Service,
    Delib,
}

impl Naming {
    pub const fn schema(self) -> &'static str {
        match self {
            Self::Service => SCHEMA_URL,
            Self::Delib => DELIB_SCHEMA_URL,
        }
    }

    pub const fn kind(self) -> &'static str {
        match self {
            Self::Service => KIND,
            Self::Delib => DELIB_KIND,
        }
    }

    pub const fn stored_by(self) -> &'static str {
        match self {
            Self::Service => "storedByService",
            Self::Delib => "storedByDelib",
        }
    }

    /// Schema of the whole document.
    pub const fn bundle(self) -> &'static Object {
        match self {
            Self::Service => &BUNDLE,
            Self::Delib => &DELIB_BUNDLE,
        }
    }
}

/// Answer of a participant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
// Discriminants are indexes into arrays of counts.
#[repr(u8)]
pub enum Answer {
    Agree,
    Disagree,
    Pass,
    PreferSubject,
    PreferObject,
    Equal,
}

/// Whether a response must refer to a second item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecondItem {
    Required,
    Optional,
    Forbidden,
}

impl Answer {
    pub const ALL: [Self; 6] =
        [Self::Agree, Self::Disagree, Self::Pass, Self::PreferSubject, Self::PreferObject, Self::Equal];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Agree => "agree",
            Self::Disagree => "disagree",
            Self::Pass => "pass",
            Self::PreferSubject => "prefer-subject",
            Self::PreferObject => "prefer-object",
            Self::Equal => "equal",
        }
    }

    pub fn parse(text: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|answer| answer.as_str().as_bytes() == text)
    }

    /// Whether the answer must refer to a second item. A pass may also refuse a comparison.
    pub const fn second_item(self) -> SecondItem {
        match self {
            Self::Agree | Self::Disagree => SecondItem::Forbidden,
            Self::Pass => SecondItem::Optional,
            Self::PreferSubject | Self::PreferObject | Self::Equal => SecondItem::Required,
        }
    }
}

pub const ORIGINS: [&str; 3] = ["participant", "organizer", "model"];
/// Origin of an item written by a participant; its text counts as participants' free text.
pub const ORIGIN_PARTICIPANT: &str = "participant";
pub const ORIGIN_ORGANIZER: &str = "organizer";
pub const ORIGIN_MODEL: &str = "model";

/// Statuses of items that count for coverage.
pub const ELIGIBLE_STATUSES: [&str; 2] = ["approved", "active"];

/// Outcome with `counts` by answer, computed from the bundle's responses to the item in the phase.
pub const RESPONSE_COUNTS: &str = "response-counts";
/// Outcome with `counts` published by the source; not checked against the responses.
pub const SOURCE_RESPONSE_COUNTS: &str = "source-response-counts";
/// Outcome with `groups`: counts by answer for each group.
pub const GROUP_RESPONSE_COUNTS: &str = "group-response-counts";
/// Outcome with `members`: the participants that the source assigns to its `group`.
pub const GROUP_MEMBERS: &str = "group-members";

/// Values of `dataCard.aggregation` with a meaning for validation; others are allowed.
pub mod aggregation {
    pub const INDIVIDUAL: &str = "individual-responses-plus-item-counts";
    /// All answers instead of the latest ones: a participant may answer a question more than once.
    pub const EVENTS: &str = "individual-response-events";
    pub const ITEM_COUNTS: &str = "item-counts-without-participant-links";
    pub const PAIR_COUNTS: &str = "pair-counts-without-session-links";
}

/// Values of `dataCard.publicationStatus` with a meaning for validation; others are allowed.
pub mod publication {
    pub const LOCAL_PRIVATE: &str = "local-private-export";
    pub const LOCAL_AGGREGATE: &str = "local-aggregate-only";
    pub const PUBLIC: &str = "public";
}

/// Default minimum number of people behind a published figure.
pub const K_DEFAULT: u64 = 5;
/// Smallest allowed `k`.
pub const K_FLOOR: u64 = 3;

/// Prefix of the note in `provenance.notes` that names the reviewer of free text. Validation looks for it.
pub const TEXT_REVIEWED_BY: &str = "text reviewed by ";

/// Object of the schema, with its fields in output order.
#[derive(Debug)]
pub struct Object {
    pub fields: &'static [Field],
    /// True if additional members are allowed.
    pub open: bool,
}

#[derive(Debug)]
pub struct Field {
    pub name: &'static str,
    pub required: bool,
    pub value: Value,
}

/// Type and limits of a field's value.
#[derive(Debug)]
pub enum Value {
    /// The document's `schema`; any value that the reader accepts.
    Schema,
    Constant(&'static str),
    Text(Text),
    TextOrNull(Text),
    Answer,
    /// Number without a fraction, in any notation (`1e2` is one).
    Integer {
        least: u64,
    },
    Number {
        from_zero_to_one: bool,
    },
    Flag,
    Object(&'static Object),
    List {
        of: &'static Object,
        least: u64,
    },
    Texts,
    /// Arbitrary value copied from the source.
    Arbitrary,
}

impl Value {
    /// True if the value may be a string.
    pub(crate) const fn may_be_text(&self) -> bool {
        match self {
            Self::Schema
            | Self::Constant(_)
            | Self::Text(_)
            | Self::TextOrNull(_)
            | Self::Answer
            | Self::Arbitrary => true,
            Self::Integer { .. }
            | Self::Number { .. }
            | Self::Flag
            | Self::Object(_)
            | Self::List { .. }
            | Self::Texts => false,
        }
    }
}

/// Author of a text. Decides which digit sequences in it may be telephone numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextAuthor {
    People,
    /// Tool: file names, notes and fixed words, which contain digests, ids, counts and dates.
    Tool,
    /// Reference to a person or thing, searched only for unambiguous addresses and numbers.
    Reference,
}

/// Length limits and format of a string. Lengths count Unicode code points.
#[derive(Clone, Copy, Debug)]
pub struct Text {
    pub min_chars: u64,
    pub max_chars: u64,
    pub format: Option<Format>,
    /// Author of the text, which selects the search for identifiers; `None` to skip the search.
    pub author: Option<TextAuthor>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    DateTime,
    Uri,
}

const UNBOUNDED: Text = Text { min_chars: 0, max_chars: u64::MAX, format: None, author: None };
const DATE_TIME: Text = Text { format: Some(Format::DateTime), ..UNBOUNDED };
const URI: Text =
    Text { format: Some(Format::Uri), max_chars: 2000, author: Some(TextAuthor::Tool), ..UNBOUNDED };

/// Maximum number of characters of a bundle id.
pub const MAX_ID_CHARS: usize = 240;

const fn text(min_chars: u64, max_chars: u64, author: Option<TextAuthor>) -> Value {
    Value::Text(Text { min_chars, max_chars, format: None, author })
}

const fn required(name: &'static str, value: Value) -> Field {
    Field { name, required: true, value }
}

const fn optional(name: &'static str, value: Value) -> Field {
    Field { name, required: false, value }
}

/// Defining occurrence of an id. References to it (`REF`) are not searched again for identifiers.
const ID: Value = Value::Text(Text { author: Some(TextAuthor::Reference), ..UNBOUNDED });
const REF: Value = Value::Text(UNBOUNDED);
const WORD: Value = Value::Text(Text { author: Some(TextAuthor::Tool), ..UNBOUNDED });
const PROSE: Value = Value::Text(Text { author: Some(TextAuthor::People), ..UNBOUNDED });

/// Counts by answer. Additional members belong to the source.
pub static COUNTS: Object = Object {
    fields: &[
        optional(Answer::ALL[0].as_str(), Value::Arbitrary),
        optional(Answer::ALL[1].as_str(), Value::Arbitrary),
        optional(Answer::ALL[2].as_str(), Value::Arbitrary),
        optional(Answer::ALL[3].as_str(), Value::Arbitrary),
        optional(Answer::ALL[4].as_str(), Value::Arbitrary),
        optional(Answer::ALL[5].as_str(), Value::Arbitrary),
    ],
    open: true,
};

/// Input file of a bundle, as this exporter describes it. The schema requires no member.
pub static ARTIFACT: Object = Object {
    fields: &[
        optional("role", Value::Arbitrary),
        optional("name", Value::Arbitrary),
        optional("size", Value::Arbitrary),
        optional("sha256", Value::Arbitrary),
        optional("rows", Value::Arbitrary),
    ],
    open: true,
};

pub static SOURCE: Object = Object {
    fields: &[
        required("tool", text(1, 120, Some(TextAuthor::Tool))),
        required("sourceSchema", Value::Text(URI)),
        required("sourceId", text(0, 240, Some(TextAuthor::Tool))),
        required("title", text(1, 120, Some(TextAuthor::People))),
        required("description", text(0, 2000, Some(TextAuthor::People))),
        required("url", Value::Text(URI)),
    ],
    open: false,
};

pub static PHASE: Object = Object {
    fields: &[required("id", ID), required("type", WORD), required("title", PROSE), required("status", WORD)],
    open: false,
};

pub static ITEM: Object = Object {
    fields: &[
        required("id", ID),
        required("phaseId", REF),
        required("type", WORD),
        required("text", PROSE),
        required("status", WORD),
        required("origin", WORD),
        required("createdAt", Value::TextOrNull(DATE_TIME)),
    ],
    open: false,
};

pub static RESPONSE: Object = Object {
    fields: &[
        required("id", ID),
        required("phaseId", REF),
        required("subjectRef", REF),
        optional("objectRef", REF),
        required("participantRef", Value::TextOrNull(UNBOUNDED)),
        required("response", Value::Answer),
        required("count", Value::Integer { least: 1 }),
        required("occurredAt", Value::TextOrNull(DATE_TIME)),
    ],
    open: false,
};

pub static OUTCOME: Object = Object {
    fields: &[
        required("id", ID),
        required("phaseId", REF),
        required("type", WORD),
        required("itemRef", REF),
        optional("rank", Value::Integer { least: 1 }),
        optional("score", Value::Number { from_zero_to_one: false }),
        optional("observations", Value::Integer { least: 0 }),
        optional("counts", Value::Object(&COUNTS)),
        optional("members", Value::Arbitrary),
        optional("suppressed", Value::Arbitrary),
    ],
    open: true,
};

pub static SUMMARY: Object = Object {
    fields: &[
        required("participants", Value::Integer { least: 0 }),
        required("items", Value::Integer { least: 0 }),
        required("responses", Value::Integer { least: 0 }),
        required("coverage", Value::Number { from_zero_to_one: true }),
    ],
    open: false,
};

pub static PROVENANCE: Object = Object {
    fields: &[
        required("adapter", text(1, 120, Some(TextAuthor::Tool))),
        required("transformedAt", Value::Text(DATE_TIME)),
        required("sourceArtifacts", list(&ARTIFACT, 0)),
        required("notes", Value::Texts),
    ],
    open: false,
};

pub static DATA_CARD: Object = Object { fields: &data_card(Naming::Service), open: false };
static DELIB_DATA_CARD: Object = Object { fields: &data_card(Naming::Delib), open: false };

static BUNDLE: Object = Object { fields: &bundle(KIND, &DATA_CARD), open: false };
static DELIB_BUNDLE: Object = Object { fields: &bundle(DELIB_KIND, &DELIB_DATA_CARD), open: false };

const fn list(of: &'static Object, least: u64) -> Value {
    Value::List { of, least }
}

const fn data_card(naming: Naming) -> [Field; 9] {
    [
        required("containsParticipantData", Value::Flag),
        required("containsDirectIdentifiers", Value::Flag),
        required("containsParticipantFreeText", Value::Flag),
        required("containsPseudonymousLinkage", Value::Flag),
        required("aggregation", WORD),
        required("publicationStatus", WORD),
        required(naming.stored_by(), Value::Flag),
        required("suitableForPublicSharing", Value::Flag),
        required("limitations", Value::Texts),
    ]
}

const fn bundle(kind: &'static str, data_card: &'static Object) -> [Field; 12] {
    [
        required("schema", Value::Schema),
        required("kind", Value::Constant(kind)),
        required("bundleId", text(1, MAX_ID_CHARS as u64, Some(TextAuthor::Tool))),
        required("exportedAt", Value::Text(DATE_TIME)),
        required("source", Value::Object(&SOURCE)),
        required("phases", list(&PHASE, 1)),
        required("items", list(&ITEM, 0)),
        required("responses", list(&RESPONSE, 0)),
        required("outcomes", list(&OUTCOME, 0)),
        required("summary", Value::Object(&SUMMARY)),
        required("provenance", Value::Object(&PROVENANCE)),
        required("dataCard", Value::Object(data_card)),
    ]
}

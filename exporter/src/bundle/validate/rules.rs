//! Rules of a valid bundle, each with a stable id.

/// Level of a validation; each level includes those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Lexical rules and the published schema.
    Schema,
    /// Ids are unique, references are met, responses make sense.
    Refs,
    /// Totals are those of the content.
    Summary,
    /// Data card, and privacy of what is shared.
    #[default]
    Privacy,
}

impl Level {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Schema => "schema",
            Self::Refs => "refs",
            Self::Summary => "summary",
            Self::Privacy => "privacy",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    Error,
    /// Worth a look; the bundle is valid.
    Warning,
}

impl Severity {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

macro_rules! rules {
    ($($name:ident $id:literal $severity:ident $says:literal;)*) => {
        /// Rule that a bundle can violate.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Rule { $($name,)* }

        impl Rule {
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Never given to another rule.
            pub const fn id(self) -> &'static str {
                match self { $(Self::$name => $id,)* }
            }

            pub const fn severity(self) -> Severity {
                match self { $(Self::$name => Severity::$severity,)* }
            }

            /// Describes the violation.
            pub const fn says(self) -> &'static str {
                match self { $(Self::$name => $says,)* }
            }
        }
    };
}

rules! {
    Syntax "BND-LEX-01" Error "something else than JSON stands here; nothing after it was read";
    Truncated "BND-LEX-02" Error "the text ends too early";
    Trailing "BND-LEX-03" Error "something follows the document; it was not read";
    Mark "BND-LEX-04" Error "the text begins with a byte-order mark";
    Encoding "BND-LEX-05" Error "not UTF-8";
    Control "BND-LEX-06" Error "a string holds a control character that is not escaped";
    Escape "BND-LEX-07" Error "a string holds an unknown escape";
    Surrogate "BND-LEX-08" Error "a string holds half of a surrogate pair";
    Twice "BND-LEX-09" Error "a member stands twice in its object";
    Deep "BND-LEX-10" Error "nested deeper than allowed; what lies within was not read";
    Long "BND-LEX-11" Error "a string or number is longer than allowed";
    Huge "BND-LEX-12" Error "a number is beyond any double";
    Members "BND-LEX-13" Error "an object has more members than allowed; which of the others stand twice was not looked for";
    Packed "BND-LEX-14" Error "the file is packed, and what was packed is damaged, or followed by something else before the text ends";

    Type "BND-SCH-01" Error "another type of value is wanted";
    Required "BND-SCH-02" Error "a required member is missing";
    Additional "BND-SCH-03" Error "a member that is not in the form";
    Constant "BND-SCH-04" Error "not the constant that is wanted";
    Answer "BND-SCH-05" Error "not one of the six answers";
    Short "BND-SCH-06" Error "fewer characters than wanted";
    Lengthy "BND-SCH-07" Error "more characters than allowed";
    DateTime "BND-SCH-08" Error "not a date-time (RFC 3339)";
    Uri "BND-SCH-09" Error "not a URI (RFC 3986)";
    Small "BND-SCH-10" Error "less than the minimum";
    Large "BND-SCH-11" Error "more than the maximum";
    Few "BND-SCH-12" Error "fewer elements than wanted";

    PhaseRef "BND-REF-01" Error "phaseId is not the id of a phase";
    ObjectRef "BND-REF-02" Error "objectRef is not the id of an item";
    SubjectRef "BND-REF-03" Error "subjectRef is not the id of an item";
    ItemRef "BND-REF-04" Error "itemRef is not the id of an item";
    PhaseId "BND-REF-05" Error "another phase has this id";
    ItemId "BND-REF-06" Error "another item has this id";
    ResponseId "BND-REF-07" Error "another response has this id";
    OutcomeId "BND-REF-08" Error "another outcome has this id";
    NoSecond "BND-REF-09" Error "a comparison without an objectRef";
    Second "BND-REF-10" Error "agree and disagree take no objectRef";
    Itself "BND-REF-11" Error "subjectRef and objectRef are the same item";
    Many "BND-REF-12" Error "a participant's response counts more than once";
    Again "BND-REF-13" Error "the participant has answered this before in the phase, and dataCard.aggregation does not say individual-response-events";

    Participants "BND-SUM-01" Error "summary.participants is not the number of distinct participants";
    Items "BND-SUM-02" Error "summary.items is not the number of items";
    Responses "BND-SUM-03" Error "summary.responses is not the sum of the responses' counts";
    Coverage "BND-SUM-04" Error "summary.coverage is not what the responses cover";
    Counts "BND-SUM-05" Error "the counts of a response-counts outcome are not those of the responses";
    Member "BND-SUM-06" Error "a member of a group has answered nothing in the phase of the group";
    HiddenCount "BND-SUM-07" Error "an answer is suppressed, and its count stands beside it";

    HidesData "BND-PRV-01" Error "containsParticipantData is false, and there are responses or texts of participants";
    HidesLinkage "BND-PRV-02" Error "containsPseudonymousLinkage is false, and responses, outcomes or other members name participants";
    HidesText "BND-PRV-03" Error "containsParticipantFreeText is false, and a participant's item has a text";
    HidesIdentifiers "BND-PRV-04" Error "containsDirectIdentifiers is false, and this looks like an address or a number of a person";
    SharesLinkage "BND-PRV-05" Error "suitableForPublicSharing is true, and participants are named or the card says so";
    SharesIdentifiers "BND-PRV-06" Error "suitableForPublicSharing and containsDirectIdentifiers are both true";
    SharesText "BND-PRV-07" Error "suitableForPublicSharing is true, and there is free text of participants that nobody has reviewed";
    SmallItem "BND-PRV-08" Error "suitableForPublicSharing is true, and fewer than k responses stand behind the item";
    SmallCell "BND-PRV-09" Error "suitableForPublicSharing is true, and fewer than k responses stand behind an answer to the item, or behind one of its rows";
    FineTime "BND-PRV-10" Error "suitableForPublicSharing is true, and a time of a response, an item, an outcome or a file is finer than a day";
    SmallOutcome "BND-PRV-12" Error "suitableForPublicSharing is true, and fewer than k responses stand behind a number of an outcome";
    SmallSummary "BND-PRV-13" Error "suitableForPublicSharing is true, and there are fewer than k participants";
    LoneHidden "BND-PRV-14" Error "suitableForPublicSharing is true, and one answer alone is suppressed: the total less the others tells it";
    SmallHidden "BND-PRV-15" Error "suitableForPublicSharing is true, and fewer than k observations are not among the counts";
    UnclearHidden "BND-PRV-16" Error "suitableForPublicSharing is true, and suppressed is no list of names: what is hidden is not known";
    PublicLinkage "BND-PRV-17" Error "publicationStatus is public, and responses name participants";
    LinkedCounts "BND-PRV-18" Error "aggregation says that nobody is linked, and responses name participants";
    SmallSilent "BND-PRV-19" Error "suitableForPublicSharing is true, and fewer than k of summary.participants have not answered the item, whose answers are all counted";
    SmallUngrouped "BND-PRV-20" Error "suitableForPublicSharing is true, and fewer than k of those who gave an answer are in none of the groups that are counted";
    SmallUnseen "BND-PRV-21" Error "suitableForPublicSharing is true, and fewer than k of summary.participants are left if all responses are subtracted: so many at least are in none";
    PlainRef "BND-PRV-11" Warning "participantRef looks like a counted number, which can be guessed back";

    DelibOrigin "BND-DLB-01" Error "Delib knows participant, organizer and model as origins only";
    DelibSize "BND-DLB-02" Error "Delib takes no file above 3 MiB";
    DelibEmpty "BND-DLB-03" Error "Delib takes no empty id";
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_rules_share_an_id() {
        let ids: BTreeSet<_> = Rule::ALL.iter().map(|rule| rule.id()).collect();
        assert_eq!(ids.len(), Rule::ALL.len());
        assert!(Rule::ALL.iter().enumerate().all(|(at, rule)| *rule as usize == at));
    }
}

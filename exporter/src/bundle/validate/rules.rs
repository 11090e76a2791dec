//! Lists the rules of a valid bundle, each with a stable id and a message.

/// Level of a validation. Each level includes the ones before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Lexical rules and the published schema.
    Schema,
    /// Unique ids, resolved references, consistent responses.
    Refs,
    /// Totals that match the content.
    Summary,
    /// Claims of the data card, and privacy of shared bundles.
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
    /// Possible problem; the bundle is valid.
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
    ($($name:ident $id:literal $severity:ident $message:literal;)*) => {
        /// Rule that a bundle can violate.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Rule { $($name,)* }

        impl Rule {
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Stable id, which is never reused for another rule.
            pub const fn id(self) -> &'static str {
                match self { $(Self::$name => $id,)* }
            }

            pub const fn severity(self) -> Severity {
                match self { $(Self::$name => Severity::$severity,)* }
            }

            /// Description of a violation.
            pub const fn message(self) -> &'static str {
                match self { $(Self::$name => $message,)* }
            }
        }
    };
}

rules! {
    Syntax "BND-LEX-01" Error "invalid JSON; the rest of the text was not read";
    Truncated "BND-LEX-02" Error "the text ends too early";
    Trailing "BND-LEX-03" Error "data after the end of the document; they were not read";
    Mark "BND-LEX-04" Error "the text begins with a byte-order mark";
    Encoding "BND-LEX-05" Error "not UTF-8";
    Control "BND-LEX-06" Error "a string contains an unescaped control character";
    Escape "BND-LEX-07" Error "a string contains an invalid escape";
    Surrogate "BND-LEX-08" Error "a string contains half of a surrogate pair";
    Twice "BND-LEX-09" Error "duplicate member in an object";
    Deep "BND-LEX-10" Error "nested deeper than allowed; the inner values were not read";
    Long "BND-LEX-11" Error "a string or number is longer than allowed";
    Huge "BND-LEX-12" Error "a number exceeds the range of a double";
    Members "BND-LEX-13" Error "an object has more members than allowed; the others were not checked for duplicates";
    Packed "BND-LEX-14" Error "the compressed data are damaged, or followed by other data before the text ends";

    Type "BND-SCH-01" Error "wrong type of value";
    Required "BND-SCH-02" Error "a required member is missing";
    Additional "BND-SCH-03" Error "a member that the form does not define";
    Constant "BND-SCH-04" Error "not the required constant";
    Answer "BND-SCH-05" Error "not one of the six answers";
    Short "BND-SCH-06" Error "fewer characters than required";
    Lengthy "BND-SCH-07" Error "more characters than allowed";
    DateTime "BND-SCH-08" Error "not a date-time (RFC 3339)";
    Uri "BND-SCH-09" Error "not a URI (RFC 3986)";
    Small "BND-SCH-10" Error "less than the minimum";
    Large "BND-SCH-11" Error "more than the maximum";
    Few "BND-SCH-12" Error "fewer elements than required";

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
    Again "BND-REF-13" Error "the participant has already answered this in the phase, and dataCard.aggregation is not individual-response-events";

    Participants "BND-SUM-01" Error "summary.participants is not the number of distinct participants";
    Items "BND-SUM-02" Error "summary.items is not the number of items";
    Responses "BND-SUM-03" Error "summary.responses is not the sum of the responses' counts";
    Coverage "BND-SUM-04" Error "summary.coverage is not the coverage of the responses";
    Counts "BND-SUM-05" Error "the counts of a response-counts outcome are not those of the responses";
    Member "BND-SUM-06" Error "a member of a group has no answer in the phase of the group";
    HiddenCount "BND-SUM-07" Error "an answer is suppressed, but its count is given";

    HidesData "BND-PRV-01" Error "containsParticipantData is false, but there are responses or texts of participants";
    HidesLinkage "BND-PRV-02" Error "containsPseudonymousLinkage is false, but responses, outcomes or other members name participants";
    HidesText "BND-PRV-03" Error "containsParticipantFreeText is false, but a participant's item has a text";
    HidesIdentifiers "BND-PRV-04" Error "containsDirectIdentifiers is false, but this looks like an address or a number of a person";
    SharesLinkage "BND-PRV-05" Error "suitableForPublicSharing is true, but participants are named or containsPseudonymousLinkage is true";
    SharesIdentifiers "BND-PRV-06" Error "suitableForPublicSharing and containsDirectIdentifiers are both true";
    SharesText "BND-PRV-07" Error "suitableForPublicSharing is true, but free text of participants has not been reviewed";
    SmallItem "BND-PRV-08" Error "suitableForPublicSharing is true, but the item has fewer than k responses";
    SmallCell "BND-PRV-09" Error "suitableForPublicSharing is true, but an answer to the item, or one of its rows, has fewer than k responses";
    FineTime "BND-PRV-10" Error "suitableForPublicSharing is true, but a time of a response, an item, an outcome or a file is finer than a day";
    SmallOutcome "BND-PRV-12" Error "suitableForPublicSharing is true, but a number of an outcome counts fewer than k responses";
    SmallSummary "BND-PRV-13" Error "suitableForPublicSharing is true, but there are fewer than k participants";
    LoneHidden "BND-PRV-14" Error "suitableForPublicSharing is true, but only one answer is suppressed: it is the total minus the others";
    SmallHidden "BND-PRV-15" Error "suitableForPublicSharing is true, but the counts omit fewer than k observations";
    UnclearHidden "BND-PRV-16" Error "suitableForPublicSharing is true, but suppressed is not a list of names: the hidden counts are unknown";
    PublicLinkage "BND-PRV-17" Error "publicationStatus is public, but responses name participants";
    LinkedCounts "BND-PRV-18" Error "aggregation claims counts without participants, but responses name participants";
    SmallSilent "BND-PRV-19" Error "suitableForPublicSharing is true, but all answers to the item are counted, and fewer than k of summary.participants have not answered it";
    SmallUngrouped "BND-PRV-20" Error "suitableForPublicSharing is true, but the counted groups omit fewer than k of the participants with an answer";
    SmallUnseen "BND-PRV-21" Error "suitableForPublicSharing is true, but summary.participants exceeds the number of responses by fewer than k: at least so many have no response";
    PlainRef "BND-PRV-11" Warning "participantRef looks like a sequential number, from which the participant can be guessed";

    DelibOrigin "BND-DLB-01" Error "Delib accepts only participant, organizer and model as origins";
    DelibSize "BND-DLB-02" Error "Delib accepts no file above 3 MiB";
    DelibEmpty "BND-DLB-03" Error "Delib accepts no empty id";
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

//! The data card of a bundle in sentences.

use serde_json::Value;

use crate::form::{Naming, aggregation, publication};

/// Whether the bundle may be shared, in one sentence.
pub(super) fn describe_sharing(card: &Value) -> &'static str {
    match card["suitableForPublicSharing"].as_bool() {
        Some(true) => "Its data card says that this bundle is suitable for public sharing.",
        Some(false) => {
            "Its data card says that this bundle is not suitable for public sharing. Neither is this page."
        }
        None => "Its data card does not say whether this bundle is suitable for public sharing.",
    }
}

/// Sentences about the content of the bundle. Words of the bundle itself are quoted.
pub(super) fn describe_card(card: &Value, naming: Naming) -> Vec<String> {
    let sentences = [
        (
            "containsParticipantData",
            "It contains data of participants.",
            "It contains no data of participants.",
        ),
        (
            "containsDirectIdentifiers",
            "It contains direct identifiers of people, such as names, addresses or ids known elsewhere.",
            "It contains no direct identifiers of people.",
        ),
        (
            "containsParticipantFreeText",
            "It contains texts that participants wrote, which may reveal their authors.",
            "It contains no texts that participants wrote.",
        ),
        (
            "containsPseudonymousLinkage",
            "Answers of one participant are linked by a pseudonym. Participants can be recognised by their answers.",
            "Answers of one participant are not linked with each other.",
        ),
        (naming.stored_by(), "The service stores this bundle.", "The service does not store this bundle."),
    ];
    let describe_flag = |(name, if_true, if_false): (&str, &str, &str)| match card[name].as_bool() {
        Some(true) => if_true.to_owned(),
        Some(false) => if_false.to_owned(),
        None => format!("It does not state \"{name}\"."),
    };
    let mut words: Vec<_> = sentences.into_iter().map(describe_flag).collect();
    words.extend(card["aggregation"].as_str().map(|word| match word {
        aggregation::INDIVIDUAL => {
            "It has the latest answer of each participant to each item, and counts by item.".to_owned()
        }
        aggregation::EVENTS => {
            "It has every answer of each participant, also those that were changed later.".to_owned()
        }
        aggregation::ITEM_COUNTS => "It has counts by item, without single participants.".to_owned(),
        aggregation::PAIR_COUNTS => "It has counts by pair of items, without single sessions.".to_owned(),
        other => format!("Aggregation: \"{other}\"."),
    }));
    words.extend(card["publicationStatus"].as_str().map(|word| match word {
        publication::LOCAL_PRIVATE => "It is a private export for local use.".to_owned(),
        publication::LOCAL_AGGREGATE => "It is an aggregate for local use.".to_owned(),
        publication::PUBLIC => "It is marked as public.".to_owned(),
        other => format!("Publication status: \"{other}\"."),
    }));
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_flag_has_a_sentence_for_each_value() {
        let card = |flag: bool| {
            json!({ "containsParticipantData": flag, "containsDirectIdentifiers": flag,
                "containsParticipantFreeText": flag, "containsPseudonymousLinkage": flag, "storedByService": flag,
                "aggregation": aggregation::INDIVIDUAL, "publicationStatus": "shelved" })
        };
        let [with, without] = [true, false].map(|flag| describe_card(&card(flag), Naming::Service));
        assert_eq!((with.len(), without.len()), (7, 7));
        for (with, without) in with.iter().zip(&without).take(5) {
            assert_ne!(with, without);
        }
        assert_eq!(with[6], "Publication status: \"shelved\".");
        let missing = describe_card(&json!({}), Naming::Delib);
        assert_eq!(missing[4], "It does not state \"storedByDelib\".");
        assert!(describe_sharing(&json!({ "suitableForPublicSharing": false })).contains("not suitable"));
    }
}

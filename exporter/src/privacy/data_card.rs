//! Derives the data card from the content of a bundle. Operator options can only make it stricter.

use crate::form::{aggregation, publication};

/// Properties of the bundle's content.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Content {
    pub(crate) responses: bool,
    /// A response refers to its participant.
    pub(crate) linked: bool,
    /// A name or text refers to a participant, although no response does.
    pub(crate) refers: bool,
    /// Participants appear under ids that are known outside the bundle.
    pub(crate) named: bool,
    /// A participant's text is included, redacted or not.
    pub(crate) participant_text: bool,
    /// A text contains an identifier of a person.
    pub(crate) identifying_text: bool,
    pub(crate) text_reviewed: bool,
    /// Small counts are suppressed.
    pub(crate) suppressed: bool,
    pub(crate) events: bool,
    pub(crate) pairwise: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Card {
    pub(crate) participant_data: bool,
    pub(crate) direct_identifiers: bool,
    pub(crate) participant_text: bool,
    pub(crate) linkage: bool,
    pub(crate) aggregation: &'static str,
    pub(crate) publication: &'static str,
    pub(crate) suitable: bool,
    pub(crate) limitations: Vec<String>,
}

/// Computes the data card. `withheld` marks the bundle as not for sharing, even if its content would allow it.
pub(crate) fn compute_card(content: Content, withheld: bool, limitations: &[String]) -> Card {
    let has_direct_identifiers = content.named || content.identifying_text;
    // Redaction finds no names of people, so free text needs a human reviewer.
    let text_is_cleared = !content.participant_text || content.text_reviewed;
    let suitable = content.suppressed
        && !content.linked
        && !content.refers
        && !has_direct_identifiers
        && text_is_cleared
        && !withheld;
    let mut standard_limitations = Vec::new();
    if content.linked {
        standard_limitations.push(
            "Pseudonyms do not make answers anonymous: most participants can be recognised by their answers.",
        );
    }
    if content.suppressed {
        standard_limitations.push("Small counts and items with few answers are left out.");
    }
    if content.participant_text {
        standard_limitations.push("Texts were written by participants and may reveal their authors.");
    }
    let limitations =
        standard_limitations.into_iter().map(str::to_owned).chain(limitations.iter().cloned()).collect();
    Card {
        participant_data: content.responses || content.participant_text,
        direct_identifiers: has_direct_identifiers,
        participant_text: content.participant_text,
        // A reference in a text links answers as a response does.
        linkage: content.linked || content.refers,
        aggregation: match content {
            Content { linked: true, events: true, .. } => aggregation::EVENTS,
            Content { linked: true, .. } => aggregation::INDIVIDUAL,
            Content { pairwise: true, .. } => aggregation::PAIR_COUNTS,
            Content { .. } => aggregation::ITEM_COUNTS,
        },
        publication: match (suitable, content.linked) {
            (true, _) => publication::PUBLIC,
            (false, true) => publication::LOCAL_PRIVATE,
            (false, false) => publication::LOCAL_AGGREGATE,
        },
        suitable,
        limitations,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every_content() -> impl Iterator<Item = Content> {
        (0_u32..1 << 10).map(|bits| {
            let bit = |at: u32| bits >> at & 1 == 1;
            Content {
                responses: bit(0),
                linked: bit(1),
                named: bit(2),
                participant_text: bit(3),
                identifying_text: bit(4),
                text_reviewed: bit(5),
                suppressed: bit(6),
                events: bit(7),
                pairwise: bit(8),
                refers: bit(9),
            }
        })
    }

    #[test]
    fn only_suppressed_counts_with_reviewed_texts_are_public() {
        for content in every_content() {
            let card = compute_card(content, false, &[]);
            let may_share = content.suppressed
                && !content.linked
                && !content.refers
                && !content.named
                && !content.identifying_text
                && (!content.participant_text || content.text_reviewed);
            assert_eq!(card.suitable, may_share, "{content:?}");
            assert_eq!(card.publication == publication::PUBLIC, may_share);
            assert_eq!(card.linkage, content.linked || content.refers);
            assert_eq!(card.direct_identifiers, content.named || content.identifying_text);
            assert_eq!(card.participant_text, content.participant_text);
            assert_eq!(card.participant_data, content.responses || content.participant_text);
        }
    }

    #[test]
    fn an_operator_only_makes_it_stricter() {
        for content in every_content() {
            let (free, withheld) =
                (compute_card(content, false, &[]), compute_card(content, true, &["more".to_owned()]));
            assert!(!withheld.suitable);
            assert_ne!(withheld.publication, publication::PUBLIC);
            let flags = |card: &Card| {
                (card.participant_data, card.direct_identifiers, card.participant_text, card.linkage)
            };
            assert_eq!(flags(&free), flags(&withheld));
            assert_eq!(withheld.limitations.len(), free.limitations.len() + 1);
        }
    }
}

//! Computes the data card from what is in a bundle; an operator can only make it stricter.

use crate::form::{aggregation, publication};

/// Content of the bundle that is being written.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Content {
    pub(crate) responses: bool,
    /// Some response names its participant.
    pub(crate) linked: bool,
    /// Some name or text refers to a participant, though no response does.
    pub(crate) refers: bool,
    /// Participants are named by ids that others know.
    pub(crate) named: bool,
    /// Some participant's text is there, redacted or not.
    pub(crate) participant_text: bool,
    /// Some text still holds what identifies a person.
    pub(crate) identifying_text: bool,
    pub(crate) text_reviewed: bool,
    /// Counts below k are left out.
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

/// `withheld`: the operator does not want it shared, whatever its content would allow.
pub(crate) fn compute_card(content: Content, withheld: bool, limitations: &[String]) -> Card {
    let has_direct_identifiers = content.named || content.identifying_text;
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
            "Pseudonyms do not make answers anonymous: most participants can be told by their answers.",
        );
    }
    if content.suppressed {
        standard_limitations.push("Small counts and items with few answers are left out.");
    }
    if content.participant_text {
        standard_limitations.push("Texts are the participants' own and may tell who wrote them.");
    }
    let limitations =
        standard_limitations.into_iter().map(str::to_owned).chain(limitations.iter().cloned()).collect();
    Card {
        participant_data: content.responses || content.participant_text,
        direct_identifiers: has_direct_identifiers,
        participant_text: content.participant_text,
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

//! Draws values of every record from bytes that proptest made. It checks nothing.

use bytes::Bytes;
use uuid::Uuid;

use crate::ids::{
    ActionId, AppealId, CauseId, ConfigVersion, DecisionId, EndpointId, EventId, ItemId, ItemKey, JobId,
    Millis, OrgId, PolicyId, ReportId, SubmissionId, TypeId,
};

/// Bytes to draw from, and zeros after them: fewer and smaller bytes give simpler values, so that failures shrink.
pub(crate) struct Entropy<'a>(pub(crate) &'a [u8]);

impl Entropy<'_> {
    pub(crate) fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().map_or((0, self.0), |(first, rest)| (*first, rest));
        self.0 = rest;
        first
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::from(self.byte()) % end
    }

    fn long(&mut self) -> i64 {
        match self.below(8) {
            0 => 0,
            1 => i64::MAX,
            2 => i64::MIN,
            3 => -i64::from(self.byte()),
            4 => 1 << self.below(63),
            _ => i64::from_be_bytes(std::array::from_fn(|_| self.byte())),
        }
    }
}

pub(crate) trait Draw: Sized {
    /// The names of fields or symbols, in the order of their declaration.
    const NAMES: &[&str] = &[];

    fn draw(from: &mut Entropy<'_>) -> Self;
}

impl Draw for bool {
    fn draw(from: &mut Entropy<'_>) -> Self {
        from.below(2) == 1
    }
}

impl Draw for i64 {
    fn draw(from: &mut Entropy<'_>) -> Self {
        from.long()
    }
}

impl Draw for i32 {
    fn draw(from: &mut Entropy<'_>) -> Self {
        let long = from.long();
        Self::try_from(long).unwrap_or(if long < 0 { Self::MIN } else { Self::MAX })
    }
}

impl Draw for String {
    fn draw(from: &mut Entropy<'_>) -> Self {
        let length = from.below(90);
        (0..length).map(|_| ['a', 'Z', '/', '"', '\0', 'ß', '語', '🦀'][from.below(8)]).collect()
    }
}

impl Draw for Bytes {
    fn draw(from: &mut Entropy<'_>) -> Self {
        let length = from.below(90);
        (0..length).map(|_| from.byte()).collect()
    }
}

impl<D: Draw> Draw for Option<D> {
    fn draw(from: &mut Entropy<'_>) -> Self {
        (from.below(2) == 1).then(|| D::draw(from))
    }
}

impl<D: Draw> Draw for Vec<D> {
    fn draw(from: &mut Entropy<'_>) -> Self {
        let length = from.below(5);
        (0..length).map(|_| D::draw(from)).collect()
    }
}

macro_rules! draw_from {
    ($Inner:ty => $($Id:ident),* $(,)?) => {$(
        impl Draw for $Id {
            fn draw(from: &mut Entropy<'_>) -> Self {
                Self::from(<$Inner>::draw(from))
            }
        }
    )*};
}

impl Draw for Uuid {
    fn draw(from: &mut Entropy<'_>) -> Self {
        Self::from_bytes(std::array::from_fn(|_| from.byte()))
    }
}

draw_from! { String => OrgId, TypeId, ItemId, PolicyId, ActionId, EndpointId, AppealId }
draw_from! { Uuid => SubmissionId, EventId, CauseId, JobId, ReportId, DecisionId }

impl Draw for Millis {
    fn draw(from: &mut Entropy<'_>) -> Self {
        Self(from.long())
    }
}

impl Draw for ConfigVersion {
    fn draw(from: &mut Entropy<'_>) -> Self {
        Self(from.long())
    }
}

impl Draw for ItemKey {
    const NAMES: &[&str] = &["type_id", "id"];

    fn draw(from: &mut Entropy<'_>) -> Self {
        Self { type_id: TypeId::draw(from), id: ItemId::draw(from) }
    }
}

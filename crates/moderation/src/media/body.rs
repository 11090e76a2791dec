//! Receives a response body: digests it piece by piece, and keeps the bytes only for decoding. Memory is reserved
//! before it is filled.

use bytes::Bytes;
use tidegate_egress::media::{NoRoom, Sink};
use tidegate_media::{DigestHasher, Digests};
use tidegate_scheduler::{BudgetFull, GrowingBudget, Reservation};
use tidegate_schemas::ids::OrgId;

use super::HashDepth;

/// Number of bytes reserved before the first piece arrives.
const INITIAL_BYTES: u64 = 256 << 10;

pub(super) struct Body {
    hasher: DigestHasher,
    /// `None` if only digests are needed, or if the body exceeds the decoders' limit.
    kept: Option<Vec<u8>>,
    max_kept: u64,
    memory: GrowingBudget,
    org: OrgId,
    reservation: Option<Reservation>,
}

/// Body that was received completely.
pub(super) struct ReceivedBody {
    pub(super) digests: Digests,
    pub(super) kept: Option<Vec<u8>>,
    /// Memory of `kept`. Must be dropped after it.
    pub(super) reservation: Option<Reservation>,
}

impl Body {
    /// Keeps up to `max_kept` bytes, the decoders' limit. A larger body only has digests.
    pub(super) fn new(depth: HashDepth, max_kept: u64, memory: GrowingBudget, org: &OrgId) -> Self {
        Self {
            hasher: DigestHasher::new(),
            kept: (depth == HashDepth::Picture).then(Vec::new),
            max_kept,
            memory,
            org: org.clone(),
            reservation: None,
        }
    }

    pub(super) fn finish(mut self) -> ReceivedBody {
        if let Some(reservation) = &mut self.reservation {
            reservation.complete();
        }
        ReceivedBody { digests: self.hasher.finish(), kept: self.kept, reservation: self.reservation }
    }

    fn discard_bytes(&mut self) {
        self.kept = None;
        self.reservation = None;
    }
}

impl Sink for Body {
    async fn begin(&mut self, length: Option<u64>) -> Result<(), NoRoom> {
        // Decided from the header, so that a body beyond the limit reserves no memory.
        if length.is_some_and(|length| length > self.max_kept) {
            self.discard_bytes();
        }
        if self.kept.is_some() {
            let bound = length.unwrap_or(self.max_kept).max(1);
            self.reservation = Some(
                self.memory.reserve(&self.org, INITIAL_BYTES, bound).await.map_err(|BudgetFull| NoRoom)?,
            );
        }
        Ok(())
    }

    async fn take(&mut self, piece: Bytes) -> Result<(), NoRoom> {
        self.hasher.update(&piece);
        let Some(kept) = &mut self.kept else { return Ok(()) };
        let length = kept.len() + piece.len();
        if length as u64 > self.max_kept {
            self.discard_bytes();
            return Ok(());
        }
        // Grown before the copy: memory is never used without a reservation.
        if let Some(reservation) = &mut self.reservation
            && length as u64 > reservation.bytes()
        {
            reservation.grow(length as u64, self.max_kept).await.map_err(|BudgetFull| NoRoom)?;
        }
        // `Vec` would double its capacity, up to twice the reservation.
        if kept.capacity() < length {
            let reserved = self.reservation.as_ref().map_or(0, Reservation::bytes);
            let reserved = usize::try_from(reserved).unwrap_or(usize::MAX).max(length);
            kept.reserve_exact(reserved - kept.len());
        }
        kept.extend_from_slice(&piece);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::Duration;

    use super::*;

    const STEP: u64 = 1 << 20;

    fn body(memory: &GrowingBudget, depth: HashDepth, max_kept: u64) -> Body {
        Body::new(depth, max_kept, memory.clone(), &OrgId::new("o"))
    }

    async fn is_full(memory: &GrowingBudget) -> bool {
        memory.reserve(&OrgId::new("o"), STEP, STEP).await.is_err()
    }

    #[tokio::test]
    async fn a_body_holds_its_memory_until_it_is_dropped() {
        let memory = GrowingBudget::new(4 * STEP, 4 * STEP, Duration::ZERO);
        let mut body = body(&memory, HashDepth::Picture, 100 * STEP);
        body.begin(Some(7 * STEP / 2)).await.unwrap();
        assert!(!is_full(&memory).await, "what is announced is not there yet");
        let piece = Bytes::from(vec![7; usize::try_from(7 * STEP / 2).unwrap()]);
        body.take(piece.clone()).await.unwrap();
        assert!(is_full(&memory).await);
        let arrived = body.finish();
        assert_eq!(arrived.kept.as_deref(), Some(&piece[..]));
        assert_eq!(arrived.digests, Digests::of(&piece));
        assert!(is_full(&memory).await);
        drop(arrived);
        assert!(!is_full(&memory).await);
    }

    #[tokio::test]
    async fn more_bytes_than_announced_need_more_memory() {
        let memory = GrowingBudget::new(2 * STEP, 2 * STEP, Duration::ZERO);
        let mut body = body(&memory, HashDepth::Picture, 100 * STEP);
        body.begin(Some(1)).await.unwrap();
        let other = memory.reserve(&OrgId::new("o"), STEP, STEP).await.unwrap();
        let piece = Bytes::from(vec![7; usize::try_from(STEP).unwrap() - 1]);
        body.take(piece.clone()).await.unwrap();
        assert_eq!(body.take(piece.clone()).await, Err(NoRoom));
        drop(other);
        body.take(piece).await.unwrap();
    }

    #[tokio::test]
    async fn body_without_decoding_reserves_no_memory() {
        let memory = GrowingBudget::new(STEP, STEP, Duration::ZERO);
        for (depth, max_kept, length) in [
            (HashDepth::Exact, 100, Some(9 * STEP)),
            (HashDepth::Picture, 100, Some(101)),
            (HashDepth::Picture, 3, None),
        ] {
            let mut body = body(&memory, depth, max_kept);
            body.begin(length).await.unwrap();
            body.take(Bytes::from_static(b"pixels")).await.unwrap();
            assert!(!is_full(&memory).await, "{depth:?}");
            let arrived = body.finish();
            assert_eq!((arrived.kept, arrived.digests), (None, Digests::of(b"pixels")));
        }
    }
}

//! A body that arrives: digested piece by piece, and kept only if a picture is to be made of it.
//!
//! It does not fetch and does not decode; the memory it takes is reserved before it is filled.

use bytes::Bytes;
use tidegate_egress::media::{NoRoom, Sink};
use tidegate_media::{Digesting, Digests};
use tidegate_schemas::ids::OrgId;

use super::{
    Depth,
    body_memory::{Held, Rooms},
};

/// What a body has room for before any of it has come.
const FIRST: u64 = 256 << 10;

pub(super) struct Body {
    digesting: Digesting,
    /// `None`: only digests are wanted, or there is more than is decoded.
    kept: Option<Vec<u8>>,
    most_kept: u64,
    rooms: Rooms,
    org: OrgId,
    held: Option<Held>,
}

/// A body that has arrived.
pub(super) struct Arrived {
    pub(super) digests: Digests,
    pub(super) kept: Option<Vec<u8>>,
    /// Until the bytes are gone.
    pub(super) room: Option<Held>,
}

impl Body {
    /// `most_kept`: what a decoder takes; of more there are only digests.
    pub(super) fn new(depth: Depth, most_kept: u64, rooms: Rooms, org: &OrgId) -> Self {
        Self {
            digesting: Digesting::new(),
            kept: (depth == Depth::Picture).then(Vec::new),
            most_kept,
            rooms,
            org: org.clone(),
            held: None,
        }
    }

    pub(super) fn finish(mut self) -> Arrived {
        if let Some(held) = &mut self.held {
            held.end();
        }
        Arrived { digests: self.digesting.finish(), kept: self.kept, room: self.held }
    }

    fn drop_kept(&mut self) {
        self.kept = None;
        self.held = None;
    }
}

impl Sink for Body {
    async fn begin(&mut self, length: Option<u64>) -> Result<(), NoRoom> {
        if length.is_some_and(|length| length > self.most_kept) {
            self.drop_kept();
        }
        if self.kept.is_some() {
            let most = length.unwrap_or(self.most_kept).max(1);
            self.held = Some(self.rooms.enter(&self.org, FIRST, most).await?);
        }
        Ok(())
    }

    async fn take(&mut self, piece: Bytes) -> Result<(), NoRoom> {
        self.digesting.update(&piece);
        let Some(kept) = &mut self.kept else { return Ok(()) };
        let length = kept.len() + piece.len();
        if length as u64 > self.most_kept {
            self.drop_kept();
            return Ok(());
        }
        if let Some(held) = &mut self.held
            && length as u64 > held.bytes()
        {
            held.grow(length as u64, self.most_kept).await?;
        }
        // Doubling would take up to twice what is reserved.
        if kept.capacity() < length {
            let reserved = self.held.as_ref().map_or(0, Held::bytes);
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

    fn body(rooms: &Rooms, depth: Depth, most_kept: u64) -> Body {
        Body::new(depth, most_kept, rooms.clone(), &OrgId::new("o"))
    }

    async fn is_full(rooms: &Rooms) -> bool {
        rooms.enter(&OrgId::new("o"), STEP, STEP).await.is_err()
    }

    #[tokio::test]
    async fn a_body_holds_its_room_until_it_is_gone() {
        let rooms = Rooms::new(4 * STEP, 4 * STEP, Duration::ZERO);
        let mut body = body(&rooms, Depth::Picture, 100 * STEP);
        body.begin(Some(7 * STEP / 2)).await.unwrap();
        assert!(!is_full(&rooms).await, "what is announced is not there yet");
        let piece = Bytes::from(vec![7; usize::try_from(7 * STEP / 2).unwrap()]);
        body.take(piece.clone()).await.unwrap();
        assert!(is_full(&rooms).await);
        let arrived = body.finish();
        assert_eq!(arrived.kept.as_deref(), Some(&piece[..]));
        assert_eq!(arrived.digests, Digests::of(&piece));
        assert!(is_full(&rooms).await);
        drop(arrived);
        assert!(!is_full(&rooms).await);
    }

    #[tokio::test]
    async fn more_than_was_announced_needs_more_room() {
        let rooms = Rooms::new(2 * STEP, 2 * STEP, Duration::ZERO);
        let mut body = body(&rooms, Depth::Picture, 100 * STEP);
        body.begin(Some(1)).await.unwrap();
        let other = rooms.enter(&OrgId::new("o"), STEP, STEP).await.unwrap();
        let piece = Bytes::from(vec![7; usize::try_from(STEP).unwrap() - 1]);
        body.take(piece.clone()).await.unwrap();
        assert_eq!(body.take(piece.clone()).await, Err(NoRoom));
        drop(other);
        body.take(piece).await.unwrap();
    }

    #[tokio::test]
    async fn what_is_not_decoded_takes_no_room() {
        let rooms = Rooms::new(STEP, STEP, Duration::ZERO);
        for (depth, most_kept, length) in
            [(Depth::Exact, 100, Some(9 * STEP)), (Depth::Picture, 100, Some(101)), (Depth::Picture, 3, None)]
        {
            let mut body = body(&rooms, depth, most_kept);
            body.begin(length).await.unwrap();
            body.take(Bytes::from_static(b"pixels")).await.unwrap();
            assert!(!is_full(&rooms).await, "{depth:?}");
            let arrived = body.finish();
            assert_eq!((arrived.kept, arrived.digests), (None, Digests::of(b"pixels")));
        }
    }
}

//! A body that arrives: digested piece by piece, and kept only if a picture is to be made of it.
//!
//! It does not fetch and does not decode; the memory it takes is reserved before it is filled.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use tidegate_egress::media::{NoRoom, Sink};
use tidegate_media::{Digesting, Digests};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use super::Depth;

/// What is reserved at once where nothing is announced, or more comes than was.
const STEP: u64 = 1 << 20;
const KIB: u64 = 1 << 10;

/// Memory for all bodies together.
#[derive(Clone, Debug)]
pub(super) struct Room {
    kib: Arc<Semaphore>,
    whole_kib: u32,
    wait: Duration,
}

impl Room {
    pub(super) fn new(bytes: u64, wait: Duration) -> Self {
        let whole_kib = u32::try_from(bytes / KIB).unwrap_or(u32::MAX);
        Self { kib: Arc::new(Semaphore::new(whole_kib as usize)), whole_kib, wait }
    }

    fn share(&self, bytes: u64) -> u32 {
        u32::try_from(bytes.div_ceil(KIB)).unwrap_or(u32::MAX).min(self.whole_kib)
    }
}

pub(super) struct Body {
    digesting: Digesting,
    /// `None`: only digests are wanted, or there is more than is decoded.
    kept: Option<Vec<u8>>,
    most_kept: u64,
    room: Room,
    reserved: u64,
    permit: Option<OwnedSemaphorePermit>,
}

/// A body that has arrived.
pub(super) struct Arrived {
    pub(super) digests: Digests,
    pub(super) kept: Option<Vec<u8>>,
    /// Until the bytes are gone.
    pub(super) room: Option<OwnedSemaphorePermit>,
}

impl Body {
    /// `most_kept`: what a decoder takes; of more there are only digests.
    pub(super) fn new(depth: Depth, most_kept: u64, room: Room) -> Self {
        Self {
            digesting: Digesting::new(),
            kept: (depth == Depth::Picture).then(Vec::new),
            most_kept,
            room,
            reserved: 0,
            permit: None,
        }
    }

    pub(super) fn finish(self) -> Arrived {
        Arrived { digests: self.digesting.finish(), kept: self.kept, room: self.permit }
    }

    fn drop_kept(&mut self) {
        self.kept = None;
        self.permit = None;
        self.reserved = 0;
    }

    /// Never waits: bodies that wait for each other's room while they hold their own would wait for ever.
    fn reserve_more(&mut self, length: u64) -> Result<(), NoRoom> {
        let missing = length.saturating_sub(self.reserved).max(STEP);
        let share = self.room.share(missing);
        let more = Arc::clone(&self.room.kib).try_acquire_many_owned(share).map_err(|_| NoRoom)?;
        match &mut self.permit {
            Some(permit) => permit.merge(more),
            None => self.permit = Some(more),
        }
        self.reserved += u64::from(share) * KIB;
        Ok(())
    }
}

impl Sink for Body {
    async fn begin(&mut self, length: Option<u64>) -> Result<(), NoRoom> {
        if length.is_some_and(|length| length > self.most_kept) {
            self.drop_kept();
        }
        if self.kept.is_none() {
            return Ok(());
        }
        let wanted = self.room.share(length.unwrap_or(STEP).max(1));
        let waiting = Arc::clone(&self.room.kib).acquire_many_owned(wanted);
        let permit = timeout(self.room.wait, waiting).await.map_err(|_| NoRoom)?.map_err(|_| NoRoom)?;
        self.reserved = u64::from(wanted) * KIB;
        self.permit = Some(permit);
        Ok(())
    }

    fn take(&mut self, piece: Bytes) -> Result<(), NoRoom> {
        self.digesting.update(&piece);
        let Some(kept) = &self.kept else { return Ok(()) };
        let length = (kept.len() + piece.len()) as u64;
        if length > self.most_kept {
            self.drop_kept();
            return Ok(());
        }
        if length > self.reserved {
            self.reserve_more(length)?;
        }
        if let Some(kept) = &mut self.kept {
            // Doubling would take up to twice what is reserved.
            if kept.capacity() < kept.len() + piece.len() {
                let reserved = usize::try_from(self.reserved).unwrap_or(usize::MAX);
                kept.reserve_exact(reserved.saturating_sub(kept.len()).max(piece.len()));
            }
            kept.extend_from_slice(&piece);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn room(bytes: u64) -> Room {
        Room::new(bytes, Duration::ZERO)
    }

    #[tokio::test]
    async fn a_body_holds_its_room_until_it_is_gone() {
        let room = room(4 * STEP);
        let mut body = Body::new(Depth::Picture, 100 * STEP, room.clone());
        body.begin(Some(3 * STEP)).await.unwrap();
        let mut other = Body::new(Depth::Picture, 100 * STEP, room.clone());
        assert_eq!(other.begin(Some(2 * STEP)).await, Err(NoRoom));
        body.take(Bytes::from_static(b"pixels")).unwrap();
        let arrived = body.finish();
        assert_eq!(arrived.kept.as_deref(), Some(&b"pixels"[..]));
        assert_eq!(arrived.digests, Digests::of(b"pixels"));
        assert_eq!(other.begin(Some(2 * STEP)).await, Err(NoRoom));
        drop(arrived);
        other.begin(Some(2 * STEP)).await.unwrap();
    }

    #[tokio::test]
    async fn more_than_was_announced_needs_more_room() {
        let room = room(2 * STEP);
        let mut body = Body::new(Depth::Picture, 100 * STEP, room.clone());
        body.begin(Some(1)).await.unwrap();
        let piece = Bytes::from(vec![7; usize::try_from(STEP).unwrap() - 1]);
        body.take(piece.clone()).unwrap();
        assert_eq!(body.take(piece), Err(NoRoom));
        drop(body);
        assert_eq!(room.kib.available_permits(), 2 << 10);
    }

    #[tokio::test]
    async fn what_is_not_decoded_takes_no_room() {
        let room = room(STEP);
        for (depth, most_kept, length) in
            [(Depth::Exact, 100, Some(9 * STEP)), (Depth::Picture, 100, Some(101)), (Depth::Picture, 3, None)]
        {
            let mut body = Body::new(depth, most_kept, room.clone());
            body.begin(length).await.unwrap();
            body.take(Bytes::from_static(b"pixels")).unwrap();
            assert_eq!(room.kib.available_permits(), 1 << 10, "{depth:?}");
            let arrived = body.finish();
            assert_eq!((arrived.kept, arrived.digests), (None, Digests::of(b"pixels")));
        }
    }
}

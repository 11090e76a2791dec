//! A body that arrives: digested piece by piece, and kept only if a picture is to be made of it.
//!
//! It does not fetch and does not decode; the memory it takes is reserved before it is filled.

use std::{collections::HashMap, sync::Arc, time::Duration};

use bytes::Bytes;
use parking_lot::Mutex;
use tidegate_egress::media::{NoRoom, Sink};
use tidegate_media::{Digesting, Digests};
use tidegate_schemas::ids::OrgId;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use super::Depth;

/// What is reserved at once where nothing is announced, or more comes than was.
const STEP: u64 = 1 << 20;
const KIB: u64 = 1 << 10;

/// Memory for all bodies together, of which one org's have a part at most.
#[derive(Clone)]
pub(super) struct Rooms(Arc<Shared>);

struct Shared {
    all: Arc<Semaphore>,
    per_org_kib: u32,
    wait: Duration,
    orgs: Mutex<HashMap<OrgId, Arc<Semaphore>>>,
}

/// The part of it that an org's bodies may take.
#[derive(Clone)]
pub(super) struct Room {
    of: Rooms,
    own: Arc<Semaphore>,
}

/// Memory that a body holds, in the org's part and in all.
pub(super) struct Held {
    own: OwnedSemaphorePermit,
    all: OwnedSemaphorePermit,
}

impl Rooms {
    pub(super) fn new(bytes: u64, bytes_per_org: u64, wait: Duration) -> Self {
        let kib = |bytes: u64| u32::try_from(bytes / KIB).unwrap_or(u32::MAX);
        Self(Arc::new(Shared {
            all: Arc::new(Semaphore::new(kib(bytes) as usize)),
            per_org_kib: kib(bytes_per_org.min(bytes)),
            wait,
            orgs: Mutex::default(),
        }))
    }

    pub(super) fn of(&self, org: &OrgId) -> Room {
        /// Above it, orgs without bodies are forgotten.
        const MANY: usize = 1_024;
        let mut orgs = self.0.orgs.lock();
        if orgs.len() >= MANY && !orgs.contains_key(org) {
            // Whoever holds or waits for some of it has a clone.
            orgs.retain(|_, own| Arc::strong_count(own) > 1);
        }
        let whole = || Arc::new(Semaphore::new(self.0.per_org_kib as usize));
        let own = Arc::clone(orgs.entry(org.clone()).or_insert_with(whole));
        Room { of: self.clone(), own }
    }
}

impl Room {
    fn share(&self, bytes: u64) -> u32 {
        u32::try_from(bytes.div_ceil(KIB)).unwrap_or(u32::MAX).min(self.of.0.per_org_kib)
    }

    /// The org's part first: who waits for that stands in no other org's way.
    async fn take(&self, kib: u32) -> Result<Held, NoRoom> {
        let taking = async {
            let own = Arc::clone(&self.own).acquire_many_owned(kib).await.map_err(|_| NoRoom)?;
            let all = Arc::clone(&self.of.0.all).acquire_many_owned(kib).await.map_err(|_| NoRoom)?;
            Ok(Held { own, all })
        };
        timeout(self.of.0.wait, taking).await.map_err(|_| NoRoom)?
    }

    fn try_take(&self, kib: u32) -> Result<Held, NoRoom> {
        let own = Arc::clone(&self.own).try_acquire_many_owned(kib).map_err(|_| NoRoom)?;
        let all = Arc::clone(&self.of.0.all).try_acquire_many_owned(kib).map_err(|_| NoRoom)?;
        Ok(Held { own, all })
    }
}

impl Held {
    fn merge(&mut self, more: Self) {
        self.own.merge(more.own);
        self.all.merge(more.all);
    }
}

pub(super) struct Body {
    digesting: Digesting,
    /// `None`: only digests are wanted, or there is more than is decoded.
    kept: Option<Vec<u8>>,
    most_kept: u64,
    room: Room,
    reserved: u64,
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
    pub(super) fn new(depth: Depth, most_kept: u64, room: Room) -> Self {
        Self {
            digesting: Digesting::new(),
            kept: (depth == Depth::Picture).then(Vec::new),
            most_kept,
            room,
            reserved: 0,
            held: None,
        }
    }

    pub(super) fn finish(self) -> Arrived {
        Arrived { digests: self.digesting.finish(), kept: self.kept, room: self.held }
    }

    fn drop_kept(&mut self) {
        self.kept = None;
        self.held = None;
        self.reserved = 0;
    }

    /// Never waits: bodies that wait for each other's room while they hold their own would wait for ever.
    fn reserve_more(&mut self, length: u64) -> Result<(), NoRoom> {
        let missing = length.saturating_sub(self.reserved).max(STEP);
        let share = self.room.share(missing);
        let more = self.room.try_take(share)?;
        match &mut self.held {
            Some(held) => held.merge(more),
            None => self.held = Some(more),
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
        self.held = Some(self.room.take(wanted).await?);
        self.reserved = u64::from(wanted) * KIB;
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

    use futures::{FutureExt as _, poll};

    use super::*;

    fn room(bytes: u64) -> Room {
        Rooms::new(bytes, bytes, Duration::ZERO).of(&OrgId::new("o"))
    }

    fn free(room: &Room) -> (usize, usize) {
        (room.own.available_permits(), room.of.0.all.available_permits())
    }

    #[tokio::test]
    async fn one_org_leaves_room_to_the_others_and_gets_back_what_it_gives() {
        let rooms = Rooms::new(4 * STEP, 2 * STEP, Duration::ZERO);
        let (greedy, other) = (rooms.of(&OrgId::new("greedy")), rooms.of(&OrgId::new("other")));
        let body = |room: &Room| Body::new(Depth::Picture, 100 * STEP, room.clone());
        let (mut first, mut second, mut third) = (body(&greedy), body(&greedy), body(&other));
        // It announces more than there is for it, and gets all of that.
        first.begin(Some(3 * STEP)).await.unwrap();
        assert_eq!(second.begin(Some(1)).await, Err(NoRoom));
        third.begin(Some(2 * STEP)).await.unwrap();
        let (first, third) = (first.finish(), third.finish());
        assert_eq!(free(&rooms.of(&OrgId::new("greedy"))), (0, 0));
        drop(first);
        second.begin(Some(1)).await.unwrap();
        drop((second, third));
        assert_eq!((free(&greedy), free(&other)), ((2 << 10, 4 << 10), (2 << 10, 4 << 10)));
    }

    #[tokio::test]
    async fn who_waits_for_the_part_of_an_org_stands_in_no_other_org_s_way() {
        let rooms = Rooms::new(4 * STEP, 2 * STEP, Duration::from_secs(3_600));
        let (greedy, other) = (rooms.of(&OrgId::new("greedy")), rooms.of(&OrgId::new("other")));
        let held = greedy.take(2 << 10).await.unwrap();
        let mut waits = greedy.take(2 << 10).boxed();
        assert!(poll!(&mut waits).is_pending());
        drop(other.take(2 << 10).now_or_never().unwrap().unwrap());
        drop(held);
        assert!(waits.now_or_never().unwrap().is_ok());
    }

    #[test]
    fn orgs_without_bodies_are_forgotten_and_those_with_some_are_not() {
        let rooms = Rooms::new(STEP, STEP, Duration::ZERO);
        let kept = rooms.of(&OrgId::new("kept"));
        for nth in 0..5_000 {
            drop(rooms.of(&OrgId::new(nth.to_string())));
        }
        let orgs = rooms.0.orgs.lock();
        assert!(orgs.len() < 2_000 && Arc::ptr_eq(&orgs[&OrgId::new("kept")], &kept.own));
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
        assert_eq!(free(&room), (2 << 10, 2 << 10));
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
            assert_eq!(free(&room), (1 << 10, 1 << 10), "{depth:?}");
            let arrived = body.finish();
            assert_eq!((arrived.kept, arrived.digests), (None, Digests::of(b"pixels")));
        }
    }
}

//! Random ids, read from the system's random source in blocks: a request of a thousand items would otherwise make a
//! thousand system calls. Used bytes are overwritten in the block.

use std::cell::RefCell;

use uuid::{Builder, Uuid};

const ID_BYTES: usize = 16;
/// Number of ids of one system call. Up to 256 bytes, the call cannot be interrupted and is fast.
const BLOCK_IDS: usize = 16;

struct Block {
    bytes: [u8; BLOCK_IDS * ID_BYTES],
    /// Number of unused ids in the block.
    unused_ids: usize,
}

thread_local! {
    static BLOCK: RefCell<Block> = const { RefCell::new(Block { bytes: [0; BLOCK_IDS * ID_BYTES], unused_ids: 0 }) };
}

/// Returns a random UUID of version 4.
pub(super) fn uuid() -> Uuid {
    Builder::from_random_bytes(BLOCK.with_borrow_mut(Block::take_id)).into_uuid()
}

impl Block {
    fn take_id(&mut self) -> [u8; ID_BYTES] {
        if self.unused_ids == 0 {
            getrandom::fill(&mut self.bytes).expect("a system that runs this has a source of randomness");
            self.unused_ids = BLOCK_IDS;
        }
        self.unused_ids -= 1;
        let mut id = [0; ID_BYTES];
        // The swap leaves zeros in the block, so a memory dump does not reveal ids that are in use.
        id.swap_with_slice(&mut self.bytes[self.unused_ids * ID_BYTES..][..ID_BYTES]);
        id
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_are_unique_across_threads() {
        let threads: Vec<_> =
            (0..4).map(|_| std::thread::spawn(|| (0..1_000).map(|_| uuid()).collect::<Vec<_>>())).collect();
        let ids: Vec<Uuid> =
            threads.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect();
        assert_eq!(ids.iter().collect::<HashSet<_>>().len(), 4_000);
        assert!(ids.iter().all(|id| id.get_version_num() == 4 && !id.is_nil()));
    }

    #[test]
    fn used_bytes_are_overwritten() {
        let mut block = Block { bytes: [0; BLOCK_IDS * ID_BYTES], unused_ids: 0 };
        for _ in 0..BLOCK_IDS {
            block.take_id();
        }
        assert_eq!(block.bytes, [0; BLOCK_IDS * ID_BYTES]);
    }
}

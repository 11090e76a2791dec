//! Random ids, drawn from the system in blocks: a request of a thousand items must not be a thousand system calls.
//!
//! It makes no randomness of its own. What was given out is wiped from the block.

use std::cell::RefCell;

use uuid::{Builder, Uuid};

const ID_BYTES: usize = 16;
/// One call for so many ids. Systems answer up to 256 bytes without being interrupted, and quickly.
const IDS: usize = 16;

struct Block {
    bytes: [u8; IDS * ID_BYTES],
    /// Ids that are left in it.
    left: usize,
}

thread_local! {
    static BLOCK: RefCell<Block> = const { RefCell::new(Block { bytes: [0; IDS * ID_BYTES], left: 0 }) };
}

/// A random id of version 4.
pub(super) fn uuid() -> Uuid {
    Builder::from_random_bytes(BLOCK.with_borrow_mut(Block::take)).into_uuid()
}

impl Block {
    fn take(&mut self) -> [u8; ID_BYTES] {
        if self.left == 0 {
            getrandom::fill(&mut self.bytes).expect("a system that runs this has a source of randomness");
            self.left = IDS;
        }
        self.left -= 1;
        let mut id = [0; ID_BYTES];
        id.swap_with_slice(&mut self.bytes[self.left * ID_BYTES..][..ID_BYTES]);
        id
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_id_is_given_twice_on_one_thread_or_on_several() {
        let threads: Vec<_> =
            (0..4).map(|_| std::thread::spawn(|| (0..1_000).map(|_| uuid()).collect::<Vec<_>>())).collect();
        let ids: Vec<Uuid> =
            threads.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect();
        assert_eq!(ids.iter().collect::<HashSet<_>>().len(), 4_000);
        assert!(ids.iter().all(|id| id.get_version_num() == 4 && !id.is_nil()));
    }

    #[test]
    fn what_was_given_out_is_not_kept() {
        let mut block = Block { bytes: [0; IDS * ID_BYTES], left: 0 };
        for _ in 0..IDS {
            block.take();
        }
        assert_eq!(block.bytes, [0; IDS * ID_BYTES]);
    }
}

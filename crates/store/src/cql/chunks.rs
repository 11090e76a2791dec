//! Chunks of a batch: writes of one partition that go to the server together, up to the size limit.

use std::collections::HashMap;

/// Writes in chunks, each below a limit unless it is one write alone.
#[derive(Debug)]
pub(super) struct Chunks<T> {
    limit: usize,
    /// Writes with their size in bytes.
    all: Vec<(Vec<T>, usize)>,
    /// The chunk of a partition that still has room.
    open: HashMap<(&'static str, Vec<u8>), usize>,
}

impl<T> Chunks<T> {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, all: Vec::new(), open: HashMap::new() }
    }

    /// `partition`: of a table, by its name and its key.
    pub(super) fn push(&mut self, partition: (&'static str, Vec<u8>), bytes: usize, write: T) {
        match self.open.get(&partition).map(|index| &mut self.all[*index]) {
            Some((chunk, filled)) if *filled + bytes <= self.limit => {
                chunk.push(write);
                *filled += bytes;
            }
            _ => {
                self.open.insert(partition, self.all.len());
                self.all.push((vec![write], bytes));
            }
        }
    }

    pub(super) fn into_all(self) -> Vec<Vec<T>> {
        self.all.into_iter().map(|(chunk, _)| chunk).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_chunk_is_of_one_partition_within_the_limit_and_as_full_as_it_may_be(
            writes in proptest::collection::vec((0_u8..3, 1_usize..60), 0..200),
        ) {
            const LIMIT: usize = 40;
            let mut chunks = Chunks::new(LIMIT);
            for (nth, (partition, bytes)) in writes.iter().enumerate() {
                chunks.push(("t", vec![*partition]), *bytes, nth);
            }
            let chunks = chunks.into_all();
            let size = |chunk: &[usize]| chunk.iter().map(|nth| writes[*nth].1).sum::<usize>();
            for chunk in &chunks {
                prop_assert!(chunk.len() == 1 || size(chunk) <= LIMIT, "{chunk:?}");
                prop_assert!(chunk.iter().all(|nth| writes[*nth].0 == writes[chunk[0]].0), "{chunk:?}");
            }
            for partition in 0..3 {
                let own: Vec<_> = chunks.iter().filter(|chunk| writes[chunk[0]].0 == partition).collect();
                for pair in own.windows(2) {
                    prop_assert!(size(pair[0]) + writes[pair[1][0]].1 > LIMIT, "{pair:?} are one");
                }
                let order: Vec<_> = own.into_iter().flatten().copied().collect();
                let sent = (0..writes.len()).filter(|nth| writes[*nth].0 == partition);
                prop_assert_eq!(order, sent.collect::<Vec<_>>());
            }
        }
    }
}

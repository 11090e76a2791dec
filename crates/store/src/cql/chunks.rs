//! Splits a batch into chunks of writes of one partition, sent in one request up to the size limit.

use std::collections::HashMap;

/// Chunks of writes. Only a chunk of a single write exceeds the limit.
#[derive(Debug)]
pub(super) struct Chunks<T> {
    limit: usize,
    /// Writes of each chunk with their size in bytes.
    chunks: Vec<(Vec<T>, usize)>,
    /// Index of the last chunk of each partition.
    open_chunks: HashMap<(&'static str, Vec<u8>), usize>,
}

impl<T> Chunks<T> {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, chunks: Vec::new(), open_chunks: HashMap::new() }
    }

    /// `partition`: name of the table and key bytes of the partition.
    pub(super) fn push(&mut self, partition: (&'static str, Vec<u8>), bytes: usize, write: T) {
        match self.open_chunks.get(&partition).map(|index| &mut self.chunks[*index]) {
            // Rows of one partition share their replicas, so the server applies the chunk as one mutation.
            Some((chunk, chunk_bytes)) if *chunk_bytes + bytes <= self.limit => {
                chunk.push(write);
                *chunk_bytes += bytes;
            }
            _ => {
                // Earlier chunks are not filled up: writes of a partition keep their order.
                self.open_chunks.insert(partition, self.chunks.len());
                self.chunks.push((vec![write], bytes));
            }
        }
    }

    pub(super) fn into_chunks(self) -> Vec<Vec<T>> {
        self.chunks.into_iter().map(|(chunk, _)| chunk).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn chunks_fill_up_to_the_limit_within_one_partition(
            writes in proptest::collection::vec((0_u8..3, 1_usize..60), 0..200),
        ) {
            const LIMIT: usize = 40;
            let mut chunks = Chunks::new(LIMIT);
            for (nth, (partition, bytes)) in writes.iter().enumerate() {
                chunks.push(("t", vec![*partition]), *bytes, nth);
            }
            let chunks = chunks.into_chunks();
            let size = |chunk: &[usize]| chunk.iter().map(|nth| writes[*nth].1).sum::<usize>();
            for chunk in &chunks {
                prop_assert!(chunk.len() == 1 || size(chunk) <= LIMIT, "{chunk:?}");
                prop_assert!(chunk.iter().all(|nth| writes[*nth].0 == writes[chunk[0]].0), "{chunk:?}");
            }
            for partition in 0..3 {
                let partition_chunks: Vec<_> = chunks.iter().filter(|chunk| writes[chunk[0]].0 == partition).collect();
                for pair in partition_chunks.windows(2) {
                    prop_assert!(size(pair[0]) + writes[pair[1][0]].1 > LIMIT, "{pair:?} are one");
                }
                let order: Vec<_> = partition_chunks.into_iter().flatten().copied().collect();
                let pushed = (0..writes.len()).filter(|nth| writes[*nth].0 == partition);
                prop_assert_eq!(order, pushed.collect::<Vec<_>>());
            }
        }
    }
}

//! Chooses which lengths of parts share a pass over a text, by the estimated costs of the passes. A wrong estimate costs
//! time and never changes a result.

use std::ops::Range;

use super::{
    keys::{CLASSES, KeyedWord, Keys, Probe, at, mask},
    maps::{Coarse, Fine, Marks, hash},
};

/// Cost of an answer of the coarse map relative to a probe, and of each class that the answer may belong to. Lower than
/// measured, because estimates exceed the real frequency of pieces of words several times.
const ANSWER: f64 = 1.0;
const CLASS_CHECK: f64 = 0.5;

/// Number of possible bytes after a part.
const BYTE_VALUES: usize = 256;

/// Lets classes share a probe if that is cheaper. A probe for the common beginnings of the parts of several classes gets
/// more answers than separate probes for whole parts.
pub(super) fn group_into_probes(words: &[&[u8]], entries: &[KeyedWord]) -> Vec<Probe> {
    let mut counts = [0_usize; CLASSES.len()];
    for entry in entries {
        counts[entry.class] += CLASSES[entry.class].stride;
    }
    let grouped = |stride: usize| {
        // Ordered from the shortest parts to the longest.
        let class_numbers = (0..CLASSES.len()).rev().filter(|class| CLASSES[*class].stride == stride);
        let class_sizes: Vec<_> = class_numbers
            .map(|class| (CLASSES[class].width, counts[class]))
            .filter(|(_, count)| *count > 0)
            .collect();
        let likeness_by_class: Vec<f64> =
            class_sizes.iter().map(|(width, _)| estimate_likeness(words, *width)).collect();
        let count_parts =
            |range: &Range<usize>| class_sizes[range.clone()].iter().map(|(_, count)| count).sum::<usize>();
        // If there are few parts that are one byte too short, they are entered with every possible next byte, which costs
        // less than a pass of their own.
        let is_padded = |range: &Range<usize>| {
            let (width, count) = class_sizes[range.start];
            range.len() > 1
                && class_sizes[range.start + 1].0 == width + 1
                && count * BYTE_VALUES <= count_parts(range)
        };
        let group = |range: Range<usize>| {
            let (start, count) = if is_padded(&range) {
                (range.start + 1, count_parts(&range) + class_sizes[range.start].1 * (BYTE_VALUES - 1))
            } else {
                (range.start, count_parts(&range))
            };
            #[expect(clippy::cast_precision_loss, reason = "a guess")]
            let (count, classes) = (count as f64, range.len() as f64);
            1.0 + (1.0 - (-count * likeness_by_class[start]).exp()) * (ANSWER + CLASS_CHECK * classes)
        };
        // Each bit decides whether a new probe begins before a class. At most six classes have the same stride.
        let splits = |split: usize| {
            let mut starts: Vec<usize> =
                (0..class_sizes.len()).filter(|nth| *nth == 0 || split >> nth & 1 == 1).collect();
            starts.push(class_sizes.len());
            starts.windows(2).map(|ends| ends[0]..ends[1]).collect::<Vec<_>>()
        };
        let cost = |split: &usize| splits(*split).into_iter().map(group).sum::<f64>();
        let best = (0..1 << class_sizes.len()).min_by(|a, b| cost(a).total_cmp(&cost(b))).unwrap_or_default();
        let probe = |range: Range<usize>| {
            let width = class_sizes[range.start + usize::from(is_padded(&range))].0;
            let classes = &class_sizes[range.clone()];
            let (mut beginnings, mut marked) = (Vec::with_capacity(count_parts(&range)), Vec::new());
            for keyed in entries {
                let class = CLASSES[keyed.class];
                let nth = classes.iter().position(|(width, _)| *width == class.width);
                let Some(nth) = nth.filter(|_| class.stride == stride) else { continue };
                for (offset, part) in keyed.parts() {
                    if class.width < width {
                        beginnings
                            .extend((0..BYTE_VALUES as u64).map(|byte| byte << (8 * class.width) | part));
                    } else {
                        beginnings.push(part & mask(width));
                    }
                    marked.resize(beginnings.len(), (nth, offset));
                }
            }
            let keys = |(width, _): &(usize, usize)| {
                let has_class = |keyed: &&KeyedWord| {
                    CLASSES[keyed.class].width == *width && CLASSES[keyed.class].stride == stride
                };
                let keys: Vec<u64> = entries.iter().filter(has_class).map(|keyed| keyed.key).collect();
                Keys { mask: mask(width + stride - 1), fine: Fine::new(&keys) }
            };
            let keys = classes.iter().map(keys).collect();
            let marks = Marks::new(&beginnings, &marked);
            Probe { mask: mask(width), stride, keys, marks, map: Coarse::new(&beginnings) }
        };
        splits(best).into_iter().map(probe).collect::<Vec<_>>()
    };
    [grouped(2), grouped(1)].into_iter().flatten().collect()
}

/// Estimated likelihood that two pieces of this length are equal. Based on the words, because the texts are unknown.
fn estimate_likeness(words: &[&[u8]], width: usize) -> f64 {
    const SAMPLE: usize = 4_096;
    let long: Vec<&&[u8]> = words.iter().filter(|word| word.len() >= width).collect();
    let step = long.len().div_ceil(SAMPLE).max(1);
    let mut pieces: Vec<u64> = (0_u64..)
        .zip(long.into_iter().step_by(step))
        .map(|(nth, word)| {
            let choices = u64::try_from(word.len() - width + 1).unwrap_or(1);
            at(word, usize::try_from((hash(nth + 1) >> 32) % choices).unwrap_or_default(), width)
        })
        .collect();
    pieces.sort_unstable();
    let pairs = |count: usize| count * count.saturating_sub(1) / 2;
    let equal: usize = pieces.chunk_by(|a, b| a == b).map(|equal| pairs(equal.len())).sum();
    #[expect(clippy::cast_precision_loss, reason = "a guess")]
    let share = equal as f64 / pairs(pieces.len()).max(1) as f64;
    share
}

//! Chooses which lengths of parts share a pass over a text, by what the passes are likely to cost.
//!
//! A wrong guess costs time and never changes what is found.

use std::ops::Range;

use super::{
    keys::{CLASSES, Keyed, Keys, Probe, at, mask},
    maps::{Coarse, Fine, Marks, hash},
};

/// Cost of an answer of the coarse map beside a probe, and each class that it may be of. Less than it takes: pieces
/// of words are guessed to be several times as common in texts as they turn out to be.
const ANSWER: f64 = 1.0;
const PART: f64 = 0.5;

/// Each byte that may follow a part.
const BYTES: usize = 256;

/// Classes share a probe if that is cheaper: a probe for what the parts of several classes begin with is answered more
/// often than probes for each whole part.
pub(super) fn passes(words: &[&[u8]], entries: &[Keyed]) -> Vec<Probe> {
    let mut counts = [0_usize; CLASSES.len()];
    for entry in entries {
        counts[entry.class] += CLASSES[entry.class].stride;
    }
    let grouped = |stride: usize| {
        // From the shortest parts to the longest.
        let used = (0..CLASSES.len()).rev().filter(|class| CLASSES[*class].stride == stride);
        let used: Vec<_> =
            used.map(|class| (CLASSES[class].width, counts[class])).filter(|(_, count)| *count > 0).collect();
        let alike: Vec<f64> = used.iter().map(|(width, _)| likeness(words, *width)).collect();
        let all = |range: &Range<usize>| used[range.clone()].iter().map(|(_, count)| count).sum::<usize>();
        // Few parts that are a byte too short stand in the map with each byte that may follow: that costs less than a
        // pass of their own.
        let padded = |range: &Range<usize>| {
            let (width, count) = used[range.start];
            range.len() > 1 && used[range.start + 1].0 == width + 1 && count * BYTES <= all(range)
        };
        let group = |range: Range<usize>| {
            let (start, count) = if padded(&range) {
                (range.start + 1, all(&range) + used[range.start].1 * (BYTES - 1))
            } else {
                (range.start, all(&range))
            };
            #[expect(clippy::cast_precision_loss, reason = "a guess")]
            let (count, classes) = (count as f64, range.len() as f64);
            1.0 + (1.0 - (-count * alike[start]).exp()) * (ANSWER + PART * classes)
        };
        // Each bit says whether a new probe begins before a class; there are at most six of one stride.
        let splits = |split: usize| {
            let mut starts: Vec<usize> =
                (0..used.len()).filter(|nth| *nth == 0 || split >> nth & 1 == 1).collect();
            starts.push(used.len());
            starts.windows(2).map(|ends| ends[0]..ends[1]).collect::<Vec<_>>()
        };
        let cost = |split: &usize| splits(*split).into_iter().map(group).sum::<f64>();
        let best = (0..1 << used.len()).min_by(|a, b| cost(a).total_cmp(&cost(b))).unwrap_or_default();
        let probe = |range: Range<usize>| {
            let width = used[range.start + usize::from(padded(&range))].0;
            let classes = &used[range.clone()];
            let (mut beginnings, mut marked) = (Vec::with_capacity(all(&range)), Vec::new());
            for keyed in entries {
                let class = CLASSES[keyed.class];
                let nth = classes.iter().position(|(width, _)| *width == class.width);
                let Some(nth) = nth.filter(|_| class.stride == stride) else { continue };
                for (offset, part) in keyed.parts() {
                    if class.width < width {
                        beginnings.extend((0..BYTES as u64).map(|byte| byte << (8 * class.width) | part));
                    } else {
                        beginnings.push(part & mask(width));
                    }
                    marked.resize(beginnings.len(), (nth, offset));
                }
            }
            let keys = |(width, _): &(usize, usize)| {
                let of = |keyed: &&Keyed| {
                    CLASSES[keyed.class].width == *width && CLASSES[keyed.class].stride == stride
                };
                let keys: Vec<u64> = entries.iter().filter(of).map(|keyed| keyed.key).collect();
                Keys { mask: mask(width + stride - 1), fine: Fine::of(&keys) }
            };
            let keys = classes.iter().map(keys).collect();
            let marks = Marks::of(&beginnings, &marked);
            Probe { mask: mask(width), stride, keys, marks, map: Coarse::of(&beginnings) }
        };
        splits(best).into_iter().map(probe).collect::<Vec<_>>()
    };
    [grouped(2), grouped(1)].into_iter().flatten().collect()
}

/// Likelihood that two pieces of so many bytes are equal, guessed from the words: nothing else is known of the texts.
fn likeness(words: &[&[u8]], width: usize) -> f64 {
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

//! Thread pool that decodes and hashes files within one memory budget. Callers limit how many files wait for a thread.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};

use crate::{
    decode::{DecodeError, Gray, ImageInfo, MemoryBudget, decode},
    fingerprint::{Fingerprint, Frame, Reason, State},
    hashes::{digests::Digests, pdq, perceptual::Perceptual},
    limits::Limits,
    metrics,
};

/// Decodes and hashes files. Clones share threads and memory.
#[derive(Clone)]
pub struct Decoders {
    pool: Arc<ThreadPool>,
    pipeline: Arc<Pipeline>,
}

struct Pipeline {
    limits: Limits,
    budget: MemoryBudget,
    perceptual: Perceptual,
}

/// The system does not start the threads.
#[derive(Debug, thiserror::Error)]
#[error("cannot start the threads that decode: {0}")]
pub struct DecodersError(#[from] ThreadPoolBuildError);

impl DecodersError {
    pub fn tag(&self) -> &'static str {
        "decoders_threads"
    }
}

impl Decoders {
    pub fn new(limits: Limits) -> Result<Self, DecodersError> {
        let pool = ThreadPoolBuilder::new()
            .num_threads(limits.threads)
            .thread_name(|at| format!("media-{at}"))
            .panic_handler(|_| metrics::result_lost())
            .build()?;
        let budget = MemoryBudget::new(limits.decode_bytes);
        let pipeline = Pipeline { limits, budget, perceptual: Perceptual::new() };
        Ok(Self { pool: Arc::new(pool), pipeline: Arc::new(pipeline) })
    }

    pub fn limits(&self) -> &Limits {
        &self.pipeline.limits
    }

    /// Returns the fingerprint of a file whose digests were computed while it arrived. Blocks until a thread has made it, so
    /// async code uses `submit`. Never panics.
    pub fn fingerprint(&self, bytes: &[u8], digests: Digests) -> Fingerprint {
        self.pool.install(|| self.pipeline.fingerprint(bytes, digests))
    }

    /// Returns the luma of a file's first picture as it is hashed, to compare decoders and to measure decoding.
    pub fn luma(&self, bytes: &[u8]) -> Option<Gray> {
        self.pool.install(|| self.pipeline.luma(bytes))
    }

    /// Makes the fingerprint without blocking. `receiver` is called on a thread of the pool and should only pass it on. The
    /// bytes are held until then, or until their turn comes and the receiver does not want the result any more.
    pub fn submit(
        &self,
        bytes: impl AsRef<[u8]> + Send + 'static,
        digests: Digests,
        receiver: impl FingerprintReceiver + Send + 'static,
    ) {
        let pipeline = Arc::clone(&self.pipeline);
        self.pool.spawn(move || {
            if receiver.is_wanted() {
                let fingerprint = pipeline.fingerprint(bytes.as_ref(), digests);
                drop(bytes);
                receiver.receive(fingerprint);
            }
        });
    }
}

/// Receives a fingerprint that was submitted.
pub trait FingerprintReceiver {
    /// True if the result is still wanted. Called before the work begins.
    fn is_wanted(&self) -> bool {
        true
    }

    fn receive(self, fingerprint: Fingerprint);
}

impl<F: FnOnce(Fingerprint)> FingerprintReceiver for F {
    fn receive(self, fingerprint: Fingerprint) {
        self(fingerprint);
    }
}

impl Pipeline {
    fn fingerprint(&self, bytes: &[u8], digests: Digests) -> Fingerprint {
        let mut fingerprint = Fingerprint::unhashed(State::Ok, None, digests);
        // Panics of decoders are caught one by one, so that another decoder may follow. This catches those around them.
        let done = catch_unwind(AssertUnwindSafe(|| self.hash_pictures(bytes, &mut fingerprint)));
        let done = done.unwrap_or(Err(DecodeError::Undecodable(Reason::DecoderFault)));
        (fingerprint.state, fingerprint.reason) = match done {
            // Frames that were hashed before an error are valid.
            _ if fingerprint.frames.iter().any(Frame::is_comparable) => (State::Ok, None),
            _ if !fingerprint.frames.is_empty() => (State::LowQuality, None),
            Err(DecodeError::TooLarge(reason)) => (State::TooLarge, Some(reason)),
            Err(DecodeError::Undecodable(reason)) => (State::Undecodable, Some(reason)),
            Ok(()) | Err(DecodeError::TooSmall) => (State::TooSmall, None),
        };
        metrics::fingerprint_made(fingerprint.state);
        fingerprint
    }

    fn luma(&self, bytes: &[u8]) -> Option<Gray> {
        let (mut info, mut first) = (ImageInfo::default(), None);
        let limits = Limits { frames: 0, ..self.limits.clone() };
        // A picture that was handed out before an error is valid.
        decode(bytes, &limits, &self.budget, &mut info, &mut |_, gray| {
            first.get_or_insert(gray);
        })
        .ok();
        first
    }

    fn hash_pictures(&self, bytes: &[u8], into: &mut Fingerprint) -> Result<(), DecodeError> {
        let mut info = ImageInfo::default();
        let done = decode(bytes, &self.limits, &self.budget, &mut info, &mut |at, gray| {
            self.hash_picture(at, &gray, into);
        });
        (into.format, into.width, into.height) = (info.format, info.width, info.height);
        done
    }

    fn hash_picture(&self, at: u32, gray: &Gray, into: &mut Fingerprint) {
        let Some((hashed, turned)) = pdq::hash_all_orientations(&gray.samples, gray.width, gray.height)
        else {
            return;
        };
        let turned = turned.to_vec();
        into.frames.push(Frame { at, pdq: hashed.hash, quality: hashed.quality, turned });
        if into.gradient8.is_none() {
            into.gradient8 = Some(self.perceptual.gradient8(gray));
            into.dct16 = Some(self.perceptual.dct16(gray));
        }
    }
}

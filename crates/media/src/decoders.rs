//! Thread pool that decodes and hashes files within one memory budget. Callers limit how many files wait for a thread.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};
use tidegate_image_decode::{DecodeError, DecodeLimits, ImageInfo, LumaImage, MemoryBudget, Reason, decode};

use crate::{
    fingerprint::{Fingerprint, Frame, State},
    hashes::{digests::Digests, pdq, perceptual::PerceptualHasher},
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
    decode_limits: DecodeLimits,
    budget: MemoryBudget,
    perceptual: PerceptualHasher,
}

/// The operating system refused to start the pool's threads.
#[derive(Debug, thiserror::Error)]
#[error("cannot start the decoder threads: {0}")]
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
            .thread_name(|index| format!("media-{index}"))
            .panic_handler(|_| metrics::count_lost_result())
            .build()?;
        let budget = MemoryBudget::new(limits.decode_bytes);
        let decode_limits = limits.decode_limits();
        let pipeline = Pipeline { limits, decode_limits, budget, perceptual: PerceptualHasher::new() };
        Ok(Self { pool: Arc::new(pool), pipeline: Arc::new(pipeline) })
    }

    pub fn limits(&self) -> &Limits {
        &self.pipeline.limits
    }

    /// Computes the fingerprint of a file from its bytes and its digests. Blocks until a pool thread is done; async code
    /// uses `submit` instead. Never panics.
    pub fn fingerprint(&self, bytes: &[u8], digests: Digests) -> Fingerprint {
        self.pool.install(|| self.pipeline.fingerprint(bytes, digests))
    }

    /// Returns the luma of the first picture, as hashed. For comparisons and benchmarks of decoders.
    pub fn luma(&self, bytes: &[u8]) -> Option<LumaImage> {
        self.pool.install(|| self.pipeline.luma(bytes))
    }

    /// Computes the fingerprint without blocking. `receiver` runs on a pool thread and should only forward the result. The
    /// bytes are freed before it runs, or at the file's turn if the receiver no longer wants the result.
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
                // A receiver may block, and the file should not occupy memory meanwhile.
                drop(bytes);
                receiver.receive(fingerprint);
            }
        });
    }
}

/// Receiver of one fingerprint computed by `Decoders::submit`.
pub trait FingerprintReceiver {
    /// True if the result is still wanted. Called once, before decoding starts.
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
        // `catch_panic` handles each decoder separately, so that a second one can run. This catches panics outside of
        // decoders.
        let hashing_result = catch_unwind(AssertUnwindSafe(|| self.hash_pictures(bytes, &mut fingerprint)));
        let hashing_result = hashing_result.unwrap_or(Err(DecodeError::Undecodable(Reason::DecoderFault)));
        (fingerprint.state, fingerprint.reason) = match hashing_result {
            // Frames hashed before an error are valid.
            _ if fingerprint.frames.iter().any(Frame::is_comparable) => (State::Ok, None),
            _ if !fingerprint.frames.is_empty() => (State::LowQuality, None),
            Err(DecodeError::TooLarge(reason)) => (State::TooLarge, Some(reason)),
            Err(DecodeError::Undecodable(reason)) => (State::Undecodable, Some(reason)),
            Ok(()) | Err(DecodeError::TooSmall) => (State::TooSmall, None),
        };
        metrics::count_fingerprint(fingerprint.state);
        fingerprint
    }

    fn luma(&self, bytes: &[u8]) -> Option<LumaImage> {
        let (mut info, mut first_picture) = (ImageInfo::default(), None);
        let limits = DecodeLimits { frames: 0, ..self.decode_limits.clone() };
        // A picture emitted before an error is valid.
        decode(bytes, &limits, &self.budget, &mut info, &mut |_, gray| {
            first_picture.get_or_insert(gray);
        })
        .ok();
        first_picture
    }

    fn hash_pictures(&self, bytes: &[u8], fingerprint: &mut Fingerprint) -> Result<(), DecodeError> {
        let mut info = ImageInfo::default();
        let decode_result = decode(bytes, &self.decode_limits, &self.budget, &mut info, &mut |at, gray| {
            self.hash_picture(at, &gray, fingerprint);
        });
        (fingerprint.format, fingerprint.width, fingerprint.height) = (info.format, info.width, info.height);
        decode_result
    }

    fn hash_picture(&self, at: u32, gray: &LumaImage, fingerprint: &mut Fingerprint) {
        let Some((pdq_result, reoriented_hashes)) =
            pdq::hash_all_orientations(&gray.samples, gray.width, gray.height)
        else {
            return;
        };
        let reoriented_hashes = reoriented_hashes.to_vec();
        fingerprint.frames.push(Frame {
            at,
            pdq: pdq_result.hash,
            quality: pdq_result.quality,
            turned: reoriented_hashes,
        });
        // These hashes describe the first frame only.
        if fingerprint.gradient8.is_none() {
            fingerprint.gradient8 = Some(self.perceptual.gradient8(gray));
            fingerprint.dct16 = Some(self.perceptual.dct16(gray));
        }
    }
}

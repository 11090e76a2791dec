//! From a file's bytes to its fingerprint, on a pool of threads with one budget of memory.
//!
//! Whoever hands in bytes bounds how many wait for a thread.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use image::{DynamicImage, GrayImage};
use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};

use crate::{
    decode::{About, Budget, Gray, Refusal, decode},
    fingerprint::{Fingerprint, Frame, State, reason},
    hashes::{digests::Digests, pdq, perceptual::Perceptual},
    limits::Limits,
};

/// Decodes and hashes. Clones share threads and memory.
#[derive(Clone)]
pub struct Decoders {
    pool: Arc<ThreadPool>,
    work: Arc<Work>,
}

struct Work {
    limits: Limits,
    budget: Budget,
    perceptual: Perceptual,
}

/// The system refuses threads.
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
            .panic_handler(|_| metrics::counter!("tidegate_media_lost_results_total").increment(1))
            .build()?;
        let budget = Budget::new(limits.decode_bytes);
        let work = Work { limits, budget, perceptual: Perceptual::new() };
        Ok(Self { pool: Arc::new(pool), work: Arc::new(work) })
    }

    pub fn limits(&self) -> &Limits {
        &self.work.limits
    }

    /// The fingerprint of a file, whose digests were made while it arrived. Blocks until a thread has made it: on a
    /// runtime's worker use `submit`. Never panics.
    pub fn fingerprint(&self, bytes: &[u8], digests: Digests) -> Fingerprint {
        self.pool.install(|| self.work.fingerprint(bytes, digests))
    }

    /// The luma of a file's first picture, as it is hashed: to compare decoders, and to tell what decoding costs.
    pub fn luma(&self, bytes: &[u8]) -> Option<Gray> {
        self.pool.install(|| self.work.luma(bytes))
    }

    /// The same as `fingerprint` without blocking: `done` is called on a thread of the pool. It should only pass the
    /// fingerprint on. The bytes are held until then, or until their turn comes and nobody wants them any more.
    pub fn submit(
        &self,
        bytes: impl AsRef<[u8]> + Send + 'static,
        digests: Digests,
        done: impl Done + Send + 'static,
    ) {
        let work = Arc::clone(&self.work);
        self.pool.spawn(move || {
            if done.is_wanted() {
                let fingerprint = work.fingerprint(bytes.as_ref(), digests);
                drop(bytes);
                done.pass(fingerprint);
            }
        });
    }
}

/// Who waits for a fingerprint.
pub trait Done {
    /// Asked before the work begins.
    fn is_wanted(&self) -> bool {
        true
    }

    fn pass(self, fingerprint: Fingerprint);
}

impl<F: FnOnce(Fingerprint)> Done for F {
    fn pass(self, fingerprint: Fingerprint) {
        self(fingerprint);
    }
}

impl Work {
    fn fingerprint(&self, bytes: &[u8], digests: Digests) -> Fingerprint {
        let mut fingerprint = Fingerprint::unhashed(State::Ok, None, digests);
        // Decoders are guarded one by one, so that another may follow; this is for what is around them.
        let done = catch_unwind(AssertUnwindSafe(|| self.pictures(bytes, &mut fingerprint)));
        let done = done.unwrap_or(Err(Refusal::Undecodable(reason::DECODER_FAULT)));
        (fingerprint.state, fingerprint.reason) = match done {
            // What was hashed before a fault stands.
            _ if fingerprint.frames.iter().any(Frame::is_telling) => (State::Ok, None),
            _ if !fingerprint.frames.is_empty() => (State::LowQuality, None),
            Err(Refusal::TooLarge(why)) => (State::TooLarge, Some(why)),
            Err(Refusal::Undecodable(why)) => (State::Undecodable, Some(why)),
            Ok(()) | Err(Refusal::TooSmall) => (State::TooSmall, None),
        };
        metrics::counter!("tidegate_media_fingerprints_total", "state" => fingerprint.state.tag())
            .increment(1);
        fingerprint
    }

    fn luma(&self, bytes: &[u8]) -> Option<Gray> {
        let (mut about, mut first) = (About::default(), None);
        let limits = Limits { frames: 0, ..self.limits.clone() };
        // What was handed out before a fault stands.
        decode(bytes, &limits, &self.budget, &mut about, &mut |_, gray| {
            first.get_or_insert(gray);
        })
        .ok();
        first
    }

    fn pictures(&self, bytes: &[u8], into: &mut Fingerprint) -> Result<(), Refusal> {
        let mut about = About::default();
        let done = decode(bytes, &self.limits, &self.budget, &mut about, &mut |at, gray| {
            self.picture(at, gray, into);
        });
        (into.format, into.width, into.height) = (about.format, about.width, about.height);
        done
    }

    fn picture(&self, at: u32, gray: Gray, into: &mut Fingerprint) {
        let Some((hashed, turned)) = pdq::hash_turned(&gray.samples, gray.width, gray.height) else { return };
        let turned = turned.to_vec();
        into.frames.push(Frame { at, pdq: hashed.hash, quality: hashed.quality, turned });
        if into.gradient8.is_none()
            && let Some(gray) = GrayImage::from_raw(gray.width, gray.height, gray.samples)
        {
            let gray = DynamicImage::ImageLuma8(gray);
            into.gradient8 = Some(self.perceptual.gradient8(&gray));
            into.dct16 = Some(self.perceptual.dct16(&gray));
        }
    }
}

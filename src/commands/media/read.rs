//! Computes the fingerprint of a file in bounded memory: a file that is too large to decode is only digested.

use std::{
    fs::File,
    io::{self, Read as _},
    path::Path,
};

use anyhow::Context as _;
use tidegate_media::{Decoders, DigestHasher, Fingerprint};

const BLOCK_BYTES: usize = 64 * 1024;

pub(super) fn fingerprint(path: &Path, decoders: &Decoders) -> anyhow::Result<Fingerprint> {
    read(path, decoders).with_context(|| format!("cannot read {}", path.display()))
}

fn read(path: &Path, decoders: &Decoders) -> io::Result<Fingerprint> {
    let mut file = File::open(path)?;
    let (mut hasher, mut content, mut length) = (DigestHasher::new(), Vec::new(), 0);
    let mut block = vec![0; BLOCK_BYTES];
    loop {
        let read = match file.read(&mut block) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        hasher.update(&block[..read]);
        length += read as u64;
        if length > decoders.limits().bytes {
            // Too large to decode: only digests are computed, so its content is dropped.
            content = Vec::new();
        } else {
            content.extend_from_slice(&block[..read]);
        }
    }
    let digests = hasher.finish();
    if length > decoders.limits().bytes {
        return Ok(Fingerprint::too_many_bytes(digests));
    }
    Ok(decoders.fingerprint(&content, digests))
}

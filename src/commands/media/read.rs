//! A file's fingerprint, read in bounded memory: what is too large to decode is only digested.

use std::{
    fs::File,
    io::{self, Read as _},
    path::Path,
};

use anyhow::Context as _;
use tidegate_media::{Decoders, DigestHasher, Fingerprint};

const BLOCK: usize = 64 * 1024;

pub(super) fn fingerprint(path: &Path, decoders: &Decoders) -> anyhow::Result<Fingerprint> {
    read(path, decoders).with_context(|| format!("cannot read {}", path.display()))
}

fn read(path: &Path, decoders: &Decoders) -> io::Result<Fingerprint> {
    let mut file = File::open(path)?;
    let (mut digesting, mut kept, mut length) = (DigestHasher::new(), Vec::new(), 0);
    let mut block = vec![0; BLOCK];
    loop {
        let read = match file.read(&mut block) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        digesting.update(&block[..read]);
        length += read as u64;
        if length > decoders.limits().bytes {
            kept = Vec::new();
        } else {
            kept.extend_from_slice(&block[..read]);
        }
    }
    let digests = digesting.finish();
    if length > decoders.limits().bytes {
        return Ok(Fingerprint::too_many_bytes(digests));
    }
    Ok(decoders.fingerprint(&kept, digests))
}

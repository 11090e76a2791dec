//! Whether a conversion that is to go on has ended: its bundle has its name, and nothing is left to go on with.
//!
//! The bundle is made again elsewhere and held against the one that is there, which stays as it is.

use std::{
    fs::File,
    io::{self, BufRead as _, BufReader, Read as _},
    path::Path,
    sync::Arc,
};

use memchr::{memchr_iter, memmem};
use sha2::{Digest as _, Sha256};

use super::{DIGEST, Job, Report, Target, convert, others};
use crate::{
    fault::Fault,
    input::name_of,
    meter::Meter,
    moment::Moment,
    write::{
        json::hex_of,
        parts::{Parts, clear_ended},
    },
};

/// What was made of it, if what is there is what it makes.
pub(super) fn finished(job: &Job, meter: &Arc<Meter>) -> Result<Option<Report>, Fault> {
    let Some((out, began)) = standing(job) else { return Ok(None) };
    let spool = tempfile::tempdir()
        .map_err(|error| Fault::Io { doing: "making a temporary folder".to_owned(), error })?;
    let path = spool.path().join("bundle.json");
    let again = Job {
        target: Target::File(path.clone()),
        exported: job.exported.or(began),
        resume: false,
        sidecars: Some(Vec::new()),
        package: false,
        license: None,
        ..job.clone()
    };
    let mut report = match convert(&again, meter) {
        Ok(report) => report,
        // It makes nothing: what is there is something else.
        Err(Fault::Content { .. } | Fault::Refused(_)) => return Ok(None),
        Err(fault) => return Err(fault.begins_anew()),
    };
    let seen = |path: &Path| {
        seen(path, meter).map_err(|error| match Fault::from_io(&name_of(path), error) {
            fault @ Fault::Stopped { .. } => fault.begins_anew(),
            fault => fault,
        })
    };
    let (made, there) = (seen(&path)?, seen(out)?);
    let is_its_id = match &job.bundle_id {
        Some(named) => there.id == *named,
        None => there.id.ends_with(&there.sha256[..DIGEST]),
    };
    // A fresh key makes other pseudonyms: that nobody else's stand there is told by an id that is made of them.
    let is_same = made.sha256 == there.sha256 || job.key.is_none() && job.bundle_id.is_none();
    if made.weight != there.weight || !is_its_id || !is_same {
        return Ok(None);
    }
    hold_beside(job, out, report.bytes)?;
    clear_ended(out)?;
    (report.bundle_id, report.content_sha256) = (Some(there.id), Some(there.sha256));
    (report.files, report.finished) = (Vec::new(), true);
    Ok(Some(report))
}

/// A bundle of ours without anything to go on with, and when it says that it was made.
fn standing(job: &Job) -> Option<(&Path, Option<Moment>)> {
    let Target::File(out) = &job.target else { return None };
    let goes_on = job.resume && !job.force && !job.dry_run && job.to.is_none() && !Parts::left(out);
    if !goes_on || !out.symlink_metadata().is_ok_and(|found| found.is_file()) {
        return None;
    }
    let mut beginning = Vec::new();
    File::open(out).ok()?.take(BEGINNING).read_to_end(&mut beginning).ok()?;
    let (began, _) = text_of(&beginning, b",\"exportedAt\":")?;
    Some((out, Some(Moment::parse(&began)?)))
}

/// The constants and the id are shorter.
const BEGINNING: u64 = 64 << 10;

/// The text behind a name, and where it ends.
fn text_of(line: &[u8], name: &[u8]) -> Option<(String, usize)> {
    let at = memmem::find(line, name)? + name.len();
    let mut texts = serde_json::Deserializer::from_slice(&line[at..]).into_iter::<String>();
    let text = texts.next()?.ok()?;
    Some((text, at + texts.byte_offset()))
}

/// What of a bundle tells it from another one.
struct Seen {
    id: String,
    /// Of everything behind the id.
    sha256: String,
    /// Of all lines, in any order and whatever the pseudonyms.
    weight: u128,
}

fn seen(path: &Path, meter: &Meter) -> io::Result<Seen> {
    let mut file = BufReader::with_capacity(1 << 18, File::open(path)?);
    let (mut sha256, mut weight, mut id, mut line) = (Sha256::new(), 0_u128, None, Vec::new());
    while file.read_until(b'\n', &mut line)? > 0 {
        meter.go_on().map_err(Fault::into_io)?;
        if id.is_none() {
            let (text, end) = text_of(&line, b",\"bundleId\":").unwrap_or_default();
            sha256.update(&line[end..]);
            id = Some(text);
        } else {
            sha256.update(&line);
        }
        weight = weight.wrapping_add(weight_of(&mut line));
        line.clear();
    }
    let sha256: [u8; 32] = sha256.finalize().into();
    Ok(Seen { id: id.unwrap_or_default(), sha256: hex_of(&sha256), weight })
}

/// Digits of a pseudonym.
const PSEUDONYM: usize = 32;

/// The last element of a list has no comma; which one that is follows from the pseudonyms.
fn weight_of(line: &mut [u8]) -> u128 {
    let end = line.iter().rposition(|byte| !matches!(byte, b'\n' | b',')).map_or(0, |last| last + 1);
    let line = &mut line[..end];
    let places: Vec<_> = memchr_iter(b':', line).map(|colon| colon + 1).collect();
    for at in places {
        if let Some(digits) = line.get_mut(at..at + PSEUDONYM)
            && digits.iter().all(u8::is_ascii_hexdigit)
        {
            digits.fill(b'0');
        }
    }
    let digest: [u8; 32] = Sha256::digest(line).into();
    digest.first_chunk().map_or(0, |half| u128::from_be_bytes(*half))
}

/// What is named before the bundle, and what is named behind it before the parts vanish.
fn hold_beside(job: &Job, out: &Path, bytes: u64) -> Result<(), Fault> {
    let beside = others::beside_it(job, out, others::sidecars(job, bytes));
    match beside.iter().find(|path| !path.exists()) {
        None => Ok(()),
        Some(missing) => Err(Fault::Refused(format!(
            "{} is there already, and {} beside it is not: --force makes both anew",
            name_of(out),
            name_of(missing)
        ))),
    }
}

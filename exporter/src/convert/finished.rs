//! Whether a conversion that is to go on has ended: its output has its name, and nothing is left to go on with.
//!
//! The output is made again elsewhere and held against the one that is there, which stays as it is.

use std::{
    fs::{self, File},
    io::{self, BufRead as _, BufReader, Read as _},
    path::Path,
    sync::Arc,
};

use memchr::{memchr_iter, memmem};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use super::{
    DIGEST, Format, Job, Report, Target, convert,
    outputs::{self, Beside},
    workspace::are_equal,
};
use crate::{
    bundle::write::parts::{Parts, clear_ended},
    error::Fault,
    input::name_of,
    json::write::hex_of,
    meter::Meter,
    privacy::Profile,
    tables::{self, Shape},
    timestamp::Moment,
};

/// What was made of it, if what is there is what it makes.
pub(super) fn finished(job: &Job, meter: &Arc<Meter>) -> Result<Option<Report>, Fault> {
    let Target::File(out) = &job.target else { return Ok(None) };
    if !job.resume || job.force || job.dry_run || Parts::left(out) {
        return Ok(None);
    }
    let found = match job.to {
        None => bundle(job, out, meter),
        Some(shape) => tables(job, shape, out, meter),
    };
    found.map_err(Fault::begins_anew)
}

fn bundle(job: &Job, out: &Path, meter: &Arc<Meter>) -> Result<Option<Report>, Fault> {
    let Some(began) = began(out) else { return Ok(None) };
    let spool = spool()?;
    let path = spool.path().join("bundle.json");
    let again = Job {
        target: Target::File(path.clone()),
        exported: job.exported.or(Some(began)),
        sidecars: Some(Vec::new()),
        package: false,
        license: None,
        ..job.clone()
    };
    let Some(mut report) = made(again, meter)? else { return Ok(None) };
    let seen = |path: &Path| seen(path, meter).map_err(|error| Fault::from_io(&name_of(path), error));
    let (made, there) = (seen(&path)?, seen(out)?);
    let is_its_id = match &job.bundle_id {
        Some(named) => there.id == *named,
        None => there.id.ends_with(&there.sha256[..DIGEST]),
    };
    if made.weight != there.weight || !is_its_id {
        return Ok(None);
    }
    // A fresh key makes other pseudonyms: that nobody else's stand there is told by an id that is made of them.
    let is_same = made.sha256 == there.sha256 || job.key.is_none() && job.bundle_id.is_none();
    if !is_same {
        return if job.key.is_some() { Err(another_key(out)) } else { Ok(None) };
    }
    fs::remove_file(&path).map_err(|error| Fault::io("removing", &path, error))?;
    report.notes.extend(hold_beside(job, out, spool.path(), report.bytes, meter)?);
    clear_ended(out)?;
    (report.bundle_id, report.content_sha256) = (Some(there.id), Some(there.sha256));
    (report.files, report.finished) = (Vec::new(), true);
    Ok(Some(report))
}

fn spool() -> Result<TempDir, Fault> {
    tempfile::tempdir().map_err(|error| Fault::Io { doing: "making a temporary folder".to_owned(), error })
}

/// Nothing, if the input makes nothing: what is there is something else.
fn made(again: Job, meter: &Arc<Meter>) -> Result<Option<Report>, Fault> {
    match convert(&Job { resume: false, ..again }, meter) {
        Err(Fault::Content { .. } | Fault::Refused(_)) => Ok(None),
        made => made.map(Some),
    }
}

fn another_key(out: &Path) -> Fault {
    let name = name_of(out);
    Fault::Refused(format!(
        "{name} is there already, and its pseudonyms were made with another key: with that --linkage-key-file it is the \
         same, --force replaces it"
    ))
}

/// Tables have no id that would tell that they are whole: each has to be as it is made again.
fn tables(job: &Job, shape: Shape, out: &Path, meter: &Arc<Meter>) -> Result<Option<Report>, Fault> {
    if !tables::names(shape).iter().any(|name| out.join(name).is_file()) {
        return Ok(None);
    }
    let spool = spool()?;
    let again = Job {
        target: Target::File(spool.path().join("tables")),
        exported: job.exported.or_else(|| tables::exported(out)),
        ..job.clone()
    };
    let Some(mut report) = made(again, meter)? else { return Ok(None) };
    for name in &report.files {
        let (made, there) = (spool.path().join("tables").join(name), out.join(name));
        let is = if !there.exists() {
            "is missing"
        } else if are_equal(&made, &there, meter).map_err(|error| Fault::from_io(name, error))? {
            continue;
        } else if is_linked(job, &report) {
            "was made with a fresh key, which is gone, so that nothing tells whether it is whole"
        } else {
            "is not what is made of the input"
        };
        let folder = name_of(out);
        return Err(Fault::Refused(format!(
            "{folder} is there already, and {name} in it {is}: --force makes all of it anew"
        )));
    }
    clear_ended(out)?;
    (report.files, report.finished) = (Vec::new(), true);
    Ok(Some(report))
}

/// Whether another fresh key makes other bytes of it.
fn is_linked(job: &Job, report: &Report) -> bool {
    let has_people = job.profile == Profile::Private && report.participants > 0;
    let tells_them_apart = report.format != Format::Bundle.name() && job.to != Some(Shape::SensemakingCsv);
    job.key.is_none() && has_people && tells_them_apart
}

/// When a bundle of ours says that it was made.
fn began(out: &Path) -> Option<Moment> {
    if !out.symlink_metadata().is_ok_and(|found| found.is_file()) {
        return None;
    }
    let mut beginning = Vec::new();
    File::open(out).ok()?.take(BEGINNING).read_to_end(&mut beginning).ok()?;
    let (began, _) = text_of(&beginning, b",\"exportedAt\":")?;
    Moment::parse(&began)
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

/// What is named before the bundle, and what is named behind it before the parts vanish, held against what is made of the
/// bundle that is there. Tells what it has no place for.
fn hold_beside(job: &Job, out: &Path, spool: &Path, bytes: u64, meter: &Meter) -> Result<Vec<String>, Fault> {
    let refused = |what: String| {
        let name = name_of(out);
        Err(Fault::Refused(format!("{name} is there already, and {what}: --force makes both anew")))
    };
    let beside = outputs::beside_it(job, out, outputs::sidecars(job, bytes));
    if let Some(missing) = beside.iter().find(|path| !path.exists()) {
        return refused(format!("{} beside it is not", name_of(missing)));
    }
    meter.expect(outputs::still_to_read(job, bytes));
    let called = spool.join(out.file_name().unwrap_or_default());
    let Beside { whole, described, notes } = outputs::write_beside(job, out, &called, bytes, meter)?;
    for made in whole.iter().chain(&described) {
        let name = name_of(made.path());
        let is_same = are_equal(made.lies_at(), &out.with_file_name(&name), meter);
        if !is_same.map_err(|error| Fault::from_io(&name, error))? {
            return refused(format!("{name} beside it is not what belongs to it"));
        }
    }
    Ok(notes)
}

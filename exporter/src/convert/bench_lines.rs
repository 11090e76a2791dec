//! Reads and formats rows without sorting or writing, to measure these steps of a conversion separately.

use std::{io::Write, sync::Arc};

use super::{
    Job,
    adapter::{self, Adapter},
    assign_roles,
};
use crate::{
    bundle::write::row_lines::{LineCache, RowFormatter},
    error::ConvertError,
    input::Input,
    meter::Meter,
    privacy::participants::{Key, ParticipantRegistry},
    storage::rows::order::Flow,
};

/// Bytes buffered before a write.
const BLOCK: usize = 256 << 10;
/// Upper bound of the length of a line, in bytes.
const MAX_LINE: usize = 4 << 10;

/// Writes a line for each row in input order, and returns the number of rows. For benchmarks only.
#[doc(hidden)]
pub fn lines(job: &Job, out: &mut impl Write) -> Result<u64, ConvertError> {
    let folder = std::env::temp_dir();
    let meter = Arc::new(Meter::default());
    let mut input = Input::open(&job.inputs, &folder, &[], &job.limits, &meter)?;
    let mut files = assign_roles(&mut input, job)?;
    // Hashing is not part of the measurement.
    files.iter_mut().for_each(|(member, _)| *member = member.without_digest());
    let key = job.key.clone().unwrap_or(Key(Vec::new()));
    let mut registry_for =
        |scope: Option<&str>| Ok(ParticipantRegistry::new(&key, scope.unwrap_or_default(), job.participants));
    let format = adapter::choose_format(&files, job)?;
    let (adapter, head, mut people) = Adapter::open(format, &files, job, &mut registry_for)?;
    let formatter = RowFormatter::new(&head, false);
    let (mut bytes, mut cache) = (Vec::with_capacity(BLOCK + MAX_LINE), LineCache::default());
    let mut write = |bytes: &mut Vec<u8>| {
        let result = out.write_all(bytes);
        bytes.clear();
        result.map_err(|error| ConvertError::Io { action: "writing lines".to_owned(), error })
    };
    let read = adapter.read_rows(&job.limits, &meter, &mut people, &mut Vec::new(), |row| {
        formatter.write_row(&mut bytes, row, 1, None, &mut cache);
        bytes.push(b'\n');
        if bytes.len() >= BLOCK {
            write(&mut bytes)?;
        }
        Ok(Flow::Continue)
    })?;
    write(&mut bytes)?;
    Ok(read.rows)
}

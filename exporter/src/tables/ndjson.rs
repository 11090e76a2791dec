//! Writes each list of a bundle as NDJSON, one element a line, with members in schema order.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{FinishedFile, PartialFile};
use crate::{
    bundle::read::{ElementReceiver, Item, Response, read_bundle},
    error::ConvertError,
    json::write::ObjectWriter,
    meter::Meter,
};

struct Files {
    items: PartialFile,
    responses: PartialFile,
    outcomes: PartialFile,
    line: Vec<u8>,
}

pub(crate) const FILES: [&str; 3] = ["items.ndjson", "responses.ndjson", "outcomes.ndjson"];

/// Writes the files; `path_of` maps a file name to its path.
pub(crate) fn write(
    bundle_path: &Path,
    path_of: impl Fn(&str) -> PathBuf,
    meter: &Meter,
) -> Result<Vec<FinishedFile>, ConvertError> {
    let [items, responses, outcomes] = FILES.map(|name| PartialFile::create(path_of(name)));
    let mut files = Files { items: items?, responses: responses?, outcomes: outcomes?, line: Vec::new() };
    read_bundle(bundle_path, &mut files, meter)?;
    Ok(vec![files.items.finish()?, files.responses.finish()?, files.outcomes.finish()?])
}

impl ElementReceiver for Files {
    const ITEMS: bool = true;
    const RESPONSES: bool = true;
    const OUTCOMES: bool = true;

    fn item(&mut self, item: Item) -> Result<(), ConvertError> {
        self.line.clear();
        let mut object = ObjectWriter::begin(&mut self.line);
        object
            .text("id", &item.id)
            .text("phaseId", &item.phase_id)
            .text("type", &item.kind)
            .text("text", &item.text)
            .text("status", &item.status)
            .text("origin", &item.origin)
            .value("createdAt", &item.created_at);
        object.end();
        self.line.push(b'\n');
        self.items.write(&self.line)
    }

    fn response(&mut self, response: Response) -> Result<(), ConvertError> {
        self.line.clear();
        let mut object = ObjectWriter::begin(&mut self.line);
        object
            .text("id", &response.id)
            .text("phaseId", &response.phase_id)
            .text("subjectRef", &response.subject_ref);
        if let Some(object_ref) = &response.object_ref {
            object.text("objectRef", object_ref);
        }
        object
            .value("participantRef", &response.participant_ref)
            .text("response", &response.response)
            .value("count", &response.count)
            .value("occurredAt", &response.occurred_at);
        object.end();
        self.line.push(b'\n');
        self.responses.write(&self.line)
    }

    fn outcome(&mut self, outcome: Value) -> Result<(), ConvertError> {
        self.outcomes.write(format!("{outcome}\n").as_bytes())
    }
}

//! Reads items and responses of a bundle without copying, for outputs of many rows. Only the JSON syntax is checked;
//! `validate` checks whole bundles.

use std::{fs::File, path::Path};

use super::read::not_a_bundle;
use crate::{
    bundle::validate::{Findings, Part, Row, Sink, Walk},
    error::ConvertError,
    form::Naming,
    input::name_of,
    json::{Limits, Reader, Stop},
    meter::{Meter, Metered},
};

/// Receiver of rows. Its methods return false if a row is invalid.
pub(crate) trait RowReceiver {
    fn item(&mut self, row: &Row) -> Result<bool, ConvertError>;
    fn response(&mut self, row: &Row) -> Result<bool, ConvertError>;
    /// Reports that the bundle has another outcome. Its content is not passed.
    fn outcome(&mut self);
}

/// Forwards rows to the receiver and keeps its error, since [`Stop`] cannot hold one.
struct RowForwarder<'p, R> {
    receiver: &'p mut R,
    name: String,
    meter: &'p Meter,
    error: Option<ConvertError>,
}

impl<R: RowReceiver> Sink for RowForwarder<'_, R> {
    fn on_entry(
        &mut self,
        part: Part,
        row: &Row,
        _counts: Option<&Row>,
        _findings: &mut Findings,
    ) -> Result<(), Stop> {
        let is_valid = match part {
            Part::Items => self.receiver.item(row),
            Part::Responses => {
                self.meter.count_row();
                self.receiver.response(row)
            }
            Part::Outcomes => {
                self.receiver.outcome();
                return Ok(());
            }
            _ => return Ok(()),
        };
        self.error = match is_valid {
            Ok(true) => return Ok(()),
            Ok(false) => Some(not_a_bundle(&self.name, row.at.line)),
            Err(error) => Some(error),
        };
        Err(Stop::StoppedByCaller)
    }
}

/// Passes all rows of a bundle to the receiver.
pub(crate) fn read_rows<R: RowReceiver>(
    path: &Path,
    receiver: &mut R,
    meter: &Meter,
) -> Result<(), ConvertError> {
    let file = File::open(path).map_err(|error| ConvertError::io("opening", path, error))?;
    let mut forwarder = RowForwarder { receiver, name: name_of(path), meter, error: None };
    let mut findings = Findings::new(1, false, usize::MAX);
    let reader = Reader::new(Metered::new(file, meter), Limits::default());
    let naming = Naming::Service;
    let walk_end = Walk::new(reader, naming.bundle(), naming.schema(), &mut findings, &mut forwarder).run();
    match (walk_end, forwarder.error) {
        (Err(Stop::Io(error)), _) => Err(ConvertError::from_io(&forwarder.name, error)),
        (_, Some(error)) => Err(error),
        // Findings other than syntax errors are ignored: they do not prevent a conversion of the rows.
        (Ok(_), None) => match findings.first_line(|rule| rule.id().starts_with("BND-LEX")) {
            Some(line) => Err(not_a_bundle(&forwarder.name, line)),
            None => Ok(()),
        },
        (Err(_), None) => Err(not_a_bundle(&forwarder.name, 1)),
    }
}

//! Reads items and responses of a bundle without copying, for outputs of many rows.
//!
//! It checks no more than it needs; `validate` checks bundles.

use std::{fs::File, path::Path};

use super::read::no_bundle;
use crate::{
    bundle::validate::{Findings, Part, Row, Sink, Walk},
    error::ConvertError,
    form::Naming,
    input::name_of,
    json::{Limits, Reader, Stop},
    meter::{Meter, Metered},
};

/// Receiver of rows; its methods return false if a row is not valid.
pub(crate) trait Rows {
    fn item(&mut self, row: &Row) -> Result<bool, ConvertError>;
    fn response(&mut self, row: &Row) -> Result<bool, ConvertError>;
    /// There is one; what it says is not passed on.
    fn outcome(&mut self);
}

struct Passing<'p, R> {
    to: &'p mut R,
    name: String,
    meter: &'p Meter,
    error: Option<ConvertError>,
}

impl<R: Rows> Sink for Passing<'_, R> {
    fn entry(
        &mut self,
        part: Part,
        row: &Row,
        _counts: Option<&Row>,
        _findings: &mut Findings,
    ) -> Result<(), Stop> {
        let taken = match part {
            Part::Items => self.to.item(row),
            Part::Responses => {
                self.meter.row();
                self.to.response(row)
            }
            Part::Outcomes => {
                self.to.outcome();
                return Ok(());
            }
            _ => return Ok(()),
        };
        self.error = match taken {
            Ok(true) => return Ok(()),
            Ok(false) => Some(no_bundle(&self.name, row.at.line)),
            Err(error) => Some(error),
        };
        Err(Stop::Enough)
    }
}

/// Passes on all rows.
pub(crate) fn rows<R: Rows>(path: &Path, to: &mut R, meter: &Meter) -> Result<(), ConvertError> {
    let file = File::open(path).map_err(|error| ConvertError::io("opening", path, error))?;
    let mut passing = Passing { to, name: name_of(path), meter, error: None };
    let mut findings = Findings::new(1, false, usize::MAX);
    let reader = Reader::new(Metered::new(file, meter), Limits::default());
    let naming = Naming::Service;
    let end = Walk::new(reader, naming.bundle(), naming.schema(), &mut findings, &mut passing).run();
    match (end, passing.error) {
        (Err(Stop::Io(error)), _) => Err(ConvertError::from_io(&passing.name, error)),
        (_, Some(error)) => Err(error),
        // Constants and bounds are not looked at.
        (Ok(_), None) => match findings.first(|rule| rule.id().starts_with("BND-LEX")) {
            Some(line) => Err(no_bundle(&passing.name, line)),
            None => Ok(()),
        },
        (Err(_), None) => Err(no_bundle(&passing.name, 1)),
    }
}

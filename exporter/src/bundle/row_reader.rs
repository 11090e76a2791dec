//! Items and responses of a bundle as they are read, for whoever takes many of them: nothing is copied on the way.
//!
//! Order and writer of the bundle make no difference. It checks no more than it needs.

use std::{fs::File, path::Path};

use super::read::no_bundle;
use crate::{
    bundle::validate::{Faults, Part, Row, Sink, Walk},
    error::Fault,
    form::Naming,
    input::name_of,
    json::{Limits, Reader, Stop},
    meter::{Meter, Metered},
};

/// Whoever takes the rows; false if something in one is not as it should be.
pub(crate) trait Rows {
    fn item(&mut self, row: &Row) -> Result<bool, Fault>;
    fn response(&mut self, row: &Row) -> Result<bool, Fault>;
    /// There is one; what it says is not passed on.
    fn outcome(&mut self);
}

struct Passing<'p, R> {
    to: &'p mut R,
    name: String,
    meter: &'p Meter,
    fault: Option<Fault>,
}

impl<R: Rows> Sink for Passing<'_, R> {
    fn entry(
        &mut self,
        part: Part,
        row: &Row,
        _counts: Option<&Row>,
        _faults: &mut Faults,
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
        self.fault = match taken {
            Ok(true) => return Ok(()),
            Ok(false) => Some(no_bundle(&self.name, row.at.line)),
            Err(fault) => Some(fault),
        };
        Err(Stop::Enough)
    }
}

/// Passes on all rows.
pub(crate) fn rows<R: Rows>(path: &Path, to: &mut R, meter: &Meter) -> Result<(), Fault> {
    let file = File::open(path).map_err(|error| Fault::io("opening", path, error))?;
    let mut passing = Passing { to, name: name_of(path), meter, fault: None };
    let mut faults = Faults::new(1, false);
    let reader = Reader::new(Metered::new(file, meter), Limits::default());
    let naming = Naming::Service;
    let end = Walk::new(reader, naming.bundle(), naming.schema(), &mut faults, &mut passing).run();
    match (end, passing.fault) {
        (Err(Stop::Io(error)), _) => Err(Fault::from_io(&passing.name, error)),
        (_, Some(fault)) => Err(fault),
        // Constants and bounds are not looked at.
        (Ok(_), None) => match faults.first(|rule| rule.id().starts_with("BND-LEX")) {
            Some(line) => Err(no_bundle(&passing.name, line)),
            None => Ok(()),
        },
        (Err(_), None) => Err(no_bundle(&passing.name, 1)),
    }
}

//! Reads conditions on places and on domains.
//!
//! It does not know which fields and banks exist.

use serde_json::Value as Json;
use tidegate_schemas::{banks::BankKind, ids::BankId};

use super::{Object, Reader, present};
use crate::form::{Circle, DomainTest, Geo, GeoSource};

/// Half around the earth: farther away there is nothing.
const FARTHEST: f64 = 20_100_000.0;

impl Reader<'_> {
    pub(super) fn geo(&mut self, value: &Json) -> Option<Geo> {
        let object = self.object(value, &["in", "lat", "lng", "within", "cells", "bank"])?;
        let source = self.source(object);
        let within = self.optional(object, "within", |r, v| {
            if v.is_array() { r.filled(v, Self::circle) } else { r.circle(v).map(|circle| vec![circle]) }
        });
        let cells = self.optional(object, "cells", |r, v| {
            r.one_or_more(v, |r, v| r.canonical(v, BankKind::Geo).filter(|cell| r.is_cell(cell)))
        });
        let bank = self.optional(object, "bank", |r, v| r.text(v).map(BankId::new));
        let written = ["within", "cells", "bank"].map(|key| present(object, key));
        if written == [false; 3] {
            return self.fault("shape", "expected one or more of within, cells and bank");
        }
        // Left out it would mean another thing.
        (written == [within.is_some(), cells.is_some(), bank.is_some()]).then_some(())?;
        let (within, cells) = (within.unwrap_or_default(), cells.unwrap_or_default());
        self.counted(within.len())?;
        Some(Geo { source: source?, within, cells, bank })
    }

    fn source(&mut self, object: &Object) -> Option<GeoSource> {
        match (present(object, "in"), present(object, "lat") || present(object, "lng")) {
            (true, false) => self.required(object, "in", |r, v| {
                let fields = r.filled(v, |r, v| r.text(v).map(str::to_owned))?;
                r.distinct(fields, "field").map(GeoSource::Hashes)
            }),
            (false, true) => {
                let path = |r: &mut Self, key| r.required(object, key, |r, v| r.text(v).map(str::to_owned));
                let (lat, lng) = (path(self, "lat"), path(self, "lng"));
                Some(GeoSource::Pair { lat: lat?, lng: lng? })
            }
            _ => self.fault("shape", "expected either `in`, or `lat` and `lng`"),
        }
    }

    fn is_cell(&mut self, value: &str) -> bool {
        let cell = !value.contains(',');
        if !cell {
            self.fault::<()>("type", "expected a geohash; `within` takes circles");
        }
        cell
    }

    fn circle(&mut self, value: &Json) -> Option<Circle> {
        let object = self.object(value, &["lat", "lng", "m", "km"])?;
        let degrees = |r: &mut Self, key, most: f64| {
            r.required(object, key, |r, v| match v.as_f64() {
                Some(degrees) if degrees.abs() <= most => Some(degrees),
                Some(_) => r.fault("type", format!("expected degrees between -{most} and {most}")),
                None => r.fault("type", "expected a number of degrees"),
            })
        };
        let (lat, lng) = (degrees(self, "lat", 90.0), degrees(self, "lng", 180.0));
        let (key, unit) = match (present(object, "m"), present(object, "km")) {
            (true, false) => ("m", 1.0),
            (false, true) => ("km", 1_000.0),
            _ => return self.fault("shape", "expected either `m` or `km`"),
        };
        let metres = self.required(object, key, |r, v| {
            let metres = v.as_f64().map(|number| number * unit);
            metres
                .filter(|metres| (1.0..=FARTHEST).contains(metres))
                .or_else(|| r.fault("type", "expected a distance between 1 metre and 20,100 kilometres"))
        });
        Some(Circle { lat: lat?, lng: lng?, metres: metres? })
    }

    pub(super) fn domain(&mut self, value: &Json) -> Option<DomainTest> {
        let object = self.object(value, &["in", "any_of", "bank"])?;
        let fields = self.required(object, "in", |r, v| {
            let fields = r.filled(v, |r, v| r.text(v).map(str::to_owned))?;
            r.distinct(fields, "field")
        });
        let domains = self.optional(object, "any_of", |r, v| {
            let domains = r.filled(v, |r, v| r.canonical(v, BankKind::Domain))?;
            r.counted(domains.len())?;
            Some(domains)
        });
        let bank = self.optional(object, "bank", |r, v| r.text(v).map(BankId::new));
        let written = ["any_of", "bank"].map(|key| present(object, key));
        if written == [false; 2] {
            return self.fault("shape", "expected one or more of any_of and bank");
        }
        (written == [domains.is_some(), bank.is_some()]).then_some(())?;
        Some(DomainTest { fields: fields?, domains: domains.unwrap_or_default(), bank })
    }

    fn canonical(&mut self, value: &Json, kind: BankKind) -> Option<String> {
        let text = self.text(value)?;
        kind.canonical(text).map_err(|why| self.fault::<()>("type", why)).ok()
    }
}

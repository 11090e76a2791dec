//! The condition `geo`: a place of the item lies in one of several areas.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use tidegate_schemas::{banks::BankKind, ids::BankId};

use super::{
    context::Context,
    input::EvalInput,
    kind::{DocumentLeaf, LeafKind, guess},
};
use crate::{
    error::excerpt,
    geo::{Area, Grid, Point},
    item::Value,
    limits::{OutOfSteps, Steps, to_u64},
    logic::{ConditionResult, Mask},
    reader::{Object, Reader, is_present},
    vocabulary::{EntryName, Kind},
};

/// Test for a place of the item in one of several areas.
#[derive(Clone, Debug, PartialEq)]
pub struct Geo {
    pub source: GeoSource,
    pub within: Vec<Circle>,
    /// Geohashes, each with all places in its cell.
    pub cells: Vec<String>,
    pub bank: Option<BankId>,
}

/// Paths of the places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GeoSource {
    /// Geohashes.
    Hashes(Vec<String>),
    /// Degrees.
    Pair { lat: String, lng: String },
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Circle {
    pub lat: f64,
    pub lng: f64,
    pub metres: f64,
}

/// Half of the earth's circumference, the largest possible distance.
const MAX_METRES: f64 = 20_100_000.0;

#[derive(Debug)]
pub(crate) struct GeoLeaf {
    pub(crate) places: GeoPlaces,
    areas: Vec<NamedArea>,
    /// Index of the areas, if there are many.
    grid: Option<Grid>,
}

/// Slots of the item's places.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum GeoPlaces {
    /// Geohashes.
    Hashes(Vec<usize>),
    /// Latitudes and longitudes.
    Pairs(usize, usize),
}

#[derive(Debug)]
struct NamedArea {
    shape: Shape,
    entry: Option<EntryName>,
}

#[derive(Debug)]
enum Shape {
    Circle { centre: Point, metres: f64 },
    Cell(String),
}

/// Maximum number of areas that are checked one by one.
const MAX_UNINDEXED_AREAS: usize = 16;

impl Shape {
    fn area(&self) -> Option<Area> {
        match self {
            Self::Circle { centre, metres } => Some(Area::around(*centre, *metres)),
            Self::Cell(hash) => Area::from_hash(hash),
        }
    }

    /// `Some` if the place lies inside, with its distance from the centre of a circle.
    fn locate(&self, place: &GeoPlace<'_>) -> Option<Option<f64>> {
        match self {
            Self::Circle { centre, metres } => {
                let distance = centre.metres_to(place.point);
                (distance <= *metres).then_some(Some(distance))
            }
            Self::Cell(hash) => place.hash().starts_with(hash).then_some(None),
        }
    }

    fn to_text(&self) -> String {
        match self {
            Self::Circle { centre, metres } => format!("{},{},{metres}", centre.lat, centre.lng),
            Self::Cell(hash) => hash.clone(),
        }
    }

    /// Parses the value of a bank entry.
    fn parse_entry(value: &str) -> Option<Self> {
        if !value.contains(',') {
            return Area::from_hash(value).map(|_| Self::Cell(value.to_owned()));
        }
        let numbers: Vec<f64> = value.split(',').map(|number| number.parse().ok()).collect::<Option<_>>()?;
        let [lat, lng, metres] = numbers[..] else { return None };
        Some(Self::Circle { centre: Point::new(lat, lng)?, metres })
    }
}

/// Place of an item.
pub(crate) struct GeoPlace<'a> {
    slot: usize,
    pub(crate) point: Point,
    hash: Option<&'a str>,
}

impl GeoPlace<'_> {
    fn hash(&self) -> std::borrow::Cow<'_, str> {
        // Coordinates get the longest geohash, because a cell contains a place if its hash is a prefix.
        self.hash.map_or_else(|| self.point.geohash().into(), Into::into)
    }

    fn to_text(&self, length: usize) -> String {
        match self.hash {
            Some(hash) => excerpt(hash, length).to_owned(),
            None => format!("{},{}", self.point.lat, self.point.lng),
        }
    }
}

impl GeoPlaces {
    /// All values of the item that are places.
    pub(crate) fn find_places<'a>(&self, input: &EvalInput<'a>) -> Vec<GeoPlace<'a>> {
        let mut places = Vec::new();
        match self {
            Self::Hashes(slots) => {
                for slot in slots {
                    for (_, value) in input.fields.slot(*slot).values.iter().flatten() {
                        let Value::Text(hash) = value else { continue };
                        let point = Area::from_hash(hash).and_then(Area::centre);
                        places.extend(point.map(|point| GeoPlace { slot: *slot, point, hash: Some(hash) }));
                    }
                }
            }
            Self::Pairs(lat, lng) => {
                let values =
                    |slot: usize| input.fields.slot(slot).values.as_deref().unwrap_or_default().iter();
                // In lists, a latitude and a longitude belong together by their position.
                for pair in values(*lat).zip(values(*lng)) {
                    let ((_, Value::Number(north)), (_, Value::Number(east))) = pair else { continue };
                    let point = Point::new(north.to_f64(), east.to_f64());
                    places.extend(point.map(|point| GeoPlace { slot: *lat, point, hash: None }));
                }
            }
        }
        places
    }
}

impl LeafKind for GeoLeaf {
    type Spec = Geo;
    type Explained = GeoExplained;

    fn paths(spec: &Geo, _context: &Context<'_>) -> Vec<String> {
        match &spec.source {
            GeoSource::Hashes(fields) => fields.clone(),
            GeoSource::Pair { lat, lng } => vec![lat.clone(), lng.clone()],
        }
    }

    fn compile(geo: Geo, context: &mut Context<'_>) -> Option<Self> {
        let places = match &geo.source {
            GeoSource::Hashes(fields) => {
                let slots: Vec<_> = context.at("in", |c| {
                    let slot = |(nth, field): (usize, &String)| {
                        c.at(nth, |c| c.resolve_slot_of_kind(field, Kind::Geohash, "GEOHASH"))
                    };
                    fields.iter().enumerate().map(slot).collect()
                });
                GeoPlaces::Hashes(slots.into_iter().collect::<Option<_>>()?)
            }
            GeoSource::Pair { lat, lng } => {
                let lat = context.at("lat", |c| c.resolve_slot_of_kind(lat, Kind::Number, "NUMBER"));
                let lng = context.at("lng", |c| c.resolve_slot_of_kind(lng, Kind::Number, "NUMBER"));
                GeoPlaces::Pairs(lat?, lng?)
            }
        };
        let circles = geo.within.into_iter().filter_map(|circle| {
            let centre = Point::new(circle.lat, circle.lng)?;
            Some(NamedArea { shape: Shape::Circle { centre, metres: circle.metres }, entry: None })
        });
        let cells = geo.cells.into_iter().map(|cell| NamedArea { shape: Shape::Cell(cell), entry: None });
        let mut areas: Vec<_> = circles.chain(cells).collect();
        if let Some(bank) = &geo.bank {
            let bank = context.resolve_bank(bank, &[BankKind::Geo])?;
            for entry in &*bank.entries {
                match Shape::parse_entry(&entry.value) {
                    Some(shape) => areas.push(NamedArea { shape, entry: Some(bank.name(entry)) }),
                    None => context.warn_unusable_entry(&bank.key, entry, "it is no place"),
                }
            }
        }
        context.count_words(areas.len())?;
        let grid = (areas.len() > MAX_UNINDEXED_AREAS).then(|| {
            let mut grid = Grid::default();
            for (nth, named) in (0_u32..).zip(&areas) {
                if let Some(area) = named.shape.area() {
                    grid.add(area, nth);
                }
            }
            grid
        });
        Some(Self { places, areas, grid })
    }

    fn witness(&self) -> Option<f32> {
        // Areas may overlap, so the sum of their shares may exceed 1.
        Some(self.boxes().map(Area::estimated_share).sum::<f32>().min(1.0))
    }

    fn cost(&self) -> f32 {
        10.0 + guess(self.areas.len().min(16))
    }

    fn evaluate(&self, input: &EvalInput<'_>, steps: &mut Steps) -> Result<Mask, OutOfSteps> {
        let places = self.places.find_places(input);
        // Without a place an item is neither inside nor outside of the areas.
        if places.is_empty() {
            return Ok(Mask::INAPPLICABLE);
        }
        for place in &places {
            let mut area_numbers = self.candidate_areas(place, steps)?.into_iter();
            if area_numbers.any(|nth| self.areas[nth].shape.locate(place).is_some()) {
                return Ok(Mask::PASSED);
            }
        }
        Ok(Mask::FAILED)
    }

    /// Shows the first place in each area, as far as the steps suffice.
    fn explain(
        &self,
        mask: Mask,
        _found_needles: Option<&[(u32, u32)]>,
        input: &EvalInput<'_>,
        steps: &mut Steps,
    ) -> GeoExplained {
        let length = input.limits.excerpt_bytes;
        let places = if mask.is_empty() { Vec::new() } else { self.places.find_places(input) };
        let mut first_places: BTreeMap<usize, (&GeoPlace<'_>, Option<f64>)> = BTreeMap::new();
        for place in &places {
            let Ok(area_numbers) = self.candidate_areas(place, steps) else { break };
            for nth in area_numbers {
                let inside = self.areas[nth].shape.locate(place).filter(|_| !first_places.contains_key(&nth));
                first_places.extend(inside.map(|metres| (nth, (place, metres))));
                // Only the areas with the lowest numbers are shown, independent of the order of the places.
                if first_places.len() > input.limits.hits {
                    first_places.pop_last();
                }
            }
        }
        let hits = first_places.into_iter().map(|(nth, (place, metres))| GeoHit {
            field: input.fields.path(place.slot).to_owned(),
            place: place.to_text(length),
            area: self.areas[nth].shape.to_text(),
            metres: metres.map(f64::round),
            entry: self.areas[nth].entry.clone(),
        });
        let fields = match &self.places {
            GeoPlaces::Hashes(slots) => slots.clone(),
            GeoPlaces::Pairs(lat, lng) => vec![*lat, *lng],
        };
        GeoExplained {
            outcome: mask.result(),
            fields: fields.into_iter().map(|slot| input.fields.path(slot).to_owned()).collect(),
            hits: hits.collect(),
        }
    }
}

impl DocumentLeaf for GeoLeaf {
    const KEY: &'static str = "geo";

    fn parse(reader: &mut Reader<'_>, value: &Json) -> Option<Geo> {
        reader.geo(value)
    }
}

impl Reader<'_> {
    fn geo(&mut self, value: &Json) -> Option<Geo> {
        let object = self.object(value, &["in", "lat", "lng", "within", "cells", "bank"])?;
        let source = self.source(object);
        let circles = self.optional(object, "within", |r, v| {
            if v.is_array() {
                r.non_empty_list(v, Self::circle)
            } else {
                r.circle(v).map(|circle| vec![circle])
            }
        });
        let cells = self.optional(object, "cells", |r, v| {
            r.one_or_more(v, |r, v| r.canonical(v, BankKind::Geo).filter(|cell| r.is_cell(cell)))
        });
        let bank = self.optional(object, "bank", |r, v| r.text(v).map(BankId::new));
        let present_keys = ["within", "cells", "bank"].map(|key| is_present(object, key));
        if present_keys == [false; 3] {
            return self.error("shape", "expected one or more of within, cells and bank");
        }
        // An invalid area would be left out silently, and the condition would have another meaning.
        (present_keys == [circles.is_some(), cells.is_some(), bank.is_some()]).then_some(())?;
        let (within, cells) = (circles.unwrap_or_default(), cells.unwrap_or_default());
        self.count_words(within.len())?;
        Some(Geo { source: source?, within, cells, bank })
    }

    fn source(&mut self, object: &Object) -> Option<GeoSource> {
        match (is_present(object, "in"), is_present(object, "lat") || is_present(object, "lng")) {
            (true, false) => self.required(object, "in", |r, v| r.paths(v).map(GeoSource::Hashes)),
            (false, true) => {
                let path = |r: &mut Self, key| r.required(object, key, |r, v| r.text(v).map(str::to_owned));
                let (lat, lng) = (path(self, "lat"), path(self, "lng"));
                Some(GeoSource::Pair { lat: lat?, lng: lng? })
            }
            _ => self.error("shape", "expected either `in`, or `lat` and `lng`"),
        }
    }

    fn is_cell(&mut self, value: &str) -> bool {
        let cell = !value.contains(',');
        if !cell {
            self.error::<()>("type", "expected a geohash: use `within` for circles");
        }
        cell
    }

    fn circle(&mut self, value: &Json) -> Option<Circle> {
        let object = self.object(value, &["lat", "lng", "m", "km"])?;
        let degrees = |r: &mut Self, key, max_degrees: f64| {
            r.required(object, key, |r, v| match v.as_f64() {
                Some(degrees) if degrees.abs() <= max_degrees => Some(degrees),
                Some(_) => {
                    r.error("type", format!("expected degrees between -{max_degrees} and {max_degrees}"))
                }
                None => r.error("type", "expected a number of degrees"),
            })
        };
        let (lat, lng) = (degrees(self, "lat", 90.0), degrees(self, "lng", 180.0));
        let (key, unit) = match (is_present(object, "m"), is_present(object, "km")) {
            (true, false) => ("m", 1.0),
            (false, true) => ("km", 1_000.0),
            _ => return self.error("shape", "expected either `m` or `km`"),
        };
        let metres = self.required(object, key, |r, v| {
            let metres = v.as_f64().map(|number| number * unit);
            metres
                .filter(|metres| (1.0..=MAX_METRES).contains(metres))
                .or_else(|| r.error("type", "expected a distance between 1 metre and 20,100 kilometres"))
        });
        Some(Circle { lat: lat?, lng: lng?, metres: metres? })
    }
}

impl GeoLeaf {
    /// Bounding boxes of the areas.
    pub(crate) fn boxes(&self) -> impl Iterator<Item = Area> {
        self.areas.iter().filter_map(|named| named.shape.area())
    }

    /// Numbers of the areas that may contain the place. Each is charged a step.
    fn candidate_areas(&self, place: &GeoPlace<'_>, steps: &mut Steps) -> Result<Vec<usize>, OutOfSteps> {
        let numbers = match &self.grid {
            Some(grid) => {
                let mut cell_areas: Vec<_> = grid.at(place.point).map(|nth| nth as usize).collect();
                cell_areas.sort_unstable();
                cell_areas
            }
            None => (0..self.areas.len()).collect(),
        };
        steps.take(1 + to_u64(numbers.len()))?;
        Ok(numbers)
    }
}

/// Explanation of a condition on places.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GeoExplained {
    pub outcome: ConditionResult,
    #[serde(rename = "in")]
    pub fields: Vec<String>,
    /// Areas that contain a place.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hits: Vec<GeoHit>,
}

/// Place in an area.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GeoHit {
    pub field: String,
    /// Geohash, or latitude and longitude.
    pub place: String,
    /// Geohash, or latitude, longitude and metres.
    pub area: String,
    /// Metres from the centre of a circle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metres: Option<f64>,
    /// Bank entry of the area, if it is from a bank.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<EntryName>,
}

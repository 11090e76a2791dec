//! Whether a place of the item lies in one of several areas.
//!
//! It does not compute with places; see `geo`.

use std::collections::BTreeMap;

use crate::{
    bank::EntryName,
    compile::Context,
    evaluate::Mask,
    explain::{Explained, GeoExplained, GeoHit, excerpt},
    form::{Geo, GeoSource},
    geo::{Area, Grid, Point},
    item::Value,
    leaves::Scene,
    limits::{Spent, Steps, wide},
    vocabulary::Kind,
};
use tidegate_schemas::banks::BankKind;

#[derive(Debug)]
pub(crate) struct GeoLeaf {
    pub(crate) places: Places,
    areas: Vec<Named>,
    /// For many areas.
    grid: Option<Grid>,
}

/// Where places are read from.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Places {
    /// Geohashes.
    Hashes(Vec<usize>),
    /// Latitudes and longitudes.
    Pairs(usize, usize),
}

#[derive(Debug)]
struct Named {
    shape: Shape,
    entry: Option<EntryName>,
}

#[derive(Debug)]
enum Shape {
    Circle { centre: Point, metres: f64 },
    Cell(String),
}

/// Areas that are looked at one by one at most.
const FEW: usize = 16;

impl Shape {
    fn area(&self) -> Option<Area> {
        match self {
            Self::Circle { centre, metres } => Some(Area::around(*centre, *metres)),
            Self::Cell(hash) => Area::of_hash(hash),
        }
    }

    /// Whether the place lies inside, and how far from the middle of a circle.
    fn holds(&self, place: &Place<'_>) -> Option<Option<f64>> {
        match self {
            Self::Circle { centre, metres } => {
                let far = centre.metres_to(place.point);
                (far <= *metres).then_some(Some(far))
            }
            Self::Cell(hash) => place.hash().starts_with(hash).then_some(None),
        }
    }

    fn written(&self) -> String {
        match self {
            Self::Circle { centre, metres } => format!("{},{},{metres}", centre.lat, centre.lng),
            Self::Cell(hash) => hash.clone(),
        }
    }

    /// A bank's entry, as banks keep them.
    fn of_entry(value: &str) -> Option<Self> {
        if !value.contains(',') {
            return Area::of_hash(value).map(|_| Self::Cell(value.to_owned()));
        }
        let numbers: Vec<f64> = value.split(',').map(|number| number.parse().ok()).collect::<Option<_>>()?;
        let [lat, lng, metres] = numbers[..] else { return None };
        Some(Self::Circle { centre: Point::new(lat, lng)?, metres })
    }
}

/// A place of an item.
pub(crate) struct Place<'a> {
    slot: usize,
    pub(crate) point: Point,
    hash: Option<&'a str>,
}

impl Place<'_> {
    fn hash(&self) -> std::borrow::Cow<'_, str> {
        self.hash.map_or_else(|| self.point.hash().into(), Into::into)
    }

    fn written(&self, length: usize) -> String {
        match self.hash {
            Some(hash) => excerpt(hash, length).to_owned(),
            None => format!("{},{}", self.point.lat, self.point.lng),
        }
    }
}

impl Places {
    /// Every value that is a place.
    pub(crate) fn each<'a>(&self, scene: &Scene<'a>) -> Vec<Place<'a>> {
        let mut places = Vec::new();
        match self {
            Self::Hashes(slots) => {
                for slot in slots {
                    for (_, value) in scene.views.slot(*slot).values.iter().flatten() {
                        let Value::Text(hash) = value else { continue };
                        let point = Area::of_hash(hash).and_then(Area::middle);
                        places.extend(point.map(|point| Place { slot: *slot, point, hash: Some(hash) }));
                    }
                }
            }
            Self::Pairs(lat, lng) => {
                let values =
                    |slot: usize| scene.views.slot(slot).values.as_deref().unwrap_or_default().iter();
                for pair in values(*lat).zip(values(*lng)) {
                    let ((_, Value::Number(north)), (_, Value::Number(east))) = pair else { continue };
                    let point = Point::new(north.coarse(), east.coarse());
                    places.extend(point.map(|point| Place { slot: *lat, point, hash: None }));
                }
            }
        }
        places
    }
}

impl GeoLeaf {
    pub(super) fn compile(geo: Geo, context: &mut Context<'_>) -> Option<Self> {
        let places = match &geo.source {
            GeoSource::Hashes(fields) => {
                let slots: Vec<_> = context.at("in", |c| {
                    let slot = |(nth, field): (usize, &String)| {
                        c.at(nth, |c| c.path_of(field, Kind::Geohash, "GEOHASH"))
                    };
                    fields.iter().enumerate().map(slot).collect()
                });
                Places::Hashes(slots.into_iter().collect::<Option<_>>()?)
            }
            GeoSource::Pair { lat, lng } => {
                let lat = context.at("lat", |c| c.path_of(lat, Kind::Number, "NUMBER"));
                let lng = context.at("lng", |c| c.path_of(lng, Kind::Number, "NUMBER"));
                Places::Pairs(lat?, lng?)
            }
        };
        let circles = geo.within.into_iter().filter_map(|circle| {
            let centre = Point::new(circle.lat, circle.lng)?;
            Some(Named { shape: Shape::Circle { centre, metres: circle.metres }, entry: None })
        });
        let cells = geo.cells.into_iter().map(|cell| Named { shape: Shape::Cell(cell), entry: None });
        let mut areas: Vec<_> = circles.chain(cells).collect();
        if let Some(bank) = &geo.bank {
            let bank = context.bank(bank, &[BankKind::Geo])?;
            for entry in &*bank.entries {
                match Shape::of_entry(&entry.value) {
                    Some(shape) => areas.push(Named { shape, entry: Some(bank.name(entry)) }),
                    None => context.unusable(&bank.key, entry, "it is no place"),
                }
            }
        }
        context.count_words(areas.len())?;
        let grid = (areas.len() > FEW).then(|| {
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

    pub(crate) fn size(&self) -> usize {
        self.areas.len()
    }

    /// The boxes of which a place must lie in one.
    pub(crate) fn boxes(&self) -> impl Iterator<Item = Area> {
        self.areas.iter().filter_map(|named| named.shape.area())
    }

    /// The areas that a place may lie in, each of which is a step.
    fn near(&self, place: &Place<'_>, steps: &mut Steps) -> Result<Vec<usize>, Spent> {
        let near = match &self.grid {
            Some(grid) => {
                let mut near: Vec<_> = grid.at(place.point).map(|nth| nth as usize).collect();
                near.sort_unstable();
                near
            }
            None => (0..self.areas.len()).collect(),
        };
        steps.take(1 + wide(near.len()))?;
        Ok(near)
    }

    pub(super) fn judge(&self, scene: &Scene<'_>, steps: &mut Steps) -> Result<Mask, Spent> {
        let places = self.places.each(scene);
        if places.is_empty() {
            return Ok(Mask::INAPPLICABLE);
        }
        for place in &places {
            let mut near = self.near(place, steps)?.into_iter();
            if near.any(|nth| self.areas[nth].shape.holds(place).is_some()) {
                return Ok(Mask::PASSED);
            }
        }
        Ok(Mask::FAILED)
    }

    /// Shows for each area the first place in it, as far as the steps reach.
    pub(super) fn explain(&self, known: Mask, scene: &Scene<'_>, steps: &mut Steps) -> Explained {
        let length = scene.limits.excerpt_bytes;
        let places = if known.is_empty() { Vec::new() } else { self.places.each(scene) };
        let mut first: BTreeMap<usize, (&Place<'_>, Option<f64>)> = BTreeMap::new();
        for place in &places {
            let Ok(near) = self.near(place, steps) else { break };
            for nth in near {
                let inside = self.areas[nth].shape.holds(place).filter(|_| !first.contains_key(&nth));
                first.extend(inside.map(|metres| (nth, (place, metres))));
                if first.len() > scene.limits.hits {
                    first.pop_last();
                }
            }
        }
        let hits = first.into_iter().map(|(nth, (place, metres))| GeoHit {
            field: scene.views.path(place.slot).to_owned(),
            place: place.written(length),
            area: self.areas[nth].shape.written(),
            metres: metres.map(f64::round),
            entry: self.areas[nth].entry.clone(),
        });
        let fields = match &self.places {
            Places::Hashes(slots) => slots.clone(),
            Places::Pairs(lat, lng) => vec![*lat, *lng],
        };
        Explained::Geo(GeoExplained {
            outcome: known.verdict(),
            fields: fields.into_iter().map(|slot| scene.views.path(slot).to_owned()).collect(),
            hits: hits.collect(),
        })
    }
}

//! Geometry of the earth: geohashes, distances, and the cells that cover an area.

use std::collections::{BTreeSet, HashMap};

/// Mean radius of the earth in metres.
const EARTH_RADIUS: f64 = 6_371_008.8;

const ALPHABET: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";

/// Maximum number of significant characters in a geohash.
const MAX_HASH_LENGTH: usize = 12;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Point {
    pub(crate) lat: f64,
    pub(crate) lng: f64,
}

impl Point {
    /// `None` for coordinates out of range.
    pub(crate) fn new(lat: f64, lng: f64) -> Option<Self> {
        ((-90.0..=90.0).contains(&lat) && (-180.0..=180.0).contains(&lng)).then_some(Self { lat, lng })
    }

    /// Distance along the surface of a sphere in metres.
    pub(crate) fn metres_to(self, other: Self) -> f64 {
        let (lat, other_lat) = (self.lat.to_radians(), other.lat.to_radians());
        let half = |from: f64, to: f64| ((to - from).to_radians() / 2.0).sin().powi(2);
        let chord = half(self.lat, other.lat) + lat.cos() * other_lat.cos() * half(self.lng, other.lng);
        // Rounding can exceed 1 for opposite points, where the arc sine is undefined.
        2.0 * EARTH_RADIUS * chord.sqrt().min(1.0).asin()
    }

    /// Geohash of the smallest cell that contains the point.
    pub(crate) fn geohash(self) -> String {
        let (mut low, mut high) = ([-180.0, -90.0], [180.0, 90.0]);
        let coordinates = [self.lng, self.lat];
        let mut hash = String::with_capacity(MAX_HASH_LENGTH);
        for nth in 0..MAX_HASH_LENGTH {
            let mut digit = 0_usize;
            for bit in 0..5 {
                let axis = (nth * 5 + bit) % 2;
                let middle = f64::midpoint(low[axis], high[axis]);
                let upper = coordinates[axis] >= middle;
                if upper {
                    low[axis] = middle;
                } else {
                    high[axis] = middle;
                }
                digit = digit << 1 | usize::from(upper);
            }
            hash.push(char::from(ALPHABET[digit]));
        }
        hash
    }
}

/// Box between two latitudes, and from one longitude eastwards to another, which may exceed 180.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Area {
    south: f64,
    north: f64,
    west: f64,
    east: f64,
}

/// Degrees by which an area is enlarged, so that rounding excludes no place in it.
const MARGIN: f64 = 1e-7;

impl Area {
    /// Cell of a geohash. `None` if the text is no geohash.
    pub(crate) fn from_hash(hash: &str) -> Option<Self> {
        if hash.is_empty() {
            return None;
        }
        let (mut low, mut high) = ([-180.0, -90.0], [180.0, 90.0]);
        for (nth, letter) in hash.bytes().enumerate() {
            let digit = ALPHABET.iter().position(|symbol| *symbol == letter)?;
            for bit in 0..5 {
                let axis = (nth * 5 + bit) % 2;
                let middle = f64::midpoint(low[axis], high[axis]);
                if digit >> (4 - bit) & 1 == 1 {
                    low[axis] = middle;
                } else {
                    high[axis] = middle;
                }
            }
        }
        Some(Self { south: low[1], north: high[1], west: low[0], east: high[0] })
    }

    /// Box that contains every place within a distance of a point.
    pub(crate) fn around(centre: Point, metres: f64) -> Self {
        let angle = metres / EARTH_RADIUS;
        let reach = angle.to_degrees();
        let (south, north) = (centre.lat - reach, centre.lat + reach);
        let all_longitudes =
            Self { south: south.max(-90.0), north: north.min(90.0), west: -180.0, east: 180.0 };
        // An area that contains a pole reaches every longitude.
        if south - MARGIN <= -90.0 || north + MARGIN >= 90.0 {
            return all_longitudes;
        }
        let sine = angle.sin() / centre.lat.to_radians().cos();
        // A circle of this size reaches every longitude, so the formula below has no solution.
        if angle >= std::f64::consts::FRAC_PI_2 || sine >= 1.0 {
            return all_longitudes;
        }
        let half_width = sine.asin().to_degrees();
        Self { south, north, west: centre.lng - half_width, east: centre.lng + half_width }
    }

    pub(crate) fn centre(self) -> Option<Point> {
        Point::new(f64::midpoint(self.south, self.north), f64::midpoint(self.west, self.east))
    }

    fn cells(self, level: u8) -> Cells {
        let size = size(level);
        // The pole and the margin beyond it belong to the last row.
        let row = |lat: f64| floor_to_integer((lat + 90.0) / size).clamp(0, rows(level) - 1);
        let column = |lng: f64| floor_to_integer((lng + 180.0) / size);
        let (first, last) = (column(self.west - MARGIN), column(self.east + MARGIN));
        // An area wider than the globe must not contain a column twice.
        let columns = (last - first + 1).min(rows(level) * 2);
        let (south, north) = (row(self.south - MARGIN), row(self.north + MARGIN));
        Cells { level, south, north, west: first, columns }
    }

    /// Finest cells of which at most `MAX_CELLS` cover the area.
    fn covering_cells(self) -> Cells {
        let finer = (0..=FINEST_LEVEL).rev().map(|level| self.cells(level));
        finer.into_iter().find(|cells| cells.count() <= MAX_CELLS).unwrap_or_else(|| self.cells(0))
    }

    /// Estimated share of the places in items that lie in the cells of the area.
    pub(crate) fn estimated_share(self) -> f32 {
        let cells = self.covering_cells();
        #[expect(clippy::cast_precision_loss, reason = "a guess")]
        let part = cells.count() as f32 / (rows(cells.level) * rows(cells.level) * 2) as f32;
        // People live in few places, so a cell counts for more than its share of the surface.
        (part * 100.0).clamp(1e-4, 0.9)
    }
}

/// Cells along the shorter side of a level's grid; the longer side has twice as many.
fn rows(level: u8) -> i64 {
    1 << level
}

fn size(level: u8) -> f64 {
    180.0 / f64::from(1_u32 << level)
}

#[expect(clippy::cast_possible_truncation, reason = "degrees divided by a size are small")]
fn floor_to_integer(number: f64) -> i64 {
    number.floor() as i64
}

/// Level of the finest cells, with about 19 metres from north to south.
const FINEST_LEVEL: u8 = 20;

/// Maximum number of cells that cover one area.
const MAX_CELLS: i64 = 16;

#[derive(Clone, Copy, Debug)]
struct Cells {
    level: u8,
    south: i64,
    north: i64,
    west: i64,
    columns: i64,
}

impl Cells {
    fn count(self) -> i64 {
        (self.north - self.south + 1) * self.columns
    }

    fn positions(self) -> impl Iterator<Item = Cell> {
        (self.south..=self.north).flat_map(move |row| {
            (0..self.columns).map(move |nth| (row, (self.west + nth).rem_euclid(rows(self.level) * 2)))
        })
    }
}

/// Row and column of a cell.
type Cell = (i64, i64);

/// Numbered areas by the cells that cover them.
#[derive(Debug, Default)]
pub(crate) struct Grid {
    levels: BTreeSet<u8>,
    cells: HashMap<(u8, Cell), Vec<u32>>,
}

impl Grid {
    pub(crate) fn add(&mut self, area: Area, number: u32) {
        let cover = area.covering_cells();
        self.levels.insert(cover.level);
        for cell in cover.positions() {
            let numbers = self.cells.entry((cover.level, cell)).or_default();
            if numbers.last() != Some(&number) {
                numbers.push(number);
            }
        }
    }

    /// Numbers of the areas that may contain the point. Some of them may not.
    pub(crate) fn at(&self, point: Point) -> impl Iterator<Item = u32> {
        let cell = move |level: u8| {
            let row = floor_to_integer((point.lat + 90.0) / size(level)).min(rows(level) - 1);
            // Longitudes wrap around at 180 degrees.
            (row, floor_to_integer((point.lng + 180.0) / size(level)).rem_euclid(rows(level) * 2))
        };
        self.levels.iter().filter_map(move |level| self.cells.get(&(*level, cell(*level)))).flatten().copied()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    use super::*;

    fn point(lat: f64, lng: f64) -> Point {
        Point::new(lat, lng).unwrap()
    }

    #[test]
    fn known_places_have_their_geohashes_and_distances() {
        assert_eq!(point(57.649_11, 10.407_44).geohash(), "u4pruydqqvj8");
        let middle = Area::from_hash("u4pruydqqvj").unwrap().centre().unwrap();
        assert!((middle.lat - 57.649_11).abs() < 1e-5 && (middle.lng - 10.407_44).abs() < 1e-5);
        let (paris, london) = (point(48.8566, 2.3522), point(51.5074, -0.1278));
        assert!((paris.metres_to(london) - 343_556.0).abs() < 100.0, "{}", paris.metres_to(london));
        assert!((point(0.0, 179.9).metres_to(point(0.0, -179.9)) - 22_239.0).abs() < 5.0);
        assert!((point(90.0, 0.0).metres_to(point(-90.0, 77.0)) - 20_015_114.0).abs() < 2.0);
    }

    #[test]
    fn points_of_an_area_lie_in_its_cells() {
        let mut seed = 7_u64;
        let mut unit = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            f64::from(u32::try_from(seed >> 32).unwrap()) / f64::from(u32::MAX)
        };
        let mut inside = 0;
        for _ in 0..4_000 {
            let edge = [-90.0, 90.0, 0.0, 89.99][(unit() * 3.99) as usize];
            let lat = if unit() < 0.3 { edge } else { unit() * 180.0 - 90.0 };
            let lng = if unit() < 0.3 {
                [180.0, -180.0, 179.999][(unit() * 2.99) as usize]
            } else {
                unit() * 360.0 - 180.0
            };
            let (centre, metres) = (point(lat, lng), 10_f64.powf(unit() * 7.2));
            let prefix = &centre.geohash()[..1 + (unit() * 8.0) as usize];
            let mut grid = Grid::default();
            grid.add(Area::around(centre, metres), 1);
            grid.add(Area::from_hash(prefix).unwrap(), 2);
            for _ in 0..20 {
                let spread = metres / 111_000.0 * 1.5;
                let near = |middle: f64, most: f64, spread: f64, at: f64| {
                    (middle + (at - 0.5) * spread).clamp(-most, most)
                };
                let other = point(near(lat, 90.0, spread, unit()), near(lng, 180.0, spread * 3.0, unit()));
                let found: Vec<u32> = grid.at(other).collect();
                if centre.metres_to(other) <= metres {
                    inside += 1;
                    assert!(found.contains(&1), "{other:?} is near {centre:?}, {metres} m");
                }
                if other.geohash().starts_with(prefix) {
                    assert!(found.contains(&2), "{other:?} is in {prefix}");
                }
            }
        }
        assert!(inside > 10_000, "{inside}");
    }

    #[test]
    fn area_is_covered_by_few_small_cells() {
        let around = |metres: f64| Area::around(point(48.8566, 2.3522), metres).covering_cells();
        for metres in [1.0, 100.0, 5_000.0, 500_000.0, 20_000_000.0] {
            assert!((1..=MAX_CELLS).contains(&around(metres).count()), "{metres}");
        }
        assert!(around(1.0).level == FINEST_LEVEL && around(25_000.0).level >= 8);
    }

    #[test]
    fn invalid_coordinates_are_no_point() {
        for (lat, lng) in [(91.0, 0.0), (0.0, 180.1), (f64::NAN, 0.0), (0.0, f64::INFINITY)] {
            assert_eq!(Point::new(lat, lng), None);
        }
        assert!(
            Area::from_hash("a").is_none() && Area::from_hash("").is_none() && Area::from_hash("é").is_none()
        );
    }
}

//! Generates places that need exact arithmetic: on the edges of circles, and in the corners of cells. Every place is inside
//! or outside by more than any rounding.

use crate::oracle::generator::Dice;

const EARTH: f64 = 6_371_008.8;

/// Distance of a place on the edge from the centre of the circle, as a share of the radius.
const BESIDE: [f64; 2] = [0.999_993, 1.000_007];

const LETTERS: &str = "0123456789bcdefghjkmnpqrstuvwxyz";

#[derive(Clone, Copy)]
pub(crate) struct Circle {
    pub(crate) lat: f64,
    pub(crate) lng: f64,
    pub(crate) metres: f64,
}

/// Near the places of items, across the date line, and around a pole.
pub(crate) fn circle(dice: &mut Dice) -> Circle {
    let (lat, lng) =
        dice.one(&[(0.0, 0.0), (1.0, 2.0), (2.5, 2.5), (52.52, 13.405), (89.9, 179.9), (-45.0, -180.0)]);
    Circle { lat, lng, metres: dice.one(&[1.0, 900.0, 60_000.0, 250_000.0, 3_000_000.0, 20_000_000.0]) }
}

/// Latitude and longitude of a place just inside or just outside.
pub(crate) fn of_circle(dice: &mut Dice, circle: Circle) -> (f64, f64) {
    let angle = circle.metres * dice.one(&BESIDE) / EARTH;
    let (lat, quarter) = (circle.lat.to_radians(), std::f64::consts::FRAC_PI_2);
    // The easternmost and westernmost places differ in latitude from the centre.
    let (far, wide) = (lat.sin() / angle.cos(), angle.sin() / lat.cos());
    let outermost = angle < quarter && far.abs() < 1.0 && wide.abs() < 1.0;
    let (north, east) = match dice.roll(6) {
        0 | 1 if outermost => (far.asin(), wide.asin()),
        2 | 3 if outermost => (far.asin(), -wide.asin()),
        kind => {
            let bearing = match kind {
                0 | 1 => 0.0,
                2 | 3 => 2.0 * quarter,
                _ => f64::from(u32::try_from(dice.roll(3_600)).unwrap()).to_radians() / 10.0,
            };
            let north =
                (lat.sin() * angle.cos() + lat.cos() * angle.sin() * bearing.cos()).clamp(-1.0, 1.0).asin();
            let east = (bearing.sin() * angle.sin() * lat.cos()).atan2(angle.cos() - lat.sin() * north.sin());
            (north, east)
        }
    };
    let lng = circle.lng + east.to_degrees();
    (
        north.to_degrees(),
        if lng > 180.0 {
            lng - 360.0
        } else if lng < -180.0 {
            lng + 360.0
        } else {
            lng
        },
    )
}

/// A corner of a geohash's cell. The lower ends belong to the cell, the upper ends to its neighbours.
pub(crate) fn of_cell(dice: &mut Dice, cell: &str) -> (f64, f64) {
    let mut ends = [(-180.0_f64, 180.0_f64), (-90.0, 90.0)];
    for (nth, letter) in cell.chars().enumerate() {
        let five = LETTERS.find(letter).unwrap();
        for bit in 0..5 {
            let (low, high) = &mut ends[(nth * 5 + bit) % 2];
            let middle = f64::midpoint(*low, *high);
            if five >> (4 - bit) & 1 == 1 { *low = middle } else { *high = middle }
        }
    }
    let [east, north] = ends.map(|(low, high)| if dice.chance(50) { low } else { high });
    (north, east)
}

//! Generates random areas and domains, and links to hosts. Exact places are generated in `edges`.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};
use tidegate_rules::Shape;

use super::{Dice, World};
use crate::oracle::edges::{self, Circle};

pub(super) const CELLS: [&str; 9] =
    ["s", "s0", "s00twy01mtw0", "s02", "u33dc0", "u33dc1v00000", "u33db2m", "xbpbpbpbpbpb", "80000"];

const HOSTS: [&str; 16] = [
    "i❤.example",
    "%F0%9F%91%8Dbad.example",
    "a.example",
    "bad.example",
    "www.Bad.example",
    "xbad.example",
    "bücher.example",
    "example",
    "b-c.d.example",
    "10.0.0.1",
    "b%61d.exam%70le",
    "B%C3%BCcher%2Eexample",
    "bad.ex\u{fe0f}am\u{200b}%E2%80%8Bple",
    "b\u{1d41a}d.exa㎜\u{2063}ple",
    "bad.exa%E2%81%A3mple",
    "㏈.bad.exam\u{206a}ple",
];

/// Texts between hosts.
const SIGNS: [&str; 38] = [
    "/", "\\", "?", "#", "://", ":", "@", ",", ";", "=", "&", "(", "👍🏽", "🇩🇪", "+", "%2F", "%", "80", "me",
    "www.", ".", "-", "\u{200b}", "\u{202e}", " ", "%2e", "%C3", "%BC", "%62", "%40", "№", "\u{2063}", "－",
    "㊊", "…", "％", "❤", "☃.",
];

pub(super) const DOMAINS: [&str; 8] = [
    "i❤.example",
    "👍bad.example",
    "bad.example",
    "Bücher.example",
    "www.bad.example",
    "d.example",
    "c.d.example",
    "zzz.invalid",
];

impl World {
    pub(super) fn geo(&self, dice: &mut Dice, fields: &BTreeMap<String, Shape>) -> Json {
        let hashes: Vec<_> =
            ["place", "route"].into_iter().filter(|name| fields.contains_key(*name)).collect();
        let pair = ["north", "east"].iter().all(|name| fields.contains_key(*name));
        let mut leaf = match (hashes.is_empty(), pair) {
            (false, false) => json!({"in": hashes}),
            (false, true) if dice.chance(50) => json!({"in": [dice.one(&hashes)]}),
            (_, true) => json!({"lat": "north", "lng": "east"}),
            (true, false) => return self.text(dice, fields),
        };
        let circle = |dice: &mut Dice| {
            let Circle { lat, lng, metres } = self.circle(dice);
            if dice.chance(50) {
                json!({"lat": lat, "lng": lng, "m": metres})
            } else {
                json!({"lat": lat, "lng": lng, "km": metres / 1000.0})
            }
        };
        if dice.chance(50) {
            leaf["within"] = if dice.chance(50) { circle(dice) } else { json!(dice.list(20, circle)) };
        }
        if dice.chance(30) {
            let mut cells = dice.list(2, |dice| dice.one(&CELLS));
            cells.sort_unstable();
            cells.dedup();
            leaf["cells"] = json!(cells);
        }
        if dice.chance(30) || leaf.get("within").is_none() && leaf.get("cells").is_none() {
            leaf["bank"] = json!("places");
        }
        json!({"geo": leaf})
    }

    /// Mostly one of the few circles with items on their edges.
    pub(super) fn circle(&self, dice: &mut Dice) -> Circle {
        if dice.chance(80) { dice.one(&self.circles) } else { edges::circle(dice) }
    }

    pub(super) fn domain(&self, dice: &mut Dice, fields: &BTreeMap<String, Shape>) -> Json {
        let mut paths: Vec<_> =
            ["links", "text"].into_iter().filter(|name| fields.contains_key(*name)).collect();
        paths.truncate(1 + usize::from(dice.chance(40)));
        let mut leaf = json!({"in": paths});
        if dice.chance(50) {
            leaf["any_of"] = json!(dice.list(2, |dice| dice.one(&DOMAINS)));
        }
        if dice.chance(50) || leaf.get("any_of").is_none() {
            leaf["bank"] = json!("hosts");
        }
        json!({"domain": leaf})
    }
}

/// A link, sometimes with characters that browsers remove.
pub(super) fn link(dice: &mut Dice) -> String {
    let mut link = plain_link(dice);
    while dice.chance(15) {
        let places: Vec<usize> = link.char_indices().map(|(at, _)| at).chain([link.len()]).collect();
        let sign = dice.one(&["\t", "\n", "\r\n", " "]).repeat(dice.one(&[1, 1, 20]));
        link.insert_str(dice.one(&places), &sign);
    }
    link
}

fn plain_link(dice: &mut Dice) -> String {
    let (a, b) = (dice.one(&HOSTS), dice.one(&HOSTS));
    match dice.roll(15) {
        0 => format!("https://{a}/x?y={b}"),
        1 => format!("HTTP://me:pw@{a}:80/{b}"),
        2 => format!("see {a}, or ({b})."),
        3 => format!("https://{a}?to=https://{b}#x"),
        4 => format!("mail me@{a};<a href=\"//{b}\">"),
        5 => format!("://{a} {b}://"),
        6 => format!("\u{200b}{a}  ({b}.\u{200b}"),
        7 => "https://nobody.invalid/".to_owned(),
        8..=10 => {
            let parts = 2 + dice.roll(8);
            (0..parts).map(|_| if dice.chance(40) { dice.one(&HOSTS) } else { dice.one(&SIGNS) }).collect()
        }
        11 => {
            let (before, inside) =
                (dice.one(&["a.", ".", "ü.", "xyz", "%2e"]), dice.one(&["", "\u{200b}", "%C2%AD"]));
            let (before, inside) =
                (before.repeat(dice.one(&[1, 90, 300])), inside.repeat(dice.one(&[1, 100])));
            format!("{before}{a} b{inside}ad.example")
        }
        12 | 13 => {
            let touching =
                |dice: &mut Dice| dice.one(&["👍🏽", "🇩🇪", "❤\u{fe0f}", "☃", "%E2%98%83", "é", "/", "@", "."]);
            let touching_text =
                |dice: &mut Dice| dice.list(2, touching).repeat(dice.one(&[1, 1, 1, 6])).concat();
            let host = dice.one(&["i❤.example", "👍bad.example", "☃.👍bad.example", "i%E2%9D%A4.example."]);
            format!("{}{host}{}", touching_text(dice), touching_text(dice))
        }
        _ => format!("https://{a}"),
    }
}

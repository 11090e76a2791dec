//! Window documents, ready to run: which windows an item adds to, and what.
//!
//! It keeps no counts and looks none up.

use std::collections::{HashMap, HashSet};

use serde_json::Value as Json;
use tidegate_schemas::ids::{TypeId, WindowId};

use crate::{
    compile::{Context, Node},
    engine::{Run, hashing::Quickly},
    evaluate::{self, Mask},
    faults::Fault,
    form::{self, On},
    item::{Item, Value},
    leaves::values_of,
    limits::Spent,
    vocabulary::Kind,
    windows::{Amount, Measure, Window, WindowEntry, WindowKey, member},
};

/// A window and what it counts.
#[derive(Debug)]
pub(crate) struct Counting {
    pub(crate) window: Window,
    /// Empty: all.
    item_types: HashSet<TypeId>,
    /// The path by whose values it counts, and their kind; the item's user if there is none.
    pub(crate) path: Option<String>,
    pub(crate) kind: Option<Kind>,
    by: Option<usize>,
    measured: Option<usize>,
    /// The condition, and the predicates of its leaves.
    condition: Option<(Node, Vec<u32>)>,
    /// A rule asks about it.
    pub(crate) used: bool,
}

/// What an item adds, and the windows that did not take all of it.
pub(crate) type Added = (Vec<WindowEntry>, Vec<WindowId>);

impl Context<'_> {
    pub(crate) fn define_windows(&mut self) {
        let (vocabulary, limits) = (self.vocabulary, self.limits);
        let documents = vocabulary.windows();
        if documents.len() > limits.windows {
            let detail = format!("{} windows are more than {}", documents.len(), limits.windows);
            self.take_faults(vec![Fault::new("window", "", "", "limit", detail)]);
            return;
        }
        for document in documents {
            match form::parse_window(document, limits) {
                Ok(window) => {
                    self.turn_to("window", window.key.as_str(), &window.item_types);
                    if self.window(&window.key).is_some() {
                        self.fault("duplicate", "another window has the same key".to_owned());
                    }
                    let key = window.key.as_str().to_owned();
                    match self.counting(window) {
                        Some(window) => self.windows.push(window),
                        None => drop(self.faulty_windows.insert(key)),
                    }
                }
                Err(faults) => {
                    let key = document.get("window").and_then(Json::as_str).unwrap_or_default();
                    self.faulty_windows.insert(key.to_owned());
                    self.take_faults(faults);
                }
            }
        }
    }

    /// A window that nobody asks about costs rows for nothing.
    pub(crate) fn name_unused_windows(&mut self) {
        let unused = self.windows.iter().filter(|window| !window.used);
        for key in unused.map(|window| window.window.key.clone()).collect::<Vec<_>>() {
            self.turn_to("window", key.as_str(), &[]);
            self.warn("unused_window", "no rule asks about the window".to_owned());
        }
    }

    fn counting(&mut self, window: form::Window) -> Option<Counting> {
        self.known_types(&window.item_types)?;
        let by = window.by.as_ref().map(|path| self.at("by", |c| c.one_kind(path)));
        let measured = window.measured.as_ref().map(|path| match window.measure {
            Measure::Sum => self.at("sum", |c| {
                let (slot, kind) = c.one_kind(path)?;
                if kind != Kind::Number {
                    c.fault("type", format!("the field is {}; only numbers are summed up", kind.name()));
                }
                (kind == Kind::Number).then_some((slot, kind))
            }),
            Measure::Distinct | Measure::Count => self.at("distinct", |c| c.one_kind(path)),
        });
        let mut leaves = Vec::new();
        let condition =
            window.condition.map(|condition| self.at("where", |c| c.node(condition, &mut leaves)));
        // Of each part that is written: it is right.
        let (by, measured) = (whole(by)?, whole(measured)?);
        let condition = whole(condition)?.map(|node| (node, leaves));
        Some(Counting {
            window: Window {
                key: window.key,
                measure: window.measure,
                over: window.over,
                bucket: window.bucket,
            },
            item_types: window.item_types.into_iter().collect(),
            path: window.by,
            kind: by.map(|(_, kind)| kind),
            by: by.map(|(slot, _)| slot),
            measured: measured.map(|(slot, _)| slot),
            condition,
            used: false,
        })
    }

    /// The slot of a path that is of one kind in all item types.
    fn one_kind(&mut self, path: &str) -> Option<(usize, Kind)> {
        let (slot, kinds) = self.path(path)?;
        let (_, kind) = *kinds.first()?;
        if let Some((type_id, other)) = kinds.iter().find(|(_, other)| *other != kind) {
            let detail = format!("the field is {}, and {} in {type_id}", kind.name(), other.name());
            self.fault("type", detail);
            return None;
        }
        Some((slot, kind))
    }
}

/// `None`: it is written and wrong.
#[allow(clippy::option_option, reason = "whether it is written, and whether it is right")]
fn whole<T>(part: Option<Option<T>>) -> Option<Option<T>> {
    part.map_or(Some(None), |part| part.map(Some))
}

/// The windows of each item type.
pub(crate) fn by_type<'t>(
    windows: &[Counting],
    types: impl Iterator<Item = &'t TypeId>,
) -> HashMap<TypeId, Box<[usize]>, Quickly> {
    let of = |type_id: &TypeId| {
        let concerns =
            |window: &Counting| window.item_types.is_empty() || window.item_types.contains(type_id);
        windows.iter().enumerate().filter(|(_, window)| concerns(window)).map(|(nth, _)| nth).collect()
    };
    types
        .map(|type_id| (type_id.clone(), of(type_id)))
        .filter(|(_, windows): &(_, Box<[_]>)| !windows.is_empty())
        .collect()
}

impl Counting {
    /// Adds what the item brings, if the window is for it.
    pub(crate) fn add(&self, item: &Item<'_>, run: &mut Run<'_, '_>, added: &mut Added) {
        // A report or an appeal brings an item that was counted when it came in.
        if item.on != On::Item {
            return;
        }
        run.steps.next_rule();
        match self.entries(item, run, &mut added.0) {
            Ok(true) => {}
            Ok(false) | Err(Spent) => added.1.push(self.window.key.clone()),
        }
    }

    /// Whether all that the item brings could be added.
    fn entries(
        &self,
        item: &Item<'_>,
        run: &mut Run<'_, '_>,
        entries: &mut Vec<WindowEntry>,
    ) -> Result<bool, Spent> {
        run.steps.take(1)?;
        let scene = run.scene;
        let (keys, more_keys) = values_of(self.by, scene, WindowKey::of);
        if keys.is_empty() {
            return Ok(true);
        }
        if let Some((node, leaves)) = &self.condition
            && evaluate::decide(node, &mut |nth| run.mask(leaves[nth]))? != Mask::PASSED
        {
            return Ok(true);
        }
        let (mut amount, mut members, mut more_members) = (Amount::ZERO, Vec::new(), false);
        match (self.window.measure, self.measured) {
            (Measure::Distinct, Some(slot)) => {
                (members, more_members) = values_of(Some(slot), scene, member);
                if members.is_empty() {
                    return Ok(true);
                }
            }
            (Measure::Sum, Some(slot)) => {
                for (_, value) in scene.views.slot(slot).values.iter().flatten() {
                    run.steps.take(1)?;
                    if let Value::Number(number) = value {
                        amount = amount.plus(Amount::of(*number));
                    }
                }
                if amount == Amount::ZERO {
                    return Ok(true);
                }
            }
            _ => amount = Amount::ONE,
        }
        entries.extend(keys.into_iter().map(|key| WindowEntry {
            window: self.window.key.clone(),
            key,
            bucket: self.window.bucket_of(item.now),
            at: item.now,
            amount,
            members: members.clone(),
            lives: self.window.lives(),
        }));
        Ok(!more_keys && !more_members)
    }
}

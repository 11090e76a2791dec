//! The way from an item's places and hosts to the predicates that they announce.
//!
//! It judges none of them.

use std::collections::{BTreeMap, HashMap};

use super::{Run, hashing::Quickly};
use crate::{
    geo::Grid,
    hosts,
    leaves::{DomainLeaf, GeoLeaf, Places},
    limits::Spent,
};

/// Areas and domains that announce predicates, by witness.
#[derive(Debug, Default)]
pub(crate) struct Around {
    areas: BTreeMap<Places, Grid>,
    domains: BTreeMap<usize, HashMap<Box<str>, Vec<u32>, Quickly>>,
}

/// How often one of the areas is met.
pub(crate) fn likelihood_of_areas(geo: &GeoLeaf) -> f32 {
    geo.boxes().map(crate::geo::Area::share).sum::<f32>().min(1.0)
}

/// How often one of the domains is met.
#[expect(clippy::cast_precision_loss, reason = "a guess")]
pub(crate) fn likelihood_of_domains(domain: &DomainLeaf) -> f32 {
    (0.0005 * domain.size() as f32).min(0.5)
}

impl Around {
    pub(crate) fn announce_areas(&mut self, witness: u32, geo: &GeoLeaf) {
        let grid = self.areas.entry(geo.places.clone()).or_default();
        geo.boxes().for_each(|area| grid.add(area, witness));
    }

    pub(crate) fn announce_domains(&mut self, witness: u32, domain: &DomainLeaf) {
        for slot in &domain.slots {
            let names = self.domains.entry(*slot).or_default();
            for name in domain.names() {
                names.entry(name.into()).or_default().push(witness);
            }
        }
    }
}

impl Run<'_, '_> {
    pub(super) fn look_around(&mut self) -> Result<(), Spent> {
        let (index, scene) = (self.index, self.scene);
        for (places, grid) in &index.around.areas {
            for place in places.each(scene) {
                self.steps.take_shared(1)?;
                for witness in grid.at(place.point) {
                    self.announced(index.witnesses[witness as usize], true)?;
                }
            }
        }
        for (slot, names) in &index.around.domains {
            for (seen, hosts) in scene.views.hosts(*slot, &mut self.steps)? {
                self.steps.take_shared(1 + u64::try_from(seen.text.len() / 16).unwrap_or(u64::MAX))?;
                for host in hosts {
                    for witness in hosts::upwards(&host.name).filter_map(|name| names.get(name)).flatten() {
                        self.announced(index.witnesses[*witness as usize], true)?;
                    }
                }
            }
        }
        Ok(())
    }
}
